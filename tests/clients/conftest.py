"""Object stores on the loopback, and what their clients read from the environment."""

import os
from collections.abc import Iterator

import pytest

from tests.helpers.object_store import KEY, SECRET, ObjectStore, object_store

# gcsfs asks Google itself what kind of bucket it is, unless this is set before it is imported.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"


@pytest.fixture(scope="module")
def _store() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(_store, monkeypatch) -> Iterator[ObjectStore]:
    """Serve S3 with one empty bucket, ``shards``, which clients find by the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", _store.endpoint)
    s3 = _store.client()
    s3.create_bucket(Bucket="shards")
    yield _store
    _store.faults.clear()
    _store.requests.clear()
    _store.ranges.clear()
    for each in s3.list_objects_v2(Bucket="shards").get("Contents", ()):
        s3.delete_object(Bucket="shards", Key=each["Key"])

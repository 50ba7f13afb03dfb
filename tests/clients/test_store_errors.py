"""What users are told when a store refuses, throttles or is not there, by real clients."""

import logging

import azure.core.exceptions
import google.auth.exceptions
import pytest
from gcsfs.retry import HttpError, validate_response

from shardproof import FetchError, ManifestNotFoundError, SourceError, validate
from shardproof.fetching import FsspecSource, Limits, fetch_file, open_source
from shardproof.fetching.sources._store_errors import explaining
from tests.helpers.object_store import SECRET, Fault

LIMITS = Limits(max_backoff=0.01)


@pytest.fixture(autouse=True)
def _asked_once(monkeypatch) -> None:
    """Let botocore ask once: by default it asks five times, and s3fs as often again."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.mark.parametrize(
    ("status", "code", "kind", "advice"),
    [
        (503, "SlowDown", "broken", "the store throttles"),
        (503, "ServiceUnavailable", "broken", "the store throttles"),
        (429, "TooManyRequests", "broken", "the store throttles"),
        (403, "AccessDenied", "refused", "FSSPEC_S3_REQUESTER_PAYS=true"),
        (403, "RequestTimeTooSkewed", "refused", "the clock of this machine"),
        (403, "SignatureDoesNotMatch", "refused", "check the key"),
        (400, "ExpiredToken", "refused", "the credentials have expired"),
        (400, "AuthorizationHeaderMalformed", "refused", "AWS_DEFAULT_REGION"),
        (404, "NoSuchBucket", "refused", "check the bucket's name"),
    ],
)
def test_a_listing_that_s3_refuses(store, status, code, kind, advice) -> None:
    store.faults.append(Fault("GET", "list-type", status, code))

    with open_source("s3://shards/dir") as source, pytest.raises(SourceError) as caught:
        source.files()

    assert (caught.value.kind, caught.value.retry_after) == (kind, None)
    assert advice in str(caught.value)
    assert code in str(caught.value), "what the store said is there"


def test_a_wait_that_s3_asks_for_is_known(store) -> None:
    store.faults.append(Fault("GET", "list-type", headers=(("Retry-After", "7"),)))

    with open_source("s3://shards/dir") as source, pytest.raises(SourceError) as caught:
        source.files()

    assert caught.value.retry_after == 7.0


@pytest.mark.parametrize(("status", "advice"), [(400, "expired"), (403, "two rights")])
def test_an_object_that_s3_refuses(store, status, advice) -> None:
    store.faults.append(Fault("HEAD", "a.bin", status))

    with open_source("s3://shards/dir") as source, pytest.raises(SourceError, match=advice):
        source.stat("a.bin", timeout=10)


def test_a_fetch_says_how_often_it_was_throttled(store, tmp_path, caplog) -> None:
    store.client().put_object(Bucket="shards", Key="dir/a.bin", Body=b"1234")
    store.faults.append(Fault("GET", "a.bin"))

    with (
        caplog.at_level(logging.DEBUG),
        open_source("s3://shards/dir") as source,
        pytest.raises(
            FetchError, match=r"attempts 1 to 2: .*SlowDown.*the store throttles"
        ) as caught,
    ):
        fetch_file(source, "a.bin", tmp_path / "a", limits=Limits(attempts=2, max_backoff=0.01))

    assert SECRET not in str(caught.value) + caplog.text
    assert not (tmp_path / "a").exists()


def test_a_fetch_goes_on_when_the_store_does(store, tmp_path) -> None:
    store.client().put_object(Bucket="shards", Key="dir/a.bin", Body=bytes(10**6))
    store.faults.append(Fault("GET", "a.bin", times=2))
    store.faults.append(Fault("GET", "a.bin", cut_after=1000, times=1))

    with open_source("s3://shards/dir") as source:
        fetched = fetch_file(source, "a.bin", tmp_path / "a", limits=LIMITS)

    assert fetched.path.read_bytes() == bytes(10**6)


def test_no_credentials(store, monkeypatch, tmp_path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))

    with open_source("s3://shards") as source, pytest.raises(SourceError) as caught:
        source.files()

    assert caught.value.kind == "refused"
    assert "AWS_PROFILE" in str(caught.value)
    assert "FSSPEC_S3_ANON=true" in str(caught.value)


def test_a_public_bucket_needs_none(store, monkeypatch, tmp_path) -> None:
    store.client().put_object(Bucket="shards", Key="a.bin", Body=b"1234")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))

    with FsspecSource("s3://shards", anon=True) as source:
        assert [file.name for file in source.files()] == ["a.bin"]


def test_a_host_that_is_not_there_ends_a_command_by_3(store, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    with open_source("s3://shards") as source, pytest.raises(FetchError) as caught:
        fetch_file(source, "a.bin", tmp_path / "a", limits=LIMITS)

    assert caught.value.exit_code == 3


def test_what_may_not_be_listed_is_never_said_to_be_gone(store) -> None:
    store.faults.append(Fault("GET", "list-type", 403, "AccessDenied", times=2))
    with pytest.raises(OSError, match="two rights") as caught:
        validate("s3://shards/dir")
    assert not isinstance(caught.value, FileNotFoundError)

    with pytest.raises(ManifestNotFoundError, match="check the bucket's name"):
        validate("s3://no-such-bucket/dir")


def raised_by_gcsfs(status: int, message: str) -> BaseException:
    try:
        validate_response(status, f'{{"error": {{"message": "{message}"}}}}', "b/shards")
    except Exception as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "kind", "advice"),
    [
        (raised_by_gcsfs(403, "no access"), "refused", "two rights"),
        (raised_by_gcsfs(401, "Anonymous caller"), "refused", "credentials are missing"),
        (raised_by_gcsfs(429, "rate"), "broken", "throttles"),
        (
            ValueError("Bucket is requester pays. Set `requester_pays=True` when creating"),
            "refused",
            "FSSPEC_GS_REQUESTER_PAYS",
        ),
        (HttpError({"code": 503}), "broken", "throttles"),
        (google.auth.exceptions.DefaultCredentialsError("none"), "refused", "gcloud auth"),
        (google.auth.exceptions.RefreshError("invalid_grant"), "refused", "log in again"),
    ],
)
def test_what_gcsfs_raises(error, kind, advice) -> None:
    with pytest.raises(SourceError, match=advice) as caught, explaining():
        raise error

    assert caught.value.kind == kind


def test_what_adlfs_raises() -> None:
    error = azure.core.exceptions.HttpResponseError("AuthorizationFailure")
    error.status_code = 403
    with pytest.raises(SourceError, match="two rights"), explaining():
        raise error

"""Verbs between a bucket and a directory: moto's S3 server through s3fs."""

import hashlib

import pytest

import shardproof
from shardproof.fetching import Limits, open_source
from tests.helpers.object_store import Fault, ObjectStore

SHARDS = {"0.bin": bytes(range(256)) * 100, "1.bin": bytes(6 * 2**20) + b"end", "2.bin": b"2" * 999}
LIMITS = Limits(max_backoff=0.01)


@pytest.fixture
def bucket(store, monkeypatch) -> ObjectStore:
    """Have the shards in a bucket, one with SHA-256, one in two parts, one without a digest."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    where = {"Bucket": "shards"}
    s3 = store.client()
    s3.put_object(**where, Key="dir/0.bin", Body=SHARDS["0.bin"], ChecksumAlgorithm="SHA256")
    parts = [SHARDS["1.bin"][: 5 * 2**20], SHARDS["1.bin"][5 * 2**20 :]]
    store.upload_parts("shards", "dir/1.bin", parts, ChecksumAlgorithm="SHA256")
    s3.put_object(**where, Key="dir/2.bin", Body=SHARDS["2.bin"], ChecksumAlgorithm="CRC32")
    return store


def sums(shards: dict[str, bytes] = SHARDS) -> bytes:
    lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in shards.items())
    return "".join(lines).encode()


@pytest.fixture
def sealed(tmp_path):
    """Make a local directory of the shards, with their list."""
    directory = tmp_path / "dir"
    directory.mkdir()
    for name, data in SHARDS.items():
        (directory / name).write_bytes(data)
    (directory / "SHA256SUMS").write_bytes(sums())
    return directory


def test_a_directory_is_repaired_from_a_bucket(bucket, sealed) -> None:
    (sealed / "0.bin").unlink()
    (sealed / "1.bin").write_bytes(b"short")
    (sealed / "2.bin").write_bytes(SHARDS["2.bin"][::-1] + b"")
    (sealed / "2.bin").write_bytes(b"3" * 999)
    bucket.faults.append(Fault("GET", r"dir/1.bin", times=1))
    bucket.faults.append(Fault("GET", r"dir/1.bin", cut_after=10**6, times=1))

    done = shardproof.repair(sealed, "s3://shards/dir", limits=LIMITS)

    assert done.ok
    assert sorted(done.repaired) == ["0.bin", "1.bin", "2.bin"]
    assert {name: (sealed / name).read_bytes() for name in SHARDS} == SHARDS


def test_what_the_bucket_has_otherwise_is_not_taken(bucket, sealed) -> None:
    (sealed / "0.bin").unlink()
    bucket.client().put_object(
        Bucket="shards", Key="dir/0.bin", Body=b"another shard", ChecksumAlgorithm="SHA256"
    )

    done = shardproof.repair(sealed, "s3://shards/dir", limits=LIMITS)

    assert not done.ok
    assert list(done.failed) == ["0.bin"]
    assert not (sealed / "0.bin").exists()


def test_a_bucket_that_throttles_for_good_leaves_all_as_it_was(bucket, sealed) -> None:
    (sealed / "0.bin").unlink()
    bucket.faults.append(Fault("GET|HEAD", "dir/0.bin"))

    done = shardproof.repair(sealed, "s3://shards/dir", limits=LIMITS)

    assert "the store throttles" in done.failed["0.bin"]
    assert sorted(path.name for path in sealed.iterdir()) == ["1.bin", "2.bin", "SHA256SUMS"]


def test_what_is_put_replaces_nothing_that_came_meanwhile(store) -> None:
    with open_source("s3://shards/dir") as source:
        source.put("a", b"1")
        with pytest.raises(FileExistsError):
            source.put("a", b"2")
        assert source.stat("a", timeout=10).size == 1
        assert not [each for each in store.requests if each.startswith("POST")], "no parts"
        source.put("a", b"333", replace=True)
        assert source.stat("a", timeout=10).size == 3

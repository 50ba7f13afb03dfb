"""Verbs between a bucket and a directory: moto's S3 server through s3fs."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import shardproof
from shardproof import SealError
from shardproof.fetching import Limits, open_source
from tests.helpers.object_store import Fault, ObjectStore

SHARDS = {
    "0.bin": bytes(range(256)) * 8000,
    "1.bin": bytes(6 * 2**20) + b"end",
    "2.bin": b"2" * 999,
}
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


def n_read(store: ObjectStore, name: str) -> int:
    """Return how many bytes of an object were asked for."""
    asked = (span for path, span in store.ranges if path.endswith(f"/{name}"))
    found = (re.fullmatch(r"bytes=(\d+)-(\d+)", span) for span in asked)
    return sum(int(each[2]) + 1 - int(each[1]) for each in found if each)


def test_a_seal_believes_what_s3_states_and_reads_the_rest(bucket) -> None:
    sealed = shardproof.seal("s3://shards/dir")

    assert sealed.n_files == 3
    written = bucket.client().get_object(Bucket="shards", Key="dir/SHA256SUMS")["Body"].read()
    assert written == sums()
    assert n_read(bucket, "0.bin") < len(SHARDS["0.bin"]) / 2, "its beginning"
    assert n_read(bucket, "1.bin") >= len(SHARDS["1.bin"]), "the digest of its parts is none"
    assert [each for each in bucket.requests if each.startswith(("PUT", "POST"))][-1:] == [
        "PUT /shards/dir/SHA256SUMS"
    ]


def test_a_list_that_another_process_puts_meanwhile_stays(bucket) -> None:
    def put() -> None:
        bucket.client().put_object(Bucket="shards", Key="dir/SHA256SUMS", Body=b"of another")

    bucket.faults.append(Fault("PUT", "SHA256SUMS", before=put, times=1))
    with pytest.raises(SealError, match="another process has written it"):
        shardproof.seal("s3://shards/dir")

    there = bucket.client().get_object(Bucket="shards", Key="dir/SHA256SUMS")["Body"].read()
    assert there == b"of another"


def test_an_object_that_changes_ends_a_seal(bucket) -> None:
    def put() -> None:
        bucket.client().put_object(Bucket="shards", Key="dir/2.bin", Body=b"3" * 999)

    bucket.faults.append(Fault("PUT", "SHA256SUMS"))  # which must not be asked for
    bucket.faults.append(Fault("GET", "1.bin", before=put, times=1))
    with pytest.raises((SealError, OSError), match=r"it (has )?changed"):
        shardproof.seal("s3://shards/dir")

    assert not [each for each in bucket.requests if each.startswith("PUT /shards/dir/SHA")]


def test_a_seal_goes_on_after_throttling_and_ends_where_it_may_not_read(bucket) -> None:
    bucket.faults.append(Fault("GET|HEAD", "dir/2.bin", times=2))
    assert shardproof.seal("s3://shards/dir").n_files == 3
    bucket.client().delete_object(Bucket="shards", Key="dir/SHA256SUMS")
    bucket.faults.append(Fault("GET|HEAD", "dir/2.bin", 403, "AccessDenied"))

    with pytest.raises(OSError, match="credentials are missing, wrong or not enough"):
        shardproof.seal("s3://shards/dir")


def test_a_list_that_may_not_be_written(bucket) -> None:
    bucket.faults.append(Fault("PUT", "SHA256SUMS", 403, "AccessDenied"))

    with pytest.raises(OSError, match=r"the list could not be written: .*AccessDenied") as caught:
        shardproof.seal("s3://shards/dir")

    assert caught.value.filename == "s3://shards/dir/SHA256SUMS"


@pytest.fixture
def staged(store, make_shards_dir, monkeypatch) -> Path:
    """Have a shards directory in a bucket, and return the one that it is a copy of."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    path = make_shards_dir(4)
    for file in path.iterdir():
        store.client().put_object(Bucket="shards", Key=f"dir/{file.name}", Body=file.read_bytes())
    store.requests.clear()
    return path


def assert_whole(copy: Path, path: Path) -> None:
    assert {f.name for f in path.iterdir()} == {f.name for f in copy.iterdir() if f.name[0] != "."}
    assert all((copy / file.name).read_bytes() == file.read_bytes() for file in path.iterdir())


def test_of_three_processes_one_copies(store, staged, tmp_path) -> None:
    (tmp_path / "to").mkdir()
    command = [sys.executable, "-m", "shardproof", "stage", "s3://shards/dir", "-q", "--to"]
    children = [
        subprocess.Popen([*command, tmp_path / "to"], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    copies = {child.communicate(timeout=60)[0].strip() for child in children}

    assert [child.returncode for child in children] == [0, 0, 0]
    [copy] = copies
    assert_whole(Path(copy), staged)
    whole = [each for each in store.requests if re.match(r"GET \S+acts\d+\.bin", each)]
    assert len(whole) == 4


def test_a_stage_goes_on_after_throttling_and_cuts(store, staged, tmp_path) -> None:
    store.faults.append(Fault("GET", "acts000001.bin", times=1))
    store.faults.append(Fault("GET", "acts000002.bin", cut_after=100, times=1))

    assert_whole(shardproof.stage("s3://shards/dir", tmp_path), staged)


def test_an_object_that_may_not_be_read_ends_a_stage(store, staged, tmp_path) -> None:
    store.faults.append(Fault("GET", "acts000001.bin", 403, "AccessDenied"))

    to = tmp_path / "to"
    to.mkdir()
    with pytest.raises(OSError, match="credentials are missing, wrong or not enough"):
        shardproof.stage("s3://shards/dir", to)

    assert all(path.parent.name.endswith(".unfinished") for path in to.rglob("acts*.bin"))

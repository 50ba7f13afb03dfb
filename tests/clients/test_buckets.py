"""Directories in a bucket: s3fs against moto's server, with what stores do under load."""

import hashlib
import io
import os
from pathlib import Path

import numpy as np
import pytest

import shardproof
from shardproof import FindingKind, ManifestNotFoundError, remote, validate
from tests.helpers.commands import run
from tests.helpers.in_memory import in_memory
from tests.helpers.object_store import Fault, ObjectStore

ADDRESS = "s3://shards/dir"
PART = 5 * 2**20


@pytest.fixture(autouse=True)
def brief_waits(monkeypatch) -> None:
    monkeypatch.setattr("shardproof.fetching.transfer._attempts._seconds_between", lambda *_: 0.0)
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


def array(n_items: int = 1000) -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(n_items))
    return file.getvalue()


def put(store: ObjectStore, name: str, data: bytes, **how: str) -> None:
    store.client().put_object(Bucket="shards", Key=f"dir/{name}", Body=data, **how)


def seal(store: ObjectStore, files: dict[str, bytes]) -> None:
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()]
    put(store, "SHA256SUMS", "".join(lines).encode())


def gets(store: ObjectStore) -> list[str]:
    asked = zip(store.requests, store.ranges[-len(store.requests) :], strict=True)
    found = (f"{request} {some}" for request, (_, some) in asked)
    return sorted(each.rstrip() for each in found if each.startswith("GET /shards/dir/"))


@pytest.fixture
def arrays(store) -> ObjectStore:
    for number in range(5):
        put(store, f"{number}.npy", array())
    store.requests.clear()
    return store


class TestRequests:
    def test_present_is_one_listing(self, arrays) -> None:
        assert validate(ADDRESS).ok
        assert len(arrays.requests) == 1
        assert "list-type=2" in arrays.requests[0]

    def test_complete_is_that_and_one_range_a_file(self, arrays) -> None:
        report = validate(ADDRESS, level="complete")
        assert (report.ok, report.n_files, report.n_proven) == (True, 5, 5)
        assert gets(arrays) == [f"GET /shards/dir/{n}.npy bytes=0-8127" for n in range(5)]
        assert len(arrays.requests) == 6

    def test_valid_is_one_question_a_file_where_the_store_states_a_digest(self, store) -> None:
        files = {f"{n}.dat": os.urandom(1000) for n in range(3)}
        for name, data in files.items():
            put(store, name, data, ChecksumAlgorithm="SHA256")
        seal(store, files)
        store.requests.clear()
        report = validate(ADDRESS, level="valid")
        assert (report.ok, report.n_proven) == (True, 3)
        assert report.notes == ("verified: 3 by the sha256 that the store states",)
        assert gets(store) == ["GET /shards/dir/SHA256SUMS bytes=0-215"]
        assert sum(each.startswith("HEAD") for each in store.requests) == 3


class TestDigests:
    def test_a_checksum_of_checksums_is_none(self, store) -> None:
        """Of what came in parts, S3 states a SHA-256 of those of its parts: bytes are read."""
        data = os.urandom(PART + 100)
        store.upload_parts(
            "shards", "dir/a.dat", [data[:PART], data[PART:]], ChecksumAlgorithm="SHA256"
        )
        seal(store, {"a.dat": data})
        report = validate(ADDRESS, level="valid")
        assert (report.ok, report.n_proven, report.notes) == (
            *(True, 1),
            ("verified: 1 by reading",),
        )

    def test_nor_is_an_entity_tag(self, store) -> None:
        put(store, "a.dat", b"right")
        put(store, "MD5SUMS", f"{hashlib.md5(b'right').hexdigest()}  a.dat\n".encode())
        assert validate(ADDRESS, level="valid").notes == ("verified: 1 by reading",)

    def test_other_bytes_are_a_finding_by_either_way(self, store) -> None:
        put(store, "a.dat", b"wrong", ChecksumAlgorithm="SHA256")
        put(store, "b.dat", b"wrong", ChecksumAlgorithm="CRC32")
        seal(store, {"a.dat": b"right", "b.dat": b"right"})
        report = validate(ADDRESS, level="valid")
        wrong = f"sha256:{hashlib.sha256(b'wrong').hexdigest()}"
        assert [(each.kind, each.found) for each in report.findings] == [
            (FindingKind.DIGEST, wrong),
            (FindingKind.DIGEST, wrong),
        ]


class TestFaults:
    def test_an_object_that_may_not_be_read(self, arrays) -> None:
        arrays.faults.append(Fault("GET", "dir/3.npy", 403, "AccessDenied"))
        report = validate(ADDRESS, level="complete")
        [finding] = report.findings
        assert (finding.kind, finding.conclusive, report.exit_code) == (
            *(FindingKind.UNREADABLE, False),
            3,
        )
        assert "AccessDenied" in finding.found
        assert str(finding.path) == f"{ADDRESS}/3.npy"

    def test_throttling_that_ends_is_waited_for(self, arrays) -> None:
        arrays.faults.append(Fault("GET", "dir/3.npy", 503, "SlowDown", times=2))
        assert validate(ADDRESS, level="complete").ok

    def test_throttling_that_does_not(self, arrays) -> None:
        arrays.faults.append(Fault("GET", "dir/[34].npy", 503, "SlowDown"))
        ended = run("validate", "--level=complete", ADDRESS)
        assert ended.exit_code == 3
        assert "2 unreadable" in ended.output
        assert "missing" not in ended.output

    def test_a_question_for_a_digest_that_is_throttled(self, store) -> None:
        put(store, "a.dat", b"right", ChecksumAlgorithm="SHA256")
        seal(store, {"a.dat": b"right"})
        store.faults.append(Fault("HEAD", "dir/a.dat", 503, "SlowDown"))
        [finding] = validate(ADDRESS, level="valid").findings
        assert (finding.kind, finding.conclusive) == (FindingKind.UNREADABLE, False)

    def test_a_connection_that_is_cut(self, arrays) -> None:
        arrays.faults.append(Fault("GET", "dir/3.npy", cut_after=100))
        [finding] = validate(ADDRESS, level="complete").findings
        assert (finding.kind, finding.conclusive) == (FindingKind.UNREADABLE, False)

    def test_what_is_replaced_meanwhile_is_not_taken_for_the_other(self, arrays) -> None:
        with remote.mounted(ADDRESS) as root:
            put(arrays, "3.npy", array(1001)[: len(array())])
            report = validate(root, level="complete")
        [finding] = report.findings
        assert (finding.kind, finding.conclusive) == (FindingKind.UNREADABLE, False)

    def test_a_listing_that_is_refused(self, arrays) -> None:
        arrays.faults.append(Fault("GET", "list-type=2", 403, "AccessDenied"))
        ended = run("validate", ADDRESS)
        assert ended.exit_code == 3
        assert "AccessDenied" in ended.output

    def test_no_such_bucket(self, store) -> None:
        with pytest.raises(ManifestNotFoundError, match="bucket"):
            validate("s3://nothing/dir")
        with pytest.raises(ManifestNotFoundError, match="no object lies below"):
            validate("s3://shards/nothing")


def test_keys_that_no_file_can_have(store) -> None:
    """S3 takes any text for a key."""
    for key in ("dir/0.npy", "dir/../escape.npy", "dir//b.npy", "dir/sub/", "dir/a\\b.npy"):
        store.client().put_object(Bucket="shards", Key=key, Body=b"" if key[-1] == "/" else array())
    report = validate(ADDRESS, level="complete", strict=True)
    assert (report.ok, report.n_files) == (True, 1)
    [note] = report.notes
    assert "passed over, since no file can have such a name" in note


def test_a_bucket_is_compared_with_a_directory_and_another_bucket(arrays, tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.npy").write_bytes(array())
    assert validate(ADDRESS, against=tmp_path).counts == {FindingKind.MISSING: 1}
    assert validate(tmp_path, against=ADDRESS, level="complete").ok
    with in_memory(tmp_path) as other:
        assert validate(other, against=ADDRESS, level="complete").ok
        assert validate(ADDRESS, against=other).counts == {FindingKind.MISSING: 1}


def test_a_sealed_directory_that_was_copied_there(store, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.bin").write_bytes(os.urandom(100))
    shardproof.seal(tmp_path)
    for path in tmp_path.iterdir():
        put(store, path.name, path.read_bytes())
    report = validate(f"{ADDRESS}/", level="valid", strict=True)
    assert (report.ok, report.n_proven) == (True, 3)

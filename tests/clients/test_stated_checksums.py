"""What stores state of objects: S3 as moto serves it, Cloud Storage as an emulator does."""

import hashlib
import zlib
from collections.abc import Iterator

import gcsfs
import pytest
from gcp_storage_emulator.server import create_server

from shardproof import FetchError
from shardproof.fetching import FsspecSource, Limits, RemoteFile, fetch_file, open_source
from tests.helpers.object_store import Fault

DATA = bytes(range(256)) * 100
PART = bytes(5 * 2**20)
LIMITS = Limits(max_backoff=0.01)


def stat(name: str) -> RemoteFile:
    with open_source("s3://shards/dir") as source:
        return source.stat(name, timeout=10)


def put(store, key: str, data: bytes = DATA, **how: str) -> None:
    store.client().put_object(Bucket="shards", Key=f"dir/{key}", Body=data, **how)


@pytest.mark.parametrize("algorithm", ["sha256", "sha1"])
def test_a_digest_that_s3_states_is_taken(store, algorithm) -> None:
    put(store, "a.bin", ChecksumAlgorithm=algorithm.upper())

    file = stat("a.bin")

    assert file.digest == f"{algorithm}:{hashlib.new(algorithm, DATA).hexdigest()}"
    assert (file.size, file.checksums) == (len(DATA), ())
    assert (file.identity or "").startswith("ETag=")


def test_a_crc_that_s3_states_is_no_digest(store) -> None:
    put(store, "a.bin", ChecksumAlgorithm="CRC32")

    file = stat("a.bin")

    assert file.digest is None
    assert file.checksums == (f"crc32:{zlib.crc32(DATA):08x}",)


def test_the_checksum_of_the_checksums_of_parts_is_none_of_the_bytes(store) -> None:
    store.upload_parts("shards", "dir/a.bin", [PART, DATA], ChecksumAlgorithm="SHA256")
    head = store.client().head_object(Bucket="shards", Key="dir/a.bin", ChecksumMode="ENABLED")
    assert head["ChecksumType"] == "COMPOSITE", "what is tested is there"
    assert head["ChecksumSHA256"].endswith("=-2")

    file = stat("a.bin")

    assert (file.digest, file.checksums) == (None, ())


def test_a_crc_of_all_parts_is_taken(store) -> None:
    how = {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"}
    store.upload_parts("shards", "dir/a.bin", [PART, DATA], **how)

    assert stat("a.bin").checksums == (f"crc32:{zlib.crc32(PART + DATA):08x}",)


def test_an_entity_tag_that_is_the_md5_is_not_taken(store) -> None:
    put(store, "a.bin", ChecksumAlgorithm="CRC32")
    etag = store.client().head_object(Bucket="shards", Key="dir/a.bin")["ETag"]
    assert etag.strip('"') == hashlib.md5(DATA).hexdigest()

    assert stat("a.bin").digest is None


def test_what_is_fetched_is_proven_by_what_s3_states(store, tmp_path) -> None:
    put(store, "a.bin", ChecksumAlgorithm="SHA256")

    with open_source("s3://shards/dir") as source:
        fetched = fetch_file(source, "a.bin", tmp_path / "a.bin", limits=LIMITS)

    assert fetched.proven
    assert fetched.digest == f"sha256:{hashlib.sha256(DATA).hexdigest()}"


def test_other_bytes_than_s3_states_are_refused(store, tmp_path) -> None:
    put(store, "a.bin", ChecksumAlgorithm="SHA256")
    other = hashlib.sha256(b"other").hexdigest()

    with open_source("s3://shards/dir") as source:
        stated = RemoteFile("a.bin", len(DATA), digest=f"sha256:{other}")
        with pytest.raises(FetchError, match="sha256"):
            fetch_file(source, "a.bin", tmp_path / "a.bin", file=stated, limits=LIMITS)

    assert not (tmp_path / "a.bin").exists()


def test_who_may_not_decrypt_checksums_is_told_the_size(store) -> None:
    put(store, "a.bin", ChecksumAlgorithm="SHA256")
    store.faults.append(Fault("HEAD", "dir/a.bin", 403, "AccessDenied", times=1))

    file = stat("a.bin")

    assert (file.size, file.digest) == (len(DATA), None)


def test_one_request_tells_size_and_checksum(store) -> None:
    put(store, "a.bin", ChecksumAlgorithm="SHA256")
    with open_source("s3://shards/dir") as source:
        source.stat("a.bin", timeout=10)
        store.requests.clear()
        source.stat("a.bin", timeout=10)

    assert store.requests == ["HEAD /shards/dir/a.bin"]


def test_a_folder_is_none_of_its_files(store) -> None:
    put(store, "a.bin")
    with open_source("s3://shards") as source, pytest.raises(FetchError, match="is a directory"):
        source.stat("dir", timeout=10)


@pytest.fixture
def bucket_of_gcs(monkeypatch) -> Iterator[gcsfs.GCSFileSystem]:
    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="shards")
    server.start()
    port = server._api._httpd.server_port
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    yield gcsfs.GCSFileSystem(token="anon", skip_instance_cache=True)
    server.stop()


def test_the_md5_that_cloud_storage_lists_is_taken(bucket_of_gcs) -> None:
    bucket_of_gcs.pipe("shards/dir/a.bin", DATA)

    with FsspecSource("gs://shards/dir", token="anon") as source:
        (listed,), asked = source.files(), source.stat("a.bin", timeout=10)

    assert listed.digest == asked.digest == f"md5:{hashlib.md5(DATA).hexdigest()}"
    assert [text[:7] for text in listed.checksums] == ["crc32c:"]

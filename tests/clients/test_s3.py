"""A real S3 client, s3fs, against a real server of the S3 interface on the loopback."""

import logging
from collections.abc import Iterator

import fsspec
import pytest
from moto.server import ThreadedMotoServer

from shardproof import FetchError
from shardproof.fetching import Limits, ShardPrefetcher, fetch_file, open_source

SECRET = "wJalrXUtnFEMI"
DATA = {f"train/{n}.bin": bytes([n]) * 100_000 for n in range(3)}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint, monkeypatch) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    fs = fsspec.filesystem("s3")
    fs.invalidate_cache()
    if not fs.exists("shards"):
        fs.mkdir("shards")
    for name, data in DATA.items():
        fs.pipe(f"shards/{name}", data)
    return "s3://shards"


def test_what_is_there(bucket) -> None:
    files = open_source(bucket).files()

    assert [(file.name, file.size) for file in files] == [(n, len(d)) for n, d in DATA.items()]
    assert all((file.identity or "").startswith("ETag=") for file in files)


def test_large_shards_come_in_parts(bucket, tmp_path) -> None:
    data = bytes(range(256)) * 2**16
    fsspec.filesystem("s3").pipe("shards/large.bin", data)

    fetched = fetch_file(open_source(bucket), "large.bin", tmp_path / "large.bin")

    assert fetched.path.read_bytes() == data


def test_a_prefetcher_reads_them_in_order(bucket, tmp_path) -> None:
    with ShardPrefetcher(bucket, list(DATA), tmp_path) as prefetcher:
        assert [path.read_bytes() for path in prefetcher] == list(DATA.values())

    assert (tmp_path / "s3_shards/shards/_/all/train/2.bin").exists()


def test_what_is_not_there_and_no_secret(bucket, tmp_path, caplog) -> None:
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(FetchError, match="FileNotFoundError") as caught,
    ):
        fetch_file(open_source(bucket), "none", tmp_path / "x", limits=Limits(max_backoff=0.01))

    assert SECRET not in str(caught.value) + caplog.text
    assert not list(tmp_path.iterdir())

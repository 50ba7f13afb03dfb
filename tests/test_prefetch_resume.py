"""A fetch that was killed or has failed goes on from where it was; what it left is proven first."""

import contextlib
import errno
import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kept_parts import beside_parts, parts_in

from shardproof import FetchError, ShardPrefetcher, _files
from shardproof.prefetch import (
    CallableSource,
    FsspecSource,
    HttpSource,
    Limits,
    fetch_shard,
)
from shardproof.prefetch.sources import _web
from shardproof.prefetch.transfer import _relay, _spans
from shardproof.testing.hub import Fault, Hub, serve_hub

DATA = random.Random(1).randbytes(400_000)
OTHER = random.Random(2).randbytes(400_000)
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
ONCE = Limits(max_download_retries=1, stall_after=0.3, max_wait=0.01)
DAY = 24 * 3600


class Got(NamedTuple):
    """What a hub was asked for: where each GET began, and the bytes that it has sent."""

    starts: list[int]
    n_bytes: int


def got(hub: Hub, since: int = 0) -> Got:
    requests = hub.requests_for("*", method="GET")[since:]
    ranges = [request.headers.get("range", "bytes=0-") for request in requests]
    starts = [int(text.removeprefix("bytes=").partition("-")[0]) for text in ranges]
    return Got(starts, sum(request.bytes_sent for request in requests))


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve_hub({"a/0.bin": DATA}) as hub:
        yield hub


def fail(hub: Hub, directory: Path, *, at: int = 300_000, digest: str | None = None) -> FetchError:
    """Fetch until the connection breaks, in one attempt."""
    hub.fault("a/0.bin", Fault.TRUNCATED, times=1, at=at)
    with pytest.raises(FetchError) as caught:
        fetch(hub, directory, digest=digest)
    hub.heal()
    return caught.value


def fetch(hub: Hub, directory: Path, *, digest: str | None = None) -> bytes:
    with contextlib.closing(HttpSource(f"{hub.url}/a")) as source:
        fetched = fetch_shard(source, "0.bin", directory / "0.bin", digest=digest, limits=ONCE)
    assert os.listdir(directory) == ["0.bin"]
    return fetched.path.read_bytes()


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


class TestKilled:
    @pytest.mark.once
    @pytest.mark.parametrize("proven", [True, False], ids=["digest", "no digest"])
    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
    def test_a_command_goes_on_from_where_it_was(
        self, share: float, proven: bool, tmp_path: Path
    ) -> None:
        size = len(DATA)
        with serve_hub({"a/0.bin": DATA}, rate=200_000) as hub:
            command = [sys.executable, "-m", "shardproof", "fetch", f"{hub.url}/a/0.bin", tmp_path]
            command += ["--sha256", DIGEST] if proven else []
            child = subprocess.Popen(command, stderr=subprocess.PIPE)
            while got(hub).n_bytes < share * size:
                time.sleep(0.005)
            child.send_signal(signal.SIGKILL)
            child.communicate()
            assert not (tmp_path / "0.bin").exists()

            subprocess.run(command, check=True, capture_output=True)

            first, second = got(hub).starts
            n_bytes = got(hub).n_bytes
        assert first == 0
        assert second > (share - 0.1) * size
        assert n_bytes < 1.2 * size
        assert (tmp_path / "0.bin").read_bytes() == DATA
        assert os.listdir(tmp_path) == ["0.bin"]


class TestFailed:
    """In the same process, as from background to foreground."""

    @pytest.mark.parametrize("digest", [None, DIGEST])
    def test_the_next_fetch_goes_on(self, hub: Hub, tmp_path: Path, digest: str | None) -> None:
        error = fail(hub, tmp_path, digest=digest)

        assert "; 300000 of 400000 bytes are kept, and the next try goes on from there" in str(
            error
        )
        assert beside_parts(tmp_path) == set()
        assert fetch(hub, tmp_path, digest=digest) == DATA
        assert got(hub) == ([0, 300_000], 400_000)

    def test_so_does_the_one_after_it(self, hub: Hub, tmp_path: Path) -> None:
        for at in (100_000, 50_000, 150_000):
            fail(hub, tmp_path, at=at)

        assert fetch(hub, tmp_path) == DATA
        assert got(hub) == ([0, 100_000, 150_000, 300_000], 400_000)

    def test_spans_of_several_connections_are_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_spans, "MIN_SPAN", 4096)
        monkeypatch.setattr(_relay, "_AT_FIRST", 4)
        with serve_hub({"a/0.bin": DATA}, rate=500_000) as hub:
            hub.fault("a/0.bin", Fault.RESET_IN_BODY, times=1, after=2, at=30_000)
            with pytest.raises(FetchError) as caught:
                fetch(hub, tmp_path, digest=DIGEST)
            n_first = len(hub.requests_for("*", method="GET"))
            with contextlib.closing(HttpSource(f"{hub.url}/a")) as source:
                fetched = fetch_shard(source, "0.bin", tmp_path / "0.bin", digest=DIGEST)
            starts, _ = got(hub, n_first)

        assert 0 not in starts
        assert fetched.path.read_bytes() == DATA
        assert f"; {400_000 - fetched.n_bytes} of 400000 bytes are kept" in str(caught.value)

    def test_a_digest_is_enough_where_there_is_no_entity_tag(
        self, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        without_entity_tags(monkeypatch)
        fail(hub, tmp_path, digest=DIGEST)

        assert fetch(hub, tmp_path, digest=DIGEST) == DATA
        assert got(hub) == ([0, 300_000], 400_000)

    def test_another_mirror_goes_on_if_the_digest_is_the_same(
        self, hub: Hub, tmp_path: Path
    ) -> None:
        fail(hub, tmp_path, digest=DIGEST)

        with serve_hub({"a/0.bin": DATA}) as mirror:
            assert fetch(mirror, tmp_path, digest=DIGEST) == DATA
            assert got(mirror) == ([300_000], 100_000)

    def test_a_prefetcher_goes_on_in_the_foreground(self, tmp_path: Path) -> None:
        with serve_hub({"a/0.bin": DATA, "a/1.bin": OTHER}) as hub:
            hub.fault("a/1.bin", Fault.TRUNCATED, times=1, at=300_000)
            url, names = f"{hub.url}/a", ["0.bin", "1.bin"]
            with ShardPrefetcher(url, names, tmp_path, limits=ONCE) as prefetcher:
                paths = [path.read_bytes() for path in prefetcher]

            assert paths == [DATA, OTHER]
            ranges = [r.headers.get("range") for r in hub.requests_for("a/1.bin", method="GET")]
            assert ranges == [None, "bytes=300000-399999"]
        assert not any(next(tmp_path.rglob(".shardproof/kept")).iterdir())


def without_entity_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has none is a client that sees none."""
    monkeypatch.setattr(_web, "_identity", lambda response: None)


def stop_before_the_name(
    hub: Hub, directory: Path, monkeypatch: pytest.MonkeyPatch, digest: str | None
) -> None:
    """Interrupt a fetch when all has come."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_files, "move_whole", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch(hub, directory, digest=digest)


class TestNotKept:
    def test_what_nobody_could_tell_from_another_file(
        self, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        without_entity_tags(monkeypatch)

        error = fail(hub, tmp_path)

        assert "kept" not in str(error)
        assert os.listdir(tmp_path) == []

    def test_a_time_of_change_is_no_identity_for_another_process(self, tmp_path: Path) -> None:
        (tmp_path / "from").mkdir()
        (tmp_path / "from/0.bin").write_bytes(DATA)
        source = FsspecSource(f"file://{tmp_path}/from")

        assert not source.stat("0.bin", timeout=1).is_lasting

    def test_a_source_of_whole_files(self, tmp_path: Path) -> None:
        stop = threading.Event()
        source = CallableSource(lambda name, dest: dest.write_bytes(DATA))

        with pytest.raises(FetchError, match=r"it was stopped$"):
            fetch_shard(
                source, "0.bin", tmp_path / "0.bin", digest=DIGEST, stop=stop,
                on_bytes=lambda *_: stop.set(),
            )  # fmt: skip

        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
    def test_what_was_written_to_a_disk_that_refuses(
        self, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        """Its room is worth more than the bytes, or nobody believes them."""
        real, n_left = os.pwritev, 3

        def refuse(*args: Any) -> int:
            nonlocal n_left
            n_left -= 1
            if n_left < 0:
                raise OSError(number, os.strerror(number))
            return real(*args)

        monkeypatch.setattr(os, "pwritev", refuse)
        monkeypatch.setattr(_relay, "_BATCH_BYTES", 1000)

        with pytest.raises(FetchError, match=os.strerror(number)):
            fetch(hub, tmp_path, digest=DIGEST)
        assert os.listdir(tmp_path) == []


class TestChanged:
    @pytest.mark.parametrize("digest", [False, True])
    @pytest.mark.parametrize("size", [400_000, 350_000, 250_000, 500_000])
    def test_a_file_that_has_changed_is_begun_anew(
        self, hub: Hub, tmp_path: Path, size: int, digest: bool
    ) -> None:
        """In one attempt: what another one has left counts for none."""
        new = random.Random(3).randbytes(size)
        sha256 = f"sha256:{hashlib.sha256(new).hexdigest()}"
        fail(hub, tmp_path, digest=DIGEST if digest else None)
        hub.put("a/0.bin", new)

        assert fetch(hub, tmp_path, digest=sha256 if digest else None) == new

    @pytest.mark.parametrize("fault", [f for f in Fault if f.startswith("range-")])
    @pytest.mark.parametrize("digest", [None, DIGEST])
    def test_a_server_that_gives_no_range_or_a_wrong_one(
        self, hub: Hub, tmp_path: Path, fault: Fault, digest: str | None
    ) -> None:
        fail(hub, tmp_path, digest=digest)
        hub.fault("a/0.bin", fault, times=1)

        assert fetch(hub, tmp_path, digest=digest) == DATA

    @pytest.mark.parametrize("digest", [None, DIGEST])
    @pytest.mark.parametrize("at", [0, 150_000, 299_999])
    def test_a_flipped_bit_is_noticed(
        self, hub: Hub, tmp_path: Path, at: int, digest: str | None
    ) -> None:
        fail(hub, tmp_path, digest=digest)
        (part,) = parts_in(tmp_path)
        flip(part / "data", at)

        assert fetch(hub, tmp_path, digest=digest) == DATA

    @pytest.mark.parametrize("at", range(0, 400, 7))
    def test_a_record_that_is_damaged_is_not_believed(
        self, hub: Hub, tmp_path: Path, at: int
    ) -> None:
        fail(hub, tmp_path)
        (part,) = parts_in(tmp_path)
        flip(part / "record", at % (part / "record").stat().st_size)

        assert fetch(hub, tmp_path) == DATA

    @pytest.mark.parametrize("size", [0, 1, 299_000, 299_999])
    def test_bytes_that_a_power_cut_took_are_fetched_again(
        self, hub: Hub, tmp_path: Path, size: int
    ) -> None:
        fail(hub, tmp_path)
        (part,) = parts_in(tmp_path)
        os.truncate(part / "data", size)

        assert fetch(hub, tmp_path) == DATA

    def test_blocks_that_a_power_cut_left_empty_are_fetched_again(
        self, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_relay, "_BATCH_BYTES", 50_000)
        fail(hub, tmp_path)
        (part,) = parts_in(tmp_path)
        with open(part / "data", "r+b") as file:
            file.seek(200_000)
            file.write(bytes(4096))

        assert fetch(hub, tmp_path) == DATA
        assert 200_000 < got(hub, 1).n_bytes + 100_000 < 350_000

    def test_a_query_names_another_file(self, hub: Hub, tmp_path: Path) -> None:
        """Of one entity tag and one size, as of a server that counts versions."""
        hub.fault("a/0.bin", Fault.TRUNCATED, times=1)
        for query in ("id=1", "id=2"):
            with (
                contextlib.closing(HttpSource(f"{hub.url}/a?{query}")) as source,
                contextlib.suppress(FetchError),
            ):
                fetch_shard(source, "0.bin", tmp_path / "0.bin", limits=ONCE)

        assert got(hub).starts == [0, 0]

    def test_what_is_whole_and_has_a_digest_is_not_asked_for(
        self, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stop_before_the_name(hub, tmp_path, monkeypatch, DIGEST)

        assert fetch(hub, tmp_path, digest=DIGEST) == DATA
        assert got(hub).starts == [0]

    def test_what_is_whole_and_has_no_digest_is_asked_for_once_more(
        self, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stop_before_the_name(hub, tmp_path, monkeypatch, None)
        hub.put("a/0.bin", OTHER)

        assert fetch(hub, tmp_path) == OTHER

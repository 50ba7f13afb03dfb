"""The next shard is there before it is needed, and the last one is gone after."""

import contextlib
import errno
import gc
import itertools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardproof import FetchError, ShardPrefetcher
from shardproof.datasets.rows import _listings
from shardproof.datasets.rows._shard_lists import ParquetShards
from shardproof.fetching import (
    CallableSource,
    HttpSource,
    HubSource,
    Limits,
    PrefetchEvent,
    RemoteFile,
)
from shardproof.fetching.cache._stats import PrefetchTally
from shardproof.testing.faults import FileSystemFaults
from tests.helpers.descriptors import path_of
from tests.helpers.forking import ended, forked
from tests.helpers.hub_sources import repository
from tests.helpers.waiting import files_below, until

NAMES = [f"train/{n}.bin" for n in range(5)]
LIMITS = Limits(max_backoff=0.01, stall_timeout=0.5)


def content(name: str) -> bytes:
    return name.encode() * 1000


@pytest.fixture
def source(shard_hub) -> Iterator[HubSource]:
    with repository(shard_hub, {name: content(name) for name in NAMES}) as source:
        yield source


def shards_in(cache: Path) -> set[str]:
    """Shards on the disk, those on their way too."""
    return {path.name for path in cache.rglob("*.bin")}


class Events:
    """What happened to which shard, and a way to wait for it."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def __call__(self, event: PrefetchEvent) -> None:
        self.seen.add((event.kind, event.name))

    def wait(self, kind: str, name: str) -> None:
        until(lambda: (kind, name) in self.seen)


def test_shards_come_in_order(source, tmp_path) -> None:
    with ShardPrefetcher(source, NAMES, tmp_path, split="train") as prefetcher:
        for name, path in zip(NAMES, prefetcher, strict=True):
            assert path == tmp_path / "hf_shards/org/name/train" / name
            assert path.read_bytes() == content(name)


def test_nothing_comes_that_is_further_ahead(source, shard_hub, tmp_path) -> None:
    events = Events()
    with ShardPrefetcher(source, NAMES, tmp_path, on_event=events, lookahead=2) as prefetcher:
        prefetcher.wait_for(NAMES[0])
        events.wait("fetched", NAMES[1])
        events.wait("fetched", NAMES[2])

    assert not shard_hub.requests_for(f"*{NAMES[3]}", method="GET")


def test_only_the_current_and_the_next_are_ever_on_the_disk(source, tmp_path) -> None:
    """And the next one comes while one is read."""
    most = 0

    def look(event: PrefetchEvent) -> None:
        nonlocal most
        most = max(most, len(shards_in(tmp_path)))
        events(event)

    events = Events()
    with ShardPrefetcher(source, NAMES, tmp_path, on_event=look) as prefetcher:
        for name, after in itertools.pairwise(NAMES):
            prefetcher.wait_for(name)
            events.wait("fetched", after)
            assert prefetcher.wait_for(name).read_bytes() == content(name)
        prefetcher.wait_for(NAMES[-1])

    assert prefetcher.stats.hit_rate > 0.8
    assert most == 2
    assert shards_in(tmp_path) == {"4.bin"}


def test_what_an_earlier_run_left_goes(source, tmp_path) -> None:
    with ShardPrefetcher(source, NAMES, tmp_path, cleanup="keep") as prefetcher:
        list(prefetcher)
    assert len(shards_in(tmp_path)) == 5
    foreign = tmp_path / "hf_shards/org/name/all/train/mine.bin"
    foreign.write_bytes(b"not ours")

    with ShardPrefetcher(source, NAMES, tmp_path) as prefetcher:
        prefetcher.wait_for(NAMES[2])

    assert shards_in(tmp_path) <= {"2.bin", "3.bin", "mine.bin"}
    assert foreign.read_bytes() == b"not ours"


def test_without_a_network_what_was_proven_is_there(shard_hub, tmp_path, caplog) -> None:
    shard_hub.put("a/0.bin", b"1234")
    source = HttpSource(f"{shard_hub.url}/a")
    with ShardPrefetcher(source, ["0.bin"], tmp_path, cleanup="keep") as prefetcher:
        list(prefetcher)
    shard_hub.fault("a/0.bin", "status-503", method=None)

    with ShardPrefetcher(source, ["0.bin"], tmp_path, cleanup="keep", limits=LIMITS) as prefetcher:
        assert prefetcher.wait_for("0.bin").read_bytes() == b"1234"

    source.close()
    assert "The source can't be asked for shard 0; the proven copy is taken" in caplog.text


IMPORTS = """
import sys
import threading

from shardproof import ShardPrefetcher
from shardproof.fetching import adopt

late = []


class Finder:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread().name.startswith("shardproof-"):
            late.append(name)


sys.meta_path.insert(0, Finder())
address, cache = sys.argv[1:]
if address.startswith("file"):
    adopt(cache, address)
else:
    with ShardPrefetcher(address, ["0.bin"], cache, max_cache_bytes=1000) as prefetcher:
        prefetcher.wait_for("0.bin")
print(late)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["http", "fsspec"])
def test_no_thread_imports_which_a_fork_would_cut_short(kind, shard_hub, tmp_path) -> None:
    shard_hub.put("s/0.bin", b"1234")
    (tmp_path / "0.bin").write_bytes(b"1234")
    address = f"{shard_hub.url}/s" if kind == "http" else f"file://{tmp_path}"
    command = [sys.executable, "-c", IMPORTS, address, tmp_path]

    run = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert (run.returncode, run.stdout) == (0, "[]\n"), run.stderr


def test_of_many_processes_that_want_a_shard_one_fetches_it(shard_hub, tmp_path) -> None:
    shard_hub.put("a/0.bin", b"1234")

    def act() -> None:
        with ShardPrefetcher(f"{shard_hub.url}/a", ["0.bin"], tmp_path) as prefetcher:
            assert prefetcher.wait_for("0.bin").read_bytes() == b"1234"
            (tmp_path / str(os.getpid())).touch()
            until(lambda: len(list(tmp_path.glob("[0-9]*"))) == 8)

    children = [forked(act) for _ in range(8)]

    assert [ended(child) for child in children] == [0] * 8
    assert len(shard_hub.requests_for("a/*", method="GET")) == 1


class TestAfterTheRecordsAreLost:
    def lost(self, source: object, cache: Path, name: str) -> Path:
        with ShardPrefetcher(source, [name], cache, cleanup="keep") as prefetcher:
            path = prefetcher.wait_for(name)
        (state,) = cache.rglob(".shardproof")
        shutil.rmtree(state)
        return path

    def again(self, source: object, cache: Path, name: str) -> bytes:
        with ShardPrefetcher(source, [name], cache, limits=LIMITS) as prefetcher:
            return prefetcher.wait_for(name).read_bytes()

    @pytest.mark.parametrize("kind", ["http", "function"])
    def test_others_are_compared_and_not_called_bad(
        self, shard_hub, tmp_path, caplog, kind
    ) -> None:
        shard_hub.put("a/0.bin", b"1234")
        calls = []

        def fetch(name: str, dest: Path) -> None:
            calls.append(name)
            dest.write_bytes(b"1234")

        source = {"http": f"{shard_hub.url}/a", "function": CallableSource(fetch)}[kind]
        path = self.lost(source, tmp_path, "0.bin")
        inode = path.stat().st_ino
        for _ in range(2):
            assert self.again(source, tmp_path, "0.bin") == b"1234"
            assert path.stat().st_ino == inode
        assert len(calls) + len(shard_hub.requests_for("a/*", method="GET")) == 2
        assert [file.name for file in path.parent.iterdir() if file.is_file()] == ["0.bin"]
        assert f"'{path}' lies there, but nothing is known of it" in caplog.text
        assert "was not the right one" not in caplog.text

    def test_others_that_differ_are(self, shard_hub, tmp_path) -> None:
        shard_hub.put("a/0.bin", b"1234")
        path = self.lost(f"{shard_hub.url}/a", tmp_path, "0.bin")
        shard_hub.put("a/0.bin", b"5678")
        assert self.again(f"{shard_hub.url}/a", tmp_path, "0.bin") == b"5678"
        (aside,) = path.parent.glob("0.bin.bad-*")
        assert aside.read_bytes() == b"1234"

    @pytest.mark.parametrize("is_told", [True, False])
    def test_what_can_not_be_fetched_stays(self, shard_hub, tmp_path, is_told) -> None:
        """Though its size is not the one that is told: that alone may be a mistake."""
        shard_hub.put("a/0.bin", b"1234")
        path = self.lost(f"{shard_hub.url}/a", tmp_path, "0.bin")
        shard_hub.put("a/0.bin", b"12345")
        shard_hub.fault("a/0.bin", "status-503", method="GET" if is_told else None)
        with pytest.raises(FetchError):
            self.again(f"{shard_hub.url}/a", tmp_path, "0.bin")
        assert path.read_bytes() == b"1234"
        assert not list(path.parent.glob("*.bad-*"))


class TestFailures:
    def test_what_fails_in_the_background_is_fetched_when_it_is_asked_for(
        self, source, shard_hub, tmp_path
    ) -> None:
        shard_hub.fault(NAMES[1], "status-503", times=3)
        events = Events()

        with ShardPrefetcher(source, NAMES, tmp_path, limits=LIMITS, on_event=events) as prefetcher:
            prefetcher.wait_for(NAMES[0])
            events.wait("failed", NAMES[1])
            assert prefetcher.wait_for(NAMES[1]).read_bytes() == content(NAMES[1])

        assert prefetcher.stats.n_failures == 1

    def test_what_fails_then_too_is_an_error_with_its_name(
        self, source, shard_hub, tmp_path
    ) -> None:
        shard_hub.fault(NAMES[1], "flipped")

        with ShardPrefetcher(source, NAMES, tmp_path, limits=LIMITS) as prefetcher:
            prefetcher.wait_for(NAMES[0])
            with pytest.raises(
                FetchError, match=r"train/1.bin.*shard 1 after 3 attempts"
            ) as caught:
                prefetcher.wait_for(NAMES[1])
            assert "expected the digest" in str(caught.value)
            assert prefetcher.wait_for(NAMES[2]).read_bytes() == content(NAMES[2])

        assert "1.bin" not in shards_in(tmp_path)
        assert len(shard_hub.requests_for(NAMES[1], fault="flipped")) == 6

    @pytest.mark.parametrize("fault", ["stall-before-header", "stall-in-body", "drip"])
    def test_closing_ends_what_is_under_way(self, fault, source, shard_hub, tmp_path) -> None:
        shard_hub.fault("*/1.bin", fault)

        with ShardPrefetcher(source, NAMES, tmp_path) as prefetcher:
            prefetcher.wait_for(NAMES[0])

        assert shards_in(tmp_path) == {"0.bin"}
        assert not [t for t in threading.enumerate() if t.name.startswith("shardproof-")]
        assert not list(tmp_path.rglob("*.tmp"))

    def test_what_is_passed_over_is_not_waited_for(self, source, shard_hub, tmp_path) -> None:
        shard_hub.fault(NAMES[1], "stall-in-body")

        with ShardPrefetcher(source, NAMES, tmp_path) as prefetcher:
            prefetcher.wait_for(NAMES[0])
            assert prefetcher.wait_for(NAMES[3]).read_bytes() == content(NAMES[3])


def write_over(path: Path) -> None:
    """As many bytes; and another time of change, though the clock may not have moved."""
    with path.open("r+b") as file:
        file.write(b"ZZ")
    os.utime(path, ns=(0, 1))


def put_a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def leases_in(cache: Path) -> list[Path]:
    return [*cache.rglob("*.hold")]


class TestWhatAnotherProgramDoesBeforeItIsRead:
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["with digests", "without"])
    @pytest.mark.parametrize("harm", [Path.unlink, write_over, put_a_link])
    def test_it_is_brought_again(self, source, tmp_path, harm, kind) -> None:
        for name in NAMES:
            (tmp_path / "remote" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "remote" / name).write_bytes(content(name))
        events, cache = Events(), tmp_path / "cache"
        where = source if kind == "with digests" else f"file://{tmp_path}/remote"
        with ShardPrefetcher(where, NAMES, cache, on_event=events, lookahead=2) as prefetcher:
            first = prefetcher.wait_for(NAMES[0])
            n_ready = prefetcher.stats.n_ready
            for name in NAMES[1:3]:
                events.wait("fetched", name)
                harm(first.with_name(Path(name).name))
            for name in NAMES[1:3]:
                path = prefetcher.wait_for(name)
                assert (path.is_symlink(), path.read_bytes()) == (False, content(name))
            assert prefetcher.stats.n_ready == n_ready
        assert leases_in(cache) == []

    def test_the_one_that_is_read_now_too(self, source, tmp_path) -> None:
        with ShardPrefetcher(source, NAMES, tmp_path) as prefetcher:
            prefetcher.wait_for(NAMES[0]).unlink()
            n_ready = prefetcher.stats.n_ready
            for _ in range(3):
                path = prefetcher.wait_for(NAMES[0])
                assert path.read_bytes() == content(NAMES[0])
                path.unlink()
            assert prefetcher.stats.n_ready == n_ready
        assert leases_in(tmp_path) == []

    def test_where_it_can_not_be_brought_again_nothing_is_held(
        self, source, shard_hub, tmp_path
    ) -> None:
        events = Events()
        names = NAMES[:2]
        with ShardPrefetcher(source, names, tmp_path, limits=LIMITS, on_event=events) as prefetcher:
            first = prefetcher.wait_for(names[0])
            events.wait("fetched", names[1])
            first.with_name("1.bin").unlink()
            shard_hub.fault(names[1], "status-503", times=3)
            with pytest.raises(FetchError, match="shard 1 after 3 attempts"):
                prefetcher.wait_for(names[1])
            assert leases_in(tmp_path) == []
            assert prefetcher.wait_for(names[1]).read_bytes() == content(names[1])


def test_what_can_not_be_synced_is_not_called_there(tmp_path) -> None:
    """The bytes came, and go with the lease that they were fetched for."""
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / "0.bin").write_bytes(b"1234")
    cache = tmp_path / "cache"
    prefetcher = ShardPrefetcher(f"file://{tmp_path}/remote", ["0.bin"], cache, limits=LIMITS)
    with contextlib.closing(prefetcher), FileSystemFaults(cache) as fs:
        fs.fail("fsync", errno.EIO, match="data", times=None)
        with pytest.raises(FetchError) as caught:
            prefetcher.wait_for("0.bin")
    assert Path(caught.value.path).parent.parent.parent.parent.parent == cache
    assert "Input/output error; see to the disk" in str(caught.value)
    assert "is there" not in str(caught.value)
    assert "parts" not in str(caught.value)


def test_what_comes_is_synced_once_and_so_are_its_proof_and_both_names(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / "0.bin").write_bytes(b"1234")
    synced: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        path = Path(path_of(fd))
        synced.append(path.name if path.is_dir() else f"a file in {path.parent.name}")
        fsync(fd)

    names = [f"{n}.bin" for n in range(2)]
    (tmp_path / "remote" / "1.bin").write_bytes(b"1234")
    with ShardPrefetcher(
        f"file://{tmp_path}/remote", names, tmp_path / "cache", lookahead=0
    ) as prefetcher:
        root = prefetcher.wait_for("0.bin").parent
        monkeypatch.setattr(os, "fsync", noted)
        prefetcher.wait_for("1.bin")
    kept = next(each for each in synced if each.startswith("a file in .shardproof-"))
    assert synced == [kept, "a file in proofs", "proofs", root.name]


class TestTwoThreads:
    def test_only_one_waits(self, tmp_path) -> None:
        has_begun, goes_on = threading.Event(), threading.Event()

        def fetch(name: str, to: Path) -> None:
            has_begun.set()
            assert goes_on.wait(30)
            to.write_bytes(name.encode())

        read = []
        prefetcher = ShardPrefetcher(CallableSource(fetch), ["a", "b"], tmp_path)
        thread = threading.Thread(target=lambda: read.append(prefetcher.wait_for("a")))
        thread.start()
        try:
            assert has_begun.wait(30)
            with pytest.raises(RuntimeError, match="another thread waits for a shard"):
                prefetcher.wait_for("b")
        finally:
            goes_on.set()
            thread.join()
        assert [path.name for path in read] == ["a"]
        assert prefetcher.wait_for("b").read_bytes() == b"b"
        prefetcher.close()


class TestArguments:
    @pytest.mark.parametrize("names", [["../x"], ["a", "a"], ["a", "A"], ["/etc/passwd"], ["a\n"]])
    def test_names_that_are_refused(self, names, tmp_path) -> None:
        with pytest.raises(ValueError, match="names that are refused"):
            ShardPrefetcher("memory://x", names, tmp_path)

    @pytest.mark.parametrize(("lookahead", "error"), [(-1, ValueError), (True, TypeError)])
    def test_a_lookahead_that_is_none(self, lookahead, error, tmp_path) -> None:
        with pytest.raises(error, match="lookahead"):
            ShardPrefetcher("memory://x", ["a"], tmp_path, lookahead=lookahead)

    def test_a_limit_that_holds_too_few_shards(self, source, tmp_path) -> None:
        enough = 2 * len(content(NAMES[0]))

        ShardPrefetcher(source, NAMES, tmp_path, max_cache_bytes=enough).close()
        with pytest.raises(ValueError, match=f"take {enough} bytes together"):
            ShardPrefetcher(source, NAMES, tmp_path, max_cache_bytes=enough - 1)

    def test_a_limit_without_sizes(self, tmp_path) -> None:
        source = CallableSource(lambda *_: None, NAMES)
        with pytest.raises(ValueError, match=r"does not state the size of 'train/0.bin'"):
            ShardPrefetcher(source, NAMES, tmp_path, max_cache_bytes=10**6)

    def test_a_limit_is_kept(self, source, tmp_path) -> None:
        limit = 3 * len(content(NAMES[0]))
        with ShardPrefetcher(source, NAMES, tmp_path, max_cache_bytes=limit) as prefetcher:
            for path in prefetcher:
                assert path.is_file()
                assert len(shards_in(tmp_path)) <= 3

        assert shards_in(tmp_path) == {"2.bin", "3.bin", "4.bin"}

    def test_a_name_that_was_not_given(self, source, tmp_path) -> None:
        with (
            ShardPrefetcher(source, NAMES, tmp_path) as prefetcher,
            pytest.raises(ValueError, match="expected one of the 5 shards"),
        ):
            prefetcher.wait_for("other")

    def test_one_that_is_closed(self, source, tmp_path) -> None:
        prefetcher = ShardPrefetcher(source, NAMES, tmp_path)
        prefetcher.close()
        prefetcher.close()

        with pytest.raises(ValueError, match="closed"):
            prefetcher.wait_for(NAMES[0])


@pytest.mark.slow
@pytest.mark.parametrize("how", ["unclosed", "interrupted", "forked"])
def test_a_process_that_ends_leaves_nothing(how, shard_hub, tmp_path) -> None:
    for name in NAMES:
        shard_hub.put(name, content(name))
    shard_hub.fault(NAMES[1], "stall-in-body")
    code = """if True:
        import os, signal, sys, shardproof
        url, cache, how, *names = sys.argv[1:]
        prefetcher = shardproof.ShardPrefetcher(url, names, cache)
        prefetcher.wait_for(names[0])
        if how == "interrupted":
            signal.raise_signal(signal.SIGINT)
        if how == "forked":
            pid = os.fork()
            if not pid:
                try:
                    prefetcher.wait_for(names[0])
                except RuntimeError as error:
                    print(error)
                sys.exit()
            assert os.waitpid(pid, 0)[1] == 0
    """
    command = [sys.executable, "-W", "ignore", "-c", code, shard_hub.url, tmp_path, how, *NAMES]

    run = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert (run.returncode == 0) == (how != "interrupted"), run.stderr
    assert ("does not survive a fork" in run.stdout) == (how == "forked")
    assert shards_in(tmp_path) == {"0.bin"}
    assert not list(tmp_path.rglob("*.tmp"))


def test_an_attempt_has_the_time_that_shards_took_until_now() -> None:
    tally = PrefetchTally()
    limits = Limits(timeout=600, min_timeout=10)
    assert tally.limits_for(10**9, limits).timeout == 600

    tally.took(100_000_000, 2.0)  # 50 MB/s

    assert tally.limits_for(10**9, limits).timeout == pytest.approx(80)
    assert tally.limits_for(10**6, limits).timeout == 10
    assert tally.limits_for(10**12, limits).timeout == 600
    assert tally.limits_for(None, limits).timeout == 600


@pytest.mark.parametrize("operation", ["unlink", "rmdir"])
def test_no_thread_stays_whatever_a_close_meets(operation, tmp_path) -> None:
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / "0.bin").write_bytes(b"0")
    prefetcher = ShardPrefetcher(f"file://{tmp_path}/remote", ["0.bin"], tmp_path, limits=LIMITS)
    prefetcher.wait_for("0.bin")
    with FileSystemFaults(tmp_path) as fs:
        fs.fail(operation, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            prefetcher.close()
    assert "shardproof-leases" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.slow
@pytest.mark.parametrize("names", [["a"], []])
def test_one_that_nobody_closes_is_closed_once_it_is_garbage(names, tmp_path) -> None:
    prefetcher = ShardPrefetcher(
        CallableSource(lambda name, to: to.write_bytes(b"x")), names, tmp_path
    )
    for name in names:
        prefetcher.wait_for(name)
    assert len(list(tmp_path.rglob("*.hold"))) == len(names)
    cycle: list[Any] = [prefetcher]
    cycle.append(cycle)
    del prefetcher, cycle
    gc.collect()

    until(lambda: not list(tmp_path.rglob("*.hold")))
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("shardproof")])


def test_a_source_that_was_opened_for_an_iteration_is_not_closed_by_the_collector(
    tmp_path, monkeypatch
) -> None:
    """Whoever reads from it in the thread that the collector runs in may hold its locks."""

    class Source(CallableSource):
        def close(self) -> None:
            closed.append(threading.get_ident())

    closed: list[int] = []
    source = Source(lambda name, to: to.write_bytes(b"x"))
    monkeypatch.setattr(_listings, "open_source", lambda _: source)
    shards = ParquetShards(
        origin="file://x", url="", files=[RemoteFile("a")], counts_path="", cache_dir=tmp_path
    )
    cycle: list[Any] = [shards.paths(0)]
    next(cycle[0])
    cycle.append(cycle)
    del cycle
    gc.collect()
    until(lambda: closed)
    assert closed != [threading.get_ident()]
    until(lambda: not files_below(tmp_path, "*.hold"))


def test_one_may_be_closed_in_a_thread_of_its_own(tmp_path) -> None:
    def closing(event: PrefetchEvent) -> None:
        if event.kind == "fetched":
            assert is_begun.wait(30)
            prefetcher.close()
            is_closed.set()

    is_begun, is_closed = threading.Event(), threading.Event()
    source = CallableSource(lambda name, to: to.write_bytes(b"x"))
    prefetcher = ShardPrefetcher(source, ["a", "b"], tmp_path, on_event=closing).start()
    is_begun.set()
    assert is_closed.wait(30)
    until(lambda: not [t for t in threading.enumerate() if "shardproof" in t.name])
    assert list(tmp_path.rglob("*.hold")) == []

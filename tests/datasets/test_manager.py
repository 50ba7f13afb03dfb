"""The next shard of tokens becomes active whole and looked at, or the current one stays."""

import asyncio
import contextlib
import errno
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pytest

from shardproof import ShardValidationError
from shardproof._base.holds import ObservedSilence
from shardproof.datasets.tokens import ShardedDatasetManager, _ranks, _token_files
from shardproof.datasets.tokens._comms import Comms
from shardproof.errors import FetchError, FetchTimeoutError
from shardproof.fetching import HubSource, Limits, PrefetchEvent, PrefetchStats, open_source
from shardproof.fetching.transfer import _attempts
from shardproof.testing.faults import Hub, HubFault, serve_hub
from tests.helpers import ROOT
from tests.helpers.forking import PATIENCE, ended, forked
from tests.helpers.hub_sources import repository
from tests.helpers.kept_parts import beside_parts
from tests.helpers.token_files import ids_of, write_shard
from tests.helpers.waiting import files_below, until

N_SHARDS, LENGTH = 4, 8
T = TypeVar("T")


def tokens_of(index: int) -> np.ndarray:
    return np.arange(index * 1000, index * 1000 + 40, dtype=np.uint32)


def bytes_of(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def put(hub: Hub, index: int) -> None:
    hub.put(f"t/train_{index:06d}.npy", bytes_of(tokens_of(index)))
    hub.put(f"t/sample_ids_{index:06d}.npy", bytes_of(ids_of(tokens_of(index), LENGTH)))


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve_hub() as hub:
        for index in range(N_SHARDS):
            put(hub, index)
        yield hub


@pytest.fixture(autouse=True, scope="module")
def _clients_are_imported() -> None:
    """As the first manager would do it; Python's development mode tells of steps that long."""
    for address in ("http://127.0.0.1/t", "file:///t"):
        open_source(address).close()


@pytest.fixture(autouse=True)
def _no_threads_are_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    ours = [t for t in set(threading.enumerate()) - before if t.name.startswith("shardproof")]
    assert ours == []


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch) -> None:
    monkeypatch.setattr(_attempts, "_seconds_between", lambda *_: 0.01)


def manager(hub: Hub | Comms, path: Path, rank: int = 0, world_size: int = 1, **keywords):
    url = f"{hub.url}/t" if isinstance(hub, Hub) else hub
    usual = {"shards_path": path, "max_dataset_idx": N_SHARDS, "download_timeout": 5}
    return ShardedDatasetManager(LENGTH, rank, world_size, url, **{**usual, **keywords})


async def bounded(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE):
        return await awaitable


class Driven(NamedTuple):
    """A manager, and the loop in which a test drives it step by step."""

    shards: ShardedDatasetManager
    runner: asyncio.Runner

    def run(self, awaitable: Awaitable[T]) -> T:
        return self.runner.run(bounded(awaitable))

    def begin(self, index: int = 0) -> None:
        self.run(self.shards.initialize_datasets(index))

    def swap(self) -> int:
        return self.run(self.shards.swap_datasets())

    def is_next_there(self) -> bool:
        return self.run(self.shards.upcoming_dataset)

    def rows(self) -> list[list[int]]:
        return rows(self.shards.active_dataset)


@contextlib.contextmanager
def driven(hub: Hub | Comms, path: Path, **keywords) -> Iterator[Driven]:
    """Give a manager that is closed at the end."""
    with asyncio.Runner() as runner:
        one = Driven(manager(hub, path, **keywords), runner)
        try:
            yield one
        finally:
            one.run(one.shards.aclose())


def rows(dataset) -> list[list[int]]:
    return [row.tolist() for row in dataset]


def expected(index: int) -> list[list[int]]:
    return tokens_of(index).reshape(-1, LENGTH).tolist()


def shards_in(path: Path) -> set[str]:
    return {name for name in os.listdir(path) if not name.startswith(".")}


def names(*indices: int) -> set[str]:
    return {f"{kind}_{i:06d}.npy" for i in indices for kind in ("train", "sample_ids")}


def assert_clean(path: Path) -> None:
    """No temporary file, no lease, nothing on its way but what the next run goes on from."""
    state = path / ".shardproof"
    left = [file for file in state.rglob("*") if file.is_file()]
    kinds = {file.relative_to(state).parts[0] for file in left}
    assert kinds <= {"kept", "proofs", "ranks", "locks"}, left
    assert beside_parts(state / "kept") == set()
    assert not [file for file in path.rglob("*") if file.suffix in {".tmp", ".hold"}]


def in_ranks(train: Callable[[int], Awaitable[None]], n_ranks: int) -> None:
    """Run each rank in a process of its own, to its end."""
    pids = [forked(lambda rank=rank: train(rank)) for rank in range(n_ranks)]
    assert [ended(pid) for pid in pids] == [0] * n_ranks


class TestOneRank:
    @pytest.mark.parametrize("level", ["complete", "valid"])
    def test_shard_after_shard(self, hub, tmp_path, level: str) -> None:
        with driven(hub, tmp_path, level=level) as one:
            one.begin(2)
            for index in (2, 3, 0, 1, 2):
                assert (one.shards.shard_index, one.rows()) == (index, expected(index))
                assert one.is_next_there()
                assert shards_in(tmp_path) == names(index, (index + 1) % N_SHARDS)
                assert one.swap() == (index + 1) % N_SHARDS
        assert_clean(tmp_path)

    @pytest.mark.parametrize("cleanup", ["keep", "auto"])
    def test_the_old_dataset_can_be_read_after_the_swap(self, hub, tmp_path, cleanup) -> None:
        with driven(hub, tmp_path, cleanup=cleanup) as one:
            one.begin()
            old = one.shards.active_dataset
            one.swap()
            assert one.is_next_there()
            assert rows(old) == expected(0)
        assert shards_in(tmp_path) == names(*range(cleanup == "auto", 3))

    def test_a_purged_shard_is_fetched_again(self, hub, tmp_path) -> None:
        with driven(hub, tmp_path) as one:
            one.begin()
            assert one.is_next_there()
            (tmp_path / "train_000001.npy").unlink()
            one.swap()
            assert one.rows() == expected(1)
            assert (tmp_path / "train_000001.npy").exists()


class TestFaults:
    @pytest.mark.parametrize("fault", [HubFault.STATUS_404, HubFault.TRUNCATED])
    @pytest.mark.parametrize("kind", ["train", "sample_ids"])
    def test_once(self, hub, tmp_path, fault: HubFault, kind: str) -> None:
        hub.fault(f"t/{kind}_*", fault, times=1)
        with driven(hub, tmp_path) as one:
            one.begin()
            one.swap()
            assert one.rows() == expected(1)

    @pytest.mark.parametrize("fault", [HubFault.STATUS_503, HubFault.STALL_IN_BODY])
    def test_always(self, hub, tmp_path, caplog, fault: HubFault) -> None:
        hub.fault("t/train_*", fault)
        with driven(hub, tmp_path, download_timeout=0.3) as one:
            with pytest.raises(FetchError) as caught:
                one.begin()
            assert one.shards.active_dataset is None
        tokens, ids = (tmp_path / f"{kind}_000000.npy" for kind in ("train", "sample_ids"))
        assert {str(path) in str(caught.value) for path in (tokens, ids)} == {True}
        assert f"Failed to download shard 0 after 3 attempts: {tokens}, {ids}" in caplog.text
        assert "train_000000.npy" not in shards_in(tmp_path)
        assert_clean(tmp_path)

    def test_a_swap_that_fails_changes_nothing_and_may_be_repeated(
        self, hub, tmp_path, caplog
    ) -> None:
        hub.fault("t/train_000002*", HubFault.STATUS_503)
        with driven(hub, tmp_path) as one:
            one.begin()
            one.swap()
            assert not one.is_next_there()
            active = one.shards.active_dataset
            for _ in range(2):
                with pytest.raises(FetchError, match=r"train_000002\.npy"):
                    one.swap()
                assert (one.shards.active_dataset, one.shards.shard_index) == (active, 1)
                assert one.rows() == expected(1)
            hub.heal()
            assert (one.swap(), one.rows()) == (2, expected(2))
        assert caplog.text.count("Shard 2 could not be prepared; trying once more") == 3

    @pytest.mark.parametrize("level", ["complete", "valid"])
    def test_a_shard_that_is_wrong_at_its_source_is_never_active(
        self, hub, tmp_path, level: str
    ) -> None:
        if level == "complete":
            hub.put("t/sample_ids_000001.npy", bytes_of(np.zeros(3, np.uint64)))
        else:
            hub.put("t/train_000001.npy", bytes_of(tokens_of(2)))
        with driven(hub, tmp_path, level=level) as one:
            one.begin()
            assert not one.is_next_there()
            with pytest.raises(ShardValidationError):
                one.swap()
            assert one.rows() == expected(0)
            assert not shards_in(tmp_path) & names(1)
            put(hub, 1)
            assert (one.swap(), one.rows()) == (1, expected(1))

    def test_the_end_of_the_shards(self, hub, tmp_path) -> None:
        with driven(hub, tmp_path, max_dataset_idx=None) as one:
            one.begin(N_SHARDS - 1)
            with pytest.raises(FetchError, match=rf"Shard {N_SHARDS}"):
                one.swap()

    @pytest.mark.slow
    def test_limits_say_it_all(self, hub, tmp_path) -> None:
        hub.fault("t/train_000000*", HubFault.STALL_IN_BODY, times=1)
        limits = Limits(attempts=2, timeout=PATIENCE, stall_timeout=2)
        with driven(hub, tmp_path, limits=limits, download_timeout=600) as one:
            one.begin()
            assert one.rows() == expected(0)
            assert one.shards.stats.n_retries == 1


class TestCancelled:
    def test_in_the_foreground(self, hub, tmp_path) -> None:
        hub.fault("t/train_000000*", HubFault.STALL_IN_BODY, times=1)

        async def main() -> None:
            shards = manager(hub, tmp_path)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await shards.initialize_datasets(0)
            working = [t.name for t in threading.enumerate() if t.name.startswith("shardproof-")]
            assert set(working) <= {"shardproof-leases"}
            await shards.initialize_datasets(0)
            assert rows(shards.active_dataset) == expected(0)
            await shards.aclose()

        asyncio.run(bounded(main()))
        assert_clean(tmp_path)

    @pytest.mark.parametrize("how", ["aclose", "close", "end of the loop"])
    def test_while_the_next_one_comes(self, hub, tmp_path, how: str) -> None:
        hub.fault("t/train_000001*", HubFault.STALL_IN_BODY)

        async def main() -> None:
            shards = manager(hub, tmp_path)
            await shards.initialize_datasets(0)
            await asyncio.sleep(0.1)
            if how == "aclose":
                await shards.aclose()
            elif how == "close":
                shards.close()
            kept.append(shards)
            assert rows(shards.active_dataset) == expected(0)

        kept: list[ShardedDatasetManager] = []
        asyncio.run(bounded(main()))
        kept.pop().close()
        assert_clean(tmp_path)

    @pytest.mark.slow
    def test_an_interrupt(self, hub, tmp_path) -> None:
        hub.fault("t/train_000001*", HubFault.STALL_IN_BODY)
        script = f"""
import asyncio, threading
from shardproof.datasets.tokens import ShardedDatasetManager

# Not in the loop: it imports, and in its development mode Python tells of steps that take long.
shards = ShardedDatasetManager({LENGTH}, 0, 1, "{hub.url}/t", shards_path={str(tmp_path)!r})

async def main():
    await shards.initialize_datasets(0)
    print("ready", flush=True)
    await shards.swap_datasets()

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print([t.name for t in threading.enumerate() if "fetch" in t.name or "shard-" in t.name])
"""
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", script]
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as child:
            assert child.stdout.readline() == "ready\n"
            until(lambda: hub.requests_for("t/train_000001*", method="GET"))
            child.send_signal(signal.SIGINT)
            out, error = child.communicate(timeout=PATIENCE)
        assert (out, error, child.returncode) == ("[]\n", "", 0)
        assert_clean(tmp_path)


class TestFunctions:
    @pytest.fixture
    def there(self, tmp_path) -> Path:
        put_there(tmp_path / "there", *range(N_SHARDS))
        return tmp_path / "there"

    def fetched_by(self, function: Callable, path: Path, **keywords) -> None:
        with driven(function, path, **{"download_timeout": 600, **keywords}) as one:
            one.begin()
            one.swap()
            assert one.rows() == expected(1)
        assert_clean(path)

    def test_a_plain_one_runs_in_a_thread_and_an_asynchronous_one_in_the_loop(
        self, there, tmp_path
    ) -> None:
        def fetch(name: str, dest: Path) -> None:
            threads.add(threading.current_thread() is threading.main_thread())
            dest.write_bytes((there / name).read_bytes())

        async def fetch_async(name: str, dest: Path) -> None:
            await asyncio.sleep(0.01)
            fetch(name, dest)

        for function, is_main in ((fetch, False), (fetch_async, True)):
            threads: set[bool] = set()
            self.fetched_by(function, tmp_path / function.__name__)
            assert threads == {is_main}

    def test_one_that_hangs_is_cancelled(self, there, tmp_path) -> None:
        calls, cancelled = [], []

        async def fetch(name: str, dest: Path) -> None:
            calls.append(name)
            if calls.count(name) == 1:
                try:
                    await asyncio.sleep(PATIENCE)
                except asyncio.CancelledError:
                    cancelled.append(name)
                    raise
            dest.write_bytes((there / name).read_bytes())

        self.fetched_by(fetch, tmp_path / "here", download_timeout=0.2)
        assert len(cancelled) >= 4

    @pytest.mark.parametrize(("kind", "n_bytes"), [("train", 0), ("sample_ids", -1)])
    def test_a_file_that_is_cut_is_a_failed_attempt(
        self, there, tmp_path, caplog, kind: str, n_bytes: int
    ) -> None:
        calls = []

        def fetch(name: str, dest: Path) -> None:
            calls.append(name)
            is_cut = name.startswith(kind) and calls.count(name) < 3
            data = (there / name).read_bytes()
            dest.write_bytes(data[:n_bytes] if is_cut else data)

        with caplog.at_level(logging.WARNING, "shardproof.fetching"):
            self.fetched_by(fetch, tmp_path / "here")
        assert calls.count(f"{kind}_000000.npy") == 3
        cut = f"the function has not written a complete '{kind}_000000.npy': expected"
        assert f"Could not download shard 0 (attempt 1/3): {cut}" in caplog.text
        assert f"(attempt 2/3): {cut}" in caplog.text


def put_there(path: Path, *indices: int) -> None:
    """Whole shards of another tool."""
    for index in indices:
        write_shard(path, index, tokens_of(index), LENGTH)


def inodes(path: Path) -> dict[str, int]:
    return {name: (path / name).stat().st_ino for name in shards_in(path)}


class Nowhere:
    """A function that a test must not call."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __call__(self, name: str, dest: Path) -> None:
        self.called.append(name)
        raise OSError("no network")


class TestWhatLiesThere:
    """Shards that somebody else put into the directory are taken, if they stand the look."""

    def taken(self, comms: Comms, path: Path, **keywords) -> list[list[int]]:
        with driven(comms, path, **keywords) as one:
            one.begin()
            one.is_next_there()
            return one.rows()

    @pytest.mark.parametrize(
        ("comms", "level"), [("function", "complete"), ("http", "valid"), ("file", "valid")]
    )
    def test_without_a_request(self, hub, tmp_path, caplog, comms: str, level: str) -> None:
        path, nowhere = tmp_path / "here", Nowhere()
        put_there(path, 0, 1)
        before = inodes(path)
        sources = {"function": nowhere, "http": f"{hub.url}/t", "file": f"file://{tmp_path}/no"}
        assert self.taken(sources[comms], path, level=level) == expected(0)
        assert inodes(path) == before
        assert nowhere.called == []
        assert not hub.requests
        assert [record for record in caplog.records if record.levelno > logging.INFO] == []
        assert_clean(path)

    def test_they_are_not_removed(self, tmp_path) -> None:
        put_there(tmp_path, *range(N_SHARDS))
        before = inodes(tmp_path)
        with driven(Nowhere(), tmp_path) as one:
            one.begin()
            for _ in range(6):
                one.swap()
        assert inodes(tmp_path) == before

    @pytest.fixture
    def theirs(self, hub, tmp_path) -> Iterator[HubSource]:
        """A repository that has the shards which lie there."""
        put_there(tmp_path, 0, 1)
        with repository(hub, {n: (tmp_path / n).read_bytes() for n in names(0, 1)}) as source:
            yield source

    def test_from_the_hub_of_which_they_are_proven(self, hub, theirs, tmp_path) -> None:
        before = inodes(tmp_path)
        assert self.taken(theirs, tmp_path, max_dataset_idx=2) == expected(0)
        assert not hub.requests_for("*.npy", method="GET")
        assert inodes(tmp_path) == before

    def test_from_the_hub_that_has_others(self, theirs, tmp_path) -> None:
        np.save(tmp_path / "train_000000.npy", tokens_of(2))
        assert self.taken(theirs, tmp_path, max_dataset_idx=2) == expected(0)
        (aside,) = shards_in(tmp_path) - names(0, 1)
        assert aside.startswith("train_000000.npy.bad-")
        assert np.array_equal(np.load(tmp_path / aside), tokens_of(2))

    def test_from_the_hub_that_can_not_be_asked(self, tmp_path) -> None:
        put_there(tmp_path, 0, 1)
        source = HubSource("org/name", endpoint="http://127.0.0.1:9")
        assert self.taken(source, tmp_path, max_dataset_idx=2) == expected(0)
        source.close()
        assert shards_in(tmp_path) == names(0, 1)

    @pytest.mark.parametrize("missing", ["train", "sample_ids"])
    def test_of_half_a_shard_both_files_are_fetched(self, hub, tmp_path, missing: str) -> None:
        put_there(tmp_path, 0, 1)
        (tmp_path / f"{missing}_000000.npy").unlink()
        before = inodes(tmp_path)
        assert self.taken(f"{hub.url}/t", tmp_path) == expected(0)
        assert inodes(tmp_path).items() >= before.items()
        assert {request.path for request in hub.requests} == {f"t/{name}" for name in names(0)}

    def test_what_is_no_shard_is_fetched_and_only_what_differs_is_called_bad(
        self, hub, tmp_path, caplog
    ) -> None:
        put_there(tmp_path, 0)
        tokens = tmp_path / "train_000000.npy"
        os.truncate(tokens, tokens.stat().st_size - 4)
        before = inodes(tmp_path)
        assert self.taken(f"{hub.url}/t", tmp_path, level="valid") == expected(0)
        assert inodes(tmp_path)["sample_ids_000000.npy"] == before["sample_ids_000000.npy"]
        (aside,) = shards_in(tmp_path) - names(0, 1)
        assert (tmp_path / aside).stat().st_ino == before["train_000000.npy"]
        assert "What lies there is not taken for shard 0" in caplog.text

    def test_one_that_is_replaced_while_it_is_looked_at(self, hub, tmp_path, monkeypatch) -> None:
        real = _token_files.mark_at

        def mark_at(path: Path):
            mark = real(path)
            if path.name == "train_000000.npy" and not replaced:
                replaced.append(path)
                np.save(tmp_path / "new", tokens_of(0)[::-1])
                (tmp_path / "new.npy").replace(path)
            return mark

        replaced: list[Path] = []
        put_there(tmp_path, 0, 1)
        monkeypatch.setattr(_token_files, "mark_at", mark_at)
        assert self.taken(f"{hub.url}/t", tmp_path) == expected(0)

    def test_what_can_not_be_replaced_stays(self, tmp_path) -> None:
        put_there(tmp_path, 0)
        np.save(tmp_path / "train_000000.npy", tokens_of(2))
        before, nowhere = inodes(tmp_path), Nowhere()
        with pytest.raises(FetchError, match="no network"):
            self.taken(nowhere, tmp_path, level="valid")
        assert inodes(tmp_path) == before
        assert nowhere.called

    def test_what_can_not_be_looked_at_is_neither_taken_nor_replaced(
        self, hub, tmp_path, make_shard_faults
    ) -> None:
        put_there(tmp_path, 0)
        before = inodes(tmp_path)
        make_shard_faults(tmp_path).fail("open", errno.EIO, match="train_000000.npy")
        with pytest.raises(ShardValidationError, match=r"Unreadable files \(1\)"):
            self.taken(f"{hub.url}/t", tmp_path)
        assert inodes(tmp_path) == before
        assert not hub.requests

    @pytest.mark.slow
    def test_several_jobs_at_once(self, hub, tmp_path) -> None:
        """One shard is torn, of the other one a file is missing."""

        async def train() -> None:
            async with manager(hub, tmp_path, level="valid") as shards:
                await shards.initialize_datasets(0)
                for index in range(2):
                    assert rows(shards.active_dataset) == expected(index)
                    await shards.swap_datasets()

        put_there(tmp_path, 0, 1)
        os.truncate(tmp_path / "train_000000.npy", 200)
        (tmp_path / "sample_ids_000001.npy").unlink()
        pids = [forked(train) for _ in range(3)]
        assert [ended(pid) for pid in pids] == [0] * 3
        assert len([name for name in shards_in(tmp_path) if ".bad-" in name]) == 1


class TestStatsAndEvents:
    def test_they_tell_what_happened(self, hub, tmp_path) -> None:
        hub.fault("t/train_000001*", HubFault.STATUS_503, times=1)
        events: list[PrefetchEvent] = []

        put_there(tmp_path, 2)
        with driven(hub, tmp_path, on_event=events.append) as one:
            assert one.shards.stats == PrefetchStats()
            one.begin()
            assert one.is_next_there()
            one.swap()
            assert one.is_next_there()
            stats = one.shards.stats
        assert (stats.n_opened, stats.n_ready, stats.hit_rate) == (2, 1, 0.5)
        assert (stats.n_attempts, stats.n_retries, stats.n_failures) == (5, 1, 0)
        n_bytes = sum(len(bytes_of(tokens_of(i))) for i in (0, 1))
        n_bytes += sum(len(bytes_of(ids_of(tokens_of(i), LENGTH))) for i in (0, 1))
        assert stats.n_bytes == n_bytes
        assert stats.seconds_waited > 0
        told = {(event.kind, event.name) for event in events}
        assert {name for kind, name in told if kind == "fetched"} == names(0, 1)
        assert {name for kind, name in told if kind == "found"} == names(2)
        assert {name for kind, name in told if kind == "removed"} == names(0)
        opened = [event.name for event in events if event.kind == "opened"]
        assert opened == ["train_000000.npy", "train_000001.npy"]

    def test_what_fails(self, hub, tmp_path) -> None:
        hub.put("t/train_000001.npy", bytes_of(tokens_of(2)))
        hub.fault("t/train_000002*", HubFault.STATUS_503)
        events: list[PrefetchEvent] = []

        with driven(hub, tmp_path, level="valid", on_event=events.append) as one:
            for index, error in ((1, ShardValidationError), (2, FetchError)):
                with pytest.raises(error):
                    one.begin(index)
            assert (one.shards.stats.n_failures, one.shards.stats.n_opened) == (1, 0)
        failed = [event for event in events if event.kind == "failed"]
        assert [event.name for event in failed] == ["train_000001.npy", "train_000002.npy"]
        assert "Files with another digest" in failed[0].problem
        assert "503" in failed[1].problem


class TestRanks:
    @pytest.mark.slow
    @pytest.mark.parametrize("fault", [None, HubFault.TRUNCATED])
    def test_all_read_the_same_and_one_fetches(self, hub, tmp_path, fault) -> None:
        async def train(rank: int) -> None:
            async with manager(hub, tmp_path, rank, 4) as shards:
                await shards.initialize_datasets(0)
                for index in (0, 1, 2, 3, 0):
                    assert rows(shards.active_dataset) == expected(index)
                    await shards.swap_datasets()

        if fault is not None:
            hub.fault("t/*", fault, times=1)
        in_ranks(train, 4)
        for name in names(1, 2):  # 0 may have come twice
            n_asked = len(hub.requests_for(f"t/{name}", method="GET"))
            assert fault is not None or n_asked <= 1 + (name in names(1))
        assert_clean(tmp_path)

    def test_they_learn_of_a_failure_in_time(self, hub, tmp_path) -> None:
        hub.fault("t/train_000001*", HubFault.STATUS_503)

        async def train(rank: int) -> None:
            async with manager(hub, tmp_path, rank, 3) as shards:
                await shards.initialize_datasets(0)
                for _ in range(2):
                    with pytest.raises(FetchError) as caught:
                        await shards.swap_datasets()
                    assert "503" in str(caught.value)
                    assert str(tmp_path / "train_000001.npy") in str(caught.value)
                    assert rows(shards.active_dataset) == expected(0)
                if rank == 0:
                    asked.touch()
                until(healed.exists)
                assert await shards.swap_datasets() == 1
                assert rows(shards.active_dataset) == expected(1)

        asked, healed = tmp_path / ".asked", tmp_path / ".healed"
        pids = [forked(lambda rank=rank: train(rank)) for rank in range(3)]
        until(asked.exists)
        hub.heal()
        healed.touch()
        assert [ended(pid) for pid in pids] == [0] * 3

    def test_a_rank_that_waits_learns_that_rank_0_was_killed(self, hub, tmp_path) -> None:
        hub.fault("t/train_000000*", HubFault.STALL_IN_BODY)

        async def train(rank: int) -> None:
            async with manager(hub, tmp_path, rank, 3, download_timeout=PATIENCE) as shards:
                if rank == 0:
                    await shards.initialize_datasets(0)
                with pytest.raises(FetchError, match="the process of rank 0 is gone"):
                    await shards.initialize_datasets(0)

        pids = [forked(lambda rank=rank: train(rank)) for rank in range(3)]
        until(lambda: len(files_below(tmp_path, "[12].1")) >= 2)
        begin = time.monotonic()
        os.kill(pids[0], signal.SIGKILL)
        assert [ended(pid) for pid in pids] == [-signal.SIGKILL, 0, 0]
        assert time.monotonic() - begin < 20  # of a hang it would be more than a hundred

    def test_a_rank_0_that_never_comes(self, tmp_path) -> None:
        one_of_two = {"rank": 1, "world_size": 2}
        never = pytest.raises(FetchTimeoutError, match="nothing was heard of it for 0s")
        with driven("http://x", tmp_path, wait_timeout=0.3, **one_of_two) as one, never:
            one.begin()
        with driven("http://x", tmp_path, **one_of_two) as one, pytest.raises(TimeoutError):
            one.run(asyncio.wait_for(one.shards.initialize_datasets(0), 0.1))
        assert_clean(tmp_path)

    def test_a_rank_0_that_is_far_ahead_removes_nothing_that_others_need(
        self, hub, tmp_path
    ) -> None:
        async def train(rank: int) -> None:
            async with manager(hub, tmp_path, rank, 2, wait_timeout=PATIENCE) as shards:
                if rank:
                    until(done.exists)
                await shards.initialize_datasets(0)
                for index in range(3):
                    assert rows(shards.active_dataset) == expected(index)
                    await shards.swap_datasets()
                    if rank:
                        await shards.upcoming_dataset
                if not rank:
                    assert await shards.upcoming_dataset
                    assert shards_in(tmp_path) >= names(0, 1, 2, 3)
                    done.touch()
                    until(over.exists)
                    await shards.swap_datasets()
                    await shards.upcoming_dataset
                else:
                    over.touch()

        done, over = tmp_path / ".done", tmp_path / ".over"
        in_ranks(train, 2)
        assert not shards_in(tmp_path) & names(2)

    def test_ranks_that_make_other_calls(self, hub, tmp_path) -> None:
        async def train(rank: int) -> None:
            async with manager(hub, tmp_path, rank, 2) as shards:
                if rank == 0:
                    await shards.initialize_datasets(0)
                    until(over.exists)
                    return
                with pytest.raises(FetchError, match="all ranks must make the same calls"):
                    await shards.initialize_datasets(1)
                over.touch()

        over = tmp_path / ".over"
        in_ranks(train, 2)


class TestWhoIsBelieved:
    KEY = _ranks.key_of_run("run")

    def said(self, root: Path, process: str, *, beat: int = 0, key: str = KEY) -> Path:
        """What a rank 0 of some process has left: that shard 5 can't be had."""
        path = root / ".shardproof" / "ranks" / f"0123456789abcdef.{process.replace('/', ',')}"
        path.mkdir(parents=True, exist_ok=True)
        outcome = {"call": 1, "shard": 5, "problem": "yesterday's"}
        text = json.dumps({"key": key, "beat": beat, "outcomes": [outcome]})
        (path / "said.json").write_text(text)
        return path

    @pytest.fixture
    def dead(self, tmp_path) -> str:
        ended(forked(lambda: (tmp_path / ".dead").write_text(_ranks.this_process())))
        return (tmp_path / ".dead").read_text()

    def follower(self, root: Path, **keywords) -> _ranks.Follower:
        return _ranks.Follower(str(root), self.KEY, 1, **keywords)

    def test_a_process_that_is_gone_only_by_the_same_run_id(self, tmp_path, dead: str) -> None:
        self.said(tmp_path, dead)
        follower = self.follower(tmp_path)
        assert [follower.look(1) for _ in range(3)] == [None] * 3
        assert self.follower(tmp_path, trusts=True).look(1).shard == 5

    @pytest.mark.parametrize("process", ["", "other-boot/1/2/3"])
    def test_one_that_can_not_be_asked_when_it_was_seen_to_change(
        self, tmp_path, process: str
    ) -> None:
        self.said(tmp_path, process)
        follower = self.follower(tmp_path)
        assert [follower.look(1) for _ in range(3)] == [None] * 3
        self.said(tmp_path, process, beat=1)
        assert follower.look(1).problem == "yesterday's"

    def test_one_that_lives_here_and_is_of_this_run(self, tmp_path) -> None:
        self.said(tmp_path, _ranks.this_process())
        assert self.follower(tmp_path).look(1).shard == 5
        self.said(tmp_path, _ranks.this_process(), key=_ranks.key_of_run("other"))
        assert self.follower(tmp_path, trusts=True).look(1) is None

    @pytest.mark.parametrize(
        "text", [b"", b"{", b"[]", b'{"key": 3}', b"\xff" * 100, b'{"key": "' + b"x" * 2**17]
    )
    def test_not_what_is_no_record(self, tmp_path, text: bytes) -> None:
        path = self.said(tmp_path, _ranks.this_process())
        (path / "said.json").write_bytes(text)
        assert self.follower(tmp_path, trusts=True).look(1) is None

    def test_silence(self, tmp_path) -> None:
        now = 0.0
        follower = self.follower(tmp_path, trusts=True)
        follower._silence = ObservedSilence(lambda: now)
        for later, beat in ((0.0, 0), (149.0, 0), (149.0, 1), (298.0, 1)):
            now = later
            self.said(tmp_path, "other-boot/1/2/3", beat=beat)
            assert follower.look(2) is None
        now = 300.0
        with pytest.raises(FetchError, match="no sign of life for 151s"):
            follower.look(2)

    def test_the_next_run_sweeps(self, tmp_path, dead: str) -> None:
        path = self.said(tmp_path, dead)
        other = self.said(tmp_path, "other-boot/1/2/3")
        _ranks.Leader(str(tmp_path), self.KEY, 2).close()
        assert not path.exists()
        assert other.exists()

    def test_signs_of_life_and_outcomes(self, tmp_path) -> None:
        follower = self.follower(tmp_path)
        with contextlib.closing(_ranks.Leader(str(tmp_path), self.KEY, 3, beat=0.01)) as leader:
            assert leader.slowest() == 0
            for call in range(1, 40):
                leader.tell(_ranks.RankOutcome(call, call, marks=((1, 2, 3), None)))
            assert follower.look(39).marks == ((1, 2, 3), None)
            with pytest.raises(FetchError, match="rank 0 has gone on to shard 39"):
                follower.look(2)
            assert leader.slowest() == 0
            _ranks.Follower(str(tmp_path), self.KEY, 2).look(40)
            assert leader.slowest() == 2


@pytest.mark.slow
def test_the_script_of_the_page(hub, tmp_path) -> None:
    page = ROOT / "docs" / "token-shards.md"
    (script,) = re.findall(r'```python title="train.py"\n(.*?)```', page.read_text(), re.DOTALL)
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, "train.py", f"{hub.url}/t", "shards"]
    environments = [{**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    done = [
        subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
        for env in environments
    ]
    lines = "".join(each.communicate(timeout=PATIENCE)[0] for each in done).splitlines()
    assert [process.returncode for process in done] == [0, 0]
    assert sorted(lines) == sorted(
        f"{shard} {index} {int(row.sum())}"
        for shard in range(N_SHARDS)
        for index, row in enumerate(tokens_of(shard).reshape(-1, LENGTH))
    )


class TestArguments:
    @pytest.mark.parametrize(
        ("keywords", "problem"),
        [
            ({"comms": "nowhere"}, "url: expected"),
            ({"max_download_retries": 0}, "max_download_retries"),
            ({"download_timeout": 0}, "download_timeout"),
            ({"max_dataset_idx": 0}, "max_dataset_idx"),
            ({"wait_timeout": 0.0, "rank": 1, "world_size": 2}, "wait_timeout"),
            ({"cleanup": "all"}, "cleanup: expected 'auto' or 'keep'"),
            ({"limits": Limits(), "download_timeout": 5}, "limits: max_download_retries and"),
            ({"limits": Limits(), "max_download_retries": 2}, "limits: max_download_retries and"),
        ],
    )
    def test_out_of_range(self, tmp_path, keywords: dict, problem: str) -> None:
        usual = {"sequence_length": 8, "rank": 0, "world_size": 1, "comms": "http://127.0.0.1:9"}
        with pytest.raises(ValueError, match=problem):
            ShardedDatasetManager(**{**usual, **keywords}, shards_path=tmp_path)

    def test_a_swap_before_a_shard_is_active(self, hub, tmp_path) -> None:
        with driven(hub, tmp_path) as one:
            with pytest.raises(RuntimeError, match="call initialize_datasets first"):
                one.swap()
            assert not hub.requests
            one.begin()
            assert one.swap() == 1

    def test_calls_that_can_not_be_made(self, hub, tmp_path) -> None:
        async def main() -> None:
            shards = manager(hub, tmp_path)
            first = asyncio.create_task(shards.initialize_datasets(0))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another call is under way"):
                await shards.swap_datasets()
            await first
            with pytest.raises(ValueError, match="shard_index"):
                await shards.initialize_datasets(-1)
            await shards.aclose()
            await shards.aclose()
            with pytest.raises(RuntimeError, match="closed"):
                await shards.swap_datasets()

        asyncio.run(bounded(main()))

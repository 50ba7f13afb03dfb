"""Many processes at one thing: a cache, the shards of a plan, a staged copy; some are killed."""

import contextlib
import fcntl
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardproof import ClaimLostError, ReceiptStore, testing
from shardproof._base import files, holds
from shardproof.fetching import ShardPrefetcher
from shardproof.fetching.cache._cache import Cache
from shardproof.receipts import _claims
from shardproof.staging import CopyDirectory, _copy, _make_own, _proofs, stage
from tests.attacks.tally import Harm, Tally
from tests.helpers.crowd import NAMES, data_of, read, remove
from tests.helpers.forking import forked
from tests.helpers.planning import new_store
from tests.helpers.waiting import until

real_flock = fcntl.flock
Says = Callable[[str], None]
Act = Callable[[random.Random, Says], None]

HARMS: dict[str, Harm] = {
    "lost": "lost",
    "other bytes": "torn",
    "two at once": "lie",
    "raised": "wrong class",
    "hangs": "hang",
}


class Crowd:
    def __init__(self, base: Path, seed: int, locks: str) -> None:
        self.luck, self.locks = random.Random(f"{seed} {locks}"), locks
        self.log = base / f"said-{seed}-{locks}"
        self.log.touch()
        self.pids: list[int] = []

    def start(self, act: Act) -> None:
        luck = random.Random(self.luck.random())
        self.pids.append(forked(lambda: self._work(act, luck)))

    def _work(self, act: Act, luck: random.Random) -> None:
        os.fsync = lambda _: None  # nobody cuts the power
        if self.locks.startswith("void"):
            fcntl.flock = fcntl.lockf = lambda *_: None
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND)

        def say(what: str) -> None:
            os.write(log, f"{what}\n".encode())

        try:
            act(luck, say)
        except BaseException:
            say("raised")
            raise

    def kill(self, n: int) -> None:
        for pid in self.luck.sample(self.pids, n):
            time.sleep(self.luck.uniform(0, 0.02))
            os.kill(pid, signal.SIGKILL)

    def note(self, tally: Tally) -> None:
        ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.pids]
        said = Counter(self.log.read_text().splitlines())
        said["hangs"] = ends.count(-signal.SIGALRM)
        tally.count(len(ends))
        for what, kind in HARMS.items():
            for _ in range(said[what]):
                tally.harm(kind, f"{what}, in a crowd with {self.log.name}")

    def run(self, act: Act, n: int, tally: Tally) -> None:
        for _ in range(n):
            self.start(act)
        self.kill(n // 4)
        self.note(tally)


def crowds(tally: Tally) -> list[tuple[int, str, int]]:
    seeds = range(20) if tally.is_exhaustive else [0]
    return [
        (seed, locks, (8, 16, 32, 64)[seed % 4]) for seed in seeds for locks in ("real", "void")
    ]


def of_one_cache(base: Path, seed: int, locks: str, n: int, tally: Tally) -> None:
    """Some read, fetch, and replace by another revision; some remove; some are killed."""
    root, crowd = base / f"cache-{seed}-{locks}-{n}", Crowd(base, seed, locks)

    def act(luck: random.Random, say: Says) -> None:
        does = read if luck.random() < 0.7 else remove
        with Cache(root) as cache:
            for _ in range(6):
                said = does(cache, luck)
                say(said)

    crowd.run(act, n, tally)
    look_at_the_cache(root, tally)


def look_at_the_cache(root: Path, tally: Tally) -> None:
    Cache(root).close()  # who comes next sweeps
    for name in NAMES:
        with contextlib.suppress(FileNotFoundError):
            if (root / name).read_bytes() not in {data_of(name, "v1"), data_of(name, "v2")}:
                tally.harm("torn", f"'{name}' has other bytes in '{root.name}'")
    for state in ("leases", "parts"):
        if left := os.listdir(root / ".shardproof" / state):
            tally.harm("leftover", f"{state} of '{root.name}': {left}")


def of_one_prefetch(base: Path, seed: int, locks: str, n: int, tally: Tally) -> None:
    root, source = base / f"prefetched-{seed}-{locks}-{n}", base / "source"
    crowd = Crowd(base, 1000 + seed, locks)
    for name in NAMES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(data_of(name, "v1"))

    def act(luck: random.Random, say: Says) -> None:
        names = luck.sample(NAMES, len(NAMES))
        with ShardPrefetcher(source.as_uri(), names, root, cleanup="auto") as prefetcher:
            for name in names:
                data = prefetcher.wait_for(name).read_bytes()
                say("read" if data == data_of(name, "v1") else "other bytes")

    crowd.run(act, n, tally)
    look_at_the_cache(root, tally)


@pytest.mark.attack("many processes: one cache")
@pytest.mark.parametrize("meet", [of_one_cache, of_one_prefetch])
def test_a_crowd_in_one_cache_reads_the_right_bytes(meet, tmp_path, tally) -> None:
    for seed, locks, n in crowds(tally):
        meet(tmp_path, seed, locks, n, tally)


class RashCache(Cache):
    """Removes what it found free a while ago, as soon as a reader has it in its hands."""

    def find(self, file, lease, stop=None) -> Path | None:
        path = super().find(file, lease, stop)
        if path is not None and not self._sign("held").exists():
            self._sign("held").symlink_to(file.name)
            until(self._sign("removed").exists)
        return path

    def discard(self, name: str) -> bool:
        until(self._sign("held").is_symlink)
        (self.root / self._sign("held").readlink()).unlink()
        self._sign("removed").touch()
        return True

    def _sign(self, name: str) -> Path:
        return Path(f"{self.root}.{name}")


@pytest.mark.control("lost")
def test_a_cache_that_removes_what_is_held_is_caught(tmp_path: Path, tally: Tally) -> None:
    root, crowd = tmp_path / "cache", Crowd(tmp_path, 0, "real")

    def acting(does: Callable[[Cache, random.Random], str], times: int) -> None:
        def act(luck: random.Random, say: Says) -> None:
            with RashCache(root) as cache:
                for _ in range(times):
                    say(does(cache, luck))

        crowd.start(act)

    acting(read, 2 * len(NAMES) + 1)  # one of them finds what was there before
    acting(remove, 1)
    crowd.note(tally)


N_SHARDS = 24


def output_of(index: int, token: int) -> bytes:
    return f"shard {index} by {token}\n".encode() * 50


@contextlib.contextmanager
def alone(path: Path, say: Says) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        real_flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("two at once")
    try:
        yield
    finally:
        os.close(fd)


def stay(luck: random.Random) -> None:
    time.sleep(luck.uniform(0, 0.005))


def worker(plan_dir, marks, stay) -> Callable[[random.Random, Says], None]:
    def act(luck: random.Random, say: Says) -> None:
        store = ReceiptStore(plan_dir)
        for work in store.claim_pending():
            token = os.getpid()
            with contextlib.suppress(ClaimLostError), work:
                with alone(marks / str(work.index), say):
                    path = work.output_path(f"shard_{work.index:06d}.bin")
                    path.write_bytes(output_of(work.index, token))
                    work.output_path(f"shard_{work.index:06d}.idx").write_bytes(b"1")
                    stay(luck)
                work.stats["token"] = token

    return act


def of_claims(base, seed, locks, n, tally, stay=stay) -> None:
    """All do what is pending, and a quarter is killed; then one does what is left of it."""
    plan_dir = new_store(base / f"out-{seed}-{locks}-{n}", N_SHARDS).path
    crowd, marks = Crowd(base, seed, locks), base / f"marks-{seed}-{locks}-{n}"
    marks.mkdir()
    crowd.run(worker(plan_dir, marks, stay), n, tally)
    last = Crowd(base, seed, f"{locks} last")
    last.start(worker(plan_dir, marks, stay))
    last.note(tally)
    look_at_the_plan(plan_dir, tally)


def look_at_the_plan(plan_dir: Path, tally: Tally) -> None:
    store = ReceiptStore(plan_dir)
    for index in range(N_SHARDS):
        path = plan_dir / f"shard_{index:06d}.bin"
        receipt = plan_dir / "receipts" / f"shard_{index:06d}.json"
        if not receipt.exists() or not path.exists():
            tally.harm("lost", f"shard {index} of '{plan_dir}' is not done")
        elif path.read_bytes() != output_of(index, int(store.receipt(index).stats["token"])):
            tally.harm("torn", f"shard {index} of '{plan_dir}' is not of whom its receipt names")
    if left := os.listdir(plan_dir / "claims"):
        tally.harm("leftover", f"claims of '{plan_dir}': {left}")


@pytest.mark.attack("many processes: claims")
def test_a_crowd_does_each_shard_of_a_plan_once(tmp_path: Path, tally: Tally) -> None:
    for seed, locks, n in crowds(tally):
        of_claims(tmp_path, seed, locks, n, tally)


@pytest.mark.control("lie")
def test_claims_that_anybody_gets_are_caught(tmp_path: Path, tally: Tally, monkeypatch) -> None:
    def written_over(path: str | os.PathLike[str], data: bytes) -> bool:
        Path(path).write_bytes(data)
        return True

    def first_of_all_waits(_: random.Random) -> None:
        with contextlib.suppress(FileExistsError):
            (tmp_path / "waits").mkdir()
            said = tmp_path / "said-0-real"
            until(lambda: "two at once" in said.read_text())

    monkeypatch.setattr(files, "publish", written_over)
    monkeypatch.setattr(holds.HoldWatch, "is_over", lambda *_: True)
    monkeypatch.setattr(_claims.Claim, "raise_if_lost", lambda _: None)
    of_claims(tmp_path, 0, "real", 2, tally, first_of_all_waits)


def new_source(base: Path) -> Path:
    return testing.write_layout(testing.Layout(n_shards=24, d_model=64, labels=True), base)


def bytes_in(path: Path) -> dict[str, bytes]:
    shown = [file for file in path.iterdir() if not file.name.startswith(".shardproof-")]
    return {file.name: file.read_bytes() for file in shown}


def of_one_copy(base: Path, seed: int, locks: str, n: int, tally: Tally) -> None:
    source, to = new_source(base / f"source-{seed}-{locks}-{n}"), base / f"to-{seed}-{locks}-{n}"
    to.mkdir()
    crowd, expected = Crowd(base, seed, locks), bytes_in(source)

    def act(luck: random.Random, say: Says) -> None:
        level = luck.choice(["present", "complete", "valid"])
        copy = stage(source, to, level=level, workers=2)
        say("read" if bytes_in(copy) == expected else "other bytes")

    crowd.run(act, n, tally)
    copy = stage(source, to)
    if list(copy.parent.iterdir()) != [copy]:
        tally.harm("leftover", f"beside '{copy}': {os.listdir(copy.parent)}")
    if left := list(copy.rglob("*.tmp")):
        tally.harm("leftover", f"in '{copy}': {left}")
    if bytes_in(copy) != expected:
        tally.harm("torn", f"'{copy}' is not its source")


@pytest.mark.attack("many processes: one copy")
def test_a_crowd_stages_one_whole_copy(tmp_path: Path, tally: Tally) -> None:
    for seed, locks, n in crowds(tally):
        of_one_copy(tmp_path, seed, locks, n, tally)


@pytest.mark.control("torn")
def test_files_that_are_believed_when_they_are_there_are_caught(
    tmp_path, tally, monkeypatch
) -> None:
    parent = os.getpid()

    @contextlib.contextmanager
    def written_in_place(path: str, *, sync: bool) -> Iterator[int]:
        """The first of all that writes is killed before it wrote anything."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        with contextlib.suppress(FileExistsError):
            (tmp_path / "killed").mkdir()
            assert os.getpid() != parent
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            yield fd
        finally:
            os.close(fd)

    def in_place(home: CopyDirectory) -> None:
        home.place = home.final
        _make_own(home.final)

    monkeypatch.setattr(CopyDirectory, "prepare", in_place)
    monkeypatch.setattr(files, "being_written", written_in_place)
    monkeypatch.setattr(_proofs.Proofs, "fit", lambda *_, hashed: True)
    monkeypatch.setattr(_copy.StagedCopy, "_doubted", lambda _: [])
    of_one_copy(tmp_path, 0, "real", 2, tally)

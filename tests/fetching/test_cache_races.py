"""Processes that meet in one cache, at every moment, and are killed at every moment."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from shardproof import FetchError
from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.cache._leases import Lease, Leases
from shardproof.fetching.sources._source import RemoteFile
from tests.helpers.killing import Begin, at_every_call, skip_where_not_permitted
from tests.helpers.turns import Turns, in_all_turns

NAME = "train/0.bin"


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_disks() -> Iterator[None]:
    """What was written is there whether it was synced or not: a killed process is no power cut."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda _: None)
        yield


def revision(identity: str) -> RemoteFile:
    return RemoteFile(NAME, len(identity), identity)


def bring(cache: Cache, lease: Lease, identity: str) -> Path:
    """Return where a shard is, fetched if need be; the bytes are its identity."""
    file = revision(identity)
    path = cache.find(file, lease)
    if path is None:
        lease.part.write_bytes(identity.encode())
        path = cache.place(lease.part, file, lease)
    return path


class Meeting:
    """Two processes at one cache that has a shard of revision v1."""

    def __init__(self, root: Path) -> None:
        self.caches = [Cache(root) for _ in range(2)]
        self.held: list[tuple[Lease, Path | None, str]] = []
        self.moved: list[bool] = []

    def begin(self) -> None:
        self.release()
        self.held, self.moved = [], []
        with self.caches[0].hold(NAME) as lease:
            bring(self.caches[0], lease, "v1")

    def release(self) -> None:
        for lease, _, _ in self.held:
            lease.release()

    def close(self) -> None:
        for cache in self.caches:
            cache.close()

    def reads(self, number: int, identity: str) -> Callable[[], None]:
        def act() -> None:
            lease = self.caches[number].hold(NAME)
            try:
                self.held.append((lease, bring(self.caches[number], lease, identity), identity))
            except FetchError:
                self.held.append((lease, None, identity))

        return act

    def passes(self, number: int, identity: str) -> Callable[[], None]:
        def act() -> None:
            with self.caches[number].hold(NAME) as lease:
                bring(self.caches[number], lease, identity)

        return act

    def looks(self, number: int, identity: str) -> Callable[[], None]:
        def act() -> None:
            lease = self.caches[number].hold(NAME)
            path = self.caches[number].find(revision(identity), lease)
            self.held.append((lease, path, identity))

        return act

    def discards(self, number: int) -> Callable[[], None]:
        return lambda: self.moved.append(self.caches[number].discard(NAME))

    def nothing_is_lost(self) -> None:
        """What somebody was given is there, and still the same."""
        for _, path, identity in self.held:
            assert path is None or path.read_bytes() == identity.encode()

    def nothing_is_left(self) -> None:
        """When all have gone, the last one removes it, and nothing else stays."""
        self.release()
        root = Path(self.caches[0].root)
        removed = [cache.discard(NAME) for cache in self.caches]
        assert removed.count(True) <= 1
        there = [path for path in root.rglob("*") if not path.is_dir()]
        assert there == []
        assert list((root / ".shardproof/leases").iterdir()) == []


@pytest.fixture
def turns(monkeypatch) -> Turns:
    return Turns(monkeypatch)


@pytest.fixture
def meeting(tmp_path) -> Iterator[Meeting]:
    with closing(Meeting(tmp_path)) as found:
        yield found


def in_turns(
    turns: Turns,
    meeting: Meeting,
    pair: tuple[str, str],
    check: Callable[[], object],
    *,
    every: int = 1,
) -> int:
    """Actions are written ``"0 reads v1"``: who, what, which revision."""

    def action(text: str) -> Callable[[], None]:
        number, verb, *identity = text.split()
        return getattr(meeting, verb)(int(number), *identity)

    def prepare() -> tuple[Callable[[], None], Callable[[], None]]:
        meeting.begin()
        return action(pair[0]), action(pair[1])

    return in_all_turns(turns, prepare, check, every=every)


FOUND, GONE, REMOVED, STAYS = "found", "gone", "removed", "stays"


@pytest.mark.slow
@pytest.mark.parametrize("swap", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    ("pair", "outcomes"),
    [
        (("0 looks v1", "1 discards"), {(FOUND, STAYS), (GONE, REMOVED)}),
        (("0 discards", "1 discards"), {(REMOVED, STAYS)}),
        (("0 reads v1", "1 reads v2"), {(FOUND, GONE)}),
        (("0 reads v2", "1 reads v2"), {(FOUND, FOUND)}),
        (("0 reads v2", "1 discards"), {(FOUND, REMOVED), (FOUND, STAYS)}),
        pytest.param(
            ("0 passes v2", "1 discards"), {(REMOVED,), (STAYS,)}, marks=pytest.mark.exhaustive
        ),
    ],
)
def test_whenever_two_meet(turns, meeting, pair, outcomes, swap) -> None:
    seen = set()

    def check() -> None:
        meeting.nothing_is_lost()
        found = sorted(GONE if path is None else FOUND for _, path, _ in meeting.held)
        seen.add((*found, *sorted(REMOVED if moved else STAYS for moved in meeting.moved)))
        meeting.nothing_is_left()

    every = 1 if pair == ("0 looks v1", "1 discards") else 9
    assert in_turns(turns, meeting, pair[::-1] if swap else pair, check, every=every) > 10
    assert seen == outcomes


def test_a_cache_whose_holders_break_nothing_off_is_caught(turns, meeting, monkeypatch) -> None:
    monkeypatch.setattr(Leases, "break_off_removals", lambda *_: None)
    with pytest.raises(FileNotFoundError):
        in_turns(turns, meeting, ("1 discards", "0 looks v1"), meeting.nothing_is_lost)


class TestKilled:
    """At every system call: nothing is torn, believed falsely, or left for good."""

    @pytest.fixture(autouse=True)
    def _ptrace(self) -> None:
        skip_where_not_permitted()

    @pytest.fixture
    def root(self, tmp_path) -> Path:
        return tmp_path / "root"

    def there(self, root: Path) -> list[bytes]:
        found = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
        return sorted(path.read_bytes() for path in found if ".shardproof" not in path.parts)

    def begin(self, root: Path, identity: str | None) -> None:
        shutil.rmtree(root, ignore_errors=True)
        with Cache(root) as cache, cache.hold(NAME) as lease:
            if identity is not None:
                bring(cache, lease, identity)

    def next_run(self, root: Path, identity: str = "v2") -> None:
        """The next process has its shard, and when it is gone nothing is left."""
        with Cache(root) as cache:
            cache.discard_others([NAME])  # as a prefetcher does when it begins
            with cache.hold(NAME) as lease:
                assert bring(cache, lease, identity).read_bytes() == identity.encode()
            assert cache.discard(NAME)
        left = [path.name for path in (root / ".shardproof").glob("*/*")]
        assert left == []

    @pytest.mark.slow
    def test_while_it_places_and_goes(self, root, stride) -> None:
        seen = set()

        def act(begin: Begin) -> None:
            with Cache(root) as cache, cache.hold(NAME) as lease:
                lease.part.write_bytes(b"v2")
                begin()
                cache.place(lease.part, revision("v2"), lease)

        def check(_: int) -> None:
            found = self.there(root)
            assert found in ([], [b"v2"])
            seen.add(tuple(found))
            self.next_run(root)
            assert self.there(root) == [], [*root.rglob("*")]

        def choose(numbers: Sequence[int]) -> Sequence[int]:
            return numbers[::stride]

        n_kills = at_every_call(
            act, prepare=lambda: self.begin(root, None), check=check, choose=choose
        )
        assert n_kills > 20 // stride
        assert len(seen) == 2

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("identity", "max_cache_bytes"),
        [(None, None), pytest.param("v2", 0, marks=pytest.mark.exhaustive)],
        ids=["discarded-discards", "replaced-makes-room"],
    )
    def test_while_another_is_there_that_removes(
        self, root, identity, max_cache_bytes, stride
    ) -> None:
        """What was taken away stays known for ours until it is removed; none of it stays."""

        def prepare() -> None:
            self.begin(root, "v1")
            others.append(Cache(root, max_cache_bytes=max_cache_bytes))

        def act(begin: Begin) -> None:
            with Cache(root) as cache:
                begin()
                if identity is None:
                    cache.discard(NAME)
                    return
                with cache.hold(NAME) as lease:
                    bring(cache, lease, identity)

        def check(_: int) -> None:
            with others.pop() as other:
                other.discard(NAME)
                with other.hold("train/1.bin") as lease:
                    other.make_room(0, lease)
            self.next_run(root)
            assert self.there(root) == [], [*root.rglob("*")]

        def choose(numbers: Sequence[int]) -> Sequence[int]:
            return numbers[::stride]

        others: list[Cache] = []
        assert at_every_call(act, prepare=prepare, check=check, choose=choose) > 15 // stride
        for other in others:
            other.close()

"""A size limit, where several processes share a cache: each reads little, and knows enough."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.cache._leases import Lease
from shardproof.fetching.cache._proofs import ProofFiles
from shardproof.fetching.sources._source import RemoteFile

SIZE = 10


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def new_cache(root) -> Iterator[Callable[[], Cache]]:
    made = []

    def make() -> Cache:
        made.append(Cache(root, max_cache_bytes=3 * SIZE))
        return made[-1]

    yield make
    for cache in made:
        cache.close()


@pytest.fixture
def cache(new_cache) -> Cache:
    """One that holds three shards, and has looked at them."""
    cache = new_cache()
    for name in "abc":
        put(cache, name)
    assert has_room(cache, 0)
    return cache


@pytest.fixture
def other(new_cache) -> Cache:
    """The same directory, as another process sees it."""
    return new_cache()


def place(cache: Cache, name: str, lease: Lease) -> None:
    lease.part.write_bytes(b"x" * SIZE)
    cache.place(lease.part, RemoteFile(name, SIZE), lease)


def put(cache: Cache, name: str) -> None:
    """Bring a shard as a prefetcher does, and let go of it."""
    with cache.hold(name) as lease:
        assert cache.make_room(SIZE, lease)
        place(cache, name, lease)


def use(cache: Cache, name: str) -> None:
    with cache.hold(name) as lease:
        assert cache.find(RemoteFile(name, SIZE), lease)


def has_room(cache: Cache, n_bytes: int) -> bool:
    with cache.hold("new") as lease:
        return cache.make_room(n_bytes, lease)


def shards(root: Path) -> str:
    return "".join(sorted(path.name for path in root.iterdir() if path.is_file()))


def n_proofs(root: Path) -> int:
    return len(list((root / ".shardproof/proofs").iterdir()))


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_no_more_proofs_are_read_for_each_of_many_shards_than_of_few(
    tmp_path, monkeypatch, share
) -> None:
    n_read, read = [0], ProofFiles.of_file

    def counting(self: ProofFiles, filename: str) -> object:
        n_read[0] += 1
        return read(self, filename)

    monkeypatch.setattr(ProofFiles, "of_file", counting)
    each = []
    for n in (10, 40):
        n_read[0] = 0
        with Cache(tmp_path / str(n), max_cache_bytes=int(share * n) * SIZE) as cache:
            for number in range(n):
                put(cache, f"{number:03d}")
        each.append(n_read[0] / n)
    assert each[1] <= 1.2 * each[0]


def test_what_another_process_used_stays(cache, other, root) -> None:
    use(other, "a")
    assert has_room(cache, SIZE)
    assert shards(root) == "ac"


def test_what_another_process_used_since_the_last_removal_stays(cache, other, root) -> None:
    put(cache, "d")
    use(other, "b")
    put(cache, "e")
    assert shards(root) == "bde"


def test_what_another_process_brought_counts(cache, other, root) -> None:
    put(other, "d")
    assert shards(root) == "bcd"
    assert has_room(cache, SIZE)
    assert shards(root) == "cd"


def test_what_another_process_removed_counts_no_more(cache, other, root) -> None:
    assert has_room(other, 2 * SIZE)
    assert shards(root) == "c"
    assert has_room(cache, 2 * SIZE)
    assert shards(root) == "c"


def test_what_another_process_holds_stays_until_it_is_released(cache, other, root) -> None:
    with other.hold("a"):
        assert has_room(cache, SIZE)
        assert shards(root) == "ac"
        assert not has_room(cache, 3 * SIZE)
        assert shards(root) == "a"
    assert has_room(cache, 3 * SIZE)
    assert shards(root) == ""


def test_what_another_program_removed_is_noticed_when_its_turn_comes(cache, root) -> None:
    for name in "ab":
        (root / name).unlink()
    assert has_room(cache, 2 * SIZE)
    assert shards(root) == "c"
    assert n_proofs(root) == 1


def test_but_not_of_what_is_about_to_be_placed(cache, other, root) -> None:
    os.rename(root / "a", root / "elsewhere")
    with cache.hold("a"):
        assert has_room(other, SIZE)
        os.rename(root / "elsewhere", root / "a")
    assert n_proofs(root) == 3
    assert has_room(other, SIZE)
    assert shards(root) == "bc"


def test_a_shard_that_can_not_be_looked_at_keeps_its_proof(
    cache, other, root, make_shard_faults
) -> None:
    make_shard_faults(root).fail("stat", errno.EIO, match="a", times=2)
    assert has_room(other, SIZE)
    assert shards(root) == "ac"
    assert n_proofs(root) == 2


@pytest.mark.parametrize(
    ("n_bytes", "left"), [(0, "abc"), (1, "bc"), (10, "bc"), (11, "c"), (30, ""), (31, "")]
)
def test_as_many_go_as_must(cache, root, n_bytes, left) -> None:
    assert has_room(cache, n_bytes) is (n_bytes <= 3 * SIZE)
    assert shards(root) == left


def test_what_others_fetch_counts_until_there_is_no_room_for_it(cache, other, root) -> None:
    with other.hold("d") as theirs, cache.hold("new") as lease:
        assert other.make_room(SIZE, theirs)
        assert cache.make_room(SIZE, lease)
        assert shards(root) == "c"
        assert not cache.make_room(2 * SIZE + 1, lease)
        assert shards(root) == ""
        assert other.make_room(3 * SIZE, theirs), "what there was no room for is not reserved"


@pytest.mark.parametrize(
    "said", [b"[" * 4096, b'{"token":"","note":{"reserved":-9}}', b"\xff", b"null"]
)
def test_what_nobody_here_has_written_keeps_no_room(cache, other, root, said) -> None:
    with other.hold("a") as theirs:
        Path(theirs.path).write_bytes(said)
        assert has_room(cache, SIZE)
    assert shards(root) == "ac"


def test_what_is_placed_is_not_counted_twice(cache, root) -> None:
    with cache.hold("d") as lease:
        assert cache.make_room(SIZE, lease)
        place(cache, "d", lease)
        assert has_room(cache, SIZE)
    assert shards(root) == "cd"


def test_what_is_taken_over_neither_counts_nor_goes(cache, other, root) -> None:
    (root / "0").write_bytes(b"x" * SIZE)
    cache.take_over(RemoteFile("0", SIZE), threading.Event(), trust=True)
    for each in (cache, other):
        assert has_room(each, 0)
        assert not has_room(each, 4 * SIZE)
        assert shards(root) == "0"

"""Each single-bit flip of each file of a checkpoint is noticed, and each cut, growth and swap."""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from shardproof._base import fanout
from shardproof.checkpoint import MultiShardLoader, MultiShardSaver, ShardFileVerifier
from shardproof.errors import CheckpointError
from tests.helpers import checkpoint_files as files

pytestmark = pytest.mark.once

WORLD_SIZE = 3


def save(prefix: Path, seed: int, digest: str = "sha256") -> None:
    """Save tiny tensors, whose sizes don't depend on the seed."""
    saver = MultiShardSaver(algorithm=digest, sync=False)  # type: ignore[arg-type]
    luck = np.random.default_rng(seed)
    for rank in range(WORLD_SIZE):
        arrays = {
            f"w{rank}": luck.integers(0, 100, 3, np.int16),
            f"b{rank}": luck.integers(0, 100, (), np.uint8),
        }
        saver.save_shard(str(prefix), rank, arrays)
    saver.save_metadata(str(prefix), world_size=WORLD_SIZE, timestamp="2026-11-21T20:00:00Z")


@pytest.fixture
def prefix(tmp_path) -> Path:
    save(tmp_path / "x", 0)
    return tmp_path / "x"


def everything(prefix: Path) -> list[Path]:
    shards = [files.shard_path(prefix, rank) for rank in range(WORLD_SIZE)]
    return [*shards, files.metadata_path(prefix)]


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch) -> None:
    """To start them would take the most time."""
    monkeypatch.setattr(fanout, "available_cpus", lambda: 1)


Seen = Callable[[Path], bool]
"""Whether a reader finds something wrong with a checkpoint."""


def loader_sees(prefix: Path) -> bool:
    try:
        MultiShardLoader(workers=1).load_all_shards(str(prefix))
    except CheckpointError:
        return True
    return False


def verifier_sees(prefix: Path) -> bool:
    return not ShardFileVerifier().verify_checkpoint(str(prefix)).is_valid


def tensors_see(prefix: Path) -> bool:
    try:
        MultiShardLoader(workers=1).load_tensors(str(prefix))
    except CheckpointError:
        return True
    return False


def iterator_sees(prefix: Path) -> bool:
    try:
        for _ in MultiShardLoader(workers=1).iter_tensors(str(prefix)):
            pass
    except CheckpointError:
        return True
    return False


def sizes_see(prefix: Path) -> bool:
    """The control: a reader that compares sizes, and nothing else."""
    try:
        said = json.loads(files.metadata_path(prefix).read_bytes())
        return any(
            os.stat(prefix.parent / entry["file"]).st_size != entry["file_size"]
            for entry in said["shards"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return True


# One harm after the other; each is taken back before the next.


def flips(path: Path) -> Iterator[str]:
    """Each bit of each byte."""
    return _flips(path, itertools.product(range(path.stat().st_size), range(8)))


def some_flips(path: Path) -> Iterator[str]:
    """A bit of each byte."""
    return _flips(path, ((at, at % 8) for at in range(path.stat().st_size)))


def _flips(path: Path, bits: Iterable[tuple[int, int]]) -> Iterator[str]:
    data = path.read_bytes()
    fd = os.open(path, os.O_WRONLY)
    try:
        for at, bit in bits:
            os.pwrite(fd, bytes([data[at] ^ 1 << bit]), at)
            yield f"{path.name}: bit {bit} of byte {at}"
            os.pwrite(fd, data[at : at + 1], at)
    finally:
        os.close(fd)
    assert path.read_bytes() == data


def cuts(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    for length in reversed(range(len(data))):
        os.truncate(path, length)
        yield f"{path.name}: {length} of {len(data)} bytes"
    path.write_bytes(data)


def zeroed_tails(path: Path) -> Iterator[str]:
    """As long as it was, which is how a file may look after a power cut."""
    data = path.read_bytes()
    for length in reversed(range(len(data))):
        if data[length]:
            path.write_bytes(data[:length] + bytes(len(data) - length))
            yield f"{path.name}: zeros from byte {length} on"
    path.write_bytes(data)


def growths(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    for more in (b"\0", b"\n", b" ", data[-1:], b"\xff", data):
        for grown, where in ((data + more, "end"), (more + data, "beginning")):
            path.write_bytes(grown)
            yield f"{path.name}: {more[:4]!r} more at the {where}"
    path.write_bytes(data)


def absences(path: Path) -> Iterator[str]:
    with moved(path, path.with_name("aside")):
        yield f"{path.name}: gone"


@contextmanager
def moved(path: Path, aside: Path) -> Iterator[None]:
    path.rename(aside)
    yield
    aside.rename(path)


def swaps(prefix: Path) -> Iterator[str]:
    for one, other in itertools.combinations(everything(prefix), 2):
        _swap(one, other)
        yield f"{one.name} and {other.name}: swapped"
        _swap(one, other)


def _swap(one: Path, other: Path) -> None:
    with moved(one, one.with_name("aside")):
        other.rename(one)
        (one.with_name("aside")).rename(other)
        one.rename(one.with_name("aside"))


def of_each_file(harm: Callable[[Path], Iterator[str]], prefix: Path) -> Iterator[str]:
    return itertools.chain.from_iterable(map(harm, everything(prefix)))


def missed(harms: Iterator[str], sees: Seen, prefix: Path, stride: int = 1) -> list[str]:
    return [harm for harm in itertools.islice(harms, None, None, stride) if not sees(prefix)]


READERS = [loader_sees, verifier_sees, tensors_see, iterator_sees]
FILE_HARMS = [flips, cuts, zeroed_tails, growths, absences]


@pytest.mark.parametrize("sees", READERS)
def test_nothing_is_seen_in_a_whole_one(prefix: Path, sees: Seen) -> None:
    assert not sees(prefix)
    assert not sizes_see(prefix)
    assert sum(path.stat().st_size for path in everything(prefix)) < 4096


@pytest.mark.parametrize("sees", [loader_sees, verifier_sees])
@pytest.mark.parametrize("harm", FILE_HARMS)
def test_every_harm_to_a_file(prefix: Path, harm, sees: Seen, stride: int) -> None:
    assert missed(of_each_file(harm, prefix), sees, prefix, stride) == []
    assert files.is_whole(prefix)


@pytest.mark.parametrize("sees", [tensors_see, iterator_sees])
@pytest.mark.parametrize("harm", [cuts, zeroed_tails, growths, absences])
def test_every_harm_but_flips_when_tensors_are_asked_for(
    prefix: Path, harm, sees: Seen, stride: int
) -> None:
    assert missed(of_each_file(harm, prefix), sees, prefix, stride) == []


@pytest.mark.parametrize("sees", [tensors_see, iterator_sees])
def test_flips_where_a_tensor_is(prefix: Path, sees: Seen) -> None:
    """Padding that nobody asked for is left to those who look at whole shards."""
    found = missed(of_each_file(some_flips, prefix), sees, prefix)
    padding = set()
    for rank in range(WORLD_SIZE):
        padding |= padding_of(prefix, rank)
    assert {text.rpartition(" of ")[2] for text in found} <= {f"byte {at}" for at in padding}
    assert not any("metadata" in text for text in found)


def padding_of(prefix: Path, rank: int) -> set[int]:
    path = files.shard_path(prefix, rank)
    entries = files.metadata_of(prefix)["shards"][rank]["tensors"]
    used = {at for e in entries for at in range(e["offset"], e["offset"] + e["size"])}
    return set(range(files.header_of(path.read_bytes()).size, path.stat().st_size)) - used


@pytest.mark.parametrize("sees", READERS)
def test_each_swap(prefix: Path, sees: Seen) -> None:
    assert len(list(swaps(prefix))) == 6
    assert missed(swaps(prefix), sees, prefix) == []
    assert files.is_whole(prefix)


@pytest.mark.parametrize("sees", READERS)
@pytest.mark.parametrize("number", range(WORLD_SIZE + 1))
def test_a_file_of_another_checkpoint(prefix: Path, tmp_path, sees: Seen, number: int) -> None:
    """Of the same name and size: the same training, saved once more."""
    (tmp_path / "other").mkdir()
    save(tmp_path / "other" / "x", 1)
    mine, other = everything(prefix)[number], everything(tmp_path / "other" / "x")[number]
    assert mine.stat().st_size == other.stat().st_size
    shutil.copyfile(other, mine)
    assert not sizes_see(prefix)
    assert sees(prefix)


@pytest.mark.parametrize("digest", ["sha256-tree", "blake3"])
def test_flips_under_another_checksum(tmp_path, digest: str) -> None:
    prefix = tmp_path / "x"
    save(prefix, 0, digest)
    assert missed(some_flips(files.shard_path(prefix, 1)), loader_sees, prefix) == []
    assert missed(some_flips(files.shard_path(prefix, 1)), verifier_sees, prefix) == []


class TestTheControl:
    """What sizes show and what they don't: the harms are there to be seen."""

    def test_flips_are_missed(self, prefix: Path) -> None:
        found = missed(of_each_file(flips, prefix), sizes_see, prefix)
        for path in everything(prefix)[:-1]:
            n_bits = 8 * path.stat().st_size
            assert sum(text.startswith(path.name) for text in found) == n_bits
        assert any("metadata" in text for text in found)

    def test_zeroed_tails_and_swaps_are_missed(self, prefix: Path) -> None:
        assert missed(of_each_file(zeroed_tails, prefix), sizes_see, prefix)
        assert missed(swaps(prefix), sizes_see, prefix)

    def test_cuts_of_shards_are_not(self, prefix: Path) -> None:
        for rank in range(WORLD_SIZE):
            assert missed(cuts(files.shard_path(prefix, rank)), sizes_see, prefix) == []

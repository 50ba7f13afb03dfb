r"""What distributed jobs leave: names that imply how many files there are, and Hadoop's own files.

``train-00003-of-00042.parquet`` implies 42. Hadoop, and so Spark, leaves ``.x.crc`` beside ``x``:
``crc\0``, an ``i32`` that says how many bytes each checksum is of, and the CRC-32 of every so many
bytes of ``x``, all big-endian (``org.apache.hadoop.fs.ChecksumFileSystem``). A job writes into
``_temporary``, and removes that when it commits.
"""

import itertools
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from shardproof._base.messages import quoted
from shardproof._base.names import opened
from shardproof._base.opening import (
    TEMPORARY,
    OpenFile,
    Read,
    is_never_a_shard,
    is_of_a_desktop,
    tree,
)
from shardproof.errors import ManifestError
from shardproof.manifest import Contradiction, ExpectedFile, Mismatch, Prove

_NAME = re.compile(
    r"(?P<before>.*?)(?P<index>\d{4,6})-of-(?P<count>\d{4,6})(?P<own>-[0-9a-f]{16}(?=\.))?"
    r"(?P<after>.*)",
    re.DOTALL,
)
"""Each shard may have a fingerprint of its own, as `push_to_hub` of datasets gave it."""

_MOST = 100_000  # a set that claims more is taken for files that only look like one
_MOST_IN_ALL = 1_000_000  # all sets may claim as many together, and ten for each file that is there
_MAGIC = b"crc\0"
_HEADER_BYTES, _CRC_BYTES = 8, 4
_PIECE_BYTES = 2**20


class CountedSet(NamedTuple):
    """What names imply: all that are promised, in order, and which can't belong together."""

    names: Sequence[str]
    contradictions: Sequence[Contradiction]


def expected_by_names(path: str, names: Iterable[str], *, first: int = 0) -> CountedSet:
    """Return what names promise; the first is 0 for the Hub's data, 1 for a model's weights."""
    sets: dict[tuple[str, str, str, bool], list[re.Match[str]]] = {}
    promised, odd = [], list[Contradiction]()
    for name in sorted(names):
        found = _NAME.fullmatch(name)
        if found is None or not 0 < int(found["count"]) <= _MOST:
            promised.append(name)
        else:
            key = (found["before"], found["count"], found["after"], bool(found["own"]))
            sets.setdefault(key, []).append(found)
    n_claimed = sum(int(count) for _, count, *_ in sets)
    if n_claimed > _MOST_IN_ALL + 10 * sum(map(len, sets.values())):
        expected = f"names that claim {_MOST_IN_ALL} files together, or few more than are there"
        raise ManifestError(
            f"expected {expected}, found some that claim {n_claimed}: are they right?", path=path
        )
    unfinished = Mismatch("how many there are", "NNNNN: datasets has not ended yet")
    odd += [Contradiction(name, *unfinished) for name in promised if "-of-NNNNN" in name]
    for (before, count, after, _), members in sets.items():
        indices = {int(member["index"]) for member in members}
        begin = 0 if 0 in indices else 1 if int(count) in indices else first
        width = len(members[0]["index"])
        owns = {member["own"] or "" for member in members}
        own, there = owns.pop() if len(owns) == 1 else "-*", dict[int, list[str]]()
        for member in members if owns else ():
            there.setdefault(int(member["index"]), []).append(member[0])
        whole = {
            name
            for n in range(begin, begin + int(count))
            for name in there.get(n, [f"{before}{n:0{width}}-of-{count}{own}{after}"])
        }
        promised += whole
        odd += [
            Contradiction(each[0], f"a number of a set of {int(count)}", quoted(each["index"]))
            for each in members
            if each[0] not in whole
        ]
    return CountedSet(sorted(promised), odd)


def expected_of(names: Iterable[str]) -> list[str]:
    """Return what is expected where such names are: themselves, and of whom a checksum is there."""
    # A number that is left out tells nothing: Spark writes no file for a partition without rows.
    found = set(names)
    sums = [each for each in found if each.endswith(".crc") and each.startswith(".")]
    found.update(name[1:-4] for name in sums if not is_of_a_desktop(name))
    return sorted(name for name in found if not is_never_a_shard(name))


def expected_below(path: str) -> list[str]:
    """Return the same of a directory and the folders below it that may hold shards."""
    found = list[str]()
    for here, folders, others in tree(path):
        names = expected_of([*folders, *others])
        folders[:] = itertools.filterfalse(is_never_a_shard, folders)
        below = os.path.relpath(here, path)
        found += names if below == "." else [f"{below}/{name}" for name in names]
    return found


def uncommitted(names: Iterable[str]) -> Iterator[Contradiction]:
    """Yield the folder of a job that has not ended: its files may not all be here."""
    if TEMPORARY in names:
        found = f"{quoted(TEMPORARY)}: let the job end; if it was killed, run it again"
        yield Contradiction(TEMPORARY, "a job that committed", found)


def prove(
    root: str, inside: Prove | None, promised: ExpectedFile, read: Read, size: int
) -> Mismatch | Literal["agreed"] | bool:
    """Return which bytes have another checksum than is beside a file, or what those in it prove."""
    folder, name = os.path.split(promised.name)
    with opened(os.path.join(folder, f".{name}.crc"), root) as sums:
        wrong = None if sums is None else _disagreement(read, size, sums)
    proven = inside(promised, read, size) if inside else False
    return wrong or proven or (sums is not None and "agreed")


def _disagreement(read: Read, size: int, sums: OpenFile) -> Mismatch | None:
    head, n_sum_bytes = sums(_HEADER_BYTES), sums.status.st_size - _HEADER_BYTES
    n_each = int.from_bytes(head[4:], "big")
    if head[:4] != _MAGIC or not 0 < n_each <= _PIECE_BYTES or n_sum_bytes % _CRC_BYTES:
        found = f"{n_sum_bytes + _HEADER_BYTES} bytes, {quoted(head)}: it is torn, remove it"
        return Mismatch("the checksums of Hadoop in the `.crc` beside it", found)
    n_sums = n_sum_bytes // _CRC_BYTES
    if n_sums != -(-size // n_each):
        expected = f"{n_sums} pieces of {n_each} bytes, of which the `.crc` beside it is"
        return Mismatch(expected, f"{size} bytes")
    n_bytes = _PIECE_BYTES // n_each * n_each
    for at in range(0, size, n_bytes):
        data = read(n_bytes, at)
        pieces = (data[begin : begin + n_each] for begin in range(0, len(data), n_each))
        computed = b"".join(zlib.crc32(piece).to_bytes(_CRC_BYTES, "big") for piece in pieces)
        if computed != sums(len(computed), _HEADER_BYTES + at // n_each * _CRC_BYTES):
            expected = "bytes of which the checksums beside it are"
            return Mismatch(expected, f"others from byte {at} on")
    return None

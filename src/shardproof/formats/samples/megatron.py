"""Megatron-LM's indexed data sets: tokens in a ``.bin``, and beside it an ``.idx`` that says where.

The index, all little-endian: magic, version, a code for the type of a token, how many sequences
and how many document boundaries there are; each sequence's length in tokens; each one's place in
the ``.bin`` in bytes; for each document the number of its first sequence, and at last the number
of sequences. Of several kinds of samples there is a byte more for each sequence.
"""

import os
import re
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from shardproof._base import fanout
from shardproof._base.messages import quoted
from shardproof._base.names import open_root, opened
from shardproof._base.opening import Read, matching
from shardproof._base.work import apart
from shardproof.errors import ManifestNotFoundError
from shardproof.formats._reading import begin_of
from shardproof.manifest import ExpectedFile, Manifest, Mismatch

_INDEX, _DATA = ".idx", ".bin"
_MAGIC = b"MMIDIDX\0\0"
_MAGIC_OF_OLD = b"TNTIDX\0\0"  # of an index in another format, with the same name
_HEADER = struct.Struct("<9sQBQQ")
_VERSION = 1
_TOKEN_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}  # by the code of its type
_MOST_LOOKED_AT = 16
_OF_ONE = re.compile(r"\d+|.*_(?=(?:document|sentence)\.bin)")
"""What names of data that belong together differ in: a number, or what a corpus is called."""


class _IndexTables(NamedTuple):
    """How large the tables of an index are, and so where they are."""

    token_bytes: int
    n_sequences: int
    n_boundaries: int

    @property
    def pointers(self) -> int:
        return _HEADER.size + 4 * self.n_sequences

    @property
    def boundaries(self) -> int:
        return self.pointers + 8 * self.n_sequences

    @property
    def end(self) -> int:
        return self.boundaries + 8 * self.n_boundaries

    def fits(self, size: int) -> bool:
        """Whether an index of so many bytes has all tables, and no more than those."""
        return size in {self.end, self.end + self.n_sequences}


def recognizes(path: str) -> bool:
    names = matching(path, f"*{_INDEX}")[:_MOST_LOOKED_AT]
    return any(begin_of(path, name, len(_MAGIC)) == _MAGIC for name in names)


def read_manifest(path: str) -> Manifest:
    dir_fd = open_root(path)
    try:
        there = frozenset(matching(path, f"*{_DATA}"))

        def read(names: Sequence[str]) -> list[ExpectedFile]:
            return [file for name in names for file in _promises(path, dir_fd, name, there)]

        indices = matching(path, f"*{_INDEX}")
        runs = apart(lambda _: [*fanout.over_threads(read, indices)])
        files = [file for _, some in runs for file in some]
        files += _owed(there, {file.name for file in files})
    finally:
        os.close(dir_fd)
    if not files:
        raise ManifestNotFoundError(f"expected indices (*{_INDEX}), found none", path=path)
    return Manifest.at(path, "", "megatron", files, probe=_probe)


def _promises(root: str, dir_fd: int, name: str, there: Collection[str]) -> list[ExpectedFile]:
    """Return what an index promises, itself and its data; a torn one is one that has data."""
    data = f"{name.removesuffix(_INDEX)}{_DATA}"
    with opened(name, root, dir_fd) as file:
        found = None if file is None else _tables(file)
        head = b"" if file is None else file(len(_MAGIC))
        if head != _MAGIC and (data not in there or head.startswith(_MAGIC_OF_OLD)):
            return []
        size, n_items = None, None
        if file is not None and isinstance(found, _IndexTables):
            n_items = found.n_sequences
            size = _data_bytes(file, found) if found.fits(file.status.st_size) else None
    return [
        ExpectedFile(name=data, size=size, n_items=n_items),
        ExpectedFile(name=name, n_items=n_items),
    ]


def _owed(there: Collection[str], promised: Collection[str]) -> Iterator[ExpectedFile]:
    """Yield indices of data that are called as those of others: they are written last."""
    series = {_OF_ONE.sub("", name) for name in there if name in promised}
    for name in sorted(there):
        if name not in promised and _OF_ONE.sub("", name) in series:
            yield ExpectedFile(name=f"{name.removesuffix(_DATA)}{_INDEX}")


def _data_bytes(read: Read, tables: _IndexTables) -> int | None:
    """Return the size of the data; None where they are not as Megatron's builder arranges them."""
    if not tables.n_sequences:
        return 0
    first = _int64_at(read, tables.pointers)
    last = _int64_at(read, tables.boundaries - 8)
    length = int.from_bytes(read(4, tables.pointers - 4), "little", signed=True)
    end = last + length * tables.token_bytes
    return None if first or end < last or last < 0 else end


def _int64_at(read: Read, at: int) -> int:
    return int.from_bytes(read(8, at), "little", signed=True)


def _tables(read: Read) -> _IndexTables | Mismatch:
    header = read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        return Mismatch("the header of an index", quoted(header[:9]))
    _, version, code, n_sequences, n_boundaries = _HEADER.unpack(header)
    if version != _VERSION or code not in _TOKEN_BYTES:
        found = f"version {version}, type of tokens {code}"
        return Mismatch("version 1, type of tokens 1 to 8", found)
    return _IndexTables(_TOKEN_BYTES[code], n_sequences, n_boundaries)


def _probe(promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with an index: its size, or that its documents leave sequences out."""
    if not promised.name.endswith(_INDEX):
        return None
    tables = _tables(read)
    if isinstance(tables, Mismatch):
        return tables
    if not tables.fits(size):
        counts = f"{tables.n_sequences} sequences and {tables.n_boundaries} boundaries"
        return Mismatch(f"{tables.end} bytes for {counts}", f"{size} bytes")
    expected = f"documents from sequence 0 to {tables.n_sequences}"
    if not tables.n_boundaries:
        return Mismatch(expected, "none")
    first, last = _int64_at(read, tables.boundaries), _int64_at(read, tables.end - 8)
    if (first, last) == (0, tables.n_sequences):
        return None
    return Mismatch(expected, f"documents from {first} to {last}")

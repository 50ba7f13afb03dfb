"""Megatron-LM's indexed data sets: a pair of .bin and .idx, written and proven by our own code.

The index, all little-endian: magic, version and type of a token; how many sequences, how many
document boundaries; each sequence's length in tokens, and its place in the .bin in bytes; for each
document the number of its first sequence, and at last the number of sequences.
"""

import itertools
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
VERSION = 1
_IN_ORDER = ("u1", "i1", "<i2", "<i4", "<i8", "<f8", "<f4", "<u2")
DTYPES = dict(enumerate(map(np.dtype, _IN_ORDER), 1))
CODES = {dtype: code for code, dtype in DTYPES.items()}

Document = Sequence[Sequence[int]]
"""Sequences of tokens."""


class Counts(NamedTuple):
    """What was written."""

    documents: int
    sequences: int
    tokens: int


def write(bin_path: Path, idx_path: Path, documents: Sequence[Document], dtype: str) -> Counts:
    """Write documents as a pair of files."""
    sequences = [np.asarray(tokens, dtype) for document in documents for tokens in document]
    lengths = np.array([len(tokens) for tokens in sequences], "<i4")
    ends = np.cumsum(lengths, dtype="<i8")
    boundaries = np.cumsum([0, *map(len, documents)], dtype="<i8")
    with bin_path.open("wb") as file:
        for tokens in sequences:
            file.write(tokens.tobytes())
    with idx_path.open("wb") as file:
        code = CODES[np.dtype(dtype)]
        file.write(HEADER.pack(MAGIC, VERSION, code, len(lengths), len(boundaries)))
        file.write(lengths.tobytes())
        file.write(((ends - lengths) * np.dtype(dtype).itemsize).astype("<i8").tobytes())
        file.write(boundaries.tobytes())
    return Counts(len(documents), len(sequences), int(lengths.sum()))


def read(bin_path: Path, idx_path: Path) -> list[list[list[int]]]:
    """Return the documents of a pair of files."""
    index, data = idx_path.read_bytes(), bin_path.read_bytes()
    if len(index) < HEADER.size:
        raise ValueError(f"{idx_path.name}: cut off in its header")
    magic, version, code, n_sequences, n_boundaries = HEADER.unpack_from(index)
    if (magic, version) != (MAGIC, VERSION) or code not in DTYPES:
        raise ValueError(f"{idx_path.name}: no index: {index[: HEADER.size]!r}")
    size = HEADER.size + 12 * n_sequences + 8 * n_boundaries
    if len(index) != size:
        raise ValueError(f"{idx_path.name}: expected {size} bytes, found {len(index)}")
    lengths, pointers, boundaries = _tables(index, n_sequences, n_boundaries)
    tokens = np.frombuffer(data, DTYPES[code])  # refuses a part of a token
    ends = np.cumsum(lengths, dtype="i8")
    if (lengths < 0).any() or len(tokens) != lengths.sum():
        raise ValueError(f"{bin_path.name}: {len(tokens)} tokens, in the index {lengths.sum()}")
    if not np.array_equal(pointers, (ends - lengths) * tokens.itemsize):
        raise ValueError(f"{idx_path.name}: sequences are not one after the other")
    if n_boundaries < 1 or boundaries[0] or boundaries[-1] != n_sequences:
        raise ValueError(f"{idx_path.name}: documents do not cover the sequences")
    if (np.diff(boundaries) < 0).any():
        raise ValueError(f"{idx_path.name}: documents overlap")
    sequences = [part.tolist() for part in np.split(tokens, ends[:-1])] if n_sequences else []
    return [sequences[begin:end] for begin, end in itertools.pairwise(boundaries)]


def _tables(index: bytes, n_sequences: int, n_boundaries: int) -> Iterator[np.ndarray]:
    at = HEADER.size
    for dtype, count in (("<i4", n_sequences), ("<i8", n_sequences), ("<i8", n_boundaries)):
        yield np.frombuffer(index, dtype, count, at)
        at += np.dtype(dtype).itemsize * count

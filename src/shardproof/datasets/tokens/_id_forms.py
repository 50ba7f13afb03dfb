"""Ids of sequences: what they are made of, and in which form a shard stores them.

An id is the blake2b digest of a sequence's bytes, in 8 bytes that are read as a little-endian
number. templar's own preparation script stores something else: numpy makes floating-point numbers
of numbers on both sides of 2**63, and the script stores their bits. It also reads the ``.npy`` file
from its first byte on, so that its first sequence begins with the header.
"""

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardproof.datasets.tokens._token_shard import Items

__all__ = ["IdForm", "form_of", "sequence_id", "wrong_sequences"]

_LOOKED_AT = 16
_LOOKED_AT_BYTES = 2**24

Ids = npt.NDArray[np.uint64]


class IdForm(NamedTuple):
    """In which form all ids of a shard are stored.

    Attributes:
        is_float: Whether as the bits of a float64.
        has_header: Whether the first sequence begins with the file's header, not behind it.
    """

    is_float: bool = False
    has_header: bool = False

    def __str__(self) -> str:
        number = "as the bits of a float64" if self.is_float else "as numbers"
        return f"{number}, of the file with its header" if self.has_header else number

    def stored(self, ids: Ids) -> Ids:
        """Return ids as they are stored."""
        return ids.astype(np.float64).view(np.uint64) if self.is_float else ids


_FORMS = (IdForm(), IdForm(is_float=True), IdForm(has_header=True), IdForm(True, True))


def form_of(tokens: Items, ids: Items, length: int, n_sequences: int) -> IdForm:
    """Return the form in which most of the first ids are right; numbers where none is.

    A shard whose sequences are all right in one form is right in this one.

    Args:
        tokens: Of the shard.
        ids: Of the shard.
        length: Tokens of a sequence.
        n_sequences: How many have both tokens and an id.
    """
    n_bytes = length * tokens.dtype.itemsize
    n = min(n_sequences, _LOOKED_AT, max(1, _LOOKED_AT_BYTES // n_bytes))
    n_wrong: dict[IdForm, int] = {}
    for form in _FORMS:
        if not form.has_header or tokens.n_in_header is not None:
            n_wrong[form] = len(wrong_sequences(tokens, ids, form, length, range(n)))
            if not n_wrong[form]:
                return form
    return min(n_wrong, key=n_wrong.__getitem__)


def wrong_sequences(
    tokens: Items, ids: Items, form: IdForm, length: int, numbers: range
) -> list[int]:
    """Return which of some sequences are not those that their ids were made of.

    Args:
        tokens: Of the shard.
        ids: Of the shard.
        form: How they are stored.
        length: Tokens of a sequence.
        numbers: Of the sequences, which lie behind each other.
    """
    start, n = numbers.start, len(numbers)
    first = start * length - (tokens.n_in_header or 0 if form.has_header else 0)
    sequences = tokens.read(first, n * length).reshape(n, length)
    made = np.fromiter(map(sequence_id, sequences), np.uint64, n)
    wrong: list[int] = (start + np.flatnonzero(form.stored(made) != ids.read(start, n))).tolist()
    return wrong


def sequence_id(sequence: npt.NDArray[np.integer]) -> int:
    """Return the id of a sequence: a checksum of its bytes as they are stored, little-endian.

    Example:
        >>> hex(sequence_id(np.arange(4, dtype=np.uint32)))
        '0xfa9e3d6af5bd1df6'
    """
    digest = hashlib.blake2b(np.ascontiguousarray(sequence).data, digest_size=8).digest()
    return int.from_bytes(digest, "little")

"""The ids of sequences of tokens, each a checksum: an array of tokens, and beside it one of ids.

An id is the blake2b digest of a sequence's bytes, in 8 bytes, little-endian. templar's own script
stores the bits of a floating-point number in place of some, since numpy makes such numbers of those
on both sides of 2**63; and it reads the file of tokens from its first byte on, so that its first
sequence begins with the header.
"""

import hashlib
import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shardproof._base.opening import read_at
from shardproof.manifest import Mismatch
from shardproof.probes.npy import ArrayHeader

__all__ = ["ID_BYTES", "IdRecipe", "TokensWithIds", "id_of", "told_of"]

ID_BYTES = 8
_PIECE_BYTES = 2**22
_TRIED, _TRIED_BYTES = 16, 2**24
_AT_ONCE = 2**16
_SHOWN = 5


def id_of(pieces: Iterable[bytes | memoryview]) -> bytes:
    """Return the id of a sequence whose bytes come in pieces."""
    digest = hashlib.blake2b(digest_size=ID_BYTES)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


class IdRecipe(NamedTuple):
    """How ids were made: of so many bytes each, from the file's header on or not, as what bits."""

    n_bytes: int
    has_header: bool = False
    is_float: bool = False


class TokensWithIds(NamedTuple):
    """Tokens and their ids, open; each a whole array."""

    fd: int
    tokens: ArrayHeader
    ids_fd: int
    ids: ArrayHeader

    def recipe_of(self, n_bytes: int) -> IdRecipe | None:
        """Return by which recipe most of the first ids are right; None where none of them is."""
        tried = range(min(self.ids.n_items, _TRIED, max(1, _TRIED_BYTES // n_bytes)))
        n_wrong: dict[IdRecipe, int] = {}
        for how in itertools.product((False, True), repeat=2):
            recipe = IdRecipe(n_bytes, *how)
            n_wrong[recipe] = len([*self.wrong(recipe, tried)])
            if not n_wrong[recipe]:
                return recipe
        best = min(n_wrong, key=n_wrong.__getitem__)
        return best if n_wrong[best] < len(tried) else None

    def wrong(self, recipe: IdRecipe, numbers: range) -> Iterator[int]:
        """Yield which sequences are not those of which the ids were made."""
        start = 0 if recipe.has_header else self.tokens.start
        for first in range(numbers.start, numbers.stop, _AT_ONCE):
            some = range(first, min(first + _AT_ONCE, numbers.stop))
            stated = read_at(self.ids_fd, len(some) * ID_BYTES, self.ids.start + first * ID_BYTES)
            for place, index in enumerate(some):
                made = id_of(self._pieces(start + index * recipe.n_bytes, recipe.n_bytes))
                if recipe.is_float:
                    made = struct.pack("<d", int.from_bytes(made, "little"))
                if made != stated[place * ID_BYTES : (place + 1) * ID_BYTES]:
                    yield index

    def _pieces(self, begin: int, n_bytes: int) -> Iterator[bytes]:
        end = begin + n_bytes
        for at in range(begin, end, _PIECE_BYTES):
            yield read_at(self.fd, min(_PIECE_BYTES, end - at), at)

    def proves_all(self, recipe: IdRecipe, n_ids: int) -> bool:
        """Whether the ids, if all are right, prove every token."""
        start = 0 if recipe.has_header else self.tokens.start
        return start + n_ids * recipe.n_bytes == self.tokens.end


def told_of(wrong: Iterable[int], n_ids: int) -> Mismatch | None:
    """Return what is said of sequences that are others, however many; None where there is none."""
    rest = iter(wrong)
    some = ", ".join(map(str, itertools.islice(rest, _SHOWN)))
    more = f" and {n_more} more" if (n_more := sum(1 for _ in rest)) else ""
    expected = f"{n_ids} sequences of which the ids beside it were made"
    return Mismatch(expected, f"others: {some}{more}") if some else None

"""The ids of sequences of tokens, each a checksum: an array of tokens, and beside it one of ids.

An id is the blake2b digest of a sequence's bytes, in 8 bytes, little-endian. templar's own script
stores the bits of a floating-point number in place of some, since numpy makes such numbers of those
on both sides of 2**63; and it reads the file of tokens from its first byte on, so that its first
sequence begins with the header. Its ids lie beside: ``sample_ids_000003.npy``, of
``train_000003.npy``.
"""

import contextlib
import glob
import hashlib
import itertools
import re
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shardproof._base.names import opened
from shardproof._base.opening import Read, matching
from shardproof.manifest import ExpectedFile, Mismatch
from shardproof.probes.npy import ArrayHeader, header_of

__all__ = ["ID_BYTES", "IdRecipe", "IdsProof", "TokensWithIds", "id_of", "told_of"]

ID_BYTES = 8
_PIECE_BYTES = 2**22
_TRIED, _TRIED_BYTES = 16, 2**24
_AT_ONCE = 2**16
_SHOWN = 5
_TOKENS = re.compile(r"(?P<series>.+)_(?P<index>\d{6})\.npy", re.DOTALL)
_ID_TYPES = {"<u8", "=u8"}
_MOST_OTHERS = 4


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

    read: Read
    tokens: ArrayHeader
    read_ids: Read
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
            stated = self.read_ids(len(some) * ID_BYTES, self.ids.start + first * ID_BYTES)
            for place, index in enumerate(some):
                begin = start + index * recipe.n_bytes
                pieces = range(begin, end := begin + recipe.n_bytes, _PIECE_BYTES)
                made = id_of(self.read(min(_PIECE_BYTES, end - at), at) for at in pieces)
                if recipe.is_float:
                    made = struct.pack("<d", int.from_bytes(made, "little"))
                if made != stated[place * ID_BYTES : (place + 1) * ID_BYTES]:
                    yield index


def told_of(wrong: Iterable[int], n_ids: int) -> Mismatch | None:
    """Return what is said of sequences that are others, however many; None where there is none."""
    rest = iter(wrong)
    some = ", ".join(map(str, itertools.islice(rest, _SHOWN)))
    more = f" and {n_more} more" if (n_more := sum(1 for _ in rest)) else ""
    expected = f"{n_ids} sequences of which the ids beside it were made"
    return Mismatch(expected, f"others: {some}{more}") if some else None


class IdsProof(NamedTuple):
    """Proves the tokens of a shard in a directory by the ids beside it, where there are some."""

    root: str

    def __call__(self, promised: ExpectedFile, read: Read, size: int) -> Mismatch | bool:
        """Return whether every token is proven, or which sequences are others."""
        with _with_ids(self.root, promised.name, read, size) as shard:
            if shard is None:
                return False
            # Not one id may be right: of another shard, or as ids are of something else.
            recipe, n_ids = _recipe_of(shard) or self._of_others(promised.name), shard.ids.n_items
            if recipe is None or not _fits(shard, recipe.n_bytes):
                return False
            others = told_of(shard.wrong(recipe, range(n_ids)), n_ids)
            start = 0 if recipe.has_header else shard.tokens.start
            return others or start + n_ids * recipe.n_bytes == shard.tokens.end

    def _of_others(self, name: str) -> IdRecipe | None:
        """Return how the ids of a shard in the same series were made, one of the first."""
        found = _TOKENS.fullmatch(name)
        series = glob.escape(found["series"] if found else "")
        for other in matching(self.root, f"{series}_[0-9]*.npy")[:_MOST_OTHERS]:
            with opened(other, self.root) as file, contextlib.ExitStack() as stack:
                if file is None:
                    continue
                shard = stack.enter_context(_with_ids(self.root, other, file, file.status.st_size))
                if shard is not None and (recipe := _recipe_of(shard)) is not None:
                    return recipe
        return None


def _recipe_of(shard: TokensWithIds) -> IdRecipe | None:
    """Return how ids were made: of sequences as long as may be, or the power of two below."""
    longest = shard.tokens.n_items // shard.ids.n_items
    lengths = dict.fromkeys([longest, 2 ** (longest.bit_length() - 1)]) if longest else ()
    sizes = (length * shard.tokens.item_bytes for length in lengths)
    recipes = (shard.recipe_of(n_bytes) for n_bytes in sizes if _fits(shard, n_bytes))
    return next(filter(None, recipes), None)


def _fits(shard: TokensWithIds, n_bytes: int) -> bool:
    """Whether there are as many ids as sequences."""
    return (shard.tokens.end - shard.tokens.start) // n_bytes == shard.ids.n_items


@contextlib.contextmanager
def _with_ids(root: str, name: str, read: Read, size: int) -> Iterator[TokensWithIds | None]:
    """Open the ids of a shard; None where either is no whole array, or none are beside it."""
    shard, found = None, _TOKENS.fullmatch(name)
    if found is None:
        yield None
        return
    series = "" if found["series"] == "train" else f"_{found['series']}"
    with opened(f"sample_ids{series}_{found['index']}.npy", root) as file:
        tokens = _whole(read, size)
        ids = None if file is None else _whole(file, file.status.st_size)
        if file is not None and tokens is not None and ids is not None:
            is_one = ids.type in _ID_TYPES and ids.item_bytes == ID_BYTES and ids.n_items
            shard = TokensWithIds(read, tokens, file, ids) if is_one and tokens.item_bytes else None
        yield shard


def _whole(read: Read, size: int) -> ArrayHeader | None:
    header = header_of(read, size)
    return header if isinstance(header, ArrayHeader) and header.end == size else None

"""templar's ids beside shards of tokens, ``sample_ids_000003.npy`` beside ``train_000003.npy``."""

import contextlib
import dataclasses
import glob
import os
import re
from collections.abc import Iterator

from shardproof._base.opening import matching
from shardproof.formats._opened import opened
from shardproof.manifest import Mismatch, PromisedFile
from shardproof.probes import npy
from shardproof.probes.token_ids import ID_BYTES, IdRecipe, TokensWithIds, told_of

_TOKENS = re.compile(r"(?P<series>.+)_(?P<index>\d{6})\.npy", re.DOTALL)
_ID_TYPES = {"<u8", "=u8"}
_MOST_OTHERS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class IdsProof:
    """Proves the tokens of a shard in a directory by the ids beside it, where there are some."""

    root: str

    def __call__(self, promised: PromisedFile, fd: int, _size: int) -> Mismatch | bool:
        """Return whether every token is proven, or which sequences are others."""
        with self._ids(promised.name) as ids_fd:
            shard = _with_ids(fd, ids_fd)
            if shard is None:
                return False
            # Not one id may be right: of another shard, or as ids are of something else.
            recipe, n_ids = _recipe_of(shard) or self._of_others(promised.name), shard.ids.n_items
            if recipe is None or not _fits(shard, recipe.n_bytes):
                return False
            others = told_of(shard.wrong(recipe, range(n_ids)), n_ids)
            return others or shard.proves_all(recipe, n_ids)

    def _of_others(self, name: str) -> IdRecipe | None:
        """Return how the ids of a shard in the same series were made, one of the first."""
        found = _TOKENS.fullmatch(name)
        series = glob.escape(found["series"] if found else "")
        for other in matching(self.root, f"{series}_[0-9]*.npy")[:_MOST_OTHERS]:
            with opened(other, self.root) as fd, self._ids(other) as ids_fd:
                shard = _with_ids(fd, ids_fd)
                recipe = None if shard is None else _recipe_of(shard)
            if recipe is not None:
                return recipe
        return None

    @contextlib.contextmanager
    def _ids(self, name: str) -> Iterator[int | None]:
        """Open the ids of a shard; None for a file that is no shard, or has none beside it."""
        found = _TOKENS.fullmatch(name)
        if found is None:
            yield None
            return
        series = "" if found["series"] == "train" else f"_{found['series']}"
        with opened(f"sample_ids{series}_{found['index']}.npy", self.root) as fd:
            yield fd


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


def _with_ids(fd: int | None, ids_fd: int | None) -> TokensWithIds | None:
    """Return a shard with its ids; None where either is not open or no whole array."""
    tokens, ids = _whole(fd), _whole(ids_fd)
    if fd is None or ids_fd is None or tokens is None or ids is None:
        return None
    is_one = ids.type in _ID_TYPES and ids.item_bytes == ID_BYTES and ids.n_items
    return TokensWithIds(fd, tokens, ids_fd, ids) if is_one and tokens.item_bytes else None


def _whole(fd: int | None) -> npy.ArrayHeader | None:
    if fd is None:
        return None
    size = os.fstat(fd).st_size
    header = npy.read_header(fd, size)
    return header if isinstance(header, npy.ArrayHeader) and header.end == size else None

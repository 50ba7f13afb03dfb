"""One shard of tokens: which two files it is, and how they are opened and read."""

import dataclasses
import os
import stat
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shardproof._base.messages import quoted, shown, told
from shardproof._base.names import NotRegularError, open_inside, open_root, refusals
from shardproof._base.opening import real_path
from shardproof._base.paths import refuse_empty
from shardproof.datasets.tokens._npy import (
    HeaderError,
    NpyHeader,
    little_endian,
    read_header,
    read_into,
    wrong_size,
)
from shardproof.errors import ShardReadError

__all__ = ["IDS", "Items", "TokenShard", "open_tokens", "refuse_number", "token_shard"]

AnyPath = str | os.PathLike[str]

IDS = np.dtype("<u8")
"""How ids are stored."""

_DIRECTORY_VARIABLE = "DATASET_BINS_PATH"
_MAX_INDEX = 10**9


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokenShard:
    """One shard of tokens, as what it must be.

    Attributes:
        root: Real absolute path of its directory.
        index: Its number.
        sequence_length: Tokens of a sequence.
        dtype: Type of a token as it is stored.
        file_prefix: What the tokens' file name begins with.
        ids_prefix: What the name of the ids' file begins with.
        allow_length_mismatch: Whether numbers of tokens and ids may disagree.
    """

    root: str
    index: int
    sequence_length: int
    dtype: np.dtype[Any]
    file_prefix: str = "train"
    ids_prefix: str = "sample_ids"
    allow_length_mismatch: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two files: tokens, ids."""
        return f"{self.file_prefix}_{self.index:06d}.npy", f"{self.ids_prefix}_{self.index:06d}.npy"

    @property
    def paths(self) -> tuple[Path, Path]:
        """Absolute paths of the two files: tokens, ids."""
        tokens, ids = self.names
        return Path(self.root, tokens), Path(self.root, ids)


def refuse_number(name: str, value: object, *, least: int, most: int = 2**48) -> None:
    """Refuse what is no integer or out of range; `TypeError` or `ValueError`."""
    if isinstance(value, bool):  # which is an int to beartype
        raise TypeError(f"{name}: expected an integer, found a bool")
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name}: expected {least} to {most}, found {value}")


def token_shard(
    shard_index: int,
    sequence_length: int,
    *,
    shards_path: AnyPath | None = None,
    token_dtype: npt.DTypeLike = np.uint32,
    file_prefix: str = "train",
    ids_prefix: str | None = None,
    allow_length_mismatch: bool = False,
) -> TokenShard:
    """Return what is meant, or refuse it; arguments as for `SharedShardedDataset`."""
    refuse_empty(shards_path=shards_path)
    refuse_number("shard_index", shard_index, least=0, most=_MAX_INDEX)
    refuse_number("sequence_length", sequence_length, least=1)
    if ids_prefix is None:
        ids_prefix = "sample_ids" if file_prefix == "train" else f"sample_ids_{file_prefix}"
    _refuse_prefixes(file_prefix, ids_prefix)
    path = shards_path if shards_path is not None else os.environ.get(_DIRECTORY_VARIABLE)
    if not path:
        raise ValueError(
            f"shards_path: expected a directory, or ${_DIRECTORY_VARIABLE} to name one"
        )
    return TokenShard(
        root=real_path(path),
        index=shard_index,
        sequence_length=sequence_length,
        dtype=little_endian(token_dtype),
        file_prefix=file_prefix,
        ids_prefix=ids_prefix,
        allow_length_mismatch=allow_length_mismatch,
    )


def _refuse_prefixes(*prefixes: str) -> None:
    for refused in refusals([f"{prefix}_000000.npy" for prefix in prefixes]):
        raise ValueError(f"prefix: {quoted(prefixes[refused.entry])} is refused: {refused.reason}")
    for prefix in prefixes:
        if not prefix or "/" in prefix:
            raise ValueError(
                f"prefix: expected the beginning of a file name, found {quoted(prefix)}"
            )


class Items:
    """The items of one open file; it closes when nobody has it any more."""

    def __init__(self, fd: int, header: NpyHeader, path: str) -> None:
        self._fd, self._header, self._path = fd, header, path
        self._finalizer = weakref.finalize(self, os.close, fd)

    @property
    def n_items(self) -> int:
        return self._header.n_items

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._header.dtype

    @property
    def n_in_header(self) -> int | None:
        """As how many items the header can be read; None if it is no whole number of them."""
        n, rest = divmod(self._header.start, self._header.dtype.itemsize)
        return None if rest else n

    def close(self) -> None:
        self._finalizer()

    def read(self, first: int, n_items: int) -> npt.NDArray[Any]:
        items = np.empty(n_items, self._header.dtype)
        self.fill(items, first)
        return items

    def fill(self, items: npt.NDArray[Any], first: int) -> None:
        if not self._finalizer.alive:
            raise ValueError(f"'{shown(self._path)}' is closed")
        offset = self._header.start + first * self._header.dtype.itemsize
        read_into(self._fd, items, offset, self._path)


def open_tokens(shard: TokenShard) -> tuple[Items, Items]:
    """Open both files, which are looked at again: another one may have the name since the look."""
    types = dict(zip(shard.names, (shard.dtype, IDS), strict=True))
    dir_fd = open_root(shard.root)
    try:
        tokens, ids = (_open(shard.root, dir_fd, *file) for file in types.items())
    finally:
        os.close(dir_fd)
    return tokens, ids


def _open(root: str, dir_fd: int, name: str, dtype: np.dtype[Any]) -> Items:
    path = os.path.join(root, name)
    try:
        fd = open_inside(name, root=root, dir_fd=dir_fd)
        try:
            header = read_header(fd)
            status = os.fstat(fd)
            is_regular = stat.S_ISREG(status.st_mode)
            if not is_regular or header.dtype != dtype or wrong_size(header, status.st_size):
                raise ShardReadError("it was just replaced by something else", path=path)
            return Items(fd, header, path)
        except BaseException:
            os.close(fd)
            raise
    except (HeaderError, NotRegularError) as error:
        raise ShardReadError(told(error), path=path) from error
    except ShardReadError:
        raise
    except OSError as error:
        raise ShardReadError(error.strerror or told(error), path=path, errno=error.errno) from error

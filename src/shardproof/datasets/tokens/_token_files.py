"""Shards of tokens as files: which two a shard is, and how they are opened and read."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shardproof._base.arguments import accepted_fields, count
from shardproof._base.liveness import Mark, mark_of
from shardproof._base.messages import quoted, shown, told
from shardproof._base.names import NotRegularError, open_inside, open_root, refusals
from shardproof._base.opening import (
    Descriptor,
    HeldFile,
    Read,
    closing_fd,
    real_path,
    refuse_no_path,
)
from shardproof.errors import ShardReadError
from shardproof.manifest import Mismatch
from shardproof.probes import npy

AnyPath = str | os.PathLike[str]

IDS = np.dtype("<u8")  # of an id in the files
_DIRECTORY_VARIABLE = "DATASET_BINS_PATH"
_MAX_INDEX = 10**9
_MAX_LENGTH = 2**48


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokenFiles:
    """The files of the token shards in one directory: which they are, and what they must hold.

    Attributes:
        sequence_length: Tokens of a sequence.
        shards_path: Directory of the shards; None for ``$DATASET_BINS_PATH``. From then on it is
            the real absolute path.
        token_dtype: Type of a token in the files, which are little-endian.
        file_prefix: The tokens are in ``<file_prefix>_000003.npy``.
        ids_prefix: The ids are in ``<ids_prefix>_000003.npy``; None for ``sample_ids`` beside
            ``train``, and for ``sample_ids_<file_prefix>`` beside anything else.
        allow_length_mismatch: Whether to take as many sequences as have both tokens and an id,
            and say so in the log, where their numbers disagree.

    Raises:
        ValueError: A number out of range, a prefix that no file name may begin with, a type that
            is no integer's, or no directory.
        TypeError: A value of the wrong type.

    Example:
        >>> files = TokenFiles(sequence_length=2048, shards_path=output_dir, file_prefix="anneal")
        >>> tuple(path.name for path in files.paths(3))
        ('anneal_000003.npy', 'sample_ids_anneal_000003.npy')
    """

    sequence_length: int
    shards_path: AnyPath | None = None
    token_dtype: npt.DTypeLike = np.uint32
    file_prefix: str = "train"
    ids_prefix: str | None = None
    allow_length_mismatch: bool = False

    def __post_init__(self) -> None:
        found = accepted_fields(self)
        refuse_no_path(shards_path=self.shards_path)
        found["sequence_length"] = count("sequence_length", self.sequence_length, 1, _MAX_LENGTH)
        if self.ids_prefix is None:
            beside = "" if self.file_prefix == "train" else f"_{self.file_prefix}"
            found["ids_prefix"] = f"sample_ids{beside}"
        prefixes = found["file_prefix"], found["ids_prefix"]
        for entry, _, reason in refusals([f"{prefix}_000000.npy" for prefix in prefixes]):
            raise ValueError(f"prefix: {quoted(prefixes[entry])} is refused: {reason}")
        for prefix in prefixes:
            if not prefix or "/" in prefix:
                expected = "expected the beginning of a file name"
                raise ValueError(f"prefix: {expected}, found {quoted(prefix)}")
        path = os.environ.get(_DIRECTORY_VARIABLE) if self.shards_path is None else self.shards_path
        if not path:
            expected = f"expected a directory, or ${_DIRECTORY_VARIABLE} to name one"
            raise ValueError(f"shards_path: {expected}")
        found["shards_path"] = real_path(path)
        dtype = np.dtype(self.token_dtype)
        if dtype.kind not in "iu":
            raise ValueError(f"token_dtype: expected an integer type, found {dtype}")
        found["token_dtype"] = dtype.newbyteorder("<")
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def root(self) -> str:
        """Real absolute path of the directory."""
        return str(self.shards_path)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a token as it is stored."""
        return np.dtype(self.token_dtype)

    def paths(self, shard_index: int) -> tuple[Path, Path]:
        """Return the absolute paths of a shard's tokens and ids, which need not be there.

        Raises:
            ValueError: The number is out of range.
        """
        return TokenShard(self, shard_index).paths


@dataclasses.dataclass(frozen=True, slots=True)
class TokenShard:
    """One shard of those files, by its number."""

    files: TokenFiles
    index: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", count("shard_index", self.index, 0, _MAX_INDEX))

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two files: tokens, ids."""
        number = f"{self.index:06d}.npy"
        return f"{self.files.file_prefix}_{number}", f"{self.files.ids_prefix}_{number}"

    @property
    def paths(self) -> tuple[Path, Path]:
        """Absolute paths of the two files: tokens, ids."""
        tokens, ids = self.names
        return Path(self.files.root, tokens), Path(self.files.root, ids)

    @property
    def label(self) -> str:
        """What an error calls it."""
        return "Shard {} ('{}', '{}')".format(self.index, *map(shown, self.paths))

    def marks(self) -> tuple[Mark | None, ...]:
        """Return the marks of the two files; None for one that is not there."""
        return tuple(map(mark_at, self.paths))


def mark_at(path: AnyPath) -> Mark | None:
    """Return the mark of a file, which another one in its place lacks; None if there is none."""
    try:
        return mark_of(os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return None


def read_header(read: Read, size: int, dtype: np.dtype[Any]) -> npy.ArrayHeader | Mismatch:
    """Return the header of a whole array of one dimension, or how an open file is none."""
    found = npy.header_of(read, size)
    if isinstance(found, Mismatch):
        return found
    if found is None or len(found.shape) != 1:
        what = "another header" if found is None else f"shape {found.shape}"
        return Mismatch(expected="an array of numbers with one dimension", found=what)
    if found.type.lstrip("<|=") != dtype.str.lstrip("<|"):
        return Mismatch(expected=f"items of type {dtype.str}", found=found.type)
    if found.end != size:
        expected = f"{found.end} bytes for {found.n_items} items"
        return Mismatch(expected=expected, found=f"{size} bytes")
    return found


class Items:
    """The items of one open file; closed while threads read it, it closes behind the last one."""

    def __init__(self, fd: int, header: npy.ArrayHeader, dtype: np.dtype[Any], path: str) -> None:
        self.header = header
        self._dtype, self._path = dtype, path
        self._file: HeldFile | None = HeldFile(fd)

    def held(self) -> HeldFile:
        """Return the descriptor, which stays open as long as the caller refers to it."""
        if (file := self._file) is None:
            raise ValueError(f"'{shown(self._path)}' is closed")
        return file

    def close(self) -> None:
        self._file = None

    def read(self, first: int, n_items: int) -> npt.NDArray[Any]:
        items = np.empty(n_items, self._dtype)
        self.fill(items, first)
        return items

    def fill(self, items: npt.NDArray[Any], first: int) -> None:
        """Read so many items as a contiguous array has room for; a short read is an error."""
        file = self.held()
        memory, offset = items.data.cast("B"), self.header.start + first * items.itemsize
        n_read, number, problem = 0, None, "it is shorter than when it was opened"
        try:
            while n_read < len(memory) and (
                n := os.preadv(file.fd, [memory[n_read:]], offset + n_read)
            ):
                n_read += n
        except OSError as error:
            number, problem = error.errno, error.strerror or told(error)
        if n_read < len(memory):
            sizes = {"offset": offset, "expected": len(memory), "found": n_read}
            raise ShardReadError(problem, path=self._path, errno=number, **sizes)


def open_tokens(shard: TokenShard) -> tuple[Items, Items]:
    """Open both files, which are checked again: another one may have the name since the check."""
    types = dict(zip(shard.names, (shard.files.dtype, IDS), strict=True))
    with closing_fd(open_root(shard.files.root)) as dir_fd:
        tokens, ids = (_open(shard.files.root, dir_fd, *file) for file in types.items())
        return tokens, ids


def _open(root: str, dir_fd: int, name: str, dtype: np.dtype[Any]) -> Items:
    path = os.path.join(root, name)
    try:
        fd = Descriptor(open_inside(name, root=root, dir_fd=dir_fd))
        try:
            header = read_header(fd, fd.status.st_size, dtype)
            if isinstance(header, Mismatch):
                raise ShardReadError("it was just replaced by something else", path=path)
        except BaseException:
            os.close(fd)
            raise
        return Items(fd, header, dtype, path)  # which closes it from now on, and nothing else may
    except NotRegularError as error:
        raise ShardReadError(told(error), path=path) from error
    except ShardReadError:
        raise
    except OSError as error:
        raise ShardReadError(error.strerror or told(error), path=path, errno=error.errno) from error

"""What can become of a checkpoint: of one rank's tensors, and of the metadata file."""

import enum
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shardproof.testing.samples._keywords import integer, one_of
from shardproof.testing.samples._layout import Layout


class CheckpointShardState(enum.StrEnum):
    """What became of the shard of one rank: docs/checkpoint-kit.md has the table."""

    OK = "ok"  # as it was saved
    MISSING = "missing"  # gone, or never copied
    EMPTY = "empty"  # 0 bytes
    TRUNCATED = "truncated"  # cut in the middle
    EXTENDED = "extended"  # one byte longer than it was
    FLIPPED = "flipped"  # one bit of its last tensor with data is another; the size is right
    FLIPPED_HEADER = "flipped_header"  # one bit of the checksum in the header is another
    FLIPPED_PADDING = "flipped_padding"  # one bit of the zeros before the first tensor is set
    ZERO_TAIL = "zero_tail"  # from the middle of its last tensor on it reads as zeros
    DIRECTORY = "directory"  # a directory in its place
    OUTSIDE = "outside"  # a symbolic link to a whole shard outside the directory
    FIFO = "fifo"  # a named pipe: to open it without O_NONBLOCK waits for a writer
    UNREADABLE = "unreadable"  # no user may read it (chmod 0)
    SWAPPED = "swapped"  # has the bytes of another rank: they hand theirs on in a ring
    STALE = "stale"  # whole, and saved at another step under the same name
    WRONG_MAGIC = "wrong_magic"  # the header's first four bytes are in the other order
    WRONG_RANK = "wrong_rank"  # the header says the next rank
    NEGATIVE_CHECKSUM = "negative_checksum"  # the header says that its checksum is -1 bytes long
    HUGE_CHECKSUM = "huge_checksum"  # the header says that its checksum is 2**31 - 1 bytes long
    WRONG_COUNT = "wrong_count"  # the header counts one tensor more
    NEGATIVE_DATA = "negative_data"  # the header says that the data are -1 bytes long
    HUGE_DATA = "huge_data"  # the header says that the data are 2**63 - 1 bytes long
    UNCHECKED = "unchecked"  # whole, and saved without a checksum: nothing can be proven


class CheckpointMetadataState(enum.StrEnum):
    """What became of the metadata file.

    Its own checksum is right, but for the states that say otherwise: only the law that is broken
    shows what is wrong.
    """

    OK = "ok"  # as it was saved
    MISSING = "missing"  # not there
    UNFINISHED = "unfinished"  # not there yet, and the ranks' notes are: the save was killed
    PRUNED = "pruned"  # under its .pruned name: a removal was killed before it removed the shards
    EMPTY = "empty"  # 0 bytes
    TRUNCATED = "truncated"  # cut in the middle
    FLIPPED = "flipped"  # one bit of the step is another: it is JSON still
    MISSIGNED = "missigned"  # one digit of its own checksum is another
    DIRECTORY = "directory"  # a directory in its place
    UNREADABLE = "unreadable"  # no user may read it (chmod 0)
    NOT_JSON = "not_json"  # with single quotes, as Python prints a dict
    DUPLICATE_KEY = "duplicate_key"  # the step stands twice: first another, then the right one
    UNKNOWN_FIELD = "unknown_field"  # there is a field that the format doesn't have
    OTHER_VERSION = "other_version"  # the schema version is 2
    OTHER_RANKS = "other_ranks"  # the last entry says the rank after its own
    UNLISTED = "unlisted"  # there is no entry for the last rank
    ESCAPING = "escaping"  # the last entry names a whole shard outside the directory
    OVERLAPPING = "overlapping"  # all tensors of a rank begin at the same offset, in its shard too
    HOLES = "holes"  # the first tensor of a rank begins 64 bytes too late, in its shard too
    OVERFLOWING = "overflowing"  # a shape whose product is right in integers of 64 bits alone
    UNKNOWN_DTYPE = "unknown_dtype"  # a tensor of dtype object


_DTYPES = {
    1: "bool int8 uint8 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu",
    2: "int16 uint16 float16 bfloat16",
    4: "int32 uint32 float32",
    8: "int64 uint64 float64 complex64",
    16: "complex128",
}
ITEM_SIZES = {name: size for size, names in _DTYPES.items() for name in names.split()}
"""The format's dtypes, and how many bytes an element has."""


class CheckpointTensor(NamedTuple):
    """One tensor of a rank."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __repr__(self) -> str:
        return repr(tuple(self))  # as it is given: the repr of a layout is a call

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return math.prod(self.shape) * ITEM_SIZES[self.dtype]


def as_tensor(given: tuple[str, str, Iterable[int]]) -> CheckpointTensor:
    """Return a tensor that the format can say; a name that it can't is refused when it is saved."""
    name, dtype, shape = given
    lengths = tuple(integer("shape", length, at_least=0) for length in shape)
    if len(lengths) > 32:
        raise ValueError(f"shape: expected 32 dimensions or less, found {len(lengths)}")
    return CheckpointTensor(name, one_of("dtype", dtype, ITEM_SIZES), lengths)


_Tensors = Sequence[CheckpointTensor]

# Not in one set: a state of shards is equal to that of metadata of the same name.
_OF_DATA: set[str] = {
    CheckpointShardState.FLIPPED,
    CheckpointShardState.FLIPPED_PADDING,
    CheckpointShardState.ZERO_TAIL,
    CheckpointShardState.STALE,
}
_LIES_ABOUT_DATA = {
    CheckpointMetadataState.HOLES,
    CheckpointMetadataState.UNKNOWN_DTYPE,
    CheckpointMetadataState.OVERFLOWING,
    CheckpointMetadataState.OVERLAPPING,
}


def can_be(state: str, tensors: _Tensors) -> bool:
    """Return whether the shard of these tensors can be in a state."""
    return state not in _OF_DATA or _have_data(tensors)


def _have_data(tensors: _Tensors) -> bool:
    """Return whether there are two tensors with data, and the last varies: one bool is always 1."""
    *others, last = [None, *(tensor for tensor in tensors if tensor.size)]
    return len(others) > 1 and last is not None and last.size > (last.dtype == "bool")


def rank_lied_about(state: CheckpointMetadataState, tensors: Sequence[_Tensors]) -> int | None:
    """Return the first rank whose tensors such metadata can lie about; None if there is none."""
    can_lie = (state not in _LIES_ABOUT_DATA or _have_data(each) for each in tensors)
    return next((rank for rank, is_one in enumerate(can_lie) if is_one), None)


def refuse_impossible(layout: Layout) -> None:
    """Raise a ValueError where a state would leave everything as it was."""
    for rank, (state, each) in enumerate(zip(layout.states, layout.tensors, strict=True)):
        if len({tensor.name for tensor in each}) < len(each):
            raise ValueError(f"tensors: expected each name once in rank {rank}, found {each}")
        if not can_be(state, each):
            where = f"data in the shard of rank {rank} that it can change"
            raise ValueError(f"{state}: expected {where}, found none")
    if rank_lied_about(layout.metadata, layout.tensors) is None:
        raise ValueError(f"metadata: too few tensors with data for {layout.metadata} to be a lie")

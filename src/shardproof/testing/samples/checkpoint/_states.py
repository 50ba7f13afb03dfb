"""What can become of a checkpoint: of one rank's tensors, and of the metadata file."""

import collections
import enum
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shardproof.testing.samples._layout import Layout


class CheckpointShardState(enum.StrEnum):
    """What became of the shard of one rank."""

    OK = "ok"
    """As it was saved."""
    MISSING = "missing"
    """Gone, or never copied."""
    EMPTY = "empty"
    """0 bytes."""
    TRUNCATED = "truncated"
    """Cut in the middle."""
    EXTENDED = "extended"
    """One byte longer than it was."""
    FLIPPED = "flipped"
    """One bit of its last tensor with data is another; the size is right."""
    FLIPPED_HEADER = "flipped_header"
    """One bit of the checksum in the header is another."""
    FLIPPED_PADDING = "flipped_padding"
    """One bit of the zeros before the first tensor is set."""
    ZERO_TAIL = "zero_tail"
    """From the middle of its last tensor with data on it reads as zeros; the size is right."""
    DIRECTORY = "directory"
    """A directory in its place."""
    OUTSIDE = "outside"
    """A symbolic link to a whole shard outside the directory."""
    FIFO = "fifo"
    """A named pipe; open(2) without O_NONBLOCK waits for a writer (fifo(7)): so read what has one
    inside a `time_limit`."""
    UNREADABLE = "unreadable"
    """No user may read it (``chmod 0``)."""
    SWAPPED = "swapped"
    """Has the bytes of another rank: the swapped shards hand theirs on in a ring."""
    STALE = "stale"
    """Whole, and saved at another step under the same name."""
    WRONG_MAGIC = "wrong_magic"
    """The header's first four bytes are in the other order."""
    WRONG_RANK = "wrong_rank"
    """The header says the next rank."""
    NEGATIVE_CHECKSUM = "negative_checksum"
    """The header says that its checksum is -1 bytes long."""
    HUGE_CHECKSUM = "huge_checksum"
    """The header says that its checksum is 2**31 - 1 bytes long."""
    WRONG_COUNT = "wrong_count"
    """The header counts one tensor more."""
    NEGATIVE_DATA = "negative_data"
    """The header says that the data are -1 bytes long."""
    HUGE_DATA = "huge_data"
    """The header says that the data are 2**63 - 1 bytes long."""
    UNCHECKED = "unchecked"
    """Whole, and saved without a checksum and digests: nothing can be proven."""


class CheckpointMetadataState(enum.StrEnum):
    """What became of the metadata file.

    Its own checksum is right, but for the states that say otherwise: only the law that is broken
    shows what is wrong.
    """

    OK = "ok"
    """As it was saved."""
    MISSING = "missing"
    """Not there."""
    UNFINISHED = "unfinished"
    """Not there yet, and the ranks' notes are: the save was killed before its end."""
    PRUNED = "pruned"
    """Under its ``.pruned`` name: a removal was killed before it removed the shards."""
    EMPTY = "empty"
    """0 bytes."""
    TRUNCATED = "truncated"
    """Cut in the middle."""
    FLIPPED = "flipped"
    """One bit of the step is another: it is JSON still."""
    MISSIGNED = "missigned"
    """One digit of its own checksum is another."""
    DIRECTORY = "directory"
    """A directory in its place."""
    UNREADABLE = "unreadable"
    """No user may read it (``chmod 0``)."""
    NOT_JSON = "not_json"
    """With single quotes, as Python prints a dict."""
    DUPLICATE_KEY = "duplicate_key"
    """The step stands twice: first another, then the right one."""
    UNKNOWN_FIELD = "unknown_field"
    """There is a field that the format doesn't have."""
    OTHER_VERSION = "other_version"
    """The schema version is 2."""
    OTHER_RANKS = "other_ranks"
    """The last entry says the rank after its own."""
    UNLISTED = "unlisted"
    """There is no entry for the last rank."""
    ESCAPING = "escaping"
    """The last entry names a whole shard outside the directory."""
    OVERLAPPING = "overlapping"
    """All tensors of a rank begin at the same offset, in its shard too."""
    HOLES = "holes"
    """The first tensor of a rank begins 64 bytes too late, in its shard too."""
    OVERFLOWING = "overflowing"
    """A shape whose product is right in integers of 64 bits, and far too large without a limit."""
    UNKNOWN_DTYPE = "unknown_dtype"
    """A tensor of dtype ``object``."""


ITEM_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}
"""The format's dtypes, and how many bytes an element has."""

_MAX_DIMENSIONS = 32


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
    """Return a tensor that the format can say.

    Raises:
        TypeError: A name, a dtype or a length of another type.
        ValueError: An empty name or one that is no UTF-8, an unknown dtype, a negative length, more
            than 32 dimensions.
    """
    name, dtype, shape = given
    tensor = CheckpointTensor(name, dtype, tuple(shape))
    if type(name) is not str:
        raise TypeError(f"name: expected str, found {name!r}")
    if not name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise ValueError(f"name: expected UTF-8 text that is not empty, found {name!r}")
    if dtype not in ITEM_SIZES:
        raise ValueError(f"dtype: expected one of {', '.join(ITEM_SIZES)}, found {dtype!r}")
    for length in tensor.shape:
        if type(length) is not int:
            raise TypeError(f"shape: expected lengths of type int, found {length!r}")
        if length < 0:
            raise ValueError(f"shape: expected lengths of 0 or more, found {length}")
    if len(tensor.shape) > _MAX_DIMENSIONS:
        found = len(tensor.shape)
        raise ValueError(f"shape: expected {_MAX_DIMENSIONS} dimensions or less, found {found}")
    return tensor


_Tensors = Sequence[CheckpointTensor]

_SHARD_NEEDS: dict[str, tuple[int, int]] = {
    CheckpointShardState.FLIPPED_PADDING: (1, 0),
    CheckpointShardState.FLIPPED: (1, 1),
    CheckpointShardState.ZERO_TAIL: (1, 1),
    CheckpointShardState.STALE: (1, 1),
}
"""How many tensors a rank must have, and how many with one element or more; by default none."""

# Not in one table with those: a state of shards is equal to that of metadata of the same name.
_METADATA_NEEDS = {
    CheckpointMetadataState.HOLES: (1, 0),
    CheckpointMetadataState.UNKNOWN_DTYPE: (1, 0),
    CheckpointMetadataState.OVERFLOWING: (1, 1),
    CheckpointMetadataState.OVERLAPPING: (2, 2),
}


def can_be(state: str, tensors: _Tensors) -> bool:
    """Return whether the shard of these tensors can be in a state."""
    if state == CheckpointShardState.STALE and not any(map(_varies, tensors)):
        return False
    return _has(tensors, _SHARD_NEEDS.get(state, (0, 0)))


def _varies(tensor: CheckpointTensor) -> bool:
    # The last byte is odd at every step, so one single bool is always the same.
    return tensor.size > (tensor.dtype == "bool")


def rank_lied_about(state: CheckpointMetadataState, tensors: Sequence[_Tensors]) -> int | None:
    """Return the first rank whose tensors such metadata can lie about; None if there is none."""
    for rank, each in enumerate(tensors):
        # All that is seen may be the last tensor, and it must be another one in a stale shard.
        *_, last = [True, *(_varies(tensor) for tensor in each if tensor.size)]
        if state is CheckpointMetadataState.OVERLAPPING and not last:
            continue
        if _has(each, _METADATA_NEEDS.get(state, (0, 0))):
            return rank
    return None


def _has(tensors: _Tensors, needs: tuple[int, int]) -> bool:
    n_with_data = sum(tensor.size > 0 for tensor in tensors)
    return len(tensors) >= needs[0] and n_with_data >= needs[1]


def refuse_impossible(layout: Layout) -> None:
    """Raise a ValueError where a state would leave everything as it was."""
    for rank, (state, each) in enumerate(zip(layout.states, layout.tensors, strict=True)):
        counts = collections.Counter(tensor.name for tensor in each)
        if twins := sorted(name for name, count in counts.items() if count > 1):
            raise ValueError(f"tensors: expected one {twins[0]!r} in rank {rank}, found more")
        if not can_be(state, each):
            where = f"data in the shard of rank {rank} that it can change"
            raise ValueError(f"{state}: expected {where}, found none")
    if rank_lied_about(layout.metadata, layout.tensors) is None:
        raise ValueError(f"metadata: too few tensors with data for {layout.metadata} to be a lie")

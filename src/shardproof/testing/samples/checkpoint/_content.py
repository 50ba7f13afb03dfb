"""What is in a checkpoint's files, and what can become of them: tensors, shards, metadata."""

import enum
import hashlib
import itertools
import json
import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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
_OF_DATA = {"flipped", "flipped_padding", "zero_tail", "stale"}
_LIES_ABOUT_DATA = {"holes", "unknown_dtype", "overflowing", "overlapping"}


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


_ALIGNMENT = 64


def tensor_bytes(layout: Layout, rank: int, name: str) -> bytes:
    """Return the bytes of a tensor: other ones for each rank, name, step and seed.

    None of its numbers is a NaN or infinite, and its last byte is odd, so that zeros show.

    Args:
        layout: The checkpoint; what became of it does not matter.
        rank: Whose tensor.
        name: Which one.

    Raises:
        KeyError: The rank has no such tensor.

    Example:
        >>> len(tensor_bytes(Layout(format="checkpoint"), 0, "layers.0.weight"))
        48
    """
    tensor = {tensor.name: tensor for tensor in layout.tensors[rank]}[name]
    return _tensor_bytes(layout, rank, tensor, layout.step)


def _tensor_bytes(layout: Layout, rank: int, tensor: CheckpointTensor, step: int) -> bytes:
    text = f"{tensor.name} of rank {rank}, step {step}, seed {layout.seed}"
    content = bytearray(hashlib.shake_256(text.encode()).digest(tensor.size))
    if tensor.dtype == "bool":
        content[:] = content.translate(bytes(byte & 1 for byte in range(256)))
    elif "float" in tensor.dtype or "complex" in tensor.dtype:
        # Without the two high bits of the last byte, no float is special, whatever its format.
        width = ITEM_SIZES[tensor.dtype] // (2 if "complex" in tensor.dtype else 1)
        small = bytes(byte & 0x3F for byte in range(256))
        content[width - 1 :: width] = content[width - 1 :: width].translate(small)
    if content:
        content[-1] |= 1
    return bytes(content)


def whole_shard(layout: Layout, rank: int, step: int | None = None) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a rank's shard, and its entry of the metadata."""
    step = layout.step if step is None else step
    tensors = layout.tensors[rank]
    contents = {each.name: _tensor_bytes(layout, rank, each, step) for each in tensors}
    state = layout.metadata if rank == rank_lied_about(layout.metadata, layout.tensors) else "ok"
    stored = contents
    if state == CheckpointMetadataState.HOLES:
        stored = {"".join([*contents, "hole"]): bytes(_ALIGNMENT), **contents}
    elif state == CheckpointMetadataState.OVERLAPPING:
        overlaid = b""
        for content in contents.values():
            overlaid = content + overlaid[len(content) :]
        stored = {"all of them": overlaid}
    shard, entry = _serialized(stored, rank, layout.algorithm)
    written = {each["name"]: each for each in entry["tensors"]}
    if state == CheckpointMetadataState.OVERLAPPING:
        written = {name: {**written["all of them"], "digest": None} for name in contents}
    # To the library all of them are bytes: what else they are stands in the metadata alone.
    entry["tensors"] = [
        {**written[each.name], **each._asdict(), "size": each.size} for each in tensors
    ]
    struct.pack_into("<i", shard, _header_size(entry) - 12, len(tensors))
    if layout.states[rank] == CheckpointShardState.UNCHECKED:
        shard = _without_checksum(shard, entry)
    return bytes(shard), entry | {"file": layout.shard_name(rank), "file_size": len(shard)}


def _serialized(
    contents: dict[str, bytes], rank: int, algorithm: Any
) -> tuple[bytearray, dict[str, Any]]:
    """Return a shard as the library writes it, and the entry that it has behind it."""
    # Not before they are needed.
    import numpy as np  # noqa: PLC0415

    from shardproof.checkpoint import MultiShardCheckpointFormat  # noqa: PLC0415

    arrays = {name: np.frombuffer(content, np.uint8) for name, content in contents.items()}
    data = MultiShardCheckpointFormat(algorithm=algorithm).serialize(arrays, rank=rank)
    (n_checksum,) = struct.unpack_from("<i", data, 8)
    (n_data,) = struct.unpack_from("<q", data, 16 + n_checksum)
    end = 24 + n_checksum + n_data
    entry: dict[str, Any] = json.loads(data[end:])["shard"]
    return bytearray(data[:end]), entry


def _header_size(entry: dict[str, Any]) -> int:
    return 24 + len(entry["checksum"])


def _without_checksum(shard: bytearray, entry: dict[str, Any]) -> bytearray:
    """Change a shard and its entry to what they are without anything that proves them."""
    begin = -(-_header_size(entry) // _ALIGNMENT) * _ALIGNMENT
    data = shard[begin:] if entry["tensors"] else None
    entry["checksum"] = ""
    for tensor in entry["tensors"]:
        tensor |= {"digest": None, "offset": tensor["offset"] - begin + _ALIGNMENT}
    rest = b"" if data is None else bytes(_ALIGNMENT - 24) + data
    return shard[:8] + struct.pack("<iiq", 0, len(entry["tensors"]), len(rest)) + rest


def harmed_shard(layout: Layout, rank: int) -> bytes:
    """Return the bytes of a shard, as far as its state is one of bytes and not one of the file."""
    whole, entry = whole_shard(layout, rank)
    harmed, size, tensors = bytearray(whole), _header_size(entry), entry["tensors"]
    state = layout.states[rank]
    middles = [each["offset"] + each["size"] // 2 for each in tensors if each["size"]]
    fields: dict[str, tuple[str, int, int]] = {  # of the header, that say another number, and where
        CheckpointShardState.WRONG_MAGIC: (">I", 0x53484152, 0),
        CheckpointShardState.WRONG_RANK: ("<i", rank + 1, 4),
        CheckpointShardState.NEGATIVE_CHECKSUM: ("<i", -1, 8),
        CheckpointShardState.HUGE_CHECKSUM: ("<i", 2**31 - 1, 8),
        CheckpointShardState.WRONG_COUNT: ("<i", len(tensors) + 1, size - 12),
        CheckpointShardState.NEGATIVE_DATA: ("<q", -1, size - 8),
        CheckpointShardState.HUGE_DATA: ("<q", 2**63 - 1, size - 8),
    }
    if state in fields:
        form, number, at = fields[state]
        struct.pack_into(form, harmed, at, number)
    match state:
        case CheckpointShardState.FLIPPED:
            harmed[middles[-1]] ^= 1
        case CheckpointShardState.FLIPPED_HEADER:
            harmed[size // 2] ^= 1
        case CheckpointShardState.FLIPPED_PADDING:
            harmed[size] ^= 1
        case CheckpointShardState.ZERO_TAIL:
            harmed[middles[-1] :] = bytes(len(whole) - middles[-1])
        case CheckpointShardState.STALE:
            # Of the step before, else of the next ones: a few may be the same by chance.
            steps = range(max(0, layout.step - 1), layout.step + 1000)
            others = (whole_shard(layout, rank, each)[0] for each in steps)
            return next(other for other in others if other != whole)
    return bytes(harmed)


def metadata_bytes(layout: Layout) -> bytes | None:
    """Return what the metadata file says, or lies; None where there is no such file."""
    state = layout.metadata
    if state in {CheckpointMetadataState.MISSING, CheckpointMetadataState.UNFINISHED}:
        return None
    document = checkpoint_document(layout)
    _break_law(layout, document)
    text = _unsealed(document)
    if state is CheckpointMetadataState.DUPLICATE_KEY:
        text = b'{"step": 1000, ' + text[1:]
    elif state is CheckpointMetadataState.NOT_JSON:
        text = text.replace(b'"', b"'")
    text = sealed(text)
    match state:
        case CheckpointMetadataState.FLIPPED:
            end = text.index(b",", text.index(b'"step":'))
            return text[: end - 1] + bytes([text[end - 1] ^ 1]) + text[end:]
        case CheckpointMetadataState.MISSIGNED:
            end = len(text) - len(b'"}\n')
            other = b"0" if text[end - 1 : end] != b"0" else b"1"
            return text[: end - 1] + other + text[end:]
    return text


def checkpoint_document(layout: Layout) -> dict[str, Any]:
    """Return what is in the whole metadata file, but for its own checksum."""
    return {
        "schema_version": 1,
        "world_size": layout.n_shards,
        "step": layout.step,
        "timestamp": "2025-01-01T00:00:00Z",
        "sharding": {"strategy": "full", "shard_count": layout.n_shards, "precision": "mixed"},
        "shards": [whole_shard(layout, rank)[1] for rank in range(layout.n_shards)],
    }


def signed(document: dict[str, Any]) -> bytes:
    """Return a document as the text of a metadata file that has its own right checksum."""
    return sealed(_unsealed(document))


def _unsealed(document: dict[str, Any]) -> bytes:
    return json.dumps(document | {"checksum": ""})[: -len('"}')].encode()


def sealed(text: bytes) -> bytes:
    """Return a text with the checksum behind it with which a metadata file ends."""
    return text + b'sha256:%b"}\n' % hashlib.sha256(text).hexdigest().encode()


def elsewhere(layout: Layout) -> str:
    """Return where the file lies that ``escaping`` metadata name, relative to the directory."""
    return f"../{layout.prefix}-step-{layout.step}/{layout.shard_name(layout.n_shards - 1)}"


def wrapping_shape(n_elements: int, item_size: int) -> list[int]:
    """Return a shape that has so many elements only where 64 bits are all that there is."""
    modulus = 2**64 // item_size
    odd = itertools.count(2**32 + 1, 2)
    pairs = ([one, n_elements * pow(one, -1, modulus) % modulus] for one in odd)
    return next(pair for pair in pairs if pair[1] < 2**63 and math.prod(pair) != n_elements)


def _break_law(layout: Layout, document: dict[str, Any]) -> None:
    last = document["shards"][-1]
    match layout.metadata:
        case CheckpointMetadataState.UNKNOWN_FIELD:
            document["pickled"] = "gASULg=="
        case CheckpointMetadataState.OTHER_VERSION:
            document["schema_version"] = 2
        case CheckpointMetadataState.OTHER_RANKS:
            last["rank"] = layout.n_shards
        case CheckpointMetadataState.UNLISTED:
            del document["shards"][-1]
        case CheckpointMetadataState.ESCAPING:
            last["file"] = elsewhere(layout)
        case CheckpointMetadataState.OVERFLOWING | CheckpointMetadataState.UNKNOWN_DTYPE as state:
            tensors = document["shards"][rank_lied_about(state, layout.tensors)]["tensors"]
            if state is CheckpointMetadataState.UNKNOWN_DTYPE:
                tensors[0]["dtype"] = "object"
            else:
                tensor = next(tensor for tensor in tensors if tensor["size"])
                n_elements = math.prod(tensor["shape"])
                tensor["shape"] = wrapping_shape(n_elements, ITEM_SIZES[tensor["dtype"]])

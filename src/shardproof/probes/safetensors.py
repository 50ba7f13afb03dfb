"""The laws of a file of safetensors: its header is JSON, its tensors lie without a hole to its end.

``u64 N``, N bytes of JSON, then the data: each tensor lies at its ``data_offsets`` behind the
header, one begins where another ends, and the last one ends where the file does
(https://github.com/huggingface/safetensors#format).
"""

import re
from collections.abc import Collection, Mapping
from math import prod
from typing import Annotated, NamedTuple

import msgspec

from shardproof._base.messages import quoted, told
from shardproof._base.opening import Read
from shardproof.manifest import ExpectedFile, Mismatch

__all__ = ["SafetensorsHeader", "TensorInfo", "WeightsIndex", "header_of", "probe"]

_LENGTH_BYTES = 8
_FIRST_BYTES = 2**14  # what is read at once: the header of most files, in one call
_MAX_HEADER_BYTES = 100_000_000  # as the format's own reader has it
_MAX_PARSED_BYTES = 2**24  # those of 100 000 tensors; decoded, they take six times as many bytes
_MOST_DIMENSIONS = 64
_ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 1),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 8),
}
"""Not those of less than a byte: writers differ in what they state as the shape."""

_METADATA = re.compile(
    rb'"__metadata__"\s*+:\s*+(?P<texts>null|\{(?:[^"{}]|"(?:[^"\\]|\\.)*+")*+\})', re.DOTALL
)
_NO_METADATA = b'"__metadata__":{"dtype":"","shape":[],"data_offsets":[0,0]}'
"""What stands there instead when the rest is decoded, all of which are tensors."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class WeightsIndex(msgspec.Struct):
    """What lies beside several such files: which tensor is in which of them."""

    weight_map: dict[str, str]


class TensorInfo(msgspec.Struct, gc=False):
    """What a header says of a tensor: where its bytes begin and end, behind the header."""

    dtype: str
    shape: list[_Count]
    data_offsets: tuple[_Count, _Count]


class SafetensorsHeader(NamedTuple):
    """What a header says."""

    tensors: Mapping[str, TensorInfo]
    metadata: bytes  # texts about the file, as JSON

    def left_out(self) -> Collection[str]:
        """Return the names in the metadata: among them those of tensors that others stand for.

        A tensor that shares its memory with another is saved once. The library's ``save_model`` and
        the converter of the Hub put here the name of the one that was left out, and of the other.
        """
        try:
            return _decode_metadata(self.metadata) or ()
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ()


_decode_tensors = msgspec.json.Decoder(dict[str, TensorInfo]).decode
_decode_metadata = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


def probe(_promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with a file's header, or between it and the file's size."""
    found = header_of(read, size)
    return found if isinstance(found, Mismatch) else None


def header_of(read: Read, size: int) -> SafetensorsHeader | Mismatch | None:
    """Return what the header of a file says, or what is wrong; None of one that is too long."""
    begin = read(min(size, _FIRST_BYTES))
    n_bytes = int.from_bytes(begin[:_LENGTH_BYTES], "little")
    text = begin[_LENGTH_BYTES : _LENGTH_BYTES + n_bytes]
    if n_bytes > _MAX_HEADER_BYTES or not text.startswith(b"{"):
        return Mismatch("a header of safetensors", quoted(begin[: _LENGTH_BYTES + 8]))
    if _LENGTH_BYTES + n_bytes > size:
        return Mismatch(f"a header of {n_bytes} bytes", f"{size} bytes in all")
    if n_bytes > _MAX_PARSED_BYTES:
        return None
    if len(text) < n_bytes:
        text = read(n_bytes, _LENGTH_BYTES)
    return _parsed(text, size)


def _parsed(text: bytes, size: int) -> SafetensorsHeader | Mismatch:
    n_data_bytes, metadata = size - _LENGTH_BYTES - len(text), b"null"
    if found := _METADATA.search(text):
        text, metadata = text[: found.start()] + _NO_METADATA + text[found.end() :], found["texts"]
    try:
        tensors = _decode_tensors(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Mismatch("a header of safetensors in JSON", told(error))
    if found:
        tensors.pop("__metadata__", None)
    return _broken_law(tensors, n_data_bytes) or SafetensorsHeader(tensors, metadata)


def _broken_law(tensors: Mapping[str, TensorInfo], n_data_bytes: int) -> Mismatch | None:
    """Return which tensor has not the size of its shape, or where there is a hole between two."""
    places = []
    for name, info in tensors.items():
        places.append(info.data_offsets)
        begin, end = info.data_offsets
        item_bytes = _ITEM_BYTES.get(info.dtype)
        if item_bytes is not None and len(info.shape) <= _MOST_DIMENSIONS:
            n_bytes = item_bytes * prod(info.shape)
            if end - begin != n_bytes:
                expected = f"{quoted(n_bytes)} bytes of {quoted(name)}, by its shape"
                return Mismatch(expected, f"bytes {begin} to {end}")
    at = 0
    for begin, end in sorted(places):
        if begin != at or end < begin:
            return Mismatch(f"a tensor at byte {at}", f"one from {begin} to {end}")
        at = end
    if at != n_data_bytes:
        return Mismatch(f"{at} bytes of tensors", f"{n_data_bytes} bytes")
    return None

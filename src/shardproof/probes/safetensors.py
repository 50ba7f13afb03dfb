"""The laws of a file of safetensors: its header is JSON, its tensors lie without a hole to its end.

``u64 N``, N bytes of JSON, then the data: each tensor lies at its ``data_offsets`` behind the
header, one begins where another ends, and the last one ends where the file does
(https://github.com/huggingface/safetensors#format).
"""

import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec

from shardproof._base.messages import quoted, told
from shardproof._base.opening import read_at
from shardproof.manifest import Mismatch, PromisedFile

__all__ = ["SafetensorsHeader", "TensorInfo", "header_of", "probe"]

_LENGTH_BYTES = 8
_FIRST_BYTES = 2**14
"""What is read at once: the header of most files, in one call."""

_MAX_HEADER_BYTES = 100_000_000
"""As the format's own reader has it."""

_MAX_PARSED_BYTES = 2**24
"""Those of 100 000 tensors; decoded, they take six times as many bytes."""

_MOST_BYTES = 2**63
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


class TensorInfo(msgspec.Struct, gc=False):
    """What a header says of a tensor: where its bytes begin and end, behind the header."""

    dtype: str
    shape: list[_Count]
    data_offsets: tuple[_Count, _Count]


class SafetensorsHeader(NamedTuple):
    """What a header says.

    Attributes:
        tensors: What it says of each tensor.
        metadata: Texts about the file. A tensor that shares its memory with another is saved once:
            the library's ``save_model``, and the converter of the Hub, put here the name of the one
            that was left out, and that of the other.
    """

    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, msgspec.Raw]


_decode_tensors = msgspec.json.Decoder(dict[str, TensorInfo]).decode
_decode_metadata = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


def probe(_promised: PromisedFile, fd: int, size: int) -> Mismatch | None:
    """Return what is wrong with a file's header, or between it and the file's size."""
    found = header_of(fd, size)
    return found if isinstance(found, Mismatch) else None


def header_of(fd: int, size: int) -> SafetensorsHeader | Mismatch | None:
    """Return what the header of a file says, or what is wrong; None where it is too long to read.

    Raises:
        OSError: It could not be read.
    """
    begin = read_at(fd, min(size, _FIRST_BYTES))
    n_bytes = int.from_bytes(begin[:_LENGTH_BYTES], "little")
    text = begin[_LENGTH_BYTES : _LENGTH_BYTES + n_bytes]
    if n_bytes > _MAX_HEADER_BYTES or not text.startswith(b"{"):
        expected = "a header of safetensors"
        return Mismatch(expected=expected, found=quoted(begin[: _LENGTH_BYTES + 8]))
    if _LENGTH_BYTES + n_bytes > size:
        return Mismatch(expected=f"a header of {n_bytes} bytes", found=f"{size} bytes in all")
    if n_bytes > _MAX_PARSED_BYTES:
        return None
    if len(text) < n_bytes:
        text = read_at(fd, n_bytes, _LENGTH_BYTES)
    return _parsed(text, size)


def _parsed(text: bytes, size: int) -> SafetensorsHeader | Mismatch:
    found = _METADATA.search(text)
    tensors_text = _METADATA.sub(_NO_METADATA, text, count=1) if found else text
    try:
        tensors = _decode_tensors(tensors_text)
        metadata = _decode_metadata(found["texts"]) if found else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Mismatch(expected="a header of safetensors in JSON", found=told(error))
    if found:
        tensors.pop("__metadata__", None)
    is_odd = _odd_shape(tensors) or _hole(tensors, size - _LENGTH_BYTES - len(text))
    return is_odd or SafetensorsHeader(tensors, metadata or {})


def _odd_shape(tensors: Mapping[str, TensorInfo]) -> Mismatch | None:
    """Return which tensor has not the size of its shape."""
    for name, info in tensors.items():
        n_bytes = _ITEM_BYTES.get(info.dtype)
        if n_bytes is not None:
            for length in info.shape:
                n_bytes = min(n_bytes * length, _MOST_BYTES)  # of a shape that lies
            begin, end = info.data_offsets
            if end - begin != n_bytes:
                expected = f"{n_bytes} bytes of {quoted(name)}, by its shape"
                return Mismatch(expected=expected, found=f"bytes {begin} to {end}")
    return None


def _hole(tensors: Mapping[str, TensorInfo], n_bytes: int) -> Mismatch | None:
    """Return where the data are not one tensor after the other, up to the end of the file."""
    at = 0
    for begin, end in sorted(info.data_offsets for info in tensors.values()):
        if begin != at or end < begin:
            return Mismatch(expected=f"a tensor at byte {at}", found=f"one from {begin} to {end}")
        at = end
    if at != n_bytes:
        return Mismatch(expected=f"{at} bytes of tensors", found=f"{n_bytes} bytes")
    return None

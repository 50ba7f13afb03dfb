"""llm.c's shards of tokens, which modded-nanogpt has too: a header that says how many there are.

The header is 256 numbers of 4 bytes, little-endian: a magic number, a version, a count; tokens
follow. Those of an evaluation are examples, each of which says how long it is. A ``.bin`` without
a header (nanoGPT's) has no law, and other files with that ending are not promised.
"""

import re
import struct
from collections.abc import Sequence

from shardproof._base.messages import quoted
from shardproof._base.names import opened
from shardproof._base.opening import Read, matching
from shardproof.manifest import ExpectedFile, Mismatch

_START = struct.Struct("<iii")
_HEADER_BYTES = 1024
_EVALUATION = 20240522
_TOKEN_BYTES = {(20240520, 1): 2, (20240801, 7): 4}  # by magic and version: GPT-2's, Llama 3's
_MAGICS = {_EVALUATION, *(magic for magic, _ in _TOKEN_BYTES)}
_MOST_EXAMPLES = 2**16
_EXAMPLE = struct.Struct("<HH")
_BEGINS_EXAMPLE = 2**16 - 1
_DIGITS = re.compile(r"\d+")
_MOST_LOOKED_AT = 16
_MOST_OF_SERIES = 3


def recognizes(path: str) -> bool:
    return any(_is_shard(path, name) for name in matching(path, "*.bin")[:_MOST_LOOKED_AT])


def _is_shard(root: str, name: str, *, or_empty: bool = False) -> bool:
    with opened(name, root) as file:
        head = bytes(4) if file is None else file(4)
    return or_empty if len(head) < 4 else int.from_bytes(head, "little") in _MAGICS


def choose(path: str, names: Sequence[str]) -> Sequence[str]:
    """Return the files of each series, alike but for digits, of which one is such a shard."""
    series: dict[str, list[str]] = {}
    for name in names:
        series.setdefault(_DIGITS.sub("0", name), []).append(name)
    ours = (
        some
        for some in series.values()
        if any(_is_shard(path, name, or_empty=True) for name in some[:_MOST_OF_SERIES])
    )
    return [name for some in ours for name in some]


def probe(_promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with a shard: its header, or the size that the header implies."""
    head = read(_START.size)
    magic, version, count = _START.unpack(head) if len(head) == _START.size else (0, 0, 0)
    if magic not in _MAGICS or size < _HEADER_BYTES or count < 0:
        return Mismatch("a header of llm.c, 1024 bytes", quoted(head))
    if magic == _EVALUATION:
        return _wrong_example(read, size, count) if version == 1 else None
    token_bytes = _TOKEN_BYTES.get((magic, version))
    n_bytes = None if token_bytes is None else _HEADER_BYTES + count * token_bytes
    if n_bytes in {None, size}:
        return None
    return Mismatch(f"{n_bytes} bytes for {count} tokens", f"{size} bytes")


def _wrong_example(read: Read, size: int, count: int) -> Mismatch | None:
    """Return where examples do not follow one another to the end; 2**16 at most, as the writer."""
    at = _HEADER_BYTES
    for index in range(min(count, _MOST_EXAMPLES)):
        head = read(_EXAMPLE.size, at)
        mark, n_bytes = _EXAMPLE.unpack(head) if len(head) == _EXAMPLE.size else (0, 0)
        if mark != _BEGINS_EXAMPLE or n_bytes < _EXAMPLE.size:
            return Mismatch(f"example {index} at byte {at}", quoted(head))
        at += n_bytes
    if at == size and count <= _MOST_EXAMPLES:
        return None
    return Mismatch(f"{at} bytes for {count} examples", f"{size} bytes")

"""The laws of JSON lines, plain or packed: the end of the name tells by what.

Each line is a value of JSON (https://jsonlines.org), and the last need not end. What is called
``.json.gz`` may be one value over many lines.
"""

import json

from shardproof._base.messages import quoted
from shardproof._base.opening import Read
from shardproof.manifest import ExpectedFile, Mismatch
from shardproof.probes import packed

__all__ = ["probe", "prove"]

_KINDS = {"gz": "gzip", "zst": "zstd", "zstd": "zstd", "bz2": "bzip2", "xz": "xz"}
_END_BYTES = 2**16


def probe(promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with the first or the last line of a file, or with what packs it."""
    stem, _, end = promised.name.lower().rpartition(".")
    if end not in _KINDS:
        first, last = read(_END_BYTES), read(_END_BYTES, max(0, size - _END_BYTES))
        return _wrong_line(first, 0, size) or _wrong_line(last, -1, size)
    wrong = packed.probe(_KINDS[end], read, size)
    if wrong or end != "gz" or stem.endswith(".json"):
        return wrong
    return packed.wrong_inside(read, lambda read: _wrong_line(read(_END_BYTES, 0)), whole=False)


def prove(_: ExpectedFile, read: Read, size: int) -> Mismatch | bool:
    """Return whether the checksums of what packs a file prove it."""
    kind = packed.kind_of(read(packed.HEAD_BYTES))
    return packed.prove(kind, read, size) if kind else False


def _wrong_line(text: bytes, at: int = 0, size: int = _END_BYTES) -> Mismatch | None:
    """Return whether the first line of some bytes, or the last, is whole and no JSON."""
    lines = text.removeprefix(b"\xef\xbb\xbf").strip().splitlines()
    if not lines or (len(lines) == 1 and size >= _END_BYTES):
        return None
    line = lines[at].decode(errors="replace")
    try:
        json.loads(line, parse_int=str)  # Python refuses integers of many digits
    except RecursionError:
        return None
    except ValueError:
        return Mismatch(f"JSON in the {'last' if at else 'first'} line", quoted(line[:80]))
    return None

"""The ends of an Arrow file: a file of record batches, or a stream of them.

A file begins and ends with ``ARROW1``, and has the length of its footer before that. A stream ends
with a mark of eight bytes; without it, one that was cut between two batches reads as a whole one
with fewer rows (https://arrow.apache.org/docs/format/Columnar.html).
"""

from shardproof._base.messages import quoted
from shardproof._base.opening import read_at
from shardproof.manifest import Mismatch, PromisedFile

__all__ = ["probe"]

_MAGIC = b"ARROW1"
_CONTINUED = b"\xff\xff\xff\xff"
_END_OF_STREAM = _CONTINUED + bytes(4)
_TAIL_BYTES = len(_MAGIC) + 4


def probe(_: PromisedFile, fd: int, size: int) -> Mismatch | None:
    """Return what is wrong with the begin or the end of a file, or of a stream."""
    head = read_at(fd, 8)
    if head[:6] == _MAGIC:
        return _wrong_footer(fd, size)
    if head[:4] != _CONTINUED:
        return Mismatch("the begin of an Arrow file or stream", quoted(head))
    last = read_at(fd, 8, max(0, size - 8))
    if last == _END_OF_STREAM:
        return None
    expected = "the mark at the end of a stream of Arrow"
    return Mismatch(expected, f"{quoted(last)}: the stream is cut")


def _wrong_footer(fd: int, size: int) -> Mismatch | None:
    tail = read_at(fd, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    if tail[4:] != _MAGIC:
        return Mismatch("'ARROW1' at the end", quoted(tail[4:]))
    n_bytes = int.from_bytes(tail[:4], "little", signed=True)
    if 0 < n_bytes <= size - _TAIL_BYTES - 8:
        return None
    return Mismatch(f"a footer within {size} bytes", f"a length of {n_bytes}")

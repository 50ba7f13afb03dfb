"""The laws of files and streams of Arrow, and of files of Feather: what they begin and end with.

A file of Arrow begins and ends with ``ARROW1``, and has the length of its footer before that. A
stream ends with a mark of eight bytes; without it, one that was cut between two batches reads as a
whole one with fewer rows (https://arrow.apache.org/docs/format/Columnar.html). Feather 2 is a file
of Arrow; Feather 1 begins and ends with ``FEA1``, and has the length of its metadata before that.
"""

from shardproof._base.messages import quoted
from shardproof._base.opening import Read
from shardproof.manifest import ExpectedFile, Mismatch

__all__ = ["probe"]

_MAGICS = (b"ARROW1", b"FEA1")
_CONTINUED = b"\xff\xff\xff\xff"
_END_OF_STREAM = _CONTINUED + bytes(4)
_TAIL_BYTES = 10


def probe(_promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with the ends of a file."""
    head = read(8)
    tail = read(_TAIL_BYTES, max(0, size - _TAIL_BYTES))
    for magic in filter(head.startswith, _MAGICS):
        if not tail.endswith(magic):
            return Mismatch(f"{quoted(magic.decode())} at the end", quoted(tail[-len(magic) :]))
        n_bytes = int.from_bytes(tail[: -len(magic)][-4:], "little", signed=True)
        is_inside = 0 < n_bytes <= size - len(magic) - 4 - 8
        found = f"a length of {n_bytes}"
        return None if is_inside else Mismatch(f"a footer within {size} bytes", found)
    n_bytes = int.from_bytes(head[:4], "little")  # up to Arrow 0.14, nothing is before a length
    is_old = 0 < n_bytes < size and int.from_bytes(head[4:], "little") < n_bytes
    if head[:4] != _CONTINUED and not is_old:
        return Mismatch("the beginning of an Arrow file or stream", quoted(head))
    if tail.endswith(_END_OF_STREAM[4:] if is_old and size % 8 == 4 else _END_OF_STREAM):
        return None
    expected = "the mark at the end of a stream of Arrow"
    return Mismatch(expected, f"{quoted(tail[-8:])}: the stream is cut")

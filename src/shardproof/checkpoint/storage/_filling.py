"""Fill memory from a file, and hash what is read, in one pass by several threads."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from shardproof._base import digest, fanout
from shardproof._base.messages import told
from shardproof._base.work import go_on
from shardproof.checkpoint.storage._local_storage import LocalFile
from shardproof.checkpoint.storage._reading import read_into
from shardproof.checkpoint.storage._storage import StoredFile
from shardproof.errors import CheckpointError

_PIECE_BYTES = digest.LEAF_BYTES  # what the cache of a processor holds between reading and hashing
_UNPROVEN_BYTES = 2**23
_SMALL = 2**16
_N_AHEAD = 2  # pieces that are read while each thread is at one

Memory = tuple[memoryview, Callable[[], object] | None]
"""Where bytes are to be read, and what is to be called once they are there and hashed."""

Target = Callable[[int, int], Memory]
"""Returns memory for some bytes of a segment: from where on, and how many they are."""


class Segment(NamedTuple):
    """Bytes of a file, and where they go."""

    offset: int
    size: int
    target: Target


def into(memory: memoryview) -> Target:
    """Return the target that is a piece of memory."""
    return lambda at, n: (memory[at : at + n], None)


class Scratch:
    """A target for bytes that nobody keeps: memory that is used again, once it was taken."""

    def __init__(self, take: Callable[[memoryview, int], object] = lambda *_: None) -> None:
        self._take, self._free = take, list[bytearray]()

    def __call__(self, at: int, n: int) -> Memory:
        """Return memory, from which bytes are taken by how many come before them."""
        buffer = bytearray()
        if n >= _SMALL:
            with contextlib.suppress(IndexError):
                buffer = self._free.pop()
        if len(buffer) < n:
            buffer = bytearray(n)
        view = memoryview(buffer)[:n]

        def done() -> None:
            self._take(view, at)
            if n >= _SMALL:
                self._free.append(buffer)

        return view, done


def fill(
    file: StoredFile, segments: Sequence[Segment], algorithm: str | None, threads: int | None = None
) -> str:
    """Read segments of a file, which has them; return their digest, if by an algorithm."""
    found: Any = None if algorithm is None else _begun(file, algorithm, threads)
    n_bytes = _UNPROVEN_BYTES if algorithm is None else _PIECE_BYTES
    if algorithm == "blake3":  # which has threads of its own
        n_bytes = digest.piece_bytes(algorithm, threads)
    is_tree = isinstance(found, digest.TreeDigest)

    def read(piece: Sequence[Segment]) -> tuple[list[Memory], bytes]:
        memory = [_read(file, part) for part in piece]
        return memory, digest.leaf_of(*(view for view, _ in memory)) if is_tree else b""

    n_pieces = -(-sum(segment.size for segment in segments) // n_bytes)
    n_threads = min(fanout.threads_for_bytes(), threads or n_pieces, n_pieces)
    if not isinstance(file, LocalFile):
        n_threads = 1
    name, n_begun, pieces = "shardproof-reader", n_threads + _N_AHEAD, _pieces(segments, n_bytes)
    runs = fanout.in_threads(read, pieces, n_threads=n_threads, name=name, n_begun=n_begun)
    with contextlib.closing(runs):  # before the file is, from which threads read until then
        for memory, leaf in runs:
            if is_tree:
                found.add(leaf)
            for view, done in memory:
                if found is not None and not is_tree:
                    found.update(view)
                if done is not None:
                    done()
    return "" if found is None else f"{algorithm}:{found.hexdigest()}"


def _begun(file: StoredFile, algorithm: str, threads: int | None) -> Any:
    """Return what takes in bytes, or refuse a file whose algorithm is not installed."""
    try:
        return digest.begin(algorithm, 0, threads=threads)
    except ValueError as error:
        raise CheckpointError(f"it can't be proven: {told(error)}", path=file.path) from None


def _pieces(segments: Iterable[Segment], n_bytes: int) -> Iterator[list[Segment]]:
    """Yield parts of segments, which together are so many bytes, or the last ones."""
    piece, left = list[Segment](), n_bytes
    for offset, size, target in segments:
        at = 0
        while at < size:
            n = min(left, size - at)
            piece.append(Segment(offset + at, n, _from(target, at)))
            at, left = at + n, left - n
            if not left:
                yield piece
                piece, left = [], n_bytes
    if piece:
        yield piece


def _from(target: Target, start: int) -> Target:
    return lambda at, n: target(start + at, n)


def _read(file: StoredFile, part: Segment) -> Memory:
    memory, at = part.target(0, part.size), 0
    while at < part.size:
        go_on()
        at += read_into(file, memory[0][at:], part.offset + at)
    return memory

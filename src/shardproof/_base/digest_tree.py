"""A digest that many processors compute together: the SHA-256 of a list of SHA-256 digests.

Each leaf is the digest of one MiB, the last of what is left; the root is the digest of all leaves.
"""

import hashlib
import os

from shardproof._base.work import in_threads

__all__ = ["LEAF_BYTES", "TreeDigest"]

LEAF_BYTES = 2**20


class TreeDigest:
    """Takes bytes by ``update``, as the digests of hashlib do; pieces of many MiB are the fastest.

    Threads run only within ``update``, and have ended when it returns.

    Args:
        threads: How many; by default one for each processor.
    """

    digest_size = 32

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or len(os.sched_getaffinity(0))
        self._root = hashlib.sha256()
        self._leaf = hashlib.sha256()
        self._n_in_leaf = 0

    def update(self, data: "bytes | memoryview") -> None:
        """Take in more bytes."""
        view = memoryview(data).cast("B")
        if self._n_in_leaf:
            n = min(LEAF_BYTES - self._n_in_leaf, len(view))
            self._fill(view[:n])
            view = view[n:]
        n_whole = len(view) // LEAF_BYTES * LEAF_BYTES
        leaves = [view[at : at + LEAF_BYTES] for at in range(0, n_whole, LEAF_BYTES)]
        self._root.update(b"".join(_digests(leaves, self._threads)))
        self._fill(view[n_whole:])

    def _fill(self, part: memoryview) -> None:
        self._leaf.update(part)
        self._n_in_leaf += len(part)
        if self._n_in_leaf == LEAF_BYTES:
            self._root.update(self._leaf.digest())
            self._leaf, self._n_in_leaf = hashlib.sha256(), 0

    def hexdigest(self) -> str:
        """Return the root of what was taken in until now."""
        root = self._root.copy()
        if self._n_in_leaf:
            root.update(self._leaf.digest())
        return root.hexdigest()


def _digests(leaves: list[memoryview], threads: int) -> list[bytes]:
    n_threads = min(len(leaves), threads)
    if n_threads < 2:
        return [_digest(leaf) for leaf in leaves]
    return list(in_threads(_digest, leaves, n_threads=n_threads, name="shardproof-digest"))


def _digest(leaf: memoryview) -> bytes:
    return hashlib.sha256(leaf).digest()

"""Digests as text, ``"sha256:<hex>"``: parsed, computed over a file, compared."""

import hashlib
import hmac
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from shardproof._base.digest_tree import TreeDigest
from shardproof._base.messages import quoted

__all__ = ["ALGORITHMS", "Digest", "begin", "of_file", "parse", "same"]

ALGORITHMS = ("blake2b", "md5", "sha1", "sha256", "sha512")
"""What `parse` accepts: what hashlib has on every platform and manifests in use state.

It accepts ``git-sha1`` too, by which git names a file: the SHA-1 of ``blob <size>``, NUL and the
bytes (git-hash-object(1)); ``xxh64`` and ``xxh3-128``; ``sha256-tree`` (`_digest_tree`); and
``blake3`` where it is installed (``pip install shardproof[blake3]``).
"""

_N_DIGITS = {
    **{name: 2 * hashlib.new(name, usedforsecurity=False).digest_size for name in ALGORITHMS},
    "blake3": 64,
    "git-sha1": 40,
    "sha256-tree": 64,
    "xxh3-128": 32,
    "xxh64": 16,
}
_CHUNK = 2**20


class Digest(NamedTuple):
    """What the bytes of a file hash to, and by which algorithm."""

    algorithm: str
    value: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.value}"


def parse(text: str) -> Digest:
    """Return the digest that ``"<algorithm>:<hex>"`` states.

    Raises:
        ValueError: Unknown algorithm, or not as many hexadecimal digits as the algorithm has; or
            the package that computes it is not installed.
    """
    algorithm, _, value = text.partition(":")
    n_digits = _N_DIGITS.get(algorithm)
    if n_digits is None:
        raise ValueError(f"expected one of {', '.join(ALGORITHMS)} and ':', found {quoted(text)}")
    if algorithm == "blake3":
        begin(algorithm, 0)  # which may not be installed
    if len(value) != n_digits or not set(value) <= set("0123456789abcdefABCDEF"):
        raise ValueError(f"expected {n_digits} hexadecimal digits, found {quoted(text, 160)}")
    return Digest(algorithm, value.lower())


def begin(algorithm: str, size: int, *, threads: int | None = None) -> Any:
    """Return what takes the bytes of a file of ``size`` bytes by ``update``, as hashlib's do.

    Args:
        algorithm: By which.
        size: Of the file; for ``git-sha1`` only.
        threads: How many an ``update`` may use; by default one for each processor. Only blake3 and
            sha256-tree use more than one, and only for many MiB at once.

    Raises:
        ValueError: The package that computes it is not installed.
    """
    if algorithm == "git-sha1":
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    if algorithm in _OTHERS:
        return _OTHERS[algorithm](threads)
    return hashlib.new(algorithm, usedforsecurity=False)


def _blake3(threads: int | None) -> Any:
    try:
        from blake3 import blake3  # noqa: PLC0415 - an extra
    except ImportError as error:
        problem = "blake3 needs the package blake3: pip install shardproof[blake3]"
        raise ValueError(problem) from error
    return blake3(max_threads=threads or blake3.AUTO)


def _xxh64(_: int | None) -> Any:
    import xxhash  # noqa: PLC0415 - few manifests need it

    return xxhash.xxh64()


def _xxh3(_: int | None) -> Any:
    import xxhash  # noqa: PLC0415 - as above

    return xxhash.xxh3_128()


_OTHERS: dict[str, Callable[[int | None], Any]] = {
    "blake3": _blake3,
    "sha256-tree": TreeDigest,
    "xxh3-128": _xxh3,
    "xxh64": _xxh64,
}


def of_file(
    fd: int,
    algorithm: str,
    size: int,
    *,
    start: int = 0,
    go_on: Callable[[], None] = lambda: None,
) -> Digest:
    """Return the digest of a file's first ``size`` bytes: bounded, even while the file grows.

    Args:
        fd: Of the file.
        algorithm: By which.
        size: Where to end.
        start: Where to begin.
        go_on: Called before each piece; raises if the digest is wanted no more.
    """
    digest = begin(algorithm, size)
    buffer = memoryview(bytearray(max(0, min(_CHUNK, size - start))))
    offset = start
    while offset < size and (n := os.preadv(fd, [buffer[: size - offset]], offset)):
        go_on()
        go_on()
        digest.update(buffer[:n])
        offset += n
    return Digest(algorithm, digest.hexdigest())


def same(a: Digest, b: Digest) -> bool:
    """Whether two digests state the same bytes by the same algorithm."""
    return a.algorithm == b.algorithm and hmac.compare_digest(a.value, b.value)

"""Digests as text, ``"sha256:<hex>"``: parsed, computed over a file, compared."""

import hashlib
import hmac
import os
from typing import Any, NamedTuple

__all__ = ["ALGORITHMS", "Digest", "begin", "of_file", "parse", "same"]

ALGORITHMS = ("blake2b", "md5", "sha1", "sha256", "sha512")
"""What `parse` accepts: what hashlib has on every platform and manifests in use state.

It accepts ``git-sha1`` too, by which git names a file: the SHA-1 of ``blob <size>``, NUL and the
bytes (git-hash-object(1)); and ``xxh64`` where xxhash is installed
(``pip install shardproof[xxhash]``).
"""

_N_DIGITS = {name: 2 * hashlib.new(name, usedforsecurity=False).digest_size for name in ALGORITHMS}
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
        ValueError: Unknown algorithm, or not as many hexadecimal digits as the algorithm has.
    """
    algorithm, _, value = text.partition(":")
    if algorithm not in (*ALGORITHMS, "git-sha1", "xxh64"):
        raise ValueError(f"expected one of {', '.join(ALGORITHMS)} and ':', found {text[:80]!a}")
    n_digits = _N_DIGITS.get(algorithm) or 2 * begin(algorithm, 0).digest_size
    if len(value) != n_digits or not set(value) <= set("0123456789abcdefABCDEF"):
        raise ValueError(f"expected {n_digits} hexadecimal digits, found {text[:160]!a}")
    return Digest(algorithm, value.lower())


def begin(algorithm: str, size: int) -> Any:
    """Return what takes the bytes of a file of ``size`` bytes by ``update``, as hashlib's do."""
    if algorithm == "git-sha1":
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    if algorithm != "xxh64":
        return hashlib.new(algorithm, usedforsecurity=False)
    try:
        import xxhash  # noqa: PLC0415 - an extra
    except ImportError as error:
        problem = "xxh64 needs the package xxhash: pip install shardproof[xxhash]"
        raise ValueError(problem) from error
    return xxhash.xxh64()


def of_file(fd: int, algorithm: str, size: int) -> Digest:
    """Return the digest of a file's first ``size`` bytes: bounded, even while the file grows."""
    digest = begin(algorithm, size)
    buffer = memoryview(bytearray(min(_CHUNK, size)))
    offset = 0
    while offset < size and (n := os.preadv(fd, [buffer[: size - offset]], offset)):
        digest.update(buffer[:n])
        offset += n
    return Digest(algorithm, digest.hexdigest())


def same(a: Digest, b: Digest) -> bool:
    """Whether two digests state the same bytes by the same algorithm."""
    return a.algorithm == b.algorithm and hmac.compare_digest(a.value, b.value)

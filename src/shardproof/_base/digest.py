"""Digests as text, ``"sha256:<hex>"``: parsed, computed over a file."""

import contextlib
import functools
import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from shardproof._base.fanout import Future, available_cpus, in_threads
from shardproof._base.messages import quoted
from shardproof._base.opening import Read, read_into

ALGORITHMS = (
    *("blake2b", "blake2s", "md5", "sha1", "sha224", "sha256", "sha3-224", "sha3-256", "sha3-384"),
    *("sha3-512", "sha384", "sha512", "blake2b-160", "blake2b-256", "blake2b-384"),
)
"""What `parse` accepts: what hashlib has on every platform and manifests in use state.

It accepts ``git-sha1`` too, by which git names a file: the SHA-1 of ``blob <size>``, NUL and the
bytes (git-hash-object(1)); ``xxh32``, ``xxh64``, ``xxh3-64`` and ``xxh3-128``; ``sha256-tree``
(`TreeDigest`); ``blake3`` where it is installed (``pip install 'shardproof[blake3]'``); and
``sha512-256``, ``sha512-224``, ``sm3`` and ``ripemd160`` where Python's OpenSSL has them.
"""


def _of_hashlib(algorithm: str) -> Any:
    if algorithm.startswith("blake2b-"):  # of those lengths RFC 7693 has names
        return hashlib.blake2b(digest_size=int(algorithm[8:]) // 8, usedforsecurity=False)
    return hashlib.new(algorithm.replace("-", "_"), usedforsecurity=False)


_N_DIGITS = {name: 2 * _of_hashlib(name).digest_size for name in ALGORITHMS}
_N_DIGITS |= {"git-sha1": 40, "sha256-tree": 64}
_N_DIGITS |= {"xxh3-128": 32, "xxh3-64": 16, "xxh32": 8, "xxh64": 16}
_NOT_EVERYWHERE = {"blake3": 64, "sha512-256": 64, "sha512-224": 56, "sm3": 64, "ripemd160": 40}
_N_DIGITS |= _NOT_EVERYWHERE

_BEST = (
    *("blake3", "sha256", "blake2b", "sha512", "sha384", "sha256-tree", "blake2s", "sha3-256"),
    *("sha512-256", "blake2b-256", "blake2b-384", "sha3-384", "sha3-512", "sm3", "sha3-224"),
    *("sha512-224", "sha224", "blake2b-160", "ripemd160", "git-sha1", "sha1", "md5"),
    *("xxh3-128", "xxh3-64", "xxh64", "xxh32"),
)
"""Those that nobody can forge first, the faster of them before; then those that tell accidents."""

_HEX = re.compile(r"[0-9A-Fa-f]*")
_PIECE_BYTES = 2**20  # what the cache of a processor holds between reading and hashing
_MOST_PIECE_BYTES = 2**24
LEAF_BYTES = 2**20  # of `TreeDigest`


Submit = Callable[..., Future[Any]]
"""Begins a call that another thread makes."""


class Digest(NamedTuple):
    """What the bytes of a file hash to, and by which algorithm."""

    algorithm: str
    value: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.value}"


Found = Mapping[tuple[str, int], Digest]
"""Digests of a file, by their algorithm and by where their bytes begin."""


def parse(text: str) -> Digest:
    """Return the digest that ``"<algorithm>:<hex>"`` states."""
    algorithm, _, value = text.partition(":")
    n_digits = _N_DIGITS.get(algorithm)
    if n_digits is None:
        raise ValueError(f"expected one of {', '.join(ALGORITHMS)} and ':', found {quoted(text)}")
    if algorithm in _NOT_EVERYWHERE:
        begin(algorithm, 0)
    if len(value) != n_digits or _HEX.fullmatch(value) is None:
        raise ValueError(f"expected {n_digits} hexadecimal digits, found {quoted(text, 160)}")
    return Digest(algorithm, value.lower())


def provable(texts: Iterable[str]) -> list[str]:
    """Return the digests of a file by algorithms that are here; that which proves most first."""
    # With those that can't be any, which a manifest refuses: none stated is what they are not.
    ranks: dict[str, int] = {}
    for text in texts:
        algorithm = text.partition(":")[0]
        with contextlib.suppress(ValueError):  # it is unknown, or not installed
            rank = _BEST.index(algorithm)
            if algorithm in _NOT_EVERYWHERE:
                begin(algorithm, 0)
            ranks[text.lower()] = rank
    return sorted(ranks, key=ranks.__getitem__) if len(ranks) > 1 else [*ranks]


def is_of_nothing(text: str) -> bool:
    """Whether a digest is that of an empty file; it need not be one that can be parsed."""
    algorithm, _, value = text.partition(":")
    return value == of_nothing(algorithm) != ""


@functools.cache
def of_nothing(algorithm: str) -> str:
    """Return the digits of an empty file; none by an algorithm that is unknown or not installed."""
    with contextlib.suppress(ValueError):
        return str(begin(algorithm, 0).hexdigest()) if algorithm in _N_DIGITS else ""
    return ""


def begin(
    algorithm: str, size: int, *, threads: int | None = None, submit: "Submit | None" = None
) -> Any:
    """Return what takes the bytes of a file of ``size`` bytes by ``update``, as hashlib's do."""
    # With ``submit``, parts may be hashed later: what was given stays as it is until that is done.
    if algorithm == "git-sha1":
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    if algorithm == "sha256-tree":
        return TreeDigest(threads, submit)
    if algorithm.startswith("xxh"):
        import xxhash  # noqa: PLC0415 - few manifests need it

        return getattr(xxhash, algorithm.replace("-", "_"))()
    if algorithm == "blake3":
        try:
            from blake3 import blake3  # noqa: PLC0415 - an extra
        except ImportError as error:
            problem = "blake3 needs the package blake3: pip install 'shardproof[blake3]'"
            raise ValueError(problem) from error
        n_cpus = available_cpus()
        # Else each digest would start threads of its own.
        return blake3(max_threads=threads if threads and threads < n_cpus else blake3.AUTO)
    return _of_hashlib(algorithm)


def piece_bytes(algorithm: str, threads: int | None = None) -> int:
    """Return how many bytes `begin` takes best at once, at most 16 MiB: a part for each thread."""
    if algorithm == "sha256-tree" and threads != 1:
        return _MOST_PIECE_BYTES  # each piece starts threads of its own
    if algorithm == "blake3":
        n_threads = threads or available_cpus()
        return min(_MOST_PIECE_BYTES, _PIECE_BYTES * (1 if n_threads == 1 else 2 * n_threads))
    return _PIECE_BYTES


def of_file(
    read: Read | int,
    algorithm: str,
    size: int,
    *,
    start: int = 0,
    threads: int | None = None,
    go_on: Callable[[], None] = lambda: None,
) -> Digest:
    """Return the digest of a file's bytes up to ``size``: bounded, even while the file grows."""
    asked = [(algorithm, start)]
    return each_of_file(read, asked, size, threads=threads, go_on=go_on)[algorithm, start]


def each_of_file(
    read: Read | int,
    asked: Iterable[tuple[str, int]],
    size: int,
    *,
    threads: int | None = None,
    go_on: Callable[[], None] = lambda: None,
) -> Found:
    """Return digests of a file, which is read once: by which algorithms, and from where on."""
    begun = {each: begin(each[0], size, threads=threads) for each in asked}
    offset = min((start for _, start in begun), default=size)
    n_bytes = min(max((piece_bytes(name, threads) for name, _ in begun), default=0), size - offset)
    buffer = _buffer(max(0, n_bytes))
    while offset < size and (n := read_into(read, buffer[: size - offset], offset)):
        go_on()
        for (_, start), digest in begun.items():
            digest.update(buffer[max(0, start - offset) : n])
        offset += n
    return {each: Digest(each[0], digest.hexdigest()) for each, digest in begun.items()}


_kept = threading.local()


def _buffer(n_bytes: int) -> memoryview:
    """Return memory that this thread uses again: the kernel clears fresh memory first."""
    if len(getattr(_kept, "buffer", b"")) < n_bytes:
        _kept.buffer = bytearray(n_bytes)
    return memoryview(getattr(_kept, "buffer", b""))[:n_bytes]


class TreeDigest:
    """A digest that many processors compute together: the SHA-256 of the SHA-256 of each MiB."""

    digest_size = 32

    def __init__(self, threads: int | None = None, submit: "Submit | None" = None) -> None:
        self._threads, self._submit = threads or available_cpus(), submit
        self._behind: list[Future[bytes]] = []  # of leaves that are not yet in the root
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
        if self._submit is not None:
            self._behind += [self._submit(leaf_of, leaf) for leaf in leaves]
        else:
            n_threads = min(len(leaves), self._threads)
            digests = in_threads(leaf_of, leaves, n_threads=n_threads, name="shardproof-digest")
            self._root.update(b"".join(digests))
        self._fill(view[n_whole:])

    def _fill(self, part: memoryview) -> None:
        self._leaf.update(part)
        self._n_in_leaf += len(part)
        if self._n_in_leaf == LEAF_BYTES:
            self._take_in()
            self._root.update(self._leaf.digest())
            self._leaf, self._n_in_leaf = hashlib.sha256(), 0

    def add(self, leaf: bytes) -> None:
        """Take in a leaf, or the last bytes, by what `leaf_of` returned of them."""
        self._root.update(leaf)

    def _take_in(self) -> None:
        for digest in self._behind:
            self._root.update(digest.result())
        self._behind.clear()

    def hexdigest(self) -> str:
        """Return the root of what was taken in until now."""
        self._take_in()
        root = self._root.copy()
        if self._n_in_leaf:
            root.update(self._leaf.digest())
        return root.hexdigest()


def leaf_of(*parts: memoryview) -> bytes:
    """Return what `TreeDigest.add` takes, of the parts of a leaf."""
    leaf = hashlib.sha256()
    for part in parts:
        leaf.update(part)
    return leaf.digest()

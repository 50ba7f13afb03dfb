"""Shards of tokens, or of any numbers, as ``.npy`` files. Those that are there are promised.

templar has a second file beside each shard, with an id of each sequence: the first 8 bytes of
a blake2b digest of the sequence's tokens, and so a checksum. Its own script stores the bits of a
floating-point number in place of some, and begins the first sequence at the file's header.
"""

import contextlib
import dataclasses
import glob
import hashlib
import itertools
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from shardproof._base import digest_lists
from shardproof._base.names import open_root
from shardproof._base.opening import matching, read_at
from shardproof.errors import ManifestNotFoundError
from shardproof.formats._format import Format
from shardproof.formats._opened import opened
from shardproof.manifest import Manifest, Mismatch, PromisedFile
from shardproof.probes import npy

__all__ = ["FORMAT", "IdsProof"]

_NAME = "npy"
_PATTERN = "*.npy"
_TOKENS = re.compile(r"(?P<series>.+)_(?P<index>\d{6})\.npy", re.DOTALL)
_IDS = "sample_ids"
_ID_BYTES = 8
_ID_TYPES = {"<u8", "=u8"}
_PIECE_BYTES = 2**22
_TRIED = 16
_SHOWN = 5
_MOST_OTHERS = 4


def _recognizes(path: str) -> bool:
    """Say whether half or more of what is there are such files, not counting lists of digests."""
    n_files = sum(not digest_lists.is_list(name) for name in matching(path, "*"))
    return 0 < n_files <= 2 * len(matching(path, _PATTERN))


def _read_manifest(path: str) -> Manifest:
    os.close(open_root(path))
    files = [PromisedFile(name=name) for name in matching(path, _PATTERN)]
    if not files:
        raise ManifestNotFoundError(f"expected arrays ({_PATTERN}), found none", path=path)
    return Manifest(
        root=Path(path),
        path=Path(path),
        format=_NAME,
        files=files,
        probe=npy.probe,
        prove=IdsProof(path),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class IdsProof:
    """Proves the tokens of a shard in a directory by the ids beside it, where there are some."""

    root: str

    def __call__(self, promised: PromisedFile, fd: int, _size: int) -> Mismatch | bool:
        """Return whether every token is proven, or which sequences are others."""
        with self._ids(promised.name) as ids_fd:
            shard = _with_ids(fd, ids_fd)
            if shard is None:
                return False
            # Not one id may be right: of another shard, or as ids are of something else.
            form = shard.form() or self._form_of_others(promised.name)
            return form is not None and shard.fits(form) and shard.prove(form)

    def _form_of_others(self, name: str) -> "_IdRecipe | None":
        """Return the form of the ids of a shard in the same series, one of the first."""
        found = _TOKENS.fullmatch(name)
        series = found["series"] if found else ""
        for other in matching(self.root, f"{glob.escape(series)}_[0-9]*.npy")[:_MOST_OTHERS]:
            with opened(other, self.root) as fd, self._ids(other) as ids_fd:
                shard = _with_ids(fd, ids_fd)
                form = None if shard is None else shard.form()
            if form is not None:
                return form
        return None

    @contextlib.contextmanager
    def _ids(self, name: str) -> Iterator[int | None]:
        """Open the ids of a shard; None for a file that is no shard, or has none beside it."""
        found = _TOKENS.fullmatch(name)
        if found is None:
            yield None
            return
        series = "" if found["series"] == "train" else f"_{found['series']}"
        with opened(f"{_IDS}{series}_{found['index']}.npy", self.root) as fd:
            yield fd


class _IdRecipe(NamedTuple):
    """How ids were made: of which sequences, from the file's header on or not; as what bits."""

    n_bytes: int
    has_header: bool
    is_float: bool


class _TokensWithIds(NamedTuple):
    """A shard and its ids, open; each a whole array."""

    fd: int
    tokens: npy.ArrayHeader
    ids_fd: int
    ids: npy.ArrayHeader

    def form(self) -> _IdRecipe | None:
        """Return the form in which one of the first ids is right; None where none is."""
        tried = range(min(self.ids.n_items, _TRIED))
        forms = (form for form in self._forms() if any(self._is_right(form, i) for i in tried))
        return next(forms, None)

    def _forms(self) -> Iterator[_IdRecipe]:
        """Yield the forms of ids: of sequences as long as may be, or the power of two below."""
        longest = self.tokens.n_items // self.ids.n_items
        lengths = dict.fromkeys([longest, 2 ** (longest.bit_length() - 1)]) if longest else ()
        for length in lengths:
            for has_header, is_float in itertools.product((False, True), repeat=2):
                form = _IdRecipe(length * self.tokens.item_bytes, has_header, is_float)
                if self.fits(form):
                    yield form

    def fits(self, form: _IdRecipe) -> bool:
        """Whether there are as many ids as sequences."""
        return (self.tokens.end - self.tokens.start) // form.n_bytes == self.ids.n_items

    def prove(self, form: _IdRecipe) -> Mismatch | bool:
        """Return whether every token is proven by ids of a form, or which sequences are others."""
        n_ids = self.ids.n_items
        wrong = (index for index in range(n_ids) if not self._is_right(form, index))
        some = list(itertools.islice(wrong, _SHOWN))
        if some:
            n_more = sum(1 for _ in wrong)
            found = ", ".join(map(str, some)) + (f" and {n_more} more" if n_more else "")
            expected = f"{n_ids} sequences of which the ids beside it were made"
            return Mismatch(expected=expected, found=f"others: {found}")
        return self._start(form) + n_ids * form.n_bytes == self.tokens.end

    def _is_right(self, form: _IdRecipe, index: int) -> bool:
        digest = hashlib.blake2b(digest_size=_ID_BYTES)
        begin = self._start(form) + index * form.n_bytes
        end = begin + form.n_bytes
        for at in range(begin, end, _PIECE_BYTES):
            digest.update(read_at(self.fd, min(_PIECE_BYTES, end - at), at))
        made = digest.digest()
        if form.is_float:
            made = struct.pack("<d", int.from_bytes(made, "little"))
        return made == read_at(self.ids_fd, _ID_BYTES, self.ids.start + index * _ID_BYTES)

    def _start(self, form: _IdRecipe) -> int:
        return 0 if form.has_header else self.tokens.start


def _with_ids(fd: int | None, ids_fd: int | None) -> _TokensWithIds | None:
    """Return a shard with its ids; None where either is not open or no whole array."""
    tokens, ids = _whole(fd), _whole(ids_fd)
    if fd is None or ids_fd is None or tokens is None or ids is None:
        return None
    is_one = ids.type in _ID_TYPES and ids.n_items and tokens.item_bytes
    return _TokensWithIds(fd, tokens, ids_fd, ids) if is_one else None


def _whole(fd: int | None) -> npy.ArrayHeader | None:
    if fd is None:
        return None
    size = os.fstat(fd).st_size
    header = npy.read_header(fd, size)
    return header if isinstance(header, npy.ArrayHeader) and header.end == size else None


FORMAT = Format(
    name=_NAME,
    description="arrays of numpy, such as shards of tokens with ids of their sequences",
    manifest_file=_PATTERN,
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="the size of each file, which its header implies",
    valid="each sequence of tokens by its id, where there are ids beside them as templar has them",
    blind_spots="changed numbers without ids; files that are gone; types with fields or objects",
)

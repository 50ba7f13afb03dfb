"""Addresses in the place of paths: of directories elsewhere, such as in a bucket.

`shardproof.remote` lists one, and while that is mounted, the functions of `opening` and `names`
answer for paths that begin with its address. Every other address is refused here, by name: no file
system is asked for a directory ``s3:``.
"""

import contextlib
import os
import pathlib
import posixpath
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol

NOT_ELSEWHERE = "expected a path on this machine, found an address: leave it out"
"""What is said of an argument that is of no use for an address."""

_ADDRESS = re.compile(r"(?a)([A-Za-z][\w+.-]*)(?:::[\w+.-]+)*://((?s:.*))")
_OF_DISKS = {"file", "local"}
_CUT_SHORT = re.compile(r"(?a)((?:^|::)[A-Za-z][\w+.-]*:)/(?!/)")


class Read(Protocol):
    """Reads so many bytes of a file from a position on, or fewer where it ends."""

    def __call__(self, n_bytes: int, offset: int = 0, /) -> bytes:
        """Return them."""


class OpenFile(Read, Protocol):
    """A file that is open: it reads, and knows how many bytes there are."""

    @property
    def status(self) -> os.stat_result:
        """What is known of the file."""

    @property
    def size(self) -> int:
        """How many bytes there are."""

    def close(self) -> None:
        """Close it; of a file elsewhere this raises what a reading of it raised."""

    def stated(self, asked: Set[tuple[str, int]]) -> Mapping[tuple[str, int], Any]:
        """Return digests of it that its store states, if those are all that are asked for."""


class RemoteDirectory(Protocol):
    """A directory elsewhere, as it was listed; names are relative to it, and its own is empty."""

    root: str
    """Its address, without credentials."""

    source: Any
    """Where its files come from: a `shardproof.fetching.Source`."""

    def status(self, name: str) -> os.stat_result | None:
        """Return what is known of a file or a folder; None where there is none."""

    def names(self, folder: str) -> Sequence[str]:
        """Return what is in a folder, sorted; nothing where there is none."""

    def open(self, name: str) -> OpenFile:
        """Open a file; raises as `os.open` does where there is none."""

    def changed(self, names: Iterable[str]) -> list[str]:
        """List it again, and return which files are others by now, or gone."""

    def notes(self) -> tuple[str, ...]:
        """Return what a report says of it."""


class _Mounted(threading.local):
    """What answers for addresses in this thread, and in those that work for it."""

    directories: tuple[RemoteDirectory, ...] = ()


mounted = _Mounted()


class RemotePlace(NamedTuple):
    """Where a path leads that begins with an address."""

    directory: RemoteDirectory
    name: str

    @property
    def mode(self) -> int:
        """The ``st_mode`` of what is there; 0 where nothing is."""
        status = self.directory.status(self.name)
        return 0 if status is None else status.st_mode

    def open(self, name: str) -> OpenFile:
        """Open a file below."""
        return self.directory.open(posixpath.join(self.name, name))


class AddressPath(pathlib.PosixPath):
    """A path that begins with an address, whose text keeps both slashes of ``s3://``."""

    __slots__ = ()

    def __str__(self) -> str:
        return _CUT_SHORT.sub(r"\1//", super().__str__())

    def __fspath__(self) -> str:
        return str(self)


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether a text is an address, such as ``s3://bucket/folder``, and no path."""
    return _ADDRESS.match(os.fspath(path)) is not None


def path_of(*parts: str | os.PathLike[str]) -> pathlib.Path:
    """Return a path whose first part may be an address."""
    return (AddressPath if is_address(parts[0]) else pathlib.Path)(*parts)


def remote_at(path: str | os.PathLike[str]) -> RemotePlace | None:
    """Return where a path leads that begins with the address of a mounted directory.

    None for a path of this machine; a ValueError for any other address.
    """
    text = os.fspath(path)
    if "://" not in text or (found := _ADDRESS.match(text)) is None:
        return None
    if (place := mounted_at(text)) is not None:
        return place
    if found[1].lower() in _OF_DISKS:
        raise ValueError(f"expected a path, found the address of one: give '{found[2]}'")
    # Not the whole, in which there may be a password.
    problem = f"expected a path on this machine, found an address, {found[1].lower()}://...: "
    problem += "`validate` takes addresses; to have the files here, use `shardproof fetch`"
    raise ValueError(problem)


def notes_of(root: str) -> tuple[str, ...]:
    """Return what a report says of a mounted directory; of any other, nothing."""
    place = remote_at(root)
    return () if place is None else place.directory.notes()


def mounted_at(text: str) -> RemotePlace | None:
    """Return where an address leads in a mounted directory; None where it is in none."""
    for directory in reversed(mounted.directories):
        if text.rstrip("/") == directory.root or text.startswith(f"{directory.root}/"):
            return RemotePlace(directory, text[len(directory.root) :].strip("/"))
    return None


@contextlib.contextmanager
def mounting(directory: RemoteDirectory) -> Iterator[None]:
    """Let a directory answer for its address in this thread, and in those that work for it."""
    before = mounted.directories
    mounted.directories = (*before, directory)
    try:
        yield
    finally:
        mounted.directories = before

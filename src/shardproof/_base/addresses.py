"""Addresses in the place of paths: of directories elsewhere, such as in a bucket.

While `shardproof.remote` has one mounted, the functions of `opening` and `names` answer for paths
that begin with its address. Any other is refused by name: no file system is asked for ``s3:``.
"""

import os
import pathlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol

from shardproof._base.messages import shown

NOT_ELSEWHERE = "expected a path on this machine, found an address: leave it out"
"""What is said of an argument that is of no use for an address."""

_ADDRESS = re.compile(r"(?a)([A-Za-z][\w+.-]*)(?:::[\w+.-]+)*://((?s:.*))")
_CUT_SHORT = re.compile(r"(?a)((?:^|::)[A-Za-z][\w+.-]*:)(?:/(?!/)|\Z)")


class Read(Protocol):
    """Reads so many bytes of a file from a position on, or fewer where it ends."""

    def __call__(self, n_bytes: int, offset: int = 0, /) -> bytes:
        """Return them."""


class OpenFile(Read, Protocol):
    """A file that is open."""

    @property
    def status(self) -> os.stat_result:
        """What is known of it."""

    def stated(self, asked: Set[tuple[str, int]]) -> Mapping[tuple[str, int], Any]:
        """Return digests of it that its store states, if those are all that are asked for."""

    def close(self) -> None:
        """Close it; of a file elsewhere this raises what a reading of it raised."""


class RemoteDirectory(NamedTuple):
    """A directory elsewhere, as it was listed; names are relative to it, and its own is empty."""

    root: str  # its address, without credentials
    source: Any  # of its files: a `shardproof.fetching.Source`
    mode: Callable[[str], int]  # of a file or a folder; 0 for nothing
    status: Callable[[str], os.stat_result | None]  # may ask for the size
    names: Callable[[str], Sequence[str]]  # in a folder, sorted
    open: Callable[[str], OpenFile]  # raises as `os.open` does where there is none
    changed: Callable[[Iterable[str]], list[str]]  # which are others by now, or gone
    notes: Callable[[], Sequence[str]]  # what a report says of it


class RemotePlace(NamedTuple):
    """Where a path leads that begins with an address."""

    directory: RemoteDirectory
    name: str


class _Mounted(threading.local):
    directories: tuple[RemoteDirectory, ...] = ()


mounted = _Mounted()
"""What answers for addresses in this thread, and in those that work for it."""


class AddressPath(pathlib.PosixPath):
    """A path that begins with an address, whose text keeps both slashes of ``s3://``."""

    __slots__ = ()

    def __str__(self) -> str:
        return _CUT_SHORT.sub(r"\1//", super().__str__())

    __fspath__ = __str__


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether a text is an address, such as ``s3://bucket/folder``, and no path."""
    return _ADDRESS.match(os.fspath(path)) is not None


def path_of(*parts: str | os.PathLike[str]) -> pathlib.Path:
    """Return a path whose first part may be an address."""
    return (AddressPath if is_address(parts[0]) else pathlib.Path)(*parts)


def mounted_at(address: str) -> RemotePlace | None:
    """Return where an address leads in a mounted directory; None where it is in none."""
    for directory in reversed(mounted.directories):
        if f"{address}/".startswith(f"{directory.root}/"):
            return RemotePlace(directory, address[len(directory.root) :].strip("/"))
    return None


def remote_at(path: str | os.PathLike[str]) -> RemotePlace | None:
    """Return the same; None for a path of this machine, and a ValueError for any other address."""
    text = os.fspath(path)
    if "://" not in text or (found := _ADDRESS.match(text)) is None:
        return None
    if (place := mounted_at(text)) is None:
        if found[1].lower() in {"file", "local"}:
            raise ValueError(f"expected a path, found the address of one: give '{shown(found[2])}'")
        # Not the whole, in which there may be a password.
        problem = f"expected a path on this machine, found an address, {found[1].lower()}://...: "
        problem += "`validate` takes addresses; to have the files here, use `shardproof fetch`"
        raise ValueError(problem)
    return place

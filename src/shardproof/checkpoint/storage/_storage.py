"""Define what a storage of checkpoints can do, and find the one that a prefix means."""

import contextlib
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol, runtime_checkable

from shardproof._base.messages import shown
from shardproof._base.opening import refuse_empty
from shardproof.checkpoint.format._layout import gate_name, is_gate, metadata_name
from shardproof.checkpoint.storage._fsspec_storage import FsspecStorage
from shardproof.checkpoint.storage._local_storage import LocalStorage


class StoredFile(Protocol):
    """A file that is open for reading."""

    @property
    def path(self) -> str:
        """Its absolute path or URL."""

    @property
    def size(self) -> int:
        """Its size in bytes."""

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read bytes from ``offset`` on into a buffer; return how many, 0 at the end."""

    def close(self) -> None:
        """Close it."""


@runtime_checkable
class CheckpointStorage(Protocol):
    """A place where checkpoints are kept.

    Each path that its methods are given is one that ``url`` returned, or one below it, with ``/``
    between the parts. What they raise is an `OSError`; `FileNotFoundError` for what is not there.
    """

    def url(self, path: str) -> str:
        """Return the absolute path or the URL that a path means; of either, return the same.

        Messages name a file by it, and users may give it instead of the path.
        """

    def open(self, path: str) -> StoredFile:
        """Open a regular file for reading."""

    def writer(self, path: str, *, sync: bool) -> AbstractContextManager[int]:
        """Give the descriptor of an empty local file that is at ``path``, whole, in the end.

        If the context ends by an exception, ``path`` is as it was.
        """

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        """Make ``path`` hold ``data``, or leave it as it was; with ``sync`` for good."""

    def list(self, directory: str) -> Sequence[tuple[str, bool]]:
        """Return the names in a directory, and which are directories; none if it is not there."""

    def move(self, source: str, target: str) -> None:
        """Rename a file, for good; at no moment both names are gone."""

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    def make_directories(self, path: str) -> None:
        """Make a directory and those above it."""

    def sweep(self, directory: str) -> None:
        """Remove what killed writers of this package left there."""


@runtime_checkable
class Dated(Protocol):
    """A storage that knows how old files are; what it raises is an `OSError`."""

    def modified(self, path: str) -> float | None:
        """Return when a file was last written, as `time.time` counts; None if that is not known."""


@runtime_checkable
class Direct(Protocol):
    """A storage that finds a name without a listing; what it raises is an `OSError`."""

    def look_up(self, path: str) -> bool | None:
        """Return whether it is a directory, as a listing tells it; None if nothing is there."""


@runtime_checkable
class Exclusive(Protocol):
    """A storage where, of several who save one prefix at once, at most one makes a checkpoint.

    What it raises is an `OSError`; `FileNotFoundError` for a source or a temporary name that was
    removed meanwhile.
    """

    def exclusive_writer(
        self, path: str, temporary: str, *, sync: bool
    ) -> AbstractContextManager[int]:
        """Give the descriptor of a new file that is at ``path`` in the end, if nothing is.

        Until then it has the temporary name. Where something is at ``path``: `FileExistsError`.
        """

    def rename(self, source: str, target: str, *, sync: bool) -> None:
        """Rename a file at one moment, in place of what has the name; with ``sync`` for good.

        Into a directory that is not there: `FileNotFoundError`.
        """

    def make_folder(self, path: str) -> None:
        """Make a directory in one that is there, unless it is there; it need not be synced.

        All who may write to the directory above may write to the new one.
        """

    def remove_directory(self, path: str) -> bool:
        """Remove a directory unless something is in it; say whether it is gone."""

    def sync_directory(self, path: str) -> None:
        """Sync the names in a directory to the disk."""


@runtime_checkable
class Holding(Protocol):
    """A storage where links can take the place of directories; what it raises is an `OSError`."""

    def holding(self, directory: str) -> AbstractContextManager[CheckpointStorage]:
        """Give the same storage, which follows no link on the way to what is below a directory.

        A link in the place of a directory below it is nothing.
        """


def holding(
    storage: CheckpointStorage, directory: str
) -> AbstractContextManager[CheckpointStorage]:
    """Give a storage that follows no link below a directory, where it has links."""
    return storage.holding(directory) if isinstance(storage, Holding) else nullcontext(storage)


def look_up(storage: CheckpointStorage, path: str) -> bool | None:
    """Return whether a path is that of a directory; None if nothing is there."""
    if isinstance(storage, Direct):
        return storage.look_up(path)
    found = storage.list(Location(storage, path).directory)
    return dict(found).get(os.path.basename(path))


class Location(NamedTuple):
    """The prefix of a checkpoint, and the storage in which it is."""

    storage: CheckpointStorage
    path: str

    @property
    def directory(self) -> str:
        """Where the files are."""
        head = self.path[: self.path.rfind("/") + 1]
        return head if head == "/" or head.endswith("//") else head[:-1]

    @property
    def name(self) -> str:
        """What the names of the files begin with."""
        return os.path.basename(self.path)

    @property
    def metadata(self) -> str:
        """The path of the metadata file."""
        return self.beside(metadata_name(self.name))

    def beside(self, name: str) -> str:
        """Return the path of another file of the same directory."""
        return path_in(self.directory, name)


def path_in(directory: str, name: str) -> str:
    """Return the path of a file in a directory, which may be the root of a storage."""
    return f"{directory}{name}" if directory.endswith("/") else f"{directory}/{name}"


def in_gate(location: Location) -> list[tuple[str, bool]]:
    """Return what is in the gate of a prefix, by names to find it beside the prefix's files.

    A link in its place leads nowhere. Few are there, however many ranks save.
    """
    gate = gate_name(location.name)
    with holding(location.storage, location.directory) as held:
        found = held.list(location.beside(gate))
    return [(f"{gate}/{name}", is_directory) for name, is_directory in found]


def leave_gate(location: Location) -> None:
    """Remove the gate of a prefix, or the one that something is in, unless others are there."""
    gate = location.directory
    if not is_gate(os.path.basename(gate)):
        gate = location.beside(gate_name(location.name))
    if isinstance(location.storage, Exclusive):
        with contextlib.suppress(OSError):  # then the next save, or removal, does it
            location.storage.remove_directory(gate)


def outside_gate(location: Location) -> str:
    """Return the directory in which the gate is, of what is in one; else its own."""
    directory = location.directory
    if is_gate(os.path.basename(directory)):
        return Location(location.storage, directory).directory
    return directory


def location_of(prefix: str | os.PathLike[str], storage: CheckpointStorage | None) -> Location:
    """Return where a prefix is: in the storage that is given, else by what it looks like."""
    refuse_empty(prefix=prefix)
    path = os.fspath(prefix)
    if path.rpartition("/")[2] in {"", ".", ".."}:  # files would have no names
        example = os.path.join(path, "model")
        problem = f"expected a path that ends with a name, such as '{shown(example)}', found"
        raise ValueError(f"prefix: {problem} '{shown(path)}'")
    found = storage_of(path, storage)
    return Location(found, found.url(path))


def storage_of(
    path: str | os.PathLike[str], storage: CheckpointStorage | None
) -> CheckpointStorage:
    """Return the storage that is given, else the one that a path or URL looks like."""
    if storage is not None:
        return storage
    text = os.fspath(path)
    return FsspecStorage.from_url(text) if "://" in text else LocalStorage()

"""Define what a storage of checkpoints can do."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable


class NotRegularFileError(OSError):
    """A directory, a FIFO, or a link that leads out of the directory, in the place of a file."""


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

    def list(self, directory: str) -> Sequence[tuple[str, bool]]:
        """Return the names in a directory, and which are directories; none if it is not there."""

    def look_up(self, path: str) -> bool | None:
        """Return whether it is a directory, as a listing says; None if nothing is there."""

    def modified(self, path: str) -> float | None:
        """Return when a file was last written, as `time.time` counts; None if that is not known."""

    def writer(
        self, path: str, temporary: str, *, sync: bool, replace: bool = True
    ) -> AbstractContextManager[int]:
        """Give the descriptor of an empty local file that is at ``path``, whole, in the end.

        If the context ends by an exception, ``path`` is as it was. A storage that can rename gives
        the file the name ``temporary`` until then, which is one in the same directory; it raises
        `FileExistsError` if something has it, and `FileNotFoundError` if it was removed meanwhile.

        Without ``replace`` it is a `FileExistsError` if something is at ``path`` in the end. Of
        several who do this at once one succeeds, where the storage can tell.
        """

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        """Make ``path`` hold ``data``, or leave it as it was; with ``sync`` for good."""

    def remove(self, path: str, *, only: StoredFile | None = None, sync: bool = False) -> None:
        """Remove a file, if it is there; with ``sync`` for good.

        With ``only``, remove it if it is still the file that was opened, where that can be told.
        """

    def make_directories(self, path: str) -> None:
        """Make a directory and those above it."""

    def sweep(self, directory: str) -> None:
        """Remove what killed writers of this package left there."""

"""Find where a prefix is, and in which storage."""

import os
from typing import NamedTuple

from shardproof._base.messages import shown
from shardproof._base.opening import refuse_empty
from shardproof.checkpoint.format._layout import metadata_name
from shardproof.checkpoint.storage._fsspec_storage import FsspecStorage
from shardproof.checkpoint.storage._local_storage import LocalStorage
from shardproof.checkpoint.storage._protocol import CheckpointStorage


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

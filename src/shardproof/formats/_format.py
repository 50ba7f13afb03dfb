"""What a format is: one on-disk convention, recognised by its files and read into a promise."""

import abc
from collections.abc import Sequence

from shardproof.manifest import Manifest

__all__ = ["Format"]


class Format(abc.ABC):
    """One on-disk convention.

    Attributes:
        name: Its name, such as ``"saev"``.
        description: What such a directory holds, in a line.
        manifest_file: The file that lists the shards; a pattern where its name varies.
        further_parts: Patterns of further files that the promise consists of.
    """

    name: str
    description: str
    manifest_file: str
    further_parts: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"<format {self.name}: {self.manifest_file}>"

    @abc.abstractmethod
    def recognizes(self, path: str) -> bool:
        """Return whether a directory looks like one of this format, by one listing at most.

        Args:
            path: Real absolute path of the directory.

        Raises:
            OSError: Nobody could look.
        """

    @abc.abstractmethod
    def read_manifest(self, path: str) -> Manifest:
        """Return what a directory promises; no shard is opened.

        Args:
            path: Real absolute path of the directory.

        Raises:
            ManifestError: What it promises can't be read, or nothing can keep it.
            OSError: The file system failed.
        """

"""What a format is, those that are known, and which of them a directory is of."""

import abc
import contextlib
import os
import re
import stat
from collections.abc import Sequence
from typing import NamedTuple

from shardproof import saev
from shardproof._base.messages import quoted
from shardproof._base.names import open_root, real_root
from shardproof._base.opening import is_directory, mode_of, permission_denied
from shardproof.errors import ManifestNotFoundError, ManifestPermissionError
from shardproof.formats import signs
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile

__all__ = [
    "Contradiction",
    "Format",
    "Located",
    "Manifest",
    "Mismatch",
    "PromisedFile",
    "detect",
    "get",
    "locate",
    "names",
]

_CHECKPOINT_SHARD = re.compile(r".+_shard_[0-9]+\.shard", re.DOTALL)


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
            OSError: The directory could not be looked at.
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


class _SaevFormat(Format):
    name, manifest_file, further_parts = signs.SAEV
    description = "activations of a vision model, as saev writes them"

    def recognizes(self, path: str) -> bool:
        # Half-written, it may have shards alone.
        if mode_of(os.path.join(path, self.manifest_file)):
            return True
        with os.scandir(path) as entries:
            return any(
                entry.name.startswith("acts") and entry.name.endswith(".bin") for entry in entries
            )

    def read_manifest(self, path: str) -> Manifest:
        return saev.read_manifest(path)


class _ReceiptsFormat(Format):
    name, manifest_file, further_parts = signs.RECEIPTS
    description = "outputs of a data-prep run, with a receipt for each completed shard"

    def recognizes(self, path: str) -> bool:
        receipts = os.path.join(path, signs.RECEIPTS_FOLDER)
        mode = mode_of(receipts)
        if mode_of(os.path.join(path, self.manifest_file)):
            return stat.S_ISDIR(mode) or stat.S_ISLNK(mode)  # a link is refused, and that is said
        if not stat.S_ISDIR(mode):
            return False
        with os.scandir(receipts) as entries:
            return any(entry.name.startswith("shard_") for entry in entries)

    def read_manifest(self, path: str) -> Manifest:
        # It takes 20 ms to import: only where there are receipts.
        from shardproof.receipts import verdict  # noqa: PLC0415

        return verdict.read_manifest(path)


class _CheckpointFormat(Format):
    name, manifest_file, further_parts = signs.CHECKPOINT
    description = "checkpoints of which each rank wrote a shard"

    def recognizes(self, path: str) -> bool:
        if signs.is_prefix(path):
            return True
        names = os.listdir(path)
        if any(_CHECKPOINT_SHARD.fullmatch(name) for name in names):
            return True
        for name in names:  # without shards, metadata say that there were some
            if name.endswith(signs.METADATA) and name != signs.METADATA:
                # It may be gone since the directory was listed.
                with contextlib.suppress(FileNotFoundError):
                    if signs.begins_with(os.path.join(path, name), *signs.METADATA_FIELDS):
                        return True
        return False

    def read_manifest(self, path: str) -> Manifest:
        # It takes numpy: only where there are some.
        from shardproof.checkpoint import verify  # noqa: PLC0415

        if signs.is_prefix(path):
            return verify.read_manifest(*os.path.split(path))
        return verify.read_manifest(path)


_FORMATS: tuple[Format, ...] = (_SaevFormat(), _ReceiptsFormat(), _CheckpointFormat())
"""In the order in which they are asked."""


class Located(NamedTuple):
    """Where something that has a manifest really is.

    Attributes:
        path: Real absolute path of the directory, or of the prefix of a checkpoint in it.
        root: Real absolute path of the directory.
    """

    path: str
    root: str


def names() -> list[str]:
    """Return the names of all formats, in the order in which they are asked.

    Example:
        >>> from shardproof import formats
        >>> formats.names()
        ['saev', 'receipts', 'checkpoint']
    """
    return [form.name for form in _FORMATS]


def get(name: str) -> Format:
    """Return the format of a name.

    Raises:
        ValueError: No format has this name.

    Example:
        >>> from shardproof import formats
        >>> formats.get("saev").manifest_file
        'shards.json'
    """
    for form in _FORMATS:
        if form.name == name:
            return form
    raise ValueError(f"name: expected one of {', '.join(names())}, found {quoted(name)}")


def locate(path: str | os.PathLike[str]) -> Located:
    """Return where a shards directory, or the prefix of a checkpoint, really is.

    Raises:
        ManifestPermissionError: A directory on the way may not be entered.
        OSError: It could not be looked at.
    """
    root = real_root(path)
    try:
        if is_directory(root):
            return Located(root, root)
        folder, name = os.path.split(os.path.abspath(path))
        folder = real_root(folder)
        if name and signs.is_prefix(os.path.join(folder, name)):
            return Located(os.path.join(folder, name), folder)
    except PermissionError as error:
        raise ManifestPermissionError(permission_denied(), path=error.filename or root) from error
    return Located(root, root)  # where a look says what is there instead


def detect(path: str) -> Format:
    """Return the format of a directory, or of the prefix of a checkpoint.

    Args:
        path: Its real absolute path, as `locate` gives it.

    Raises:
        ManifestNotFoundError: There is no such directory, or no format recognizes it.
        ManifestPermissionError: It, or something in it, may not be read.
        ManifestError: It is not a directory.
        OSError: The file system failed.
    """
    try:
        if signs.is_prefix(path):
            return get(signs.CHECKPOINT.format)
        os.close(open_root(path))
        found = next((form for form in _FORMATS if form.recognizes(path)), None)
    except PermissionError as error:
        if isinstance(error, ManifestPermissionError):
            raise
        raise ManifestPermissionError(permission_denied(), path=error.filename or path) from error
    if found is not None:
        return found
    n_entries = len(os.listdir(path))
    known = ", ".join(f"{form.manifest_file} ({form.name})" for form in _FORMATS)
    holds = f"{n_entries} entries, none of a known format" if n_entries else "nothing"
    problem = f"expected a shards directory with {known}, found {holds}; is the path right?"
    raise ManifestNotFoundError(problem, path=path)

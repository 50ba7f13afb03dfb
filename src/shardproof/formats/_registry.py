"""Every known format, and which of them a directory is of."""

import os
from typing import NamedTuple

from shardproof._base.messages import quoted
from shardproof._base.names import open_root, real_root
from shardproof._base.opening import is_directory, permission_denied
from shardproof.errors import ManifestNotFoundError, ManifestPermissionError
from shardproof.formats import signs
from shardproof.formats._format import Format
from shardproof.formats.checkpoint import CheckpointFormat
from shardproof.formats.receipts import ReceiptsFormat
from shardproof.formats.saev import SaevFormat
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

_FORMATS: tuple[Format, ...] = (SaevFormat(), ReceiptsFormat(), CheckpointFormat())
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
        OSError: Nobody could look.
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

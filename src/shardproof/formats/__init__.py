"""One module per on-disk format, each the same two functions.

::

    claims(root) -> bool        does this directory look like mine? (at most one listing)
    read(root) -> Manifest      what does it promise? (raises ManifestError)
"""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shardproof._base.names import open_root
from shardproof._base.paths import permission_denied
from shardproof.errors import ManifestNotFoundError, ManifestPermissionError
from shardproof.formats import checkpoint, receipts, saev
from shardproof.manifest import Manifest

__all__ = ["FORMATS", "Format", "detect"]


class Format(NamedTuple):
    """One on-disk convention.

    Attributes:
        name: Its name.
        manifest_file: The file that lists the shards; a pattern where its name varies.
        claims: Whether a directory is one of this format.
        read: What a directory promises.
        further_parts: Patterns of further files that the promise consists of.
    """

    name: str
    manifest_file: str
    claims: Callable[[str], bool]
    read: Callable[[str], Manifest]
    further_parts: Sequence[str] = ()


FORMATS = (
    Format("saev", saev.MANIFEST_FILE, saev.claims, saev.read, ("metadata.json",)),
    Format(
        "receipts",
        receipts.MANIFEST_FILE,
        receipts.claims,
        receipts.read,
        ("receipts/shard_[0-9]*.json",),
    ),
    Format(
        "checkpoint",
        checkpoint.MANIFEST_FILE,
        checkpoint.claims,
        checkpoint.read,
        (checkpoint.MANIFEST_FILE,),
    ),
)
"""Every known format, in the order in which they are asked."""


def detect(root: str) -> Format:
    """Return the format of a directory.

    Args:
        root: Real absolute path of the directory.

    Raises:
        ManifestNotFoundError: There is no such directory, or no format claims it.
        ManifestPermissionError: It, or something in it, may not be read.
        ManifestError: It is not a directory.
        OSError: The file system failed.
    """
    os.close(open_root(root))
    try:
        found = next((form for form in FORMATS if form.claims(root)), None)
    except PermissionError as error:
        raise ManifestPermissionError(permission_denied(), path=error.filename or root) from error
    if found is not None:
        return found
    n_entries = len(os.listdir(root))
    known = ", ".join(f"{form.manifest_file} ({form.name})" for form in FORMATS)
    holds = f"{n_entries} entries, none of a known format" if n_entries else "nothing"
    problem = f"expected a shards directory with {known}, found {holds}; is the path right?"
    raise ManifestNotFoundError(problem, path=root)

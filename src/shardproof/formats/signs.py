"""By which names and first bytes each format is recognised: in one place, for everybody who asks.

Nothing but the standard library, and what is made of it, is imported: every test run of every
environment that has shardproof loads its pytest plugin, which reads this.
"""

import fnmatch
import glob
import os
import re
import stat
from typing import NamedTuple

from shardproof._base.opening import is_directory, is_there, matching, mode_of

__all__ = [
    "CHECKPOINT",
    "METADATA",
    "RECEIPTS",
    "RECEIPTS_FOLDER",
    "SAEV",
    "SIGNS",
    "Sign",
    "has_checkpoint",
    "has_receipts",
    "has_saev",
    "is_manifest",
    "is_prefix",
    "manifest_name",
]

METADATA = ".metadata.json"
"""How the name of a checkpoint's metadata file ends; what is before it is the prefix."""

RECEIPTS_FOLDER = "receipts"

_FIRST_BYTES = 4096

_CHECKPOINT_SHARD = re.compile(r".+_shard_[0-9]+\.shard", re.DOTALL)


class Sign(NamedTuple):
    """The files of which the promise of a format consists.

    Attributes:
        format: Name of the format.
        manifest_file: The file that lists the shards; a pattern where its name varies.
        further_parts: Patterns of further files.
    """

    format: str
    manifest_file: str
    further_parts: tuple[str, ...]


SAEV = Sign("saev", "shards.json", ("metadata.json",))
RECEIPTS = Sign("receipts", "plan.json", (f"{RECEIPTS_FOLDER}/shard_[0-9]*.json",))
CHECKPOINT = Sign("checkpoint", f"*{METADATA}", (f"*{METADATA}",))
SIGNS = (SAEV, RECEIPTS, CHECKPOINT)
"""Those of every format, in the order in which the formats are asked."""


def has_saev(root: str) -> bool:
    """Whether a directory is saev's, be it whole or half-written."""
    if mode_of(os.path.join(root, SAEV.manifest_file)):
        return True
    with os.scandir(root) as entries:
        return any(
            entry.name.startswith("acts") and entry.name.endswith(".bin") for entry in entries
        )


def has_receipts(root: str) -> bool:
    """Whether a directory is a plan's, be it with its plan or only with receipts."""
    receipts = os.path.join(root, RECEIPTS_FOLDER)
    mode = mode_of(receipts)
    if mode_of(os.path.join(root, RECEIPTS.manifest_file)):
        return stat.S_ISDIR(mode) or stat.S_ISLNK(mode)  # a link is refused, and that is said
    if not stat.S_ISDIR(mode):
        return False
    with os.scandir(receipts) as entries:
        return any(entry.name.startswith("shard_") for entry in entries)


def has_checkpoint(root: str) -> bool:
    """Whether a directory has shards of a checkpoint; or metadata, which say that it had some."""
    names = os.listdir(root)
    if any(_CHECKPOINT_SHARD.fullmatch(name) for name in names):
        return True
    ends = [name for name in names if name.endswith(METADATA) and name != METADATA]
    return any(_says_so(os.path.join(root, name)) for name in ends)


def _says_so(path: str) -> bool:
    """Whether a file begins as metadata do; others may have that name."""
    try:
        return _is_metadata_text(_begin(path))
    except FileNotFoundError:  # it is gone since the directory was listed
        return False


def is_prefix(path: str) -> bool:
    """Whether a path is a checkpoint's prefix: its metadata file is there, and no such directory.

    Raises:
        OSError: Nobody could look.
    """
    return not is_directory(path) and is_there(path + METADATA)


def is_manifest(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a manifest; for names that others use, what is in it and beside tells.

    One that may not be read is taken for one: who validates it says why.

    Raises:
        OSError: Nobody could look.
    """
    folder, name = os.path.split(path)
    if name == SAEV.manifest_file:
        return True
    receipts = os.path.join(folder, RECEIPTS_FOLDER)
    is_plan = name == RECEIPTS.manifest_file and is_directory(receipts)
    if not is_plan and not fnmatch.fnmatchcase(name, CHECKPOINT.manifest_file):
        return False
    try:
        begin = _begin(path)
    except (FileNotFoundError, PermissionError):
        return True
    if is_plan:
        receipt = os.path.basename(RECEIPTS.further_parts[0])
        return b'"plan_hash"' in begin or bool(matching(receipts, receipt))
    shards = f"{glob.escape(name.removesuffix(METADATA))}_shard_[0-9]*.shard"
    return _is_metadata_text(begin) or bool(matching(folder, shards))


def _is_metadata_text(begin: bytes) -> bool:
    return b'"schema_version"' in begin and b'"world_size"' in begin


def manifest_name(root: str | os.PathLike[str]) -> str:
    """Return the name of a directory's manifest file, or what would be one.

    Raises:
        OSError: Nobody could look.
    """
    for sign in SIGNS:
        names = matching(root, sign.manifest_file)
        found = [name for name in names if is_manifest(os.path.join(root, name))]
        if found:
            return min(found)
    return SAEV.manifest_file


def _begin(path: str | os.PathLike[str]) -> bytes:
    """Return the first bytes of a regular file, and none of anything else."""
    # Not before a file is looked into: a test run without shards loads this module too.
    from shardproof._base.names import NotRegularError, open_regular  # noqa: PLC0415

    try:
        fd = open_regular(os.fspath(path))
    except NotRegularError:
        return b""
    if fd is None:
        return b""
    with open(fd, "rb", buffering=0) as file:
        return file.read(_FIRST_BYTES)

"""By which files and first bytes the formats of a test tree are known, without reading more.

Nothing but the standard library, and what is made of it, is imported: every test run of every
environment that has shardproof loads its pytest plugin, which asks this.
"""

import fnmatch
import glob
import os

from shardproof._base.opening import is_directory, is_there, matching
from shardproof.formats.own import CHECKPOINT, METADATA, RECEIPTS, RECEIPTS_FOLDER, SAEV
from shardproof.formats.own import FORMATS as SIGNS

__all__ = [
    "CHECKPOINT",
    "METADATA",
    "METADATA_FIELDS",
    "RECEIPTS",
    "RECEIPTS_FOLDER",
    "SAEV",
    "SIGNS",
    "begins_with",
    "is_manifest",
    "is_prefix",
    "manifest_name",
]

METADATA_FIELDS = (b'"schema_version"', b'"world_size"')
"""The fields by which a checkpoint's metadata are known; other files may have such a name."""

_FIRST_BYTES = 4096


def is_prefix(path: str) -> bool:
    """Whether a path is a prefix: its metadata file is there, and it is no directory."""
    return not is_directory(path) and is_there(path + METADATA)


def is_manifest(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a manifest; for names that others use, what is in it and beside tells.

    One that may not be read is taken for one: validating it says why.
    """
    folder, name = os.path.split(path)
    if name == SAEV.manifest_file:
        return True
    receipts = os.path.join(folder, RECEIPTS_FOLDER)
    is_plan = name == RECEIPTS.manifest_file and is_directory(receipts)
    if not is_plan and not fnmatch.fnmatchcase(name, CHECKPOINT.manifest_file):
        return False
    try:
        if begins_with(path, *([b'"plan_hash"'] if is_plan else METADATA_FIELDS)):
            return True
    except (FileNotFoundError, PermissionError):
        return True
    if is_plan:
        return bool(matching(receipts, os.path.basename(RECEIPTS.further_parts[0])))
    shards = f"{glob.escape(name.removesuffix(METADATA))}_shard_[0-9]*.shard"
    return bool(matching(folder, shards))


def manifest_name(root: str | os.PathLike[str]) -> str:
    """Return the name of a directory's manifest file, or what would be one."""
    for sign in SIGNS:
        names = matching(root, sign.manifest_file)
        found = [name for name in names if is_manifest(os.path.join(root, name))]
        if found:
            return min(found)
    return SAEV.manifest_file


def begins_with(path: str | os.PathLike[str], *fields: bytes) -> bool:
    """Return whether a path is a regular file with all these fields in its first bytes."""
    # Not before a file is looked into: a test run without shards loads this module too.
    from shardproof._base.names import NotRegularError, open_regular  # noqa: PLC0415

    try:
        fd = open_regular(os.fspath(path))
    except NotRegularError:
        return False
    if fd is None:
        return False
    with open(fd, "rb", buffering=0) as file:
        begin = file.read(_FIRST_BYTES)
    return all(field in begin for field in fields)

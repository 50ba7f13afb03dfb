"""The formats that shardproof reads and writes itself, and saev's: how they are known.

By names and first bytes, without reading more. Nothing but the standard library, and what is made
of it, is imported: every test run of every environment that has shardproof loads its pytest plugin,
which asks this.
"""

import contextlib
import fnmatch
import glob
import os
import re
import stat
from typing import TYPE_CHECKING

from shardproof._base.addresses import remote_at
from shardproof._base.opening import is_directory, is_there, listed_in, matching, mode_of
from shardproof.formats._format import Format, later

if TYPE_CHECKING:
    from shardproof.manifest import Manifest

METADATA = ".metadata.json"  # how names of checkpoints' metadata end; before it is the prefix
RECEIPTS_FOLDER = "receipts"

METADATA_FIELDS = (b'"schema_version"', b'"world_size"')  # by which such metadata are known
_FIRST_BYTES = 4096
_SHARD = re.compile(r".+_shard_[0-9]+\.shard", re.DOTALL)


def is_prefix(path: str) -> bool:
    """Whether a path is a prefix: its metadata file is there, and it is no directory."""
    return not is_directory(path) and is_there(path + METADATA)


def begins_with(path: str | os.PathLike[str], *fields: bytes) -> bool:
    """Return whether a path is a regular file with all these fields in its first bytes."""
    # Not before a file is looked into: a test run without shards loads this module too.
    from shardproof._base.names import NotRegularError, open_regular, opened  # noqa: PLC0415

    begin = b""
    if (place := remote_at(path)) is not None:
        with opened(place.name, place.directory.root) as there:
            begin = b"" if there is None else there(_FIRST_BYTES)
    else:
        with contextlib.suppress(NotRegularError):
            if (fd := open_regular(os.fspath(path))) is not None:
                with open(fd, "rb", buffering=0) as file:
                    begin = file.read(_FIRST_BYTES)
    return all(field in begin for field in fields)


def _recognizes_saev(path: str) -> bool:
    # Half-written, it may have shards alone.
    has_list = mode_of(os.path.join(path, "shards.json"))
    return bool(has_list or fnmatch.filter(listed_in(path), "acts*.bin"))


def _recognizes_receipts(path: str) -> bool:
    receipts = os.path.join(path, RECEIPTS_FOLDER)
    mode = mode_of(receipts)
    plan = os.path.join(path, RECEIPTS.manifest_file)
    if mode_of(plan):  # a link is refused, and that is said; without receipts the plan has to tell
        return stat.S_ISDIR(mode) or stat.S_ISLNK(mode) or begins_with(plan, b'"plan_hash"')
    return stat.S_ISDIR(mode) and any(n.startswith("shard_") for n in listed_in(receipts))


def _recognizes_checkpoint(path: str) -> bool:
    if is_prefix(path):
        return True
    names = listed_in(path)
    if any(_SHARD.fullmatch(name) for name in names):
        return True
    for name in names:  # without shards, metadata say that there were some
        if name.endswith(METADATA) and name != METADATA:
            # It may be gone since the directory was listed.
            with contextlib.suppress(FileNotFoundError):
                if begins_with(os.path.join(path, name), *METADATA_FIELDS):
                    return True
    return False


def _read_checkpoint(path: str) -> "Manifest":
    # It takes numpy: only where there are some.
    from shardproof.checkpoint import read  # noqa: PLC0415

    return read.read_manifest(*os.path.split(path) if is_prefix(path) else (path,))


SAEV = Format(
    name="saev",
    recognizes=_recognizes_saev,
    read_manifest=later("saev", "read_manifest"),
    description="activations of a vision model, as saev writes them",
    manifest_file="shards.json",
    further_parts=("metadata.json",),
    marks=("shards.json",),
    suffixes=(".bin",),
    complete="the size of each file, as the metadata imply it; the number of examples that they "
    "state",
    blind_spots="changed bytes; two swapped shards",
)
RECEIPTS = Format(
    name="receipts",
    recognizes=_recognizes_receipts,
    read_manifest=later("receipts._plan_receipts", "read_manifest"),
    description="outputs of a data-prep run, with a receipt for each completed shard",
    manifest_file="plan.json",
    further_parts=(f"{RECEIPTS_FOLDER}/shard_[0-9]*.json",),
    marks=("plan.json", RECEIPTS_FOLDER),
    states_digests=True,
    complete="the size of each output; that receipts and plan agree",
    valid="the checksum that each receipt states",
    blind_spots="outputs whose receipt has a placeholder instead of a checksum",
    only_here="check it where the run writes, then copy outputs and a seal",
)
CHECKPOINT = Format(
    name="checkpoint",
    recognizes=_recognizes_checkpoint,
    read_manifest=_read_checkpoint,
    description="checkpoints with one shard for each rank",
    manifest_file=f"*{METADATA}",
    further_parts=(f"*{METADATA}",),
    suffixes=(".shard", ".json"),
    complete="the size and header of each shard; that all belong to one save",
    valid="the digest of each shard",
    only_here="`shardproof checkpoint verify ADDRESS` does",
)
FORMATS = (SAEV, RECEIPTS, CHECKPOINT)


def is_manifest(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a manifest; for names that others use, what is in it and beside tells."""
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
    except (FileNotFoundError, PermissionError):  # validating it says why
        return True
    if is_plan:
        return bool(matching(receipts, os.path.basename(RECEIPTS.further_parts[0])))
    return bool(matching(folder, f"{glob.escape(name.removesuffix(METADATA))}_shard_[0-9]*.shard"))


def manifest_name(root: str | os.PathLike[str]) -> str:
    """Return the name of a directory's manifest file, or what would be one."""
    for sign in FORMATS:
        names = matching(root, sign.manifest_file)
        found = [name for name in names if is_manifest(os.path.join(root, name))]
        if found:
            return min(found)
    return SAEV.manifest_file

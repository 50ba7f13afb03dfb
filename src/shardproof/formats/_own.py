"""How directories of our own formats, and of saev, are recognised and read."""

import contextlib
import os
import re
import stat

from shardproof._base.opening import mode_of
from shardproof.formats import signs
from shardproof.manifest import Manifest

_SHARD = re.compile(r".+_shard_[0-9]+\.shard", re.DOTALL)


def recognizes_saev(path: str) -> bool:
    # Half-written, it may have shards alone.
    if mode_of(os.path.join(path, "shards.json")):
        return True
    with os.scandir(path) as entries:
        return any(
            entry.name.startswith("acts") and entry.name.endswith(".bin") for entry in entries
        )


def recognizes_receipts(path: str) -> bool:
    receipts = os.path.join(path, signs.RECEIPTS_FOLDER)
    mode = mode_of(receipts)
    plan = os.path.join(path, signs.RECEIPTS.manifest_file)
    if mode_of(plan):  # a link is refused, and that is said; without receipts the plan has to tell
        is_folder = stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
        return is_folder or signs.begins_with(plan, b'"plan_hash"')
    if not stat.S_ISDIR(mode):
        return False
    with os.scandir(receipts) as entries:
        return any(entry.name.startswith("shard_") for entry in entries)


def recognizes_checkpoint(path: str) -> bool:
    if signs.is_prefix(path):
        return True
    names = os.listdir(path)
    if any(_SHARD.fullmatch(name) for name in names):
        return True
    for name in names:  # without shards, metadata say that there were some
        if name.endswith(signs.METADATA) and name != signs.METADATA:
            # It may be gone since the directory was listed.
            with contextlib.suppress(FileNotFoundError):
                if signs.begins_with(os.path.join(path, name), *signs.METADATA_FIELDS):
                    return True
    return False


def read_checkpoint(path: str) -> Manifest:
    # It takes numpy: only where there are some.
    from shardproof.checkpoint import read  # noqa: PLC0415

    if signs.is_prefix(path):
        return read.read_manifest(*os.path.split(path))
    return read.read_manifest(path)

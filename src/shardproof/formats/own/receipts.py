"""A plan's directory: each completed shard of a data-prep run has a receipt."""

import os
import stat

from shardproof._base.opening import mode_of
from shardproof.formats import signs
from shardproof.manifest import Manifest


def recognizes(path: str) -> bool:
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


def read_manifest(path: str) -> Manifest:
    # It takes 20 ms to import: only where there are receipts.
    from shardproof.receipts import verdict  # noqa: PLC0415

    return verdict.read_manifest(path)

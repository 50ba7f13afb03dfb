"""Plan directories of a data-prep run: what ``plan.json`` and ``receipts/`` promise."""

import os
import stat

from shardproof._base.opening import mode_of
from shardproof.manifest import Manifest

__all__ = ["MANIFEST_FILE", "claims", "read"]

MANIFEST_FILE = "plan.json"
_RECEIPTS = "receipts"


def claims(root: str) -> bool:
    """Whether the directory is a plan's, be it with its plan or only with receipts."""
    receipts = os.path.join(root, _RECEIPTS)
    mode = mode_of(receipts)
    if mode_of(os.path.join(root, MANIFEST_FILE)):
        return stat.S_ISDIR(mode) or stat.S_ISLNK(mode)  # a link is refused, and that is said
    if not stat.S_ISDIR(mode):
        return False
    with os.scandir(receipts) as entries:
        return any(entry.name.startswith("shard_") for entry in entries)


def read(root: str) -> Manifest:
    """Return what the receipts promise; arguments and errors as for `receipts.promise`."""
    from shardproof.receipts import promise  # noqa: PLC0415 - 20 ms, only where there are receipts

    return promise(root)

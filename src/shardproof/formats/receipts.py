"""Plan directories of a data-prep run: what ``plan.json`` and ``receipts/`` promise."""

import os

from shardproof.receipts import PLAN_FILE, RECEIPTS
from shardproof.receipts import promise as read

__all__ = ["MANIFEST_FILE", "claims", "read"]

MANIFEST_FILE = PLAN_FILE


def claims(root: str) -> bool:
    """Whether the directory is a plan's, be it with its plan or only with receipts."""
    receipts = os.path.join(root, RECEIPTS)
    if os.path.lexists(os.path.join(root, PLAN_FILE)):
        return os.path.isdir(receipts)
    if not os.path.isdir(receipts):
        return False
    with os.scandir(receipts) as entries:
        return any(entry.name.startswith("shard_") for entry in entries)

"""saev's shards directories: what ``shards.json`` and ``metadata.json`` promise."""

import os

from shardproof._base.opening import mode_of
from shardproof.saev import SHARDS_FILE
from shardproof.saev import promise as read

__all__ = ["MANIFEST_FILE", "claims", "read"]

MANIFEST_FILE = SHARDS_FILE


def claims(root: str) -> bool:
    """Whether the directory is saev's, be it whole or half-written."""
    if mode_of(os.path.join(root, SHARDS_FILE)):
        return True
    with os.scandir(root) as entries:
        return any(
            entry.name.startswith("acts") and entry.name.endswith(".bin") for entry in entries
        )

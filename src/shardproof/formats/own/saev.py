"""saev's activations: ``shards.json`` lists the files, ``metadata.json`` gives their shape."""

import os

from shardproof._base.opening import mode_of
from shardproof.saev import read_manifest

__all__ = ["read_manifest", "recognizes"]


def recognizes(path: str) -> bool:
    # Half-written, it may have shards alone.
    if mode_of(os.path.join(path, "shards.json")):
        return True
    with os.scandir(path) as entries:
        return any(
            entry.name.startswith("acts") and entry.name.endswith(".bin") for entry in entries
        )

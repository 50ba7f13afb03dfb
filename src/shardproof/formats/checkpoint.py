"""Checkpoints of many ranks: what ``<prefix>.metadata.json`` promises."""

import os

from shardproof.formats import signs
from shardproof.formats._format import Format
from shardproof.manifest import Manifest

__all__ = ["CheckpointFormat"]


class CheckpointFormat(Format):
    """Checkpoints of which each rank wrote a shard: all of a directory, or one by its prefix."""

    name, manifest_file, further_parts = signs.CHECKPOINT
    description = "checkpoints of which each rank wrote a shard"

    def recognizes(self, path: str) -> bool:
        """Return whether a path is a checkpoint's prefix, or the directory of some.

        Of a directory without shards, metadata say that it had some.
        """
        return signs.is_prefix(path) or signs.has_checkpoint(path)

    def read_manifest(self, path: str) -> Manifest:
        """Return what the metadata promise: of a prefix its own, of a directory all."""
        # It takes numpy: only where there are some.
        from shardproof.checkpoint.verify import read_manifest  # noqa: PLC0415

        if signs.is_prefix(path):
            return read_manifest(*os.path.split(path))
        return read_manifest(path)

"""The saev activation format, read and written: docs/saev-format.md describes it."""

from shardproof.saev._metadata import LABELS_FILE, METADATA_FILE, SHARDS_FILE, Metadata
from shardproof.saev._shard_info import Shard, ShardInfo, read_manifest

__all__ = [
    "LABELS_FILE",
    "METADATA_FILE",
    "SHARDS_FILE",
    "Metadata",
    "Shard",
    "ShardInfo",
    "read_manifest",
]

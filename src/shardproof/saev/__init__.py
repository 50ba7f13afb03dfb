"""The saev activation format, read and written.

A shards directory of saev holds ``metadata.json``, ``shards.json``, ``acts000000.bin``,
``acts000001.bin``, ... and at times ``labels.bin``. A shard has no header: it is a C-ordered array
of the shape `Metadata.shard_shape`; the last one too, whose rows past its ``n_examples`` are unused
(``docs/src/developers/protocol.md`` of https://github.com/OSU-NLP-Group/saev).
"""

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

"""What a rank leaves for the one who writes the metadata."""

import msgspec

from shardproof.checkpoint._metadata import Count, ShardEntry

__all__ = ["Note"]


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a rank says of its shard.

    Attributes:
        step: Of the training, where it was told.
        shard: The rank's entry of the metadata.
        checksum: Of the note.
    """

    step: Count | None
    shard: ShardEntry
    checksum: str

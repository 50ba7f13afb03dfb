"""What a rank leaves for the one who writes the metadata."""

import msgspec

from shardproof.checkpoint.format._metadata import Count, ShardEntry

__all__ = ["Note"]


class Note(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """What a rank says of its shard.

    Attributes:
        step: Of the training, where it was told.
        shard: The rank's entry of the metadata.
        attempt: What is known of the attempt to save: texts, by whence they are known. Two shards
            of which one text differs are of two attempts.
        token: Of this shard alone, drawn by who wrote it and known again by the same.
        checksum: Of the note.
    """

    step: Count | None
    shard: ShardEntry
    attempt: dict[str, str] = {}
    token: str = ""
    checksum: str

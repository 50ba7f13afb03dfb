"""Formats of which each shard is one long row of tokens, and an index says where is what."""

from shardproof.formats._format import Format

MEGATRON = Format.of_module(
    "tokens.megatron",
    name="megatron",
    description="tokens as Megatron-LM's indexed data sets: pairs of .bin and .idx",
    manifest_file="*.idx",
    suffixes=(".idx",),
    complete="the size of each file, which the index implies; documents that cover all sequences",
    valid="nothing more: the format states no digest",
    blind_spots="changed tokens; pairs that are gone; data without an index, but for those that "
    "are called as others; data whose sequences are in another order than Megatron's builder has",
)
FORMATS = (MEGATRON,)

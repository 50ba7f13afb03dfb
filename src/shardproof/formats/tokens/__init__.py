"""Formats of which each shard is one long row of tokens, and an index says where is what."""

from shardproof.formats._format import Format

MEGATRON = Format.of_module(
    "tokens.megatron",
    name="megatron",
    description="tokens in Megatron-LM's indexed datasets: pairs of .bin and .idx",
    manifest_file="*.idx",
    suffixes=(".idx",),
    complete="the size of each file, as the index implies it; that the documents cover all "
    "sequences",
    valid="nothing more: the format has no digests; seal it",
    blind_spots="changed tokens; missing pairs; data without an index, unless its name is like "
    "those of other pairs; data with sequences in another order than Megatron's builder writes",
)
FORMATS = (MEGATRON,)

"""The formats that shardproof reads and writes itself, and saev's.

By their names and first bytes pytest's plugin knows them too (`signs`): every test run of every
environment that has shardproof imports this, so it is nothing but values.
"""

from shardproof.formats._format import Format

METADATA = ".metadata.json"
"""How the name of a checkpoint's metadata file ends; what is before it is the prefix."""

RECEIPTS_FOLDER = "receipts"

SAEV = Format.of_module(
    "own.saev",
    name="saev",
    description="activations of a vision model, as saev writes them",
    manifest_file="shards.json",
    further_parts=("metadata.json",),
    marks=("shards.json",),
    suffixes=(".bin",),
    complete="the size of each file, as the metadata imply it; the number of examples that they "
    "state",
    valid="nothing more: the format has no digests; seal it",
    blind_spots="changed bytes; two swapped shards",
)
RECEIPTS = Format.of_module(
    "own.receipts",
    name="receipts",
    description="outputs of a data-prep run, with a receipt for each completed shard",
    manifest_file="plan.json",
    further_parts=(f"{RECEIPTS_FOLDER}/shard_[0-9]*.json",),
    marks=("plan.json", RECEIPTS_FOLDER),
    states_digests=True,
    complete="the size of each output; that receipts and plan agree",
    valid="the checksum that each receipt states",
    blind_spots="outputs whose receipt has a placeholder instead of a checksum",
)
CHECKPOINT = Format.of_module(
    "own.checkpoint",
    name="checkpoint",
    description="checkpoints with one shard for each rank",
    manifest_file=f"*{METADATA}",
    further_parts=(f"*{METADATA}",),
    suffixes=(".shard", ".json"),
    complete="the size and header of each shard; that all belong to one save",
    valid="the digest of each shard",
)
FORMATS = (SAEV, RECEIPTS, CHECKPOINT)

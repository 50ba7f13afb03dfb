"""saev's activations: ``shards.json`` lists the files, ``metadata.json`` gives their shape."""

import os

from shardproof import saev
from shardproof._base.opening import mode_of
from shardproof.formats import signs
from shardproof.formats._format import Format

__all__ = ["FORMAT"]


def _recognizes(path: str) -> bool:
    # Half-written, it may have shards alone.
    if mode_of(os.path.join(path, signs.SAEV.manifest_file)):
        return True
    with os.scandir(path) as entries:
        return any(
            entry.name.startswith("acts") and entry.name.endswith(".bin") for entry in entries
        )


FORMAT = Format(
    name=signs.SAEV.format,
    description="activations of a vision model, as saev writes them",
    manifest_file=signs.SAEV.manifest_file,
    further_parts=signs.SAEV.further_parts,
    recognizes=_recognizes,
    read_manifest=saev.read_manifest,
    complete="the size of each file, which the metadata imply; as many examples as they state",
    valid="nothing more: the format states no digest",
    blind_spots="changed bytes, two shards that were swapped",
)

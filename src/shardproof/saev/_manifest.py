"""What ``shards.json`` and ``metadata.json`` promise."""

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from shardproof._base.messages import shown
from shardproof._base.opening import is_there, permission_denied
from shardproof.errors import ManifestPermissionError
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile
from shardproof.saev._json_files import LABELS_FILE, METADATA_FILE, SHARDS_FILE
from shardproof.saev._metadata import Metadata
from shardproof.saev._shard_info import Shard, read_shards

__all__ = ["read_manifest"]


def read_manifest(root: str) -> Manifest:
    """Return the promise: each listed shard, of the one size that all shards have, and the labels.

    ``labels.bin`` is optional; where it is there, readers use it, so it is promised too.

    Args:
        root: Real absolute path of the directory.

    Raises:
        ManifestError: What is promised can't be read.
        OSError: The file system failed; also where it can't be seen whether there are labels.
    """
    shards = read_shards(root)  # Manifest refuses their names
    metadata = Metadata.load(root)
    size = metadata.shard_bytes
    files = [PromisedFile(name=shard.name, size=size) for shard in shards]
    labels = os.path.join(root, LABELS_FILE)
    try:
        has_labels = is_there(labels)
    except PermissionError as error:
        raise ManifestPermissionError(permission_denied(), path=labels) from error
    if has_labels:
        files.append(PromisedFile(name=LABELS_FILE, size=metadata.labels_bytes))
    return Manifest(
        root=Path(root),
        path=Path(root, SHARDS_FILE),
        format="saev",
        files=files,
        contradictions=functools.partial(_contradictions, metadata, shards),
    )


def _contradictions(metadata: Metadata, shards: Sequence[Shard]) -> Iterator[Contradiction]:
    """Yield what a killed or restarted writer leaves: saev's readers trust the metadata alone."""
    n_examples = sum(shard.n_examples for shard in shards)
    if n_examples != metadata.n_examples:
        expected = f"{metadata.n_examples} examples in all, as {METADATA_FILE} says"
        yield _contradiction(expected, str(n_examples))
    n_shards = {metadata.n_shards, metadata.n_shards + metadata.has_extra_shard}
    if len(shards) not in n_shards:
        counts = " or ".join(map(str, sorted(n_shards)))
        expected = f"{counts} shards for {metadata.n_examples} examples"
        yield _contradiction(expected, str(len(shards)))
    # Readers find example i in file i // examples_per_shard: an entry may not stand elsewhere.
    room = metadata.examples_per_shard
    for index, shard in enumerate(shards):
        rest = min(room, max(0, metadata.n_examples - index * room))
        if shard.n_examples != rest or shard.name != f"acts{index:06}.bin":
            expected = f"acts{index:06}.bin with {rest} examples as entry {index}"
            yield _contradiction(expected, f"{shown(shard.name)} with {shard.n_examples}")
            return


def _contradiction(expected: str, found: str) -> Contradiction:
    return Contradiction(SHARDS_FILE, Mismatch(expected=expected, found=found))

"""What ``shards.json`` and ``metadata.json`` promise."""

import functools
import os
from collections.abc import Iterator
from pathlib import Path

from shardproof._base.messages import shown
from shardproof._base.opening import is_there
from shardproof._base.paths import permission_denied
from shardproof.errors import ManifestPermissionError
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile
from shardproof.saev._json_files import LABELS_FILE, METADATA_FILE, SHARDS_FILE
from shardproof.saev._metadata import Metadata
from shardproof.saev._shard_info import Shard, read_shards

__all__ = ["promise"]


def promise(root: str) -> Manifest:
    """Return the promise: each listed shard, of the one size that all shards have, and the labels.

    ``labels.bin`` is optional; where it is there, readers use it, so it is promised too.

    Raises:
        ManifestError: What is promised can't be read.
        OSError: The file system failed; also where nobody could see whether there are labels.
    """
    shards = read_shards(root)  # Manifest refuses their names
    metadata = Metadata.load(root)
    names = [shard.name for shard in shards]
    size = metadata.shard_bytes
    files = [PromisedFile(name=name, size=size) for name in names]
    if _has_labels(os.path.join(root, LABELS_FILE)):
        files.append(PromisedFile(name=LABELS_FILE, size=metadata.labels_bytes))
    contradictions = functools.partial(_contradictions, metadata, shards)
    source = Path(root, SHARDS_FILE)
    return Manifest(
        root=Path(root), path=source, format="saev", files=files, contradictions=contradictions
    )


def _has_labels(path: str) -> bool:
    try:
        return is_there(path)
    except PermissionError as error:
        raise ManifestPermissionError(permission_denied(), path=path) from error


def _contradictions(metadata: Metadata, shards: list[Shard]) -> Iterator[Contradiction]:
    for mismatch in _broken_laws(metadata, shards):
        yield Contradiction(SHARDS_FILE, mismatch)


def _broken_laws(metadata: Metadata, shards: list[Shard]) -> Iterator[Mismatch]:
    """What a killed or restarted writer leaves: saev's own readers trust the metadata alone."""
    n_examples = sum(shard.n_examples for shard in shards)
    if n_examples != metadata.n_examples:
        yield Mismatch(
            expected=f"{metadata.n_examples} examples in all, as {METADATA_FILE} says",
            found=str(n_examples),
        )
    n_shards = {metadata.n_shards, metadata.n_shards + metadata.has_extra_shard}
    if len(shards) not in n_shards:
        expected = " or ".join(map(str, sorted(n_shards)))
        yield Mismatch(
            expected=f"{expected} shards for {metadata.n_examples} examples", found=str(len(shards))
        )
    yield from _misplaced(metadata, shards)


def _misplaced(metadata: Metadata, shards: list[Shard]) -> Iterator[Mismatch]:
    """Readers find example i in file i // examples_per_shard: an entry may not stand elsewhere."""
    room = metadata.examples_per_shard
    for index, shard in enumerate(shards):
        rest = min(room, max(0, metadata.n_examples - index * room))
        if shard.n_examples != rest or shard.name != f"acts{index:06}.bin":
            yield Mismatch(
                expected=f"acts{index:06}.bin with {rest} examples as entry {index}",
                found=f"{shown(shard.name)} with {shard.n_examples}",
            )
            return

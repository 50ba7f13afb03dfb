"""Read what a directory of checkpoints promises: the shards that its metadata files name."""

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path

from shardproof._base.opening import read_at
from shardproof.checkpoint.format._layout import ShardHeader, header_size, metadata_name
from shardproof.checkpoint.format._metadata import ShardEntry
from shardproof.checkpoint.storage._local_storage import LocalStorage
from shardproof.checkpoint.storage._reading import header_mismatch, implied_header, read_metadata
from shardproof.checkpoint.storage._storage import Location
from shardproof.checkpoint.verify._verifier import refuse_blind
from shardproof.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    ManifestError,
    ManifestNotFoundError,
)
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile

__all__ = ["read_manifest"]

_METADATA = re.compile(r".+\.metadata\.json", re.DOTALL)


def read_manifest(root: str, prefix: str = "") -> Manifest:
    """Return what the checkpoints in a directory promise, or the one of a prefix.

    Of a directory, metadata that are damaged are a finding. Shards that no metadata file names are
    promised by nobody: somebody may be saving them.

    Args:
        root: Real absolute path of the directory.
        prefix: Name of the only checkpoint that is asked for, whose metadata are there.

    Raises:
        ManifestNotFoundError: There is no metadata file.
        ManifestError: The metadata of the prefix can't be read, or were changed.
        OSError: Metadata could not be looked at, and may be whole (EIO, ESTALE, EACCES).
    """
    if prefix:
        names = [metadata_name(prefix)]
    elif not (names := sorted(filter(_METADATA.fullmatch, os.listdir(root)))):
        problem = (
            "expected a metadata file beside the shards, found none: the checkpoint was not "
            "completed, or is being removed; take an earlier one"
        )
        raise ManifestNotFoundError(problem, path=os.path.join(root, metadata_name("*")))
    shards: dict[str, ShardEntry] = {}
    damaged: list[Contradiction] = []
    for name in names:
        try:
            path = os.path.join(root, name.removesuffix(metadata_name("")))
            metadata = read_metadata(Location(LocalStorage(), path))
            shards |= {shard.file: shard for shard in metadata.shards}
        except CheckpointError as error:
            refuse_blind(error)
            if prefix:
                is_gone = isinstance(error, CheckpointNotFoundError)
                refusal = ManifestNotFoundError if is_gone else ManifestError
                raise refusal(error.problem, path=error.path) from error
            mismatch = Mismatch(expected="metadata of a checkpoint", found=error.problem)
            damaged.append(Contradiction(name, mismatch))
    # No tensors: what an executor is sent for each shard must not grow with those of all shards.
    headers = {shard.file: implied_header(shard) for shard in shards.values()}
    return Manifest(
        root=Path(root),
        path=Path(root, names[0]),
        format="checkpoint",
        files=[_promised(shard) for shard in shards.values()],
        probe=functools.partial(_probe, headers),
        damaged=damaged,
    )


def _promised(shard: ShardEntry) -> PromisedFile:
    is_plain = ":" not in shard.checksum
    digest = f"sha256:{shard.checksum}" if is_plain else shard.checksum
    return PromisedFile(
        name=shard.file,
        size=shard.file_size,
        digest=digest if shard.checksum else None,
        digest_from=header_size(shard.checksum),
    )


def _probe(
    headers: Mapping[str, ShardHeader],
    file: PromisedFile,
    fd: int,
    size: int,  # noqa: ARG001 - which was looked at
) -> Mismatch | None:
    header = headers[file.name]
    mismatch = header_mismatch(header, read_at(fd, header_size(header.checksum)))
    return Mismatch(expected=mismatch[0], found=mismatch[1]) if mismatch else None

"""Look at all checkpoints of a directory: which is the newest whole one, what they promise."""

import fnmatch
import functools
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from shardproof._base.arguments import checked
from shardproof._base.messages import joined, printable, shown, told
from shardproof._base.opening import Read, is_of_a_desktop, may_be_whole, names_in
from shardproof.checkpoint import _format
from shardproof.checkpoint._format import CheckpointMetadata, ShardEntry, ShardHeader
from shardproof.checkpoint.read._verifier import refuse_blind, verify
from shardproof.checkpoint.storage._local_storage import LocalStorage
from shardproof.checkpoint.storage._location import Location, prefixes_in, unfinished_of
from shardproof.checkpoint.storage._reading import read_metadata
from shardproof.checkpoint.storage._storage import CheckpointStorage
from shardproof.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    ManifestError,
    ManifestNotFoundError,
)
from shardproof.manifest import Contradiction, ExpectedFile, Manifest, Mismatch
from shardproof.report import Level

logger = logging.getLogger("shardproof.checkpoint")


@checked
def latest_checkpoint(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    storage: CheckpointStorage | None = None,
    level: Level = "valid",
    group: Any = None,
) -> str | None:
    """Return the prefix of the newest whole checkpoint; None if there is none.

    Newest is what has the highest step, and of those the latest timestamp. What is torn, partial
    or of mixed steps is passed over, and the log says why; it warns of unfinished steps,
    too: shards without metadata, whose save was killed or still runs.

    Args:
        path: A directory: checkpoints are in it, or in its direct subdirectories, such as
            ``step_100/``.
        name: The last part of the prefix, such as ``"model"``, where a step has several.
        storage: By default a directory, or for a URL with ``://`` what fsspec opens.
        level: ``"valid"`` proves every byte of the one that is returned. ``"complete"`` is quick:
            it compares sizes and headers, which will do if what is loaded is proven anyway.
        group: The ranks that ask at once, as for `shardproof.distributed.validate`: rank 0 looks,
            and all get its answer.

    Raises:
        OSError: The directory can't be listed, or something could not be checked (EIO, ESTALE):
            what is the newest is not known then, and an older one is not taken for it.
        TypeError: An argument of the wrong type.

    Example:
        >>> import numpy as np
        >>> from shardproof.checkpoint import MultiShardSaver, latest_checkpoint
        >>> for step in (10, 20):
        ...     prefix = f"{output_dir}/steps/step_{step}/model"
        ...     path = MultiShardSaver().save_shard(prefix, 0, {"bias": np.arange(step)})
        ...     path = MultiShardSaver().save_metadata(prefix, world_size=1, step=step)
        >>> latest_checkpoint(f"{output_dir}/steps").removeprefix(str(output_dir))
        '/steps/step_20/model'
    """
    if group is not None:
        from shardproof.distributed.calls import called, one_answer  # noqa: PLC0415 - rarely used

        find = functools.partial(latest_checkpoint, path, name=name, storage=storage, level=level)
        return one_answer(group, called("latest_checkpoint", path, name=name, level=level), find)
    prefixes = prefixes_in(path, storage)
    for step in unfinished_of(prefixes):
        if name is None or os.path.basename(step.prefix) == name:
            logger.warning("%s", printable(str(step)))
    locations = [location for location in prefixes.committed if name in {None, location.name}]
    for location, metadata in newest_first(locations):
        if is_whole(location, metadata.step, level):
            return location.path
    return None


def newest_first(locations: Sequence[Location]) -> list[tuple[Location, CheckpointMetadata]]:
    """Return the checkpoints whose metadata can be read, newest first; unseen is an `OSError`."""
    found = []
    for location in locations:
        try:
            found.append((location, read_metadata(location)))
        except CheckpointError as error:
            refuse_blind(error)
            logger.warning("Passing over a checkpoint: %s", told(error))

    def order(candidate: tuple[Location, CheckpointMetadata]) -> tuple[int, str, str]:
        # Fractions of seconds may have any length.
        seconds, _, fraction = candidate[1].timestamp.removesuffix("Z").partition(".")
        return candidate[1].step, seconds, fraction.rstrip("0")

    return sorted(found, key=order, reverse=True)


def is_whole(location: Location, step: int, level: Level) -> bool:
    """Return whether a checkpoint is whole, and log why it isn't; if not seen, raise `OSError`."""
    result = verify(location, level)
    for finding in result.findings:
        if may_be_whole(finding.errno):
            raise OSError(finding.errno, f"could not check: {finding.found}", str(finding.path))
    reasons = [*result.errors]
    reasons += [f"{shown(path)}: no checksum is stated" for path in result.unproven]
    if reasons:
        where, why = location.path, joined(reasons)
        logger.warning("Passing over step %d of '%s': %s", step, shown(where), printable(why))
    return not reasons


def read_manifest(root: str, prefix: str = "") -> Manifest:
    """Return what the checkpoints in a directory promise, or the one of a prefix."""
    there = fnmatch.filter(names_in(root), f"?*{_format.METADATA_END}")
    names = [name for name in there if not is_of_a_desktop(name)]
    if prefix:
        names = [prefix + _format.METADATA_END]
    elif not names:
        problem = (
            "expected a metadata file beside the shards, found none: the checkpoint was not "
            "completed, or is being removed; take an earlier one"
        )
        raise ManifestNotFoundError(problem, path=os.path.join(root, f"*{_format.METADATA_END}"))
    shards: dict[str, ShardEntry] = {}
    damaged: list[Contradiction] = []
    for name in names:
        try:
            path = os.path.join(root, name.removesuffix(_format.METADATA_END))
            metadata = read_metadata(Location(LocalStorage(), path))
            shards |= {shard.file: shard for shard in metadata.shards}
        except CheckpointError as error:
            refuse_blind(error)
            if prefix:
                is_gone = isinstance(error, CheckpointNotFoundError)
                refusal = ManifestNotFoundError if is_gone else ManifestError
                raise refusal(error.problem, path=error.path) from error
            damaged.append(Contradiction(name, "metadata of a checkpoint", error.problem))
    files = []
    for name, shard in shards.items():
        checksum, begin = shard.checksum, _format.header_size(shard.checksum)
        digest = f"sha256:{checksum}" if checksum and ":" not in checksum else checksum or None
        promised = ExpectedFile(name=name, size=shard.file_size, digest=digest, digest_from=begin)
        files.append(promised)
    # No tensors: what an executor is sent for each shard must not grow with those of all shards.
    headers = {name: ShardHeader.of(shard) for name, shard in shards.items()}
    probe = functools.partial(_probe, headers)
    return Manifest.at(root, names[0], "checkpoint", files, probe=probe, damaged=damaged)


def _probe(
    headers: Mapping[str, ShardHeader], file: ExpectedFile, read: Read, _size: int
) -> Mismatch | None:
    header = headers[file.name]
    mismatch = header.mismatch(read(_format.header_size(header.checksum)))
    return Mismatch(*mismatch) if mismatch else None

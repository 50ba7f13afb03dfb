"""Verify a checkpoint: say everything that is wrong with it at once."""

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shardproof._base import fanout
from shardproof._base.arguments import checked
from shardproof._base.loop_threads import in_thread
from shardproof._base.messages import shown, told
from shardproof._base.work import apart
from shardproof.checkpoint.format._layout import (
    pruned_name,
    record_name,
    removal_of,
    removal_prefix,
    shard_name,
)
from shardproof.checkpoint.format._metadata import CheckpointMetadata, ShardEntry
from shardproof.checkpoint.storage._metadata_file import read_metadata
from shardproof.checkpoint.storage._storage import CheckpointStorage, Location, location_of
from shardproof.checkpoint.storage._unfinished import unfinished_at
from shardproof.checkpoint.verify._inspect import InspectedShard, inspect, is_unseen, unread
from shardproof.errors import CheckpointError
from shardproof.report import Level, Report

__all__ = ["ShardFileVerifier", "VerificationResult", "verify"]

_FEW = 16
_SMALL_BYTES = 2**23


@dataclasses.dataclass(frozen=True, slots=True)
class VerificationResult(Report):
    """A report on one checkpoint.

    Attributes:
        errors: One sentence for each promise that is not kept, as `findings` has it as data.
        warnings: What is no error and should be known: shards that the metadata doesn't name,
            shards that can't be proven since no checksum is stated, and where there are only
            shards, how old this unfinished step is.
    """

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether there is no error. What is unproven is a warning, and in ``unproven``."""
        return self.ok


class ShardFileVerifier:
    """Verify a checkpoint without loading it.

    Args:
        storage: Where checkpoints are; by default a directory, or for a prefix with ``://`` what
            fsspec opens.

    Raises:
        TypeError: An argument of the wrong type.

    Example:
        >>> import numpy as np
        >>> from shardproof.checkpoint import MultiShardSaver, ShardFileVerifier
        >>> prefix = f"{output_dir}/step_2/model"
        >>> path = MultiShardSaver().save_shard(prefix, 0, {"bias": np.arange(3)})
        >>> ShardFileVerifier().verify_checkpoint(prefix).is_valid  # no metadata: no checkpoint
        False
        >>> path = MultiShardSaver().save_metadata(prefix, world_size=1, step=2)
        >>> ShardFileVerifier().verify_checkpoint(prefix).is_valid
        True
    """

    @checked
    def __init__(self, storage: CheckpointStorage | None = None) -> None:
        self._storage = storage

    @checked
    def verify_checkpoint(
        self, prefix: str | os.PathLike[str], *, level: Level = "valid"
    ) -> VerificationResult:
        """Return everything that is wrong with a checkpoint; never raise for it.

        Args:
            prefix: What the names of its files begin with.
            level: ``"valid"`` reads every byte; ``"complete"`` compares sizes and headers;
                ``"present"`` sees that files are there and open.

        Raises:
            TypeError: An argument of the wrong type.
        """
        return apart(lambda _: verify(location_of(prefix, self._storage), level))

    verify_checkpoint_async = in_thread(verify_checkpoint)
    """Do as `verify_checkpoint` in a thread, which has ended when this returns or is cancelled."""


def verify(location: Location, level: Level) -> VerificationResult:
    """Return everything that is wrong with the checkpoint at a location.

    Raises:
        Cancelled: The work was told to stop.
    """
    try:
        metadata = read_metadata(location)
    except CheckpointError as error:
        finding = unread(error, "metadata of a checkpoint")
        warnings = _strays(location, None) if is_unseen(finding) else _without_metadata(location)
        found = [InspectedShard(error.path, finding, is_unproven=False)]
        return _result(location, level, 0, found, warnings)
    inspected = list(_inspected(location, metadata, level))
    warnings = _strays(location, metadata.world_size)
    return _result(location, level, metadata.world_size, inspected, warnings)


def _result(
    location: Location,
    level: Level,
    n_files: int,
    inspected: Sequence[InspectedShard],
    warnings: Sequence[str],
) -> VerificationResult:
    findings = [(file.path, file.finding) for file in inspected if file.finding]
    unproven = [file.path for file in inspected if file.is_unproven and not file.finding]
    return VerificationResult(
        path=Path(location.directory),
        format="checkpoint",
        level=level,
        n_files=n_files,
        findings=tuple(finding for _, finding in findings),
        unproven=tuple(map(Path, unproven)),
        n_proven=n_files - len(findings) - len(unproven) if n_files else None,
        errors=tuple(
            f"{shown(path)}: {finding.kind}: expected {finding.expected}, found {finding.found}"
            for path, finding in findings
        ),
        warnings=(
            *warnings,
            *(f"{shown(path)}: no checksum is stated: it can't be proven" for path in unproven),
        ),
    )


def _inspected(
    location: Location, metadata: CheckpointMetadata, level: Level
) -> Iterator[InspectedShard]:
    def work(shards: Sequence[ShardEntry]) -> list[InspectedShard]:
        return [inspect(location, shard, level) for shard in shards]

    threads = _threads_for(metadata.shards, level)
    for _, inspected in fanout.over_threads(work, metadata.shards, threads, chunk=1):
        yield from inspected


def _threads_for(shards: Sequence[ShardEntry], level: Level) -> int | None:
    """Return how many threads inspect shards; None to decide by the time that one takes."""
    if len(shards) <= _FEW and sum(shard.file_size for shard in shards) <= _SMALL_BYTES:
        return 1  # which takes less time than to start more
    return fanout.available_cpus() if level == "valid" else None


def _without_metadata(location: Location) -> list[str]:
    try:
        unfinished = list(map(str, unfinished_at(location)))
    except OSError as error:
        return [f"{shown(location.directory)}: it can't be looked at: {told(error)}"]
    return unfinished or _strays(location, 0)


def _strays(location: Location, world_size: int | None) -> list[str]:
    """Return sentences about files of this prefix that no metadata names.

    Where nobody knows how many ranks these are of, they may name any shard.
    """
    try:
        found = dict(sorted(location.storage.list(location.directory)))
    except OSError as error:
        return [f"{shown(location.directory)}: it can't be listed: {told(error)}"]
    strays = [] if world_size is None else _unnamed(location, world_size, found)
    sentences = [f"{shown(location.beside(name))}: no metadata names it" for name in strays]
    pruned, begin = pruned_name(location.name), removal_prefix(location.name)
    return sentences + [
        f"{shown(location.beside(name))}: the checkpoint is being removed; prune again to finish"
        for name, is_directory in found.items()
        if name == pruned or removal_of(name, is_directory=is_directory) == begin
    ]


def _unnamed(location: Location, world_size: int, names: Iterable[str]) -> list[str]:
    known = {shard_name(location.name, rank) for rank in range(world_size)}
    known |= {record_name(location.name, rank) for rank in range(world_size)}
    pattern = re.compile(re.escape(location.name) + r"_shard_-?\d+\.(shard|tensors\.json)")
    return [name for name in names if pattern.fullmatch(name) and name not in known]

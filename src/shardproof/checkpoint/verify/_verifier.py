"""A checkpoint is looked at, and everything that is wrong with it is said at once."""

import dataclasses
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shardproof._base import fanout
from shardproof._base.arguments import checked
from shardproof._base.loop_threads import LoopThreads
from shardproof._base.messages import shown, told
from shardproof._base.work import apart
from shardproof.checkpoint.format._layout import (
    note_name,
    pruned_name,
    removal_of,
    removal_prefix,
    shard_name,
)
from shardproof.checkpoint.format._metadata import CheckpointMetadata, ShardEntry
from shardproof.checkpoint.storage._metadata_file import read_metadata
from shardproof.checkpoint.storage._storage import CheckpointStorage, Place, place_of
from shardproof.checkpoint.storage._unfinished import unfinished_at
from shardproof.checkpoint.verify._inspect import Look, is_unseen, look_at, unread
from shardproof.errors import CheckpointError
from shardproof.report import Finding, Level, Report

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
    """Look at a checkpoint without loading it.

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
        return apart(lambda stop: verify(place_of(prefix, self._storage), level, stop))

    @checked
    async def verify_checkpoint_async(
        self, prefix: str | os.PathLike[str], *, level: Level = "valid"
    ) -> VerificationResult:
        """Do as `verify_checkpoint` in a thread, which has ended when this returns."""
        place = place_of(prefix, self._storage)
        return await LoopThreads().run(lambda stop: verify(place, level, stop), "shardproof-verify")


def verify(place: Place, level: Level, stop: threading.Event | None = None) -> VerificationResult:
    """Return everything that is wrong with the checkpoint at a place.

    Raises:
        StoppedError: ``stop`` was set.
    """
    try:
        metadata = read_metadata(place)
    except CheckpointError as error:
        finding = unread(error, "metadata of a checkpoint")
        errors = [_sentence(error.path, finding)]
        warnings = _strays(place, None) if is_unseen(finding) else _without_metadata(place)
        return _result(place, level, 0, [finding], errors, warnings, [])
    looks = list(_looks(place, metadata, level, stop))
    findings = [look.finding for look in looks if look.finding]
    errors = [_sentence(look.path, look.finding) for look in looks if look.finding]
    unproven = [look.path for look in looks if look.is_unproven and not look.finding]
    warnings = _strays(place, metadata.world_size)
    warnings += [f"{shown(path)}: no checksum is stated: it can't be proven" for path in unproven]
    return _result(place, level, metadata.world_size, findings, errors, warnings, unproven)


def _sentence(address: str, finding: Finding) -> str:
    return f"{shown(address)}: {finding.kind}: expected {finding.expected}, found {finding.found}"


def _result(  # noqa: PLR0917 - as many fields as a report has
    place: Place,
    level: Level,
    n_files: int,
    findings: Sequence[Finding],
    errors: Sequence[str],
    warnings: Sequence[str],
    unproven: Sequence[str],
) -> VerificationResult:
    return VerificationResult(
        root=Path(place.storage.address(place.directory)),
        format="checkpoint",
        level=level,
        n_files=n_files,
        findings=tuple(findings),
        unproven=tuple(map(Path, unproven)),
        n_proven=n_files - len(findings) - len(unproven) if n_files else None,
        errors=tuple(errors),
        warnings=tuple(warnings),
    )


def _looks(
    place: Place, metadata: CheckpointMetadata, level: Level, stop: threading.Event | None
) -> Iterator[Look]:
    def work(shards: Sequence[ShardEntry]) -> list[Look]:
        return [look_at(place, shard, level, stop) for shard in shards]

    threads = _threads_for(metadata.shards, level)
    for _, looks in fanout.over_threads(work, metadata.shards, threads, chunk=1):
        yield from looks


def _threads_for(shards: Sequence[ShardEntry], level: Level) -> int | None:
    """How many threads look; None where that is decided by how long a look takes."""
    if len(shards) <= _FEW and sum(shard.file_size for shard in shards) <= _SMALL_BYTES:
        return 1  # which takes less time than to start more
    return fanout.available_cpus() if level == "valid" else None


def _without_metadata(place: Place) -> list[str]:
    try:
        unfinished = list(map(str, unfinished_at(place)))
    except OSError as error:
        return [
            f"{shown(place.storage.address(place.directory))}: it can't be looked at: {told(error)}"
        ]
    return unfinished or _strays(place, 0)


def _strays(place: Place, world_size: int | None) -> list[str]:
    """Sentences about files of this prefix that no metadata names.

    Where nobody knows how many ranks these are of, they may name any shard.
    """
    try:
        found = dict(sorted(place.storage.entries(place.directory)))
    except OSError as error:
        return [
            f"{shown(place.storage.address(place.directory))}: it can't be listed: {told(error)}"
        ]
    strays = [] if world_size is None else _unnamed(place, world_size, found)
    sentences = [f"{shown(place.address(name))}: no metadata names it" for name in strays]
    pruned, begin = pruned_name(place.name), removal_prefix(place.name)
    return sentences + [
        f"{shown(place.address(name))}: the checkpoint is being removed; prune again to finish"
        for name, is_directory in found.items()
        if name == pruned or removal_of(name, is_directory=is_directory) == begin
    ]


def _unnamed(place: Place, world_size: int, names: Iterable[str]) -> list[str]:
    known = {shard_name(place.name, rank) for rank in range(world_size)}
    known |= {note_name(place.name, rank) for rank in range(world_size)}
    pattern = re.compile(re.escape(place.name) + r"_shard_-?\d+\.(shard|tensors\.json)")
    return [name for name in names if pattern.fullmatch(name) and name not in known]

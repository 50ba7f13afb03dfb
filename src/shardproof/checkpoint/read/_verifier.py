"""Verify a checkpoint: say everything that is wrong with it at once."""

import dataclasses
import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shardproof._base import fanout
from shardproof._base.arguments import checked
from shardproof._base.messages import shown, told
from shardproof._base.opening import may_be_whole
from shardproof._base.progress import reporting
from shardproof._base.work import apart, go_on, in_thread
from shardproof.checkpoint._format import ShardEntry
from shardproof.checkpoint.read._shard_reader import checksum_found
from shardproof.checkpoint.storage._fsspec_storage import number_of
from shardproof.checkpoint.storage._location import Location, location_of, unfinished_at
from shardproof.checkpoint.storage._reading import open_file, other_header, read_metadata
from shardproof.checkpoint.storage._storage import CheckpointStorage, NotRegularFileError
from shardproof.errors import CheckpointError, CheckpointNotFoundError
from shardproof.report import Finding, FindingKind, Level, Report

_FEW = 16
_SMALL_BYTES = 2**23


@dataclasses.dataclass(frozen=True, slots=True)
class VerificationResult(Report):
    """A report on one checkpoint.

    Attributes:
        errors: One sentence for each expectation that is not met, as `findings` has it as data.
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

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values: a report, and its warnings."""
        return {**Report.to_dict(self), "warnings": list(self.warnings)}


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
        self,
        prefix: str | os.PathLike[str],
        *,
        level: Level = "valid",
        progress: bool | Callable[[int, int], None] = False,
    ) -> VerificationResult:
        """Return everything that is wrong with a checkpoint; never raise for it.

        Args:
            prefix: What the names of its files begin with.
            level: ``"valid"`` reads every byte; ``"complete"`` compares sizes and headers;
                ``"present"`` sees that files are there and open.
            progress: As for `shardproof.validate`.

        Raises:
            TypeError: An argument of the wrong type.
        """
        with reporting(progress, "shards") as show:
            return apart(lambda _: verify(location_of(prefix, self._storage), level), show)

    verify_checkpoint_async = in_thread(verify_checkpoint)
    """Do as `verify_checkpoint` in a thread, which has ended when this returns or is cancelled."""


def verify(location: Location, level: Level) -> VerificationResult:
    """Return everything that is wrong with the checkpoint at a location."""
    try:
        shards = read_metadata(location).shards
    except CheckpointError as error:
        finding = _unread(error, "metadata of a checkpoint")
        world_size, warnings = None, []
        if not may_be_whole(finding.errno):
            world_size = 0
            try:
                warnings = [str(step) for step in unfinished_at(location)]
            except OSError as problem:
                warnings = [f"{shown(location.directory)}: it can't be checked: {told(problem)}"]
        warnings = warnings or _strays(location, world_size)
        return _result(location, level, (), {error.path: finding}, warnings)
    n_threads = None  # it depends on the time that one takes
    if len(shards) <= _FEW and sum(shard.file_size for shard in shards) <= _SMALL_BYTES:
        n_threads = 1  # which takes less time than to start more
    elif level == "valid":
        n_threads = fanout.available_cpus()
    digest_threads = fanout.threads_each(min(n_threads or 1, len(shards)))

    def work(some: Sequence[ShardEntry]) -> list[Finding | None]:
        return [_inspect(location, shard, level, digest_threads) for shard in some]

    inspected = fanout.collected(work, shards, n_threads, chunk=1, is_told=True)
    paths = [location.beside(shard.file) for shard in shards]
    findings = {path: found for path, found in zip(paths, inspected, strict=True) if found}
    return _result(location, level, shards, findings, _strays(location, len(shards)))


def _result(
    location: Location,
    level: Level,
    shards: Sequence[ShardEntry],
    findings: Mapping[str, Finding],
    warnings: Sequence[str],
) -> VerificationResult:
    bare = [location.beside(shard.file) for shard in shards if not shard.checksum]
    unproven = [path for path in bare if level == "valid" and path not in findings]
    return VerificationResult(
        path=Path(location.directory),
        format="checkpoint",
        level=level,
        n_files=len(shards),
        findings=tuple(findings.values()),
        unproven=tuple(map(Path, unproven)),
        n_proven=len(shards) - len(findings) - len(unproven) if shards else None,
        errors=tuple(
            f"{shown(path)}: {finding.kind}: expected {finding.expected}, found {finding.found}"
            for path, finding in findings.items()
        ),
        warnings=(
            *warnings,
            *(f"{shown(path)}: no checksum is stated: it can't be proven" for path in unproven),
        ),
    )


def _inspect(
    location: Location, shard: ShardEntry, level: Level, digest_threads: int
) -> Finding | None:
    """Say why a shard is not the one that the metadata names."""
    go_on()
    size, stated = f"{shard.file_size} bytes", shard.checksum
    finding = None
    try:
        with open_file(location.storage, location.beside(shard.file)) as file:
            at = Path(file.path)
            if not file.size:
                finding = Finding(FindingKind.EMPTY, at, size, "0 bytes")
            elif level == "present":
                pass  # nothing more is asked
            elif file.size != shard.file_size:
                finding = Finding(FindingKind.SIZE, at, size, f"{file.size} bytes")
            elif wrong := other_header(file, shard):
                finding = Finding(FindingKind.STRUCTURE, at, *wrong)
            elif level == "valid" and stated:
                found = checksum_found(file, shard, digest_threads=digest_threads)
                if found != stated:
                    finding = Finding(FindingKind.DIGEST, at, stated, found)
    except CheckpointError as error:
        finding = _unread(error, "a regular file")
    return finding


def _strays(location: Location, world_size: int | None) -> list[str]:
    """Return sentences about files of this prefix that no metadata names."""
    try:
        listed = location.storage.list(location.directory)
    except OSError as error:
        return [f"{shown(location.directory)}: it can't be listed: {told(error)}"]
    found = sorted(location.beside(name) for name, _ in listed)
    sentences = []
    if world_size is not None:  # else the metadata, which were not seen, may name any shard
        ranks = {*map(str, range(world_size))}
        pattern = re.compile(re.escape(location.path) + r"_shard_(-?\d+)\.(?:shard|tensors\.json)")
        matches = filter(None, map(pattern.fullmatch, found))
        strays = [match[0] for match in matches if match[1] not in ranks]
        sentences += [f"{shown(path)}: no metadata names it" for path in strays]
    if location.pruned in found:
        where = shown(location.pruned)
        sentences.append(f"{where}: the checkpoint is being removed; prune again to finish")
    return sentences


def _unread(error: CheckpointError, expected: str) -> Finding:
    """Return the finding that a file of a checkpoint can't be read."""
    path, cause = Path(error.path), error.__cause__
    if isinstance(error, CheckpointNotFoundError):
        return Finding(FindingKind.MISSING, path, expected, "nothing", errno.ENOENT)
    if isinstance(cause, NotRegularFileError):
        return Finding(FindingKind.NOT_REGULAR, path, expected, str(cause))
    if isinstance(cause, OSError):
        return Finding(FindingKind.UNREADABLE, path, expected, error.problem, number_of(cause))
    return Finding(FindingKind.STRUCTURE, path, expected, error.problem)


def refuse_blind(error: CheckpointError) -> None:
    """Raise an `OSError` (EIO, ESTALE, EACCES) for a file that may be whole: it was not seen."""
    finding = _unread(error, "")
    if may_be_whole(finding.errno):
        raise OSError(finding.errno, f"could not check: {error.problem}", error.path) from error

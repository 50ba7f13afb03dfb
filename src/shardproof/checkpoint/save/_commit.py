"""Make checkpoints: of a prefix at most one attempt makes one, and of its own shards alone.

A process that saves a shard writes it under a pending name, removes metadata that are in the
making, sees that there is no checkpoint, and renames it. A process that makes a checkpoint makes an
empty file of metadata first, removes pending shards, checks each shard once more, and then gives
the metadata their name. So of two that meet, one finds that its own file is gone, or the other's
work: no shard takes the place of one that a checkpoint names.
"""

import contextlib
import datetime
import os
from collections.abc import Mapping, Sequence

from shardproof._base.messages import quoted, told
from shardproof.checkpoint._format import (
    SCHEMA_VERSION,
    CheckpointMetadata,
    RankRecord,
    ShardEntry,
    Sharding,
    refuse,
    seal,
)
from shardproof.checkpoint.format._layout import metadata_in_the_making, record_name
from shardproof.checkpoint.read._verifier import refuse_blind
from shardproof.checkpoint.save._way import (
    OVERTAKEN,
    clear_way,
    overtaken,
    remove_pending,
    sweep_leftovers,
)
from shardproof.checkpoint.storage._reading import open_shard, read_record, small_enough
from shardproof.checkpoint.storage._storage import Location
from shardproof.errors import CheckpointError, CheckpointNotFoundError

_UNNAMED = "of {} shards some can't be part of it; save these, and then the metadata again"
_GIVEN = "given"  # the source of what the caller said of an attempt
_SHOWN = 5


class Attempt:
    """The attempt that a saver is a part of, as far as the caller or the environment tells."""

    def __init__(self, given: str | None = None) -> None:
        self.tokens: dict[str, str] = {}  # of its own shards, by path, until they are committed
        self.marks: dict[str, str] = {}  # what all its ranks have in common, by who says so
        if given is not None:
            self.marks[_GIVEN] = given
            return
        # What the environment tells all ranks of a run alike, and other runs differently: parts of
        # a heterogeneous job have numbers of their own, and ranks may be tasks of an array.
        say = os.environ.get
        if (job := say("SLURM_JOB_ID")) and not say("SLURM_HET_SIZE"):
            array = say("SLURM_ARRAY_JOB_ID")
            self.marks["slurm"] = array or f"{job}.{say('SLURM_RESTART_COUNT', '0')}"
        if (run := say("TORCHELASTIC_RUN_ID", "none")) not in {"", "none"}:
            self.marks["torchrun"] = run
        # Of bytes that are no text their numbers are taken: records can hold nothing else.
        for name, text in self.marks.items():
            self.marks[name] = os.fsencode(text).decode(errors="backslashreplace")

    def stranger(self, path: str, record: RankRecord) -> str:
        """Return why a shard is not of this attempt; an empty text if it may be."""
        given = self.marks.get(_GIVEN)
        if self.tokens.get(path, record.token) != record.token:
            return "another attempt saved it after this one did"
        if given is not None and record.attempt.get(_GIVEN) != given:
            return f"expected attempt {quoted(given)}, found {_marks_shown(record.attempt)}"
        return ""


def mixed(records: Sequence[RankRecord]) -> list[str]:
    """Return sentences about shards that are of several attempts."""
    first: dict[str, tuple[int, str]] = {}
    problems = []
    for record in records:
        for name, text in record.attempt.items():
            rank, expected = first.setdefault(name, (record.shard.rank, text))
            if text != expected:
                first_of, other = _marks_shown({name: expected}), _marks_shown({name: text})
                problems.append(
                    f"rank {rank} is of attempt {first_of}, rank {record.shard.rank} of {other}"
                )
    return problems


def _marks_shown(marks: Mapping[str, str]) -> str:
    if not marks:
        return "one that is not named"
    return ", ".join(f"{quoted(text)} ({name})" for name, text in [*marks.items()][:_SHOWN])


def make_checkpoint(
    location: Location,
    sharding: Sharding,
    attempt: Attempt,
    *,
    step: int,
    timestamp: str | None = None,
    sync: bool = True,
) -> str:
    """Make a checkpoint of the shards of one attempt; return the path of its metadata file."""
    world_size, timestamp = sharding.shard_count, timestamp or now()
    clear_way(location, overwrite=False)
    shards = _recorded_shards(location, world_size, step, attempt)
    if not sharding.precision:
        sharding = Sharding(sharding.strategy, world_size, _precision_of(shards))
    metadata = CheckpointMetadata(SCHEMA_VERSION, world_size, step, timestamp, sharding, shards, "")
    data = small_enough(seal(metadata), location.metadata)
    making = location.beside(metadata_in_the_making(location.name))
    writer = location.storage.writer(location.metadata, making, sync=sync, replace=False)
    with overtaken(location.metadata):
        try:
            with writer as fd:
                remove_pending(location)
                for shard in shards:
                    _see_that_it_is_there(location, shard)
                with open(fd, "wb", closefd=False) as file:
                    file.write(data)
        except FileExistsError:
            clear_way(location, overwrite=False)
            raise
    _clean_up(location, attempt, shards)
    return location.metadata


def _precision_of(shards: Sequence[ShardEntry]) -> str:
    dtypes = {tensor.dtype for shard in shards for tensor in shard.tensors}
    found = {dtype for dtype in dtypes if "float" in dtype or "complex" in dtype}
    if len(found) == 1:
        return found.pop()
    return "mixed" if found else "none"


def _recorded_shards(
    location: Location, world_size: int, step: int, attempt: Attempt
) -> tuple[ShardEntry, ...]:
    """Return the shards that all ranks have recorded; list those that can't be part of it."""
    records, problems = [], []
    for rank in range(world_size):
        try:
            records.append(_record_of(location, rank, step, attempt))
        except CheckpointError as error:
            refuse_blind(error)
            problems.append(f"rank {rank}: {told(error)}")
    problems += mixed(records)
    refuse(_UNNAMED.format(world_size), problems, path=location.metadata)
    return tuple(record.shard for record in records)


def _record_of(location: Location, rank: int, step: int, attempt: Attempt) -> RankRecord:
    path = location.beside(record_name(location.name, rank))
    try:
        record = read_record(location, rank)
    except CheckpointNotFoundError as error:
        raise CheckpointNotFoundError("this rank has not saved its shard", path=path) from error
    if record.step not in {None, step}:
        raise CheckpointError(f"expected step {step}, found step {record.step}", path=path)
    if problem := attempt.stranger(location.beside(record.shard.file), record):
        raise CheckpointError(problem, path=path)
    with open_shard(location, record.shard):
        return record


def _see_that_it_is_there(location: Location, shard: ShardEntry) -> None:
    """Check a shard once more, when it can't be replaced without notice any longer."""
    try:
        with open_shard(location, shard):
            pass
    except CheckpointError as error:
        refuse_blind(error)
        raise CheckpointError(OVERTAKEN, path=location.metadata) from error


def _clean_up(location: Location, attempt: Attempt, shards: Sequence[ShardEntry]) -> None:
    """Remove what is not needed now, as far as possible; the next save or `prune` does the rest."""
    for shard in shards:
        attempt.tokens.pop(location.beside(shard.file), None)
        with contextlib.suppress(OSError):
            location.storage.remove(location.beside(record_name(location.name, shard.rank)))
    with contextlib.suppress(OSError):
        sweep_leftovers(location.storage, location.directory)
    with contextlib.suppress(OSError):
        location.storage.sweep(location.directory)


def now() -> str:
    """Return the present moment as metadata state it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

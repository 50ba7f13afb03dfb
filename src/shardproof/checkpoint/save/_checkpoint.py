"""Make a checkpoint of the shards of one attempt."""

import contextlib
import datetime
from collections.abc import Sequence

from shardproof._base.messages import listed, told
from shardproof.checkpoint.format._layout import record_name
from shardproof.checkpoint.format._metadata import (
    SCHEMA_VERSION,
    CheckpointMetadata,
    RankRecord,
    ShardEntry,
    Sharding,
)
from shardproof.checkpoint.save._attempt import Attempt, mixed
from shardproof.checkpoint.save._commit import clear_way, commit
from shardproof.checkpoint.save._leftovers import sweep_leftovers
from shardproof.checkpoint.storage._metadata_file import pack_metadata, read_record
from shardproof.checkpoint.storage._open_shard import open_shard
from shardproof.checkpoint.storage._storage import Location
from shardproof.checkpoint.verify._inspect import refuse_blind
from shardproof.errors import CheckpointError, CheckpointNotFoundError

__all__ = ["clear_way_and_sweep", "make_checkpoint", "now"]


def make_checkpoint(
    location: Location,
    sharding: Sharding,
    attempt: Attempt,
    *,
    step: int,
    timestamp: str,
    sync: bool,
) -> str:
    """Make a checkpoint of the shards of one attempt; return the path of its metadata file.

    Raises as `MultiShardSaver.save_metadata`.
    """
    world_size = sharding.shard_count
    clear_way_and_sweep(location, overwrite=False)
    shards = _recorded_shards(location, world_size, step, attempt)
    precision = sharding.precision or _precision(shards)
    sharding = Sharding(sharding.strategy, world_size, precision)
    metadata = CheckpointMetadata(SCHEMA_VERSION, world_size, step, timestamp, sharding, shards, "")
    data = pack_metadata(location, metadata)
    commit(location, data, lambda: _see_that_all_are_there(location, shards), sync=sync)
    for shard in shards:
        attempt.forget(location.beside(shard.file))
    _remove_needless(location, shards)
    return location.metadata


def _remove_needless(location: Location, shards: Sequence[ShardEntry]) -> None:
    """Remove what is not needed now, as far as possible; the next save or `prune` does the rest."""
    for shard in shards:
        with contextlib.suppress(OSError):
            location.storage.remove(location.beside(record_name(location.name, shard.rank)))
    with contextlib.suppress(OSError):
        sweep_leftovers(location.storage, location.directory)
    with contextlib.suppress(OSError):
        location.storage.sweep(location.directory)


def clear_way_and_sweep(location: Location, *, overwrite: bool) -> None:
    """Do as `clear_way`; where it refuses, another attempt may have left needless files."""
    try:
        clear_way(location, overwrite=overwrite)
    except CheckpointError:
        with contextlib.suppress(OSError):
            sweep_leftovers(location.storage, location.directory)
        raise


def _recorded_shards(
    location: Location, world_size: int, step: int, attempt: Attempt
) -> tuple[ShardEntry, ...]:
    records, problems = [], []
    for rank in range(world_size):
        try:
            records.append(_record_of(location, rank, step, attempt))
        except CheckpointError as error:
            refuse_blind(error)
            problems.append(f"rank {rank}: {told(error)}")
    problems += mixed(records)
    _refuse(location, world_size, problems)
    return tuple(record.shard for record in records)


def _refuse(location: Location, world_size: int, problems: Sequence[str]) -> None:
    if problems:
        title = f"of {world_size} shards some can't be named in it; save them, and then it again"
        raise CheckpointError(listed(title, problems), path=location.metadata)


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


def _see_that_all_are_there(location: Location, shards: Sequence[ShardEntry]) -> None:
    """Look once more, from when on no shard is replaced without notice."""
    problems = []
    for shard in shards:
        try:
            with open_shard(location, shard):
                pass
        except CheckpointError as error:
            refuse_blind(error)
            problems.append(f"rank {shard.rank}: {told(error)}")
    _refuse(location, len(shards), problems)


def _precision(shards: Sequence[ShardEntry]) -> str:
    """Return the type of all floating-point tensors, or that there are several or none."""
    dtypes = {tensor.dtype for shard in shards for tensor in shard.tensors}
    found = {dtype for dtype in dtypes if "float" in dtype or "complex" in dtype}
    return found.pop() if len(found) == 1 else "mixed" if found else "none"


def now() -> str:
    """Return the present moment as metadata state it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

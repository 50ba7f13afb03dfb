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
from collections.abc import Iterator, Sequence

from shardproof._base.arguments import count
from shardproof._base.messages import quoted, told
from shardproof._base.names import refusals
from shardproof.checkpoint.format._layout import (
    metadata_in_the_making,
    pruned_name,
    record_name,
)
from shardproof.checkpoint.format._metadata import (
    MAX_NUMBER,
    SCHEMA_VERSION,
    CheckpointMetadata,
    RankRecord,
    ShardEntry,
    Sharding,
    refuse,
    seal,
)
from shardproof.checkpoint.read._verifier import refuse_blind
from shardproof.checkpoint.save._attempt import Attempt, mixed
from shardproof.checkpoint.save._leftovers import remove_pending, sweep_leftovers
from shardproof.checkpoint.storage._protocol import CheckpointStorage
from shardproof.checkpoint.storage._reading import (
    open_shard,
    read_record,
    small_enough,
)
from shardproof.checkpoint.storage._storage import Location, location_of
from shardproof.errors import CheckpointError, CheckpointNotFoundError

_UNNAMED = "of {} shards some can't be part of it; save these, and then the metadata again"
_OVERTAKEN = (
    "another attempt saves a checkpoint of this prefix at the same time, and no checkpoint is made "
    "of two: let one of them save, or give each a prefix of its own"
)


def refuse_text(name: str, text: str, expected: str = "text") -> None:
    """Raise a `ValueError` unless a text can be written in UTF-8, as records and metadata are."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{name}: expected {expected} in Unicode, found {quoted(text)}")


def place_to_save(
    prefix: str | os.PathLike[str], storage: CheckpointStorage | None, step: int | None
) -> Location:
    """Return where a checkpoint goes; refuse what a reader would refuse, and any check with it."""
    if step is not None:
        count("step", step, 0, MAX_NUMBER)
    location = location_of(prefix, storage)
    refuse_text("prefix", location.name, "a name")
    for _, name, reason in refusals([location.name]):
        raise ValueError(f"prefix: no checkpoint can be called {quoted(name)}: {reason}")
    return location


def clear_way(location: Location, *, overwrite: bool) -> None:
    """Give up a checkpoint that is there, if it may be, and the remains of a removed one."""
    storage, pruned = location.storage, location.beside(pruned_name(location.name))
    if storage.look_up(location.metadata) is not None:
        if not overwrite:
            raise already_there(location)
        storage.remove(location.metadata, sync=True)
    if storage.look_up(pruned) is not None:
        storage.remove(pruned)


def already_there(location: Location) -> CheckpointError:
    """Return the error that refuses to replace a checkpoint."""
    problem = (
        "there is a checkpoint already: save under another prefix, or give overwrite=True, "
        "which gives it up before the new one is whole"
    )
    return CheckpointError(problem, path=location.metadata)


@contextlib.contextmanager
def overtaken(path: str) -> Iterator[None]:
    """Raise the `CheckpointError` that says that another attempt took a pending file away."""
    try:
        yield
    except (FileNotFoundError, FileExistsError) as error:
        raise CheckpointError(_OVERTAKEN, path=path) from error


def refuse_newer(location: Location, *, overwrite: bool) -> None:
    """See that no checkpoint was made while a shard was written, and that none is made without it.

    One that was made meanwhile is not given up even where the one before it was.
    """
    making = location.beside(metadata_in_the_making(location.name))
    if location.storage.look_up(making) is not None:
        location.storage.remove(making)
    if overwrite and location.storage.look_up(location.metadata) is not None:
        raise CheckpointError(_OVERTAKEN, path=location.metadata)
    clear_way(location, overwrite=False)


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
        raise CheckpointError(_OVERTAKEN, path=location.metadata) from error


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

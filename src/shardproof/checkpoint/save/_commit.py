"""Make checkpoints: of a prefix at most one attempt makes one, and of its own shards alone.

A process that gives a shard its name takes the seals of others away first, and then sees that there
is no checkpoint. A process that makes a checkpoint takes a seal first, takes the shards away that
are about to get their names, and then looks at those that have them. So of two processes that meet,
one finds that its own file is gone: a shard never takes the place of one that a checkpoint names.
Both also take away the folder into which a removal moves files (see `checkpoint._prune`): before a
shard gets its name, and before shards are looked at. Seals and such folders are in the gate of the
prefix, a folder of their own: so nobody who adds a shard lists those of all ranks.
"""

import contextlib
import datetime
import errno
import os
from collections.abc import Iterator, Sequence

from shardproof._base.arguments import count
from shardproof._base.messages import quoted, told
from shardproof._base.names import refusals
from shardproof.checkpoint.format._layout import (
    gate_name,
    new_own_name,
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
from shardproof.checkpoint.save._attempt import Attempt, mixed
from shardproof.checkpoint.save._leftovers import sweep_leftovers, take_away
from shardproof.checkpoint.storage._reading import open_shard, read_record, small_enough
from shardproof.checkpoint.storage._storage import (
    CheckpointStorage,
    Exclusive,
    Location,
    leave_gate,
    location_of,
    look_up,
)
from shardproof.checkpoint.verify._verifier import refuse_blind
from shardproof.errors import CheckpointError, CheckpointNotFoundError, UnsyncedError

_TRIES = 100
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
    """Return where a checkpoint goes; refuse a step that metadata can't hold, or a prefix's name.

    One whose files would be refused as names from outside would be written, and then block looks at
    its whole directory.
    """
    if step is not None:
        count("step", step, 0, MAX_NUMBER)
    location = location_of(prefix, storage)
    refuse_text("prefix", location.name, "a name")
    for _, name, reason in refusals([location.name]):
        raise ValueError(f"prefix: no checkpoint can be called {quoted(name)}: {reason}")
    return location


@contextlib.contextmanager
def being_added(location: Location, name: str, *, overwrite: bool, sync: bool) -> Iterator[int]:
    """Write a new file of a checkpoint in the making; give its descriptor.

    It is a `CheckpointError` if another attempt made a checkpoint meanwhile, or is about to. If it
    can't be written, what has the name is as it was.
    """
    storage, path = location.storage, location.beside(name)
    if not isinstance(storage, Exclusive):
        with storage.writer(path, sync=sync) as fd:
            yield fd
            _make_way(location, overwrite=overwrite)
        return
    pending = location.beside(new_own_name(location.name, "pending"))
    try:
        with before_it_is_there(), storage.writer(pending, sync=sync) as fd:
            yield fd
        take_away(location, "seal")
        clear_way(location, overwrite=overwrite)
        take_away(location, "removal")
        with _overtaken(location, path):
            storage.rename(pending, path, sync=sync)
    except BaseException:
        with contextlib.suppress(OSError):  # it goes when a checkpoint is there
            storage.remove(pending)
        raise


def _commit(location: Location, data: bytes, shards: Sequence[ShardEntry], *, sync: bool) -> None:
    """Give metadata their name, if nothing has it, and the shards that they name are there."""
    storage, path = location.storage, location.metadata
    if not isinstance(storage, Exclusive):
        _see_that_all_are_there(location, shards)
        _make_way(location, overwrite=False)
        storage.write(path, data, sync=sync)
        return
    with _overtaken(location, path), _being_sealed(location, storage, sync=sync) as fd:
        take_away(location, "pending", "removal")
        _see_that_all_are_there(location, shards)
        with open(fd, "wb", closefd=False) as file:
            file.write(data)


@contextlib.contextmanager
def _being_sealed(location: Location, storage: Exclusive, *, sync: bool) -> Iterator[int]:
    """Give the descriptor of the metadata to be, which have a name in the gate until they are."""
    seal = location.beside(new_own_name(location.name, "seal"))
    try:
        with contextlib.ExitStack() as stack:
            for number in range(_TRIES):
                storage.make_folder(location.beside(gate_name(location.name)))
                try:
                    writer = storage.exclusive_writer(location.metadata, seal, sync=sync)
                    fd = stack.enter_context(writer)
                    break
                except FileNotFoundError:  # somebody has left the gate, and removed it as empty
                    if number == _TRIES - 1:
                        raise
            yield fd
    finally:
        leave_gate(location)


@contextlib.contextmanager
def _overtaken(location: Location, path: str) -> Iterator[None]:
    """Raise the `CheckpointError` that says that another attempt was faster."""
    try:
        yield
    except CheckpointError:
        raise
    except FileExistsError as error:
        raise already_there(location) from error
    except FileNotFoundError as error:
        raise CheckpointError(_OVERTAKEN, path=path) from error


def clear_way(location: Location, *, overwrite: bool) -> None:
    """Do as `_make_way`; nothing is given up for a shard that a removal could move away."""
    if overwrite:
        take_away(location, "removal")
    _make_way(location, overwrite=overwrite)


def clear_way_and_sweep(location: Location, *, overwrite: bool, rank: int = 0) -> None:
    """Do as `clear_way`; where it refuses, another attempt may have left needless files.

    Of many ranks that are refused, one looks for those: to do it, the directory is listed.
    """
    try:
        clear_way(location, overwrite=overwrite)
    except CheckpointError:
        if rank:
            raise
        with contextlib.suppress(OSError):
            sweep_leftovers(location.storage, location.directory)
        raise


def _make_way(location: Location, *, overwrite: bool) -> None:
    """Give up a checkpoint that is there, if it may be, and the remains of a removed one."""
    storage, pruned = location.storage, location.beside(pruned_name(location.name))
    is_there = look_up(storage, location.metadata) is not None
    if is_there:
        if not overwrite:
            raise already_there(location)
        with before_it_is_there(), contextlib.suppress(FileNotFoundError):  # another rank did it
            storage.move(location.metadata, pruned)
    if is_there or look_up(storage, pruned) is not None:
        storage.remove(pruned)


@contextlib.contextmanager
def before_it_is_there() -> Iterator[None]:
    """Raise a plain `OSError` for `UnsyncedError`, which would say that what is saved is there."""
    try:
        yield
    except UnsyncedError as error:
        number = error.errno or errno.EIO
        raise OSError(number, os.strerror(number), error.path) from error


def already_there(location: Location) -> CheckpointError:
    """Return the error that refuses to replace a checkpoint."""
    problem = (
        "there is a checkpoint already: save under another prefix, or give overwrite=True, "
        "which gives it up before the new one is whole"
    )
    return CheckpointError(problem, path=location.metadata)


def make_checkpoint(
    location: Location,
    sharding: Sharding,
    attempt: Attempt,
    *,
    step: int,
    timestamp: str | None = None,
    sync: bool = True,
) -> str:
    """Make a checkpoint of the shards of one attempt; return the path of its metadata file.

    Raises as `MultiShardSaver.save_metadata`.
    """
    world_size, timestamp = sharding.shard_count, timestamp or now()
    clear_way_and_sweep(location, overwrite=False)
    shards = _recorded_shards(location, world_size, step, attempt)
    if not sharding.precision:
        dtypes = {tensor.dtype for shard in shards for tensor in shard.tensors}
        found = {dtype for dtype in dtypes if "float" in dtype or "complex" in dtype}
        precision = "mixed" if found else "none"
        if len(found) == 1:
            precision = found.pop()
        sharding = Sharding(sharding.strategy, world_size, precision)
    metadata = CheckpointMetadata(SCHEMA_VERSION, world_size, step, timestamp, sharding, shards, "")
    data = small_enough(seal(metadata), location.metadata)
    _commit(location, data, shards, sync=sync)
    for shard in shards:
        attempt.forget(location.beside(shard.file))
    # What is not needed now goes as far as possible; the next save or `prune` does the rest.
    for shard in shards:
        with contextlib.suppress(OSError):
            location.storage.remove(location.beside(record_name(location.name, shard.rank)))
    with contextlib.suppress(OSError):
        sweep_leftovers(location.storage, location.directory)
    with contextlib.suppress(OSError):
        location.storage.sweep(location.directory)
    return location.metadata


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
    refuse(_UNNAMED.format(len(shards)), problems, path=location.metadata)


def now() -> str:
    """Return the present moment as metadata state it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

"""Make checkpoints, at most one of a prefix, as docs/checkpoint-format.md has it: "Attempts"."""

import contextlib
import datetime
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

from shardproof._base import digest, files
from shardproof._base.arguments import count
from shardproof._base.messages import quoted, told
from shardproof._base.names import refusals
from shardproof.checkpoint import _format
from shardproof.checkpoint._format import CheckpointMetadata, RankRecord, ShardEntry, Sharding
from shardproof.checkpoint.read._verifier import refuse_blind
from shardproof.checkpoint.storage._location import Location, location_of, path_in, pending_prefix
from shardproof.checkpoint.storage._reading import (
    open_file,
    open_shard,
    read_metadata,
    read_record,
    small_enough,
)
from shardproof.checkpoint.storage._storage import CheckpointStorage
from shardproof.errors import CheckpointError, CheckpointNotFoundError

Algorithm = Literal["sha256", "sha256-tree", "blake3"]

_RECORD = re.compile(r"(.+)_shard_([0-9]{1,10})\.tensors\.json", re.DOTALL)
_PENDING = re.compile(r"(\.shardproof-[0-9a-f]{16}-pending-)[0-9a-f]{16}\.tmp")

OVERTAKEN = (
    "another attempt saves a checkpoint of this prefix at the same time, and no checkpoint is made "
    "of two: let one of them save, or give each a prefix of its own"
)

_UNNAMED = "of {} shards some can't be part of it; save these, and then the metadata again"
_GIVEN = "given"  # the source of what the caller said of an attempt
_SHOWN = 5


class Attempt:
    """How a saver writes, and which attempt it is a part of, as far as anything tells."""

    def __init__(
        self, algorithm: Algorithm, given: str | None = None, *, sync: bool = True
    ) -> None:
        digest.begin(algorithm, 0)  # one that is not installed is refused before any work
        self.algorithm, self.sync = algorithm, sync
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
            marks = [f"{quoted(text)} ({name})" for name, text in record.attempt.items()]
            found = ", ".join(marks[:_SHOWN]) or "one that is not named"
            return f"expected attempt {quoted(given)}, found {found}"
        return ""


def refuse_text(name: str, text: str, expected: str = "text") -> None:
    """Raise a `ValueError` unless a text can be written in UTF-8, as records and metadata are."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{name}: expected {expected} in Unicode, found {quoted(text)}")


def place_to_save(
    prefix: str | os.PathLike[str], storage: CheckpointStorage | None, step: int | None
) -> Location:
    """Return where a checkpoint goes; refuse what a reader would refuse, and any check with it."""
    if step is not None:
        count("step", step, 0, _format.MAX_NUMBER)
    location = location_of(prefix, storage)
    for _, name, reason in refusals([location.name]):
        raise ValueError(f"prefix: no checkpoint can be called {quoted(name)}: {reason}")
    return location


def clear_way(location: Location, *, overwrite: bool) -> None:
    """Give up a checkpoint that is there, if it may be, and the remains of a removed one."""
    storage = location.storage
    if storage.look_up(location.metadata) is not None:
        if not overwrite:
            problem = (
                "a checkpoint exists already: save under another prefix, or pass overwrite=True, "
                "which removes it before the new one is complete"
            )
            raise CheckpointError(problem, path=location.metadata)
        storage.remove(location.metadata, sync=True)
    if storage.look_up(location.pruned) is not None:
        storage.remove(location.pruned)


@contextlib.contextmanager
def overtaken(path: str) -> Iterator[None]:
    """Raise the `CheckpointError` that says that another attempt took a pending file away."""
    try:
        yield
    except (FileNotFoundError, FileExistsError) as error:
        raise CheckpointError(OVERTAKEN, path=path) from error


def refuse_newer(location: Location, *, overwrite: bool) -> None:
    """See that no checkpoint was made while a shard was written, and none is made without it."""
    # One that was made meanwhile is not given up even where the one before it was.
    making = location.in_the_making
    if location.storage.look_up(making) is not None:
        location.storage.remove(making)
    if overwrite and location.storage.look_up(location.metadata) is not None:
        raise CheckpointError(OVERTAKEN, path=location.metadata)
    clear_way(location, overwrite=False)


def sweep_leftovers(storage: CheckpointStorage, directory: str) -> None:
    """Remove records of whole checkpoints, files too late for their names, and what kills left."""
    records: defaultdict[str, list[int]] = defaultdict(list)
    pending: defaultdict[str, list[str]] = defaultdict(list)
    for name, _ in storage.list(directory):
        if found := _RECORD.fullmatch(name):
            records[found[1]].append(int(found[2]))
        elif found := _PENDING.fullmatch(name):
            pending[found[1]].append(name)
    # Only what was there before metadata are seen: a save that overwrites removes them first.
    for name, _ in storage.list(directory) if records or pending else ():
        prefix_name = name.removesuffix(_format.METADATA_END)
        if prefix_name not in {name, ""}:
            location = Location(storage, path_in(directory, prefix_name))
            with contextlib.suppress(CheckpointError):  # one that can't be read keeps its records
                _remove_records(location, sorted(records[prefix_name]))
            for file in pending[pending_prefix(prefix_name)]:
                storage.remove(location.beside(file))
    storage.sweep(directory)


def _remove_records(location: Location, ranks: list[int]) -> None:
    shards = dict(enumerate(read_metadata(location).shards)) if ranks else {}
    for rank in ranks:
        path = location.record(rank)
        with contextlib.suppress(CheckpointError), open_file(location.storage, path) as file:
            # One is empty if the power was cut before its bytes were on the disk: none is synced.
            if not file.size or read_record(location, rank).shard == shards.get(rank):
                location.storage.remove(path, only=file)


def make_checkpoint(
    location: Location,
    sharding: Sharding,
    attempt: Attempt,
    step: int,
    timestamp: str | None = None,
) -> str:
    """Make a checkpoint of the shards of one attempt; return the path of its metadata file."""
    world_size, timestamp = sharding.shard_count, timestamp or now()
    clear_way(location, overwrite=False)
    shards = _recorded_shards(location, world_size, step, attempt)
    if not sharding.precision:
        sharding = Sharding(sharding.strategy, world_size, _precision_of(shards))
    version = _format.SCHEMA_VERSION
    metadata = CheckpointMetadata(version, world_size, step, timestamp, sharding, shards, "")
    data = small_enough(_format.seal(metadata), location.metadata)
    place, making = location.metadata, location.in_the_making
    with overtaken(place):
        try:
            with location.storage.writer(place, making, sync=attempt.sync, replace=False) as fd:
                _remove_pending(location)
                _see_that_they_are_there(location, shards)
                files.write_at(fd, data, 0)
        except FileExistsError:
            clear_way(location, overwrite=False)
            raise
    # What is not needed now goes, as far as possible; the next save or `prune` does the rest.
    for shard in shards:
        attempt.tokens.pop(location.beside(shard.file), None)
        with contextlib.suppress(OSError):
            location.storage.remove(location.record(shard.rank))
    with contextlib.suppress(OSError):
        sweep_leftovers(location.storage, location.directory)
    return place


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
    first: dict[str, tuple[int, str]] = {}
    for record in records:
        for name, text in record.attempt.items():
            rank, expected = first.setdefault(name, (record.shard.rank, text))
            if text != expected:
                other = f"rank {record.shard.rank} of {quoted(text)} ({name})"
                problems.append(f"rank {rank} is of attempt {quoted(expected)} ({name}), {other}")
    _format.refuse(_UNNAMED.format(world_size), problems, path=location.metadata)
    return tuple(record.shard for record in records)


def _record_of(location: Location, rank: int, step: int, attempt: Attempt) -> RankRecord:
    path = location.record(rank)
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


def _remove_pending(location: Location) -> None:
    """Take the shards of a prefix away that are about to get their names."""
    begin, own = pending_prefix(location.name), location.in_the_making
    for name, is_directory in location.storage.list(location.directory):
        path = location.beside(name)
        if name.startswith(begin) and path != own and not is_directory:
            location.storage.remove(path)


def _see_that_they_are_there(location: Location, shards: Sequence[ShardEntry]) -> None:
    """Check shards once more, when they can't be replaced without notice any longer."""
    try:
        for shard in shards:
            with open_shard(location, shard):
                pass
    except CheckpointError as error:
        refuse_blind(error)
        raise CheckpointError(OVERTAKEN, path=location.metadata) from error


def now() -> str:
    """Return the present moment as metadata state it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

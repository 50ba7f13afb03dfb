"""What is in the way of a save: a checkpoint, another attempt, and what interrupted ones left."""

import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Iterator

from shardproof._base.messages import quoted
from shardproof._base.names import refusals
from shardproof._base.plain import count
from shardproof.checkpoint._format import MAX_NUMBER
from shardproof.checkpoint.format._layout import (
    metadata_in_the_making,
    metadata_name,
    pending_prefix,
    pruned_name,
    record_name,
)
from shardproof.checkpoint.storage._location import location_of
from shardproof.checkpoint.storage._reading import read_metadata, read_record
from shardproof.checkpoint.storage._storage import CheckpointStorage, Location, path_in
from shardproof.errors import CheckpointError

_RECORD = re.compile(r"(.+)_shard_([0-9]{1,10})\.tensors\.json", re.DOTALL)
_PENDING = re.compile(r"(\.shardproof-[0-9a-f]{16}-pending-)[0-9a-f]{16}\.tmp")

OVERTAKEN = (
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
            problem = (
                "a checkpoint exists already: save under another prefix, or pass overwrite=True, "
                "which removes it before the new one is complete"
            )
            raise CheckpointError(problem, path=location.metadata)
        storage.remove(location.metadata, sync=True)
    if storage.look_up(pruned) is not None:
        storage.remove(pruned)


@contextlib.contextmanager
def overtaken(path: str) -> Iterator[None]:
    """Raise the `CheckpointError` that says that another attempt took a pending file away."""
    try:
        yield
    except (FileNotFoundError, FileExistsError) as error:
        raise CheckpointError(OVERTAKEN, path=path) from error


def refuse_newer(location: Location, *, overwrite: bool) -> None:
    """See that no checkpoint was made while a shard was written, and that none is made without it.

    One that was made meanwhile is not given up even where the one before it was.
    """
    making = location.beside(metadata_in_the_making(location.name))
    if location.storage.look_up(making) is not None:
        location.storage.remove(making)
    if overwrite and location.storage.look_up(location.metadata) is not None:
        raise CheckpointError(OVERTAKEN, path=location.metadata)
    clear_way(location, overwrite=False)


def sweep_leftovers(storage: CheckpointStorage, directory: str) -> None:
    """Remove the records of whole checkpoints, and files that came too late for their names."""
    records: defaultdict[str, list[int]] = defaultdict(list)
    pending: defaultdict[str, list[str]] = defaultdict(list)
    for name, _ in storage.list(directory):
        if found := _RECORD.fullmatch(name):
            records[found[1]].append(int(found[2]))
        elif found := _PENDING.fullmatch(name):
            pending[found[1]].append(name)
    # Only what was there before metadata are seen: a save that overwrites removes them first.
    for name, _ in storage.list(directory) if records or pending else ():
        prefix_name = name.removesuffix(metadata_name(""))
        if prefix_name not in {name, ""}:
            location = Location(storage, path_in(directory, prefix_name))
            with contextlib.suppress(CheckpointError):  # one that can't be read keeps its records
                _remove_records(location, sorted(records[prefix_name]))
            for file in pending[pending_prefix(prefix_name)]:
                storage.remove(location.beside(file))


def _remove_records(location: Location, ranks: list[int]) -> None:
    shards = read_metadata(location).shards if ranks else ()
    for rank in ranks:
        with contextlib.suppress(CheckpointError):
            if read_record(location, rank).shard == shards[min(rank, len(shards) - 1)]:
                location.storage.remove(location.beside(record_name(location.name, rank)))


def remove_pending(location: Location) -> None:
    """Take the shards of a prefix away that are about to get their names."""
    begin, own = pending_prefix(location.name), metadata_in_the_making(location.name)
    for name, is_directory in location.storage.list(location.directory):
        if name.startswith(begin) and name != own and not is_directory:
            location.storage.remove(location.beside(name))

"""Remove what interrupted saves left beside whole checkpoints."""

import contextlib
import re
from collections import defaultdict

from shardproof.checkpoint.format._layout import (
    metadata_in_the_making,
    metadata_name,
    pending_prefix,
    record_name,
)
from shardproof.checkpoint.storage._protocol import CheckpointStorage
from shardproof.checkpoint.storage._reading import read_metadata, read_record
from shardproof.checkpoint.storage._storage import Location, path_in
from shardproof.errors import CheckpointError

_RECORD = re.compile(r"(.+)_shard_([0-9]{1,10})\.tensors\.json", re.DOTALL)
_PENDING = re.compile(r"(\.shardproof-[0-9a-f]{16}-pending-)[0-9a-f]{16}\.tmp")


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

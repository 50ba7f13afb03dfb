"""Remove what interrupted saves and removals left: records, seals, and folders of removals."""

import contextlib
import errno
import os
import re
import time
from collections import defaultdict

from shardproof.checkpoint.format._layout import (
    Kind,
    is_gate,
    metadata_name,
    own_prefix,
    record_name,
    removal_of,
)
from shardproof.checkpoint.storage._reading import read_metadata, read_record
from shardproof.checkpoint.storage._storage import (
    CheckpointStorage,
    Exclusive,
    Location,
    holding,
    in_gate,
    leave_gate,
    outside_gate,
    path_in,
)
from shardproof.errors import CheckpointError

_RECORD = re.compile(r"(.+)_shard_([0-9]{1,10})\.tensors\.json", re.DOTALL)
_ABOUT_TO_COME = re.compile(r"(\.shardproof-[0-9a-f]{16}-)(?:pending|seal)-[0-9a-f]{16}\.tmp")

_NO_FOLDER = (
    "expected a folder of files that were moved there to be removed, found {}: see what it is, and "
    "remove it"
)
_PAUSE = 0.1  # seconds


def sweep_leftovers(storage: CheckpointStorage, directory: str) -> None:
    """Remove what saves left beside whole checkpoints, or were too late to name.

    A record goes if it says of its shard what the metadata say; any other may be one of a save that
    has just begun. What is about to get its name goes where it can't: whose it is, is told.
    """
    records: defaultdict[str, list[int]] = defaultdict(list)
    coming: defaultdict[str, list[str]] = defaultdict(list)
    gates = _gates(storage, directory)
    in_gates = [name for names in gates.values() for name in names]
    for name in [*_files(storage, directory), *in_gates]:
        if found := _RECORD.fullmatch(name):
            records[found[1]].append(int(found[2]))
        elif found := _ABOUT_TO_COME.fullmatch(os.path.basename(name)):
            coming[found[1]].append(name)
    # Only what was there before metadata are seen: a save that overwrites removes them first.
    for name in _files(storage, directory) if records or coming else ():
        prefix_name = name.removesuffix(metadata_name(""))
        if prefix_name in {name, ""}:
            continue
        location = Location(storage, path_in(directory, prefix_name))
        # A checkpoint that can't be read keeps its records, and so does a record itself.
        with contextlib.suppress(CheckpointError):
            shards = read_metadata(location).shards if records[prefix_name] else ()
            for rank in sorted(records[prefix_name]):
                with contextlib.suppress(CheckpointError):
                    if read_record(location, rank).shard == shards[min(rank, len(shards) - 1)]:
                        storage.remove(location.beside(record_name(prefix_name, rank)))
        for file in coming[own_prefix(prefix_name)]:
            storage.remove(location.beside(file))
    for gate in gates:
        leave_gate(Location(storage, path_in(directory, f"{gate}/")))


def _gates(storage: CheckpointStorage, directory: str) -> dict[str, list[str]]:
    """Return what is in the gates of a directory, by names to find it from there."""
    return {
        gate: [f"{gate}/{name}" for name in _files(storage, path_in(directory, gate))]
        for gate, is_directory in storage.list(directory)
        if is_directory and is_gate(gate)
    }


def _files(storage: CheckpointStorage, directory: str) -> list[str]:
    return sorted(name for name, is_directory in storage.list(directory) if not is_directory)


def take_away(location: Location, *kinds: Kind) -> None:
    """Remove the temporary files of some kinds, and folders of removals.

    A folder that stays is a `CheckpointError`: shards could be moved into it still. Only for what
    is pending the whole directory is listed, in which there are the shards of all ranks.
    """
    found = in_gate(location)
    if "pending" in kinds:  # and what versions without gates left
        found += location.storage.list(location.directory)
    prefixes = tuple(own_prefix(location.name, kind) for kind in kinds)
    for name, is_directory in found:
        own = os.path.basename(name)
        if not own.startswith(prefixes):
            continue
        if not is_directory:
            location.storage.remove(location.beside(name))
        elif removal_of(own, is_directory=True):
            remove_folder(Location(location.storage, location.beside(name)))


def remove_folder(location: Location) -> None:
    """Remove the folder of a removal, with the files that were moved into it meanwhile."""
    folder, n_in_vain = location.path, 0
    try:
        with holding(location.storage, outside_gate(location)) as held:
            while isinstance(held, Exclusive) and not held.remove_directory(folder):
                if n_in_vain == 2:
                    found = "one that stays not empty though nothing in it can be moved"
                    raise CheckpointError(_NO_FOLDER.format(found), path=folder)
                if _empty(held, folder):
                    n_in_vain = 0
                else:  # others may have moved what was there, and something else came
                    n_in_vain += 1
                    time.sleep(_PAUSE)
    except (IsADirectoryError, NotADirectoryError) as error:
        found = "a directory in it or something else in its place"
        raise CheckpointError(_NO_FOLDER.format(found), path=folder) from error


def _empty(storage: CheckpointStorage, folder: str) -> bool:
    """Remove the files in a folder; say whether any could be moved."""
    # NFS leaves a file that a process reads where it was removed: in the folder it would stay.
    outside, is_any_moved = f"{folder}.tmp", False
    for name, is_directory in storage.list(folder):
        if is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), f"{folder}/{name}")
        if isinstance(storage, Exclusive):
            with contextlib.suppress(FileNotFoundError):
                storage.rename(f"{folder}/{name}", outside, sync=False)
                is_any_moved = True
        storage.remove(outside)
    return is_any_moved

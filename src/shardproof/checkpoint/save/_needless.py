"""What a kill left beside a checkpoint: notes, seals, and what came too late to get a name."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Sequence

from shardproof.checkpoint.format._layout import metadata_name, note_name, own_prefix
from shardproof.checkpoint.storage._metadata_file import read_metadata, read_note
from shardproof.checkpoint.storage._storage import CheckpointStorage, Place
from shardproof.errors import CheckpointError

__all__ = ["sweep_needless"]

_NOTE = re.compile(r"(.+)_shard_([0-9]{1,10})\.tensors\.json", re.DOTALL)
_ABOUT_TO_COME = re.compile(r"(\.shardproof-[0-9a-f]{16}-)(?:pending|seal)-[0-9a-f]{16}\.tmp")


def sweep_needless(storage: CheckpointStorage, directory: str) -> None:
    """Remove what was left by those who made the checkpoints that are there, or came too late.

    A note goes if it says of its shard what the metadata say; any other may be one of a save that
    has just begun. What is about to get its name goes where it can't: whose it is, is told.

    Raises:
        OSError: Something can't be listed or removed.
    """
    notes: defaultdict[str, list[int]] = defaultdict(list)
    coming: defaultdict[str, list[str]] = defaultdict(list)
    for name in _files(storage, directory):
        if found := _NOTE.fullmatch(name):
            notes[found[1]].append(int(found[2]))
        elif found := _ABOUT_TO_COME.fullmatch(name):
            coming[found[1]].append(name)
    # Only what was there before metadata are seen: who is told to overwrite removes them first.
    for name in _files(storage, directory) if notes or coming else ():
        prefix_name = name.removesuffix(metadata_name(""))
        if prefix_name not in {name, ""}:
            place = Place(storage, f"{directory.rstrip('/')}/{prefix_name}")
            _remove_notes(place, sorted(notes[prefix_name]))
            for file in coming[own_prefix(prefix_name)]:
                storage.remove(place.beside(file))


def _files(storage: CheckpointStorage, directory: str) -> list[str]:
    return sorted(name for name, is_directory in storage.entries(directory) if not is_directory)


def _remove_notes(place: Place, ranks: Sequence[int]) -> None:
    with contextlib.suppress(CheckpointError):  # a checkpoint that can't be read keeps its notes
        shards = read_metadata(place).shards if ranks else ()
        for rank in ranks:
            with contextlib.suppress(CheckpointError):  # so does a note
                if read_note(place, rank).shard == shards[min(rank, len(shards) - 1)]:
                    place.storage.remove(place.beside(note_name(place.name, rank)))

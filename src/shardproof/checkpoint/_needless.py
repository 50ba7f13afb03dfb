"""Notes and seals that a kill behind the moment of the commit left."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Sequence

from shardproof.checkpoint._layout import metadata_name, note_name, seal_prefix
from shardproof.checkpoint._metadata_file import read_metadata, read_note
from shardproof.checkpoint._storage import CheckpointStorage, Place
from shardproof.errors import CheckpointError

__all__ = ["sweep_needless"]

_NOTE = re.compile(r"(.+)_shard_([0-9]{1,10})\.tensors\.json", re.DOTALL)
_SEAL_PREFIX = re.compile(r"\.shardproof-[0-9a-f]{16}-seal-")


def sweep_needless(storage: CheckpointStorage, directory: str) -> None:
    """Remove what was left by those who made the checkpoints that are there.

    A note goes if it says of its shard what the metadata say; any other may be one of a save that
    has just begun.

    Raises:
        OSError: Something can't be listed or removed.
    """
    notes: defaultdict[str, list[int]] = defaultdict(list)
    seals: defaultdict[str, list[str]] = defaultdict(list)
    names = sorted(name for name, is_directory in storage.entries(directory) if not is_directory)
    for name in names:
        if found := _NOTE.fullmatch(name):
            notes[found[1]].append(int(found[2]))
        elif found := _SEAL_PREFIX.match(name):
            seals[found[0]].append(name)
    if not notes and not seals:
        return
    for name in names:
        prefix_name = name.removesuffix(metadata_name(""))
        if prefix_name not in {name, ""}:
            place = Place(storage, f"{directory.rstrip('/')}/{prefix_name}")
            _remove_notes(place, notes[prefix_name])
            for seal in seals[seal_prefix(prefix_name)]:
                storage.remove(place.beside(seal))


def _remove_notes(place: Place, ranks: Sequence[int]) -> None:
    with contextlib.suppress(CheckpointError):  # a checkpoint that can't be read keeps its notes
        shards = read_metadata(place).shards if ranks else ()
        for rank in ranks:
            with contextlib.suppress(CheckpointError):  # so does a note
                if read_note(place, rank).shard == shards[min(rank, len(shards) - 1)]:
                    place.storage.remove(place.beside(note_name(place.name, rank)))

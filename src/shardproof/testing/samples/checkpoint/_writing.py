"""The one writer of checkpoints.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import os
from pathlib import Path

from shardproof.testing.samples.checkpoint._content import checkpoint_entry, checkpoint_shard_bytes
from shardproof.testing.samples.checkpoint._harm import harmed_shard
from shardproof.testing.samples.checkpoint._layout import CheckpointLayout
from shardproof.testing.samples.checkpoint._metadata import (
    checkpoint_metadata_bytes,
    elsewhere,
    signed,
)
from shardproof.testing.samples.checkpoint._states import (
    CheckpointMetadataState,
    CheckpointShardState,
)
from shardproof.testing.samples.saev._states import ShardState, apply_states

__all__ = ["write_checkpoint"]


def write_checkpoint(value: CheckpointLayout, directory: str | os.PathLike[str]) -> Path:
    """Write a checkpoint, and return its prefix.

    Args:
        value: What to write.
        directory: Where; made if need be. Other checkpoints may be there, under other prefixes.

    Returns:
        The absolute path with which the paths of all its files begin.

    Raises:
        FileExistsError: A checkpoint of this prefix, or a part of one, is there already.
        OSError: It could not be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as base:
        ...     prefix = write_checkpoint(checkpoint_layout(2, missing_ranks=[1]), base)
        ...     prefix.name, sorted(os.listdir(base))
        ('model', ['model.metadata.json', 'model_shard_0.shard'])
    """
    root = Path(os.path.abspath(directory))
    root.mkdir(parents=True, exist_ok=True)
    paths = [root / name for name in value.shard_names]
    for rank, path in enumerate(paths):
        _write(path, harmed_shard(value, rank))
    apply_states(paths, [_FILES.get(state, ShardState.OK) for state in value.states])
    _write_metadata(value, root)
    _write_beside(value, root)
    return root / value.prefix


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)


_FILES = {
    CheckpointShardState.MISSING: ShardState.MISSING,
    CheckpointShardState.EMPTY: ShardState.EMPTY,
    CheckpointShardState.TRUNCATED: ShardState.TRUNCATED,
    CheckpointShardState.EXTENDED: ShardState.EXTENDED,
    CheckpointShardState.DIRECTORY: ShardState.DIRECTORY,
    CheckpointShardState.OUTSIDE: ShardState.OUTSIDE,
    CheckpointShardState.FIFO: ShardState.FIFO,
    CheckpointShardState.UNREADABLE: ShardState.UNREADABLE,
    CheckpointShardState.SWAPPED: ShardState.SWAPPED,
}
"""What becomes of a file is what becomes of any shard's."""

_METADATA_FILES = {
    CheckpointMetadataState.DIRECTORY: ShardState.DIRECTORY,
    CheckpointMetadataState.UNREADABLE: ShardState.UNREADABLE,
}


def _write_metadata(value: CheckpointLayout, root: Path) -> None:
    text = checkpoint_metadata_bytes(value)
    pruned = ".pruned" if value.metadata is CheckpointMetadataState.PRUNED else ""
    path = root / (value.metadata_name + pruned)
    if text is not None:
        _write(path, text)
        apply_states([path], [_METADATA_FILES.get(value.metadata, ShardState.OK)])


def _write_beside(value: CheckpointLayout, root: Path) -> None:
    if value.metadata is CheckpointMetadataState.UNFINISHED:
        for rank, name in enumerate(value.note_names):
            note = {"step": value.step, "shard": checkpoint_entry(value, rank)}
            _write(root / name, signed(note))
    if value.metadata is CheckpointMetadataState.ESCAPING:
        path = Path(os.path.normpath(root / elsewhere(value)))
        path.parent.mkdir(exist_ok=True)
        _write(path, checkpoint_shard_bytes(value, value.world_size - 1))

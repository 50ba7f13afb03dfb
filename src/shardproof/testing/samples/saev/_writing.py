"""The one writer of sample directories.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import os
from pathlib import Path

from shardproof.testing.samples.saev._content import content, directory_name, manifest_files
from shardproof.testing.samples.saev._layout import Layout
from shardproof.testing.samples.saev._states import apply_states

__all__ = ["write_layout"]


def write_layout(value: Layout, base: str | os.PathLike[str]) -> Path:
    """Write a shards directory that saev's own reader accepts, and return its path.

    What is in its files, before any damage, says `content`.

    Args:
        value: What to write.
        base: The directory below which ``saev/shards/<hash>`` is made; made itself if need be.

    Returns:
        ``<base>/saev/shards/<hash>``, absolute.

    Raises:
        FileExistsError: A directory of this shape is there already.
        OSError: It could not be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as base:
        ...     path = write_layout(layout(n_shards=3), base)
        ...     path.parts[-3:-1], len(list(path.glob("acts*.bin")))
        (('saev', 'shards'), 3)
    """
    root = Path(os.path.abspath(base), "saev", "shards", directory_name(value))
    root.mkdir(parents=True)
    for name, manifest in manifest_files(value).items():
        (root / name).write_bytes(manifest)
    for name in value.file_names:
        (root / name).write_bytes(content(value, name))
    apply_states([root / name for name in value.shard_names], value.states)
    return root

"""Find the shards directories of a tree."""

import itertools
import os
from collections.abc import Iterator

from shardproof._base.names import real_root
from shardproof._base.opening import is_never_a_shard, tree
from shardproof.formats._registry import claims

__all__ = ["find"]


def find(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the shards directories at and below a path, sorted; nothing below one of them.

    Hidden directories are left out, and others that never hold shards; links are not followed. A
    directory that two formats claim is one, and so is one that may not be read: to validate it says
    why.

    Raises:
        OSError: A directory could not be looked at.

    Example:
        >>> from shardproof import formats
        >>> [found] = formats.find(shards_dir.parent)
        >>> found == str(shards_dir)
        True
    """
    for here, folders, _ in tree(real_root(path)):
        try:
            is_one = bool(claims(here))
        except PermissionError:
            is_one = True
        if is_one:
            folders.clear()
            yield here
        else:
            folders[:] = itertools.filterfalse(is_never_a_shard, folders)

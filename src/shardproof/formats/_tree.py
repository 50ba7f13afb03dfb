"""Find the shards directories of a tree."""

import contextlib
import itertools
import os
from collections.abc import Iterator

from shardproof._base.names import real_root
from shardproof._base.opening import is_never_a_shard, tree
from shardproof.errors import ManifestError
from shardproof.formats._registry import claims


def find(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the shards directories at and below a path, sorted; nothing below one that is read.

    Hidden directories are left out, and others that never hold shards; links are not followed. A
    directory that two formats claim is one, and so is one that could not be looked at, or whose
    manifest file is torn or gone: to validate it says why.

    Raises:
        OSError: The path itself could not be found out.

    Example:
        >>> from shardproof import formats
        >>> [found] = formats.find(shards_dir.parent)
        >>> found == str(shards_dir)
        True
    """
    todo = [real_root(path)]
    while todo:
        here, is_one, folders = todo.pop(), True, list[str]()
        with contextlib.suppress(ManifestError, OSError):
            folders = next(tree(here))[1]
            is_one = bool(claims(here))
            folders = [] if is_one else folders
        if is_one:
            yield here
        shown = itertools.filterfalse(is_never_a_shard, reversed(folders))
        todo += [os.path.join(here, name) for name in shown]

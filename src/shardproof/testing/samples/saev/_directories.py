"""Sample directories with an end: for ``@given``, and what the pytest fixtures hand out."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Unpack

from shardproof.testing.samples._capabilities import without_root_override
from shardproof.testing.samples.saev._layout import Layout, LayoutKeywords, layout_of
from shardproof.testing.samples.saev._states import ShardState
from shardproof.testing.samples.saev._writing import write_layout

__all__ = ["MakeShardsDir", "layout_of_maker", "restore_modes", "shards_dir", "shards_dir_maker"]


class MakeShardsDir(Protocol):
    """What the fixtures ``make_shards_dir`` and ``shards_dir_factory`` give: call it for a path."""

    def __call__(
        self,
        n_shards: int = 3,
        *,
        empty_shards: Iterable[int] | None = None,
        missing_shards: Iterable[int] | None = None,
        unreadable_shards: Iterable[int] | None = None,
        directory_shards: Iterable[int] | None = None,
        **keywords: Unpack[LayoutKeywords],
    ) -> Path:
        """Write a new shards directory of saev and return its path.

        Args:
            n_shards: How many shards the manifest lists.
            empty_shards: Indices of shards of 0 bytes; None, as for all of these, means none.
            missing_shards: Indices of shards that are listed and not there.
            unreadable_shards: Indices of shards that nobody may read (``chmod 0``).
            directory_shards: Indices of shards in whose place there is a directory.
            **keywords: Those of `layout`: other states (``dangling``, ``fifo``, ``truncated``, ...)
                and how large it is (``examples_per_shard``, ``n_examples``, ``layers``, ...).

        Returns:
            An absolute path that ends in ``saev/shards/<hash>``; each call has its own.

        Raises:
            TypeError: An argument that it does not have; a count or an index that is no integer.
            ValueError: An index out of range or named twice, or a shape that no directory can have.
        """
        ...


@contextlib.contextmanager
def shards_dir(value: Layout) -> Iterator[Path]:
    """Write a shards directory in a temporary place, and remove it at the end.

    For use inside a property test, where a fixture would be shared by all examples. A layout with
    unreadable shards is unreadable for root too, inside the context (`without_root_override`).

    Args:
        value: What to write; see `layout`.

    Yields:
        The directory's absolute path, which ends in ``saev/shards/<hash>``.

    Example:
        >>> with shards_dir(layout(n_shards=3, missing=[1])) as path:
        ...     sorted(os.listdir(path))
        ['acts000000.bin', 'acts000002.bin', 'metadata.json', 'shards.json']
    """
    with contextlib.ExitStack() as stack:
        base = stack.enter_context(tempfile.TemporaryDirectory(prefix="shardproof-"))
        stack.callback(restore_modes, base)
        if value.indices(ShardState.UNREADABLE):
            stack.enter_context(without_root_override())
        yield write_layout(value, base)


@contextlib.contextmanager
def shards_dir_maker(
    new_base: Callable[[], Path], *, drop_root_override: bool
) -> Iterator[MakeShardsDir]:
    """Yield what the fixtures give; restore the modes of all that it made at the end.

    Args:
        new_base: Makes a new, empty directory; called for each shards directory.
        drop_root_override: Whether the first directory with unreadable shards makes the rest of the
            context one `without_root_override`.
    """
    with contextlib.ExitStack() as stack:

        def make(n_shards: int = 3, **keywords: Any) -> Path:
            value = layout_of_maker({"n_shards": n_shards, **keywords})
            base = new_base()
            stack.callback(restore_modes, base)
            if drop_root_override and value.indices(ShardState.UNREADABLE):
                stack.enter_context(without_root_override())
            return write_layout(value, base)

        yield make


def layout_of_maker(keywords: Mapping[str, Any]) -> Layout:
    """Return the layout that is meant by the keywords of `MakeShardsDir`."""
    return layout_of(
        "make_shards_dir",
        keywords,
        missing_shards=ShardState.MISSING,
        empty_shards=ShardState.EMPTY,
        unreadable_shards=ShardState.UNREADABLE,
        directory_shards=ShardState.DIRECTORY,
    )


def restore_modes(path: str | os.PathLike[str]) -> None:
    """Give the owner back read, write and search on a directory and on everything below it.

    Symbolic links are not followed. Whoever waits at a named pipe is let go: a thread that does
    would keep the process from ending.

    Args:
        path: The directory; one that no longer exists is no error.

    Raises:
        OSError: A mode could not be changed, or nobody could look.
    """
    if not _is_directory(path):
        return
    _allow(path, 0o700)
    with os.scandir(path) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            restore_modes(entry.path)
        else:
            _allow(entry.path, 0o600)
            _let_go(entry.path)


def _is_directory(path: str | os.PathLike[str]) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _allow(path: str | os.PathLike[str], bits: int) -> None:
    # A symbolic link has all bits itself, so it is left alone.
    mode = stat.S_IMODE(os.stat(path, follow_symlinks=False).st_mode)
    if mode & bits != bits:
        os.chmod(path, mode | bits)


def _let_go(path: str) -> None:
    if stat.S_ISFIFO(os.stat(path, follow_symlinks=False).st_mode):
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))  # a writer, for a moment

"""What can become of a shard, and how a whole file is brought there.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import enum
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["ShardState", "apply_states", "temporary_of"]


class ShardState(enum.StrEnum):
    """What became of one shard."""

    OK = "ok"
    """Whole."""
    MISSING = "missing"
    """Listed and not there, as after a purge of a scratch file system."""
    EMPTY = "empty"
    """0 bytes."""
    UNREADABLE = "unreadable"
    """Nobody may read it (``chmod 0``)."""
    DIRECTORY = "directory"
    """A directory in its place."""
    DANGLING = "dangling"
    """A symbolic link to nothing."""
    LOOP = "loop"
    """A symbolic link to itself."""
    OUTSIDE = "outside"
    """A symbolic link to a whole file outside the shards directory."""
    LINKED = "linked"
    """A symbolic link to a whole file inside the shards directory: nothing is wrong with it."""
    FIFO = "fifo"
    """A named pipe; whoever opens it without O_NONBLOCK waits for a writer (fifo(7)): so read what
    has one inside a `time_limit`."""
    SOCKET = "socket"
    """A socket; open(2) answers ENXIO."""
    TRUNCATED = "truncated"
    """Cut in the middle, inside a value."""
    EXTENDED = "extended"
    """One byte longer than it was."""
    FLIPPED = "flipped"
    """One bit in the middle is another; the size is right."""
    SWAPPED = "swapped"
    """Has the bytes of another: the swapped shards of a directory hand theirs on in a ring."""
    SPARSE = "sparse"
    """Has its size and was never written: one hole, which reads as zeros."""
    LEFTOVER = "leftover"
    """Whole, with a half-written temporary file beside it: nothing is wrong with it."""
    UNFINISHED = "unfinished"
    """Only the half-written temporary file is there, under its temporary name."""


def apply_states(paths: Sequence[Path], states: Sequence[ShardState]) -> None:
    """Bring whole files into their states.

    It knows nothing of what is in the files, so it serves every format. Beside the files, a
    directory ``linked`` holds what linked ones link to, ``<directory>-elsewhere`` what those link
    to that lead outside, and ``<name>.tmp`` is a temporary file.

    Args:
        paths: The shards, whole, in one directory.
        states: The state of each.

    Raises:
        ValueError: Another number of states, or one single swapped shard.
        OSError: A file could not be changed.
    """
    swapped = [path for path, state in _pairs(paths, states) if state is ShardState.SWAPPED]
    _refuse_single(swapped)
    _hand_on(swapped)
    for path, state in _pairs(paths, states):
        _CHANGES[state](path)


def _pairs(paths: Sequence[Path], states: Sequence[ShardState]) -> "zip[tuple[Path, ShardState]]":
    if len(paths) != len(states):
        raise ValueError(f"states: expected {len(paths)}, one a file, found {len(states)}")
    return zip(paths, states, strict=True)


def _refuse_single(swapped: Sequence[object]) -> None:
    if len(swapped) == 1:
        raise ValueError("swapped: expected none, or two or more, found one")


def _hand_on(paths: Sequence[Path]) -> None:
    """Each file gets the name of the one before it, and the first that of the last."""
    if paths:
        aside = temporary_of(paths[0])
        os.rename(paths[0], aside)
        for path, following in zip(paths, [*paths[1:], aside], strict=True):
            os.rename(following, path)


def temporary_of(path: Path) -> Path:
    """Return under which name a writer that was killed leaves a file."""
    return path.with_name(path.name + ".tmp")


def _leave(_path: Path) -> None:
    pass


def _unlink(path: Path) -> None:
    os.unlink(path)  # looked up when it is called: under pyfakefs it is another


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _forbid(path: Path) -> None:
    os.chmod(path, 0)


def _make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _dangle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name + ".gone")


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _move_outside(path: Path) -> None:
    # The directory's own name begins this one's: a comparison of text takes it for inside.
    elsewhere = path.parent.with_name(path.parent.name + "-elsewhere")
    _link_to(path, elsewhere / path.name)


def _move_inside(path: Path) -> None:
    _link_to(path, path.parent / "linked" / path.name)


def _link_to(path: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    os.replace(path, target)
    path.symlink_to(os.path.relpath(target, path.parent))


def _make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _make_socket(path: Path) -> None:
    # Not bind(2): the path of a test's directory is often longer than its 107 bytes.
    path.unlink()
    os.mknod(path, stat.S_IFSOCK | 0o600)


def _cut(path: Path) -> None:
    size = path.stat().st_size
    os.truncate(path, min(size // 2 + 1, size - 1))


def _extend(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def _flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def _unwrite(path: Path) -> None:
    size = path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size)


def _leave_temporary(path: Path) -> None:
    whole = path.read_bytes()
    temporary_of(path).write_bytes(whole[: len(whole) // 2])


def _leave_unfinished(path: Path) -> None:
    _leave_temporary(path)
    path.unlink()


_CHANGES: dict[ShardState, Callable[[Path], None]] = {
    ShardState.OK: _leave,
    ShardState.MISSING: _unlink,
    ShardState.EMPTY: _empty,
    ShardState.UNREADABLE: _forbid,
    ShardState.DIRECTORY: _make_directory,
    ShardState.DANGLING: _dangle,
    ShardState.LOOP: _loop,
    ShardState.OUTSIDE: _move_outside,
    ShardState.LINKED: _move_inside,
    ShardState.FIFO: _make_fifo,
    ShardState.SOCKET: _make_socket,
    ShardState.TRUNCATED: _cut,
    ShardState.EXTENDED: _extend,
    ShardState.FLIPPED: _flip,
    ShardState.SWAPPED: _leave,  # all at once, before the others
    ShardState.SPARSE: _unwrite,
    ShardState.LEFTOVER: _leave_temporary,
    ShardState.UNFINISHED: _leave_unfinished,
}

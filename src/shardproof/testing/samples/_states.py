"""What can become of a shard, and how a whole file is brought there."""

import enum
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path


class ShardState(enum.StrEnum):
    """What became of one shard: docs/testing-kit.md has the table of what is found."""

    OK = "ok"  # whole
    MISSING = "missing"  # listed and not there, as after a purge of a scratch file system
    EMPTY = "empty"  # 0 bytes
    UNREADABLE = "unreadable"  # no user may read it (chmod 0)
    DIRECTORY = "directory"  # a directory in its place
    DANGLING = "dangling"  # a symbolic link to nothing
    LOOP = "loop"  # a symbolic link to itself
    OUTSIDE = "outside"  # a symbolic link to a whole file outside the shards directory
    LINKED = "linked"  # a symbolic link to a whole file inside it: nothing is wrong
    FIFO = "fifo"  # a named pipe: to open it without O_NONBLOCK waits for a writer
    SOCKET = "socket"  # a socket; open(2) answers ENXIO
    TRUNCATED = "truncated"  # cut in the middle, inside a value
    EXTENDED = "extended"  # one byte longer than it was
    FLIPPED = "flipped"  # one bit in the middle is another; the size is right
    SWAPPED = "swapped"  # has the bytes of another: the swapped ones hand theirs on in a ring
    SPARSE = "sparse"  # has its size and was never written: one hole, which reads as zeros
    LEFTOVER = "leftover"  # whole, beside a half-written temporary file: nothing is wrong
    UNFINISHED = "unfinished"  # only a half-written file is there, under its temporary name


def apply_states(paths: Sequence[Path], states: Sequence[str], *, root: Path | None = None) -> None:
    """Bring whole files into their states.

    It knows nothing of what is in the files, so it serves every format. Beside the files, a
    directory ``linked`` holds what linked ones link to, and ``<name>.tmp`` is a temporary file;
    beside the directory, ``<directory>-elsewhere`` holds what those link to that lead outside.

    Args:
        paths: The shards, whole, in one directory.
        states: The state of each.
        root: The directory out of which links lead, where the shards are in a folder of it.

    Raises:
        ValueError: Another number of states, or one single swapped shard.
        OSError: A file could not be changed.
    """
    if len(paths) != len(states):
        raise ValueError(f"states: expected {len(paths)}, one a file, found {len(states)}")
    pairs = [*zip(paths, map(ShardState, states), strict=True)]
    swapped = [path for path, state in pairs if state is ShardState.SWAPPED]
    if len(swapped) == 1:
        raise ValueError("swapped: expected none, or two or more, found one")
    if swapped:  # each file gets the name of the one before it, and the first that of the last
        aside = temporary_of(swapped[0])
        os.rename(swapped[0], aside)
        for path, following in zip(swapped, [*swapped[1:], aside], strict=True):
            os.rename(following, path)
    for path, state in pairs:
        if state in {ShardState.OUTSIDE, ShardState.LINKED}:
            _link(path, state, root or path.parent)
        elif state in _INSTEAD:
            path.unlink()
            _INSTEAD[state](path)
        elif state is not ShardState.OK:
            _change(path, state)


def flip_bit(path: Path, byte: int, bit: int = 0) -> None:
    """Make one bit of a file another."""
    with path.open("r+b") as file:
        file.seek(byte)
        (before,) = file.read(1)
        file.seek(byte)
        file.write(bytes([before ^ 1 << bit]))


def temporary_of(path: Path) -> Path:
    """Return under which name a writer that was killed leaves a file."""
    return path.with_name(path.name + ".tmp")


_INSTEAD: dict[ShardState, Callable[[Path], object]] = {
    ShardState.MISSING: lambda _: None,
    ShardState.DIRECTORY: lambda path: path.mkdir(),
    ShardState.DANGLING: lambda path: path.symlink_to(path.name + ".gone"),
    ShardState.LOOP: lambda path: path.symlink_to(path.name),
    ShardState.FIFO: lambda path: os.mkfifo(path),  # noqa: PLW0108 - pyfakefs replaces os
    # Not bind(2): the path of a test's directory is often longer than its 107 bytes.
    ShardState.SOCKET: lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
}
"""What puts something else in the place of a file."""


def _link(path: Path, state: ShardState, root: Path) -> None:
    """Move a file, and put a link to it in its place."""
    # Its name begins as the directory's: a comparison of text takes it for inside.
    elsewhere = root.with_name(root.name + "-elsewhere")
    target = (elsewhere if state is ShardState.OUTSIDE else path.parent / "linked") / path.name
    target.parent.mkdir(exist_ok=True)
    os.replace(path, target)
    path.symlink_to(os.path.relpath(target, path.parent))


def _change(path: Path, state: ShardState) -> None:
    """Change a file's mode or its bytes."""
    size = path.stat().st_size
    match state:
        case ShardState.EMPTY:
            os.truncate(path, 0)
        case ShardState.UNREADABLE:
            path.chmod(0)
        case ShardState.TRUNCATED:
            os.truncate(path, min(size // 2 + 1, size - 1))
        case ShardState.EXTENDED:
            with path.open("ab") as file:
                file.write(b"\0")
        case ShardState.FLIPPED:
            flip_bit(path, size // 2)
        case ShardState.SPARSE:
            os.truncate(path, 0)
            os.truncate(path, size)
        case ShardState.LEFTOVER | ShardState.UNFINISHED:
            temporary_of(path).write_bytes(path.read_bytes()[: size // 2])
            if state is ShardState.UNFINISHED:
                path.unlink()

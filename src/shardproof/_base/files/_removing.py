"""Remove what this package has made, and sweep what it left."""

import contextlib
import errno
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from shardproof._base.liveness import is_gone, process_of, tag_of, this_process
from shardproof._base.opening import is_there

_LEFTOVER = re.compile(r"\.shardproof-(?P<tag>[0-9a-f]{16}-[0-9]+-[0-9]+)-[0-9a-f]{16}\.tmp")


def remove(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> None:
    """Remove a file of this package, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=dir_fd)


def discard(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> bool:
    """Remove a file as far as that goes, and say whether; what stays is swept another time."""
    with contextlib.suppress(OSError):
        remove(path, dir_fd=dir_fd)
        return True
    return False


def remove_empty(path: str, *, dir_fd: int | None = None) -> bool:
    """Remove a directory of this package unless something is in it; say whether it is gone."""
    try:
        os.rmdir(path, dir_fd=dir_fd)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            return False
        raise
    return True


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory of this package with all that is in it; a link in it is not followed."""
    top = os.fspath(path)

    # As `shutil.rmtree` does of itself from Python 3.13 on: pass over what is gone below.
    def pass_over(_call: object, path: str, raised: tuple[object, Any, object]) -> None:
        error = raised[1]
        if path == top or not isinstance(error, FileNotFoundError):
            error.filename = path
            raise error

    try:
        if sys.version_info >= (3, 13):
            shutil.rmtree(top)
        else:
            shutil.rmtree(top, onerror=pass_over)
    except FileNotFoundError:
        if is_there(top):
            raise


@contextlib.contextmanager
def passing_directory(prefix: str, within: str | os.PathLike[str] | None = None) -> Iterator[str]:
    """Yield a new directory, ``within`` another, which goes with all that is in it at the end."""
    directory = tempfile.mkdtemp(prefix=prefix, dir=within)
    try:
        yield directory
    finally:
        try:
            remove_tree(directory)
        except OSError:  # nothing else removes it, and what failed once may work now
            remove_tree(directory)


def temporary_name() -> str:
    """Return a name for a file that is being written, which tells by which process."""
    return f".shardproof-{tag_of(this_process()) or 'unknown'}-{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a name is that of a temporary file of this package, of any process."""
    return _LEFTOVER.fullmatch(name) is not None


def sweep_leftovers(
    directory: str | os.PathLike[str] | int, names: Iterable[str] | None = None
) -> list[str]:
    """Remove temporary files of this package whose writer is surely dead; return their names."""
    # What writers of other hosts and namespaces left stays, and what can't be removed, as another
    # user's in a directory like /tmp: no work fails by what another user has left.
    leftovers = sorted(_dead_leftovers(os.listdir(directory) if names is None else names))
    if isinstance(directory, int):
        return [name for name in leftovers if discard(name, dir_fd=directory)]
    return [name for name in leftovers if discard(os.path.join(directory, name))]


def _dead_leftovers(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        match = _LEFTOVER.fullmatch(name)
        if match and is_gone(process_of(match["tag"])):
            yield name

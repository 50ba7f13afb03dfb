"""Opens the files of a directory that hold the promise themselves."""

import contextlib
import os
from collections.abc import Iterator

from shardproof._base.names import NotRegularError, open_inside, open_root
from shardproof._base.opening import read_at
from shardproof.report import is_conclusive

__all__ = ["head_of", "opened"]


@contextlib.contextmanager
def opened(name: str, root: str, dir_fd: int) -> Iterator[int | None]:
    """Open a file of the root; None where there is none that may be read, which a look will find.

    Raises:
        OSError: The file system failed.
    """
    try:
        fd = open_inside(name, root=root, dir_fd=dir_fd)
    except NotRegularError:
        yield None
        return
    except OSError as error:
        if not is_conclusive(error.errno):
            raise
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def head_of(name: str, root: str, n_bytes: int) -> bytes:
    """Return the first bytes of a file of the root; none where there is none that may be read.

    Raises:
        OSError: The file system failed.
    """
    dir_fd = open_root(root)
    try:
        with opened(name, root, dir_fd) as fd:
            return b"" if fd is None else read_at(fd, n_bytes)
    finally:
        os.close(dir_fd)

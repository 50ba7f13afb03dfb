"""Opens the files of a directory that hold a promise, or a part of one."""

import contextlib
import os
from collections.abc import Iterator

from shardproof._base.names import NotRegularError, open_inside, open_root
from shardproof._base.opening import is_conclusive


@contextlib.contextmanager
def opened(name: str, root: str, dir_fd: int | None = None) -> Iterator[int | None]:
    """Open a file of the root; None where there is none that may be read, which a check finds."""
    with contextlib.ExitStack() as stack:
        if dir_fd is None:
            dir_fd = open_root(root)
            stack.callback(os.close, dir_fd)
        fd = None
        try:
            fd = open_inside(name, root=root, dir_fd=dir_fd)
            stack.callback(os.close, fd)
        except NotRegularError:
            pass
        except OSError as error:
            if not is_conclusive(error.errno):
                raise
        yield fd


def status_of(path: str) -> os.stat_result | None:
    """Return what is told of a file, or of what its link leads to; None where nothing can be."""
    try:
        return os.stat(path)
    except OSError as error:
        if is_conclusive(error.errno):
            return None
        raise

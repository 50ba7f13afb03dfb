"""A directory that is held open: below it no link is followed, whatever is renamed meanwhile.

A path leads elsewhere once a directory on it was moved away and a link put in its place. So each
directory is opened in the one before it. A link in the place of a directory is nothing, as it is in
a listing.
"""

import errno
import os
from typing import NamedTuple

__all__ = ["OPEN_DIRECTORY", "Held"]

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_NO_DIRECTORY = {errno.ENOTDIR, errno.ELOOP}


class Held(NamedTuple):
    """A directory, by the path that somebody gave and by an open descriptor."""

    path: str
    fd: int

    def enter(self, directory: str) -> int:
        """Return a descriptor of a directory below this one, or of this one.

        Raises:
            FileNotFoundError: It is not there, or a link or a file is in its place.
            OSError: It could not be opened.
        """
        fd = os.dup(self.fd)
        for part in os.path.relpath(directory, self.path).split("/"):
            try:
                deeper = os.open(part, OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            except OSError as error:
                number = errno.ENOENT if error.errno in _NO_DIRECTORY else error.errno or errno.EIO
                raise OSError(number, os.strerror(number), directory) from error
            finally:
                os.close(fd)
            fd = deeper
        return fd

"""Hold a directory open, and follow no link below it, whatever is renamed meanwhile.

A path leads elsewhere once a directory on it was moved away and a link put in its place. So each
directory is opened in the one before it. A link in the place of a directory is nothing, as it is in
a listing.
"""

import contextlib
import errno
import os
import stat
from typing import NamedTuple

__all__ = ["OPEN_DIRECTORY", "HeldDirectory", "share"]

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_ACCESS_LIST = "system.posix_acl_access"
_NO_DIRECTORY = {errno.ENOTDIR, errno.ELOOP}


class HeldDirectory(NamedTuple):
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


def share(name: str, dir_fd: int) -> None:
    """Let a new directory be written to by all who may write to the one above, where possible.

    Not where only an owner may remove what is there: nobody else could remove the new one. Nor
    where a list says who may: then the group's bits are no group's (acl(5)).
    """
    above = os.fstat(dir_fd)
    with contextlib.suppress(OSError):
        if above.st_mode & stat.S_ISVTX or _ACCESS_LIST in os.listxattr(dir_fd):
            return
        fd = os.open(name, OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)
        try:
            _give_as(above, fd)
        finally:
            os.close(fd)


def _give_as(above: os.stat_result, fd: int) -> None:
    for owner in (above.st_uid, -1):  # only root may give it away
        with contextlib.suppress(OSError):
            os.fchown(fd, owner, above.st_gid)
    made = os.fstat(fd)
    shared = stat.S_IRWXO | (stat.S_IRWXG if made.st_gid == above.st_gid else 0)
    os.fchmod(fd, stat.S_IMODE(made.st_mode) | above.st_mode & shared)

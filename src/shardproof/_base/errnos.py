"""What an error number of the operating system tells: about a file, or that nobody could look."""

import errno
import os

__all__ = ["MAX_NAME_BYTES", "is_conclusive", "is_too_long", "may_be_whole"]

MAX_NAME_BYTES = 255
"""NAME_MAX of ext4, XFS, Lustre, NFS, GPFS (limits.h(0p))."""

_ABOUT_THE_FILE = {
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG),
    errno.ENXIO,
}
"""What open(2) and stat(2) answer for a reason that lies in the file or its permissions; any other
number (EIO, ESTALE, EMFILE, ETIMEDOUT, ...) says that the check itself failed."""


def is_conclusive(number: int | None) -> bool:
    """Whether an errno, or none, tells something about the file, not that the check failed."""
    return number is None or number in _ABOUT_THE_FILE


def may_be_whole(number: int | None) -> bool:
    """Whether a file of which the system gave this errno may be whole: it was not seen."""
    return not is_conclusive(number) or number in {errno.EACCES, errno.EPERM}


def is_too_long(error: OSError) -> bool:
    """Whether a name is too long for any file to have it; of a path that is, it can't be told."""
    names = os.fsencode(error.filename or "").split(b"/")
    return error.errno == errno.ENAMETOOLONG and max(map(len, names)) > MAX_NAME_BYTES

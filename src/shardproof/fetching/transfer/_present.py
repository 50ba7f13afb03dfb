"""What has the name already, before anything is fetched."""

import logging
import os
import stat

from shardproof._base import digest as _digest
from shardproof._base import files
from shardproof._base.deadline import Deadline
from shardproof._base.messages import shown
from shardproof._base.names import OPEN_FLAGS, file_type
from shardproof.errors import FetchError
from shardproof.fetching.sources._source import RemoteFile
from shardproof.fetching.transfer._attempts import Goal

__all__ = ["digest_of_present"]

logger = logging.getLogger("shardproof.fetching")


def digest_of_present(
    target: str, wanted: RemoteFile, goal: Goal, deadline: Deadline
) -> str | None:
    """Return the digest of what is there, if it is right; move it aside, if it is wrong.

    Raises:
        FetchError: Something is there that is no regular file.
        Cancelled: It is not wanted any more.
        SourceError: The time is up.
    """
    try:
        status = os.stat(target, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        problem = f"expected a regular file or nothing, found a {file_type(status.st_mode)}"
        raise FetchError(f"{problem}; move it away", url=goal.url, path=goal.path)
    if wanted.size is None and wanted.digest is None:
        return None
    found = _proof(target, wanted, deadline)
    if found is None:
        deadline.raise_if_stopped()
        aside = files.move_aside(target)
        logger.warning(
            "'%s' was not the right one, and is '%s' now", shown(target), shown(str(aside))
        )
    return found


def _proof(target: str, wanted: RemoteFile, deadline: Deadline) -> str | None:
    """``"sha256:<hex>"`` of a file that is as large as it should be and has the right digest."""
    fd = os.open(target, OPEN_FLAGS)
    try:
        size = os.fstat(fd).st_size
        if wanted.size not in {None, size}:
            return None
        found = other = _digest.of_file(fd, "sha256", size, go_on=deadline.raise_if_stopped)
        if wanted.digest is not None:
            expected = _digest.parse(wanted.digest)
            if expected.algorithm != found.algorithm:
                other = _digest.of_file(
                    fd, expected.algorithm, size, go_on=deadline.raise_if_stopped
                )
            if not _digest.same(expected, other):
                return None
        return str(found)
    finally:
        os.close(fd)

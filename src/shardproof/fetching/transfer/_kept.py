"""Parts that outlive the fetch that they are of, so that the next one goes on from there.

A part is a directory beside the file that it becomes, or in one that a cache has for them::

    .shardproof-<key>.<token>.<process>.part/
        data      the bytes
        record    of which file they are, and what has come: `_record`

The key is that of the file, and the process is the one that writes: nobody else does. One that ends
with an error renames its part to ``.left.``; one that was killed can be told to be gone. Whoever
wants the same file renames such a part to a name of its own, which only one can do, and goes on.
What a process of another machine or container has left is copied instead, since nobody here can
say that it does not write any more.
"""

import contextlib
import hashlib
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from shardproof._base import files as _files
from shardproof._base.deadline import Deadline
from shardproof._base.liveness import is_gone, is_here, this_process
from shardproof._base.messages import shown, told
from shardproof._base.names import OPEN_FLAGS
from shardproof.errors import FetchError
from shardproof.fetching.transfer._partial_file import PartialFile
from shardproof.fetching.transfer._record import PartRecord, Provenance, extents_in, provenance_in

__all__ = ["KEPT_SECONDS", "OwnPart", "drop_parts", "key_in", "own_part", "sweep_parts"]

logger = logging.getLogger("shardproof.fetching")

KEPT_SECONDS = 7 * 24 * 3600.0
"""How long a part is kept that nobody goes on from."""

_NAME = re.compile(r"\.shardproof-([0-9a-f]{16})\.([0-9a-f]{16})\.([^.]*)\.part")
_DATA, _RECORD, _NEW = "data", "record", "record.new"
_LEFT = "left"
_OWN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class FoundPart(NamedTuple):
    """A part that somebody has made.

    Attributes:
        path: Its directory.
        key: Of the file that it becomes.
        process: Who writes it; `_LEFT` if nobody does.
        n_bytes: How much has come of it, roughly; 0 if nobody could go on from it.
        changed: When it was written to, in seconds since the epoch.
    """

    path: str
    key: str
    process: str
    n_bytes: int
    changed: float

    @property
    def is_free(self) -> bool:
        """Whether surely nobody writes it any more."""
        return self.process == _LEFT or is_gone(self.process)

    @property
    def is_busy(self) -> bool:
        """Whether somebody does who can be seen from here."""
        return not self.is_free and is_here(self.process)

    @property
    def is_old(self) -> bool:
        """Whether it has not changed for as long as it may be kept."""
        return time.time() - self.changed > KEPT_SECONDS


def key_in(directory: str, path: str) -> str:
    """Return the key of a file for parts in a directory, wherever that is mounted."""
    relative = os.path.relpath(path, directory)
    return hashlib.blake2b(os.fsencode(relative), digest_size=8).hexdigest()


def _found(directory: str, names: Iterable[str]) -> list[FoundPart]:
    """Return the parts of this user among some names, but those that can't be looked at."""
    found = []
    for name, match in ((name, _NAME.fullmatch(name)) for name in names):
        if match:
            path = os.path.join(directory, name)
            with _what_fails_stays(path):
                found.append(_looked_at(path, match[1], match[3].replace(",", "/")))
    return [part for part in found if part is not None]


@contextlib.contextmanager
def _what_fails_stays(path: str) -> Iterator[None]:
    """Nobody's fetch ends since what another has left can't be looked at, or be removed."""
    try:
        yield
    except FileNotFoundError:
        pass  # somebody was faster
    except OSError as error:
        logger.warning("What earlier fetches left in '%s' stays: %s", shown(path), told(error))


def _looked_at(path: str, key: str, process: str) -> FoundPart | None:
    """None if it is gone, somebody else's, or not what this package makes."""
    status = _status(path)
    if status is None or not stat.S_ISDIR(status.st_mode) or not _is_ours(status, 0o700):
        return None
    data, record, new = (_status(os.path.join(path, name)) for name in (_DATA, _RECORD, _NEW))
    files = [each for each in (data, record, new) if each is not None]
    if not all(_is_plain(each) for each in files):
        return None
    changed = max(each.st_mtime for each in (status, *files))
    n_bytes = 0 if data is None or record is None else max(1, data.st_blocks * 512)
    return FoundPart(path, key, process, n_bytes, changed)


def _is_plain(status: os.stat_result) -> bool:
    """Whether it is a file that nobody reads by another name."""
    is_one = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return is_one and _is_ours(status, 0o600)


def _is_ours(status: os.stat_result, mode: int) -> bool:
    """Whether it is this user's, who may do with it what it takes to go on."""
    return status.st_uid == os.geteuid() and status.st_mode & mode == mode


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None


def sweep_parts(directory: str, names: Iterable[str] | None = None) -> None:
    """Remove the parts of which nobody could go on, old ones, and all but one for each file.

    What can't be removed stays, and is told.
    """
    found = _found(directory, _listed(directory) if names is None else names)
    kept: set[str] = set()
    for part in sorted(found, key=lambda part: -part.n_bytes):
        is_second = part.is_free and part.key in kept
        is_useless = part.is_free and not part.n_bytes
        if not part.is_busy and (is_second or is_useless or part.is_old):
            _drop(part.path)
        elif part.is_free:
            kept.add(part.key)


def drop_parts(directory: str, is_unwanted: Callable[[str], bool]) -> None:
    """Remove the parts that nobody writes any more of files whose key is unwanted."""
    for part in _found(directory, _listed(directory)):
        if part.is_free and is_unwanted(part.key):
            _drop(part.path)


def _listed(directory: str) -> list[str]:
    names: list[str] = []
    with _what_fails_stays(directory):
        names += os.listdir(directory)
    return names


def _drop(path: str) -> None:
    """Remove what this package has made of a part, under a name that nobody takes over."""
    directory, name = os.path.split(path)
    match = _NAME.fullmatch(name)
    assert match is not None, "it was found by its name"  # noqa: S101 - for a type checker
    own = _path_of(directory, match[1], this_process())
    with _what_fails_stays(path):
        try:
            _files.move(path, own)
        finally:  # an interrupt, too, leaves nothing that nobody would sweep
            _remove(own)


def _remove(path: str) -> None:
    for name in (_NEW, _RECORD, _DATA):
        _files.remove(os.path.join(path, name))
    _files.remove_empty(path)


def _path_of(directory: str, key: str, process: str) -> str:
    name = f".shardproof-{key}.{secrets.token_hex(8)}.{process.replace('/', ',')}.part"
    return os.path.join(directory, name)


class OwnPart:
    """The part that one fetch writes, and nobody else.

    Args:
        directory: Where parts are.
        key: Of the file that it becomes.
    """

    def __init__(self, directory: str, key: str) -> None:
        self._directory, self._key = directory, key
        self._path = _path_of(directory, key, this_process())
        self._record = PartRecord(os.path.join(self._path, _RECORD))
        self._fd: int | None = None
        self._part: PartialFile | None = None
        self._is_looked_at = False  # while what another has left is compared with its record

    def make(self) -> None:
        """Make its directory."""
        os.mkdir(self._path)

    def opened(self, wanted: Provenance, names: Iterable[str], deadline: Deadline) -> PartialFile:
        """Return the part, with what others have left of the wanted file.

        Args:
            wanted: The file.
            names: What is in the directory.
            deadline: Ends the look at what is left when it is stopped.

        Raises:
            Cancelled: It is not wanted any more.
        """
        others = _found(self._directory, names)
        others = [each for each in others if each.key == self._key and not each.is_busy]
        others.sort(key=lambda part: -part.n_bytes)
        left, known = self._taken(others, wanted)
        self._fd = os.open(os.path.join(self._path, _DATA), _OWN_FLAGS, 0o666)
        self._part = PartialFile(self._fd, self._record)
        if left is not None and known is not None:
            self._go_on(left, known, deadline)
        else:
            self._part.restart()
        for other in others:
            if other.is_free:
                _drop(other.path)
        return self._part

    def _taken(
        self, others: Sequence[FoundPart], wanted: Provenance
    ) -> tuple[str | None, Provenance | None]:
        """Return where the bytes are that another fetch has left, and what is known of them."""
        for other in others:
            try:
                found = provenance_in(os.path.join(other.path, _RECORD))
                known = None if found is None else found.going_on(wanted)
                if known is None:
                    continue
                if not other.is_free:
                    return other.path, known
                self._is_looked_at = True
                _files.move(other.path, self._path)  # which is empty
            except OSError as error:  # somebody was faster, or it can't be read
                self._is_looked_at = False
                logger.info("Not going on from '%s': %s", shown(other.path), told(error))
            else:
                return self._path, known
        return None, None

    def _go_on(self, left: str, known: Provenance, deadline: Deadline) -> None:
        assert self._fd is not None  # noqa: S101 - for a type checker
        assert self._part is not None  # noqa: S101 - as above
        extents = extents_in(os.path.join(left, _RECORD))
        if left == self._path:
            self._part.take_over(known, extents, self._fd, deadline)
            self._is_looked_at = False
            return
        fd = os.open(os.path.join(left, _DATA), OPEN_FLAGS)
        try:
            self._part.take_over(known, extents, fd, deadline)
        finally:
            os.close(fd)

    def publish(self, target: str) -> None:
        """Give the bytes their final name, for good."""
        assert self._fd is not None  # noqa: S101 - for a type checker
        _files.sync(self._fd)
        _files.move_whole(os.path.join(self._path, _DATA), target)
        self._part = None

    def leave(self, *, keep: bool) -> None:
        """Let others go on from here, if they could and are to; else remove it."""
        has_bytes = self._part is not None and self._part.can_go_on
        can_go_on = keep and (has_bytes or self._is_looked_at)
        self._record.close()
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
        try:
            if can_go_on:
                _files.remove(os.path.join(self._path, _NEW))
                _files.move(self._path, _path_of(self._directory, self._key, _LEFT))
                sweep_parts(self._directory)
            else:
                _remove(self._path)
        except FileNotFoundError:
            pass  # it was left before
        except OSError as error:
            logger.warning(
                "What was fetched to '%s' stays there: %s", shown(self._path), told(error)
            )


@contextlib.contextmanager
def own_part(directory: str, key: str) -> Iterator[OwnPart]:
    """Yield a part of one's own; when the context ends by an error, others may go on from it.

    Not if the disk has refused something: room on a full one is worth more than bytes that can be
    fetched again, and what a failing one has written is not believed.
    """
    own = OwnPart(directory, key)
    keep = True
    try:
        own.make()
        yield own
    except FetchError:
        raise
    except OSError:
        keep = False
        raise
    finally:
        try:
            own.leave(keep=keep)
        except BaseException:  # an interrupt, which leaves nothing either
            own.leave(keep=keep)
            raise

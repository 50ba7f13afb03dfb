"""Keep the part of a file that a fetch leaves, so that the next fetch goes on from there.

A part is a directory (docs/prefetch.md shows it), whose name has the key of the file and the
process that writes: no other does. The next process renames one that was left, or whose process is
gone, to a name of its own, which only one can do. What one of another machine or container has left
is copied, since from here it can't be seen whether that one still writes.
"""

import contextlib
import errno
import functools
import hashlib
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from shardproof._base import files as _files
from shardproof._base.liveness import is_gone, is_here, this_process
from shardproof._base.messages import shown, told
from shardproof._base.names import OPEN_FLAGS
from shardproof._base.opening import closing_fd, found_at, real_path
from shardproof._base.work import Deadline
from shardproof.errors import FetchError
from shardproof.fetching.transfer._partial_file import (
    PartialFile,
    PartRecord,
    Provenance,
    extents_in,
    provenance_in,
)

logger = logging.getLogger("shardproof.fetching")

KEPT_SECONDS = 7 * 24 * 3600.0  # how long a part is kept that no fetch goes on from
_BESIDE = ".shardproof-"
_NAME = re.compile(r"\.shardproof-([0-9a-f]{16})\.([0-9a-f]{16})\.([^.]*)\.part")
_DATA, _RECORD, _NEW = "data", "record", "record.new"
_LEFT = "left"
_ATTEMPTS = 100
_OWN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class FoundPart(NamedTuple):
    """A part that a fetch has made, in a directory of its own, for the file of a key."""

    path: str
    key: str
    process: str  # that writes it; `_LEFT` if none does
    n_bytes: int  # that have come, roughly; 0 if no fetch could go on from it
    changed: float  # when it was written to, in seconds since the epoch

    @property
    def is_free(self) -> bool:
        """Whether surely no process writes it any more."""
        return self.process == _LEFT or is_gone(self.process)

    @property
    def is_busy(self) -> bool:
        """Whether a process writes it that can be seen from here."""
        return not self.is_free and is_here(self.process)


def key_in(directory: str, path: str) -> str:
    """Return the key of a file for parts in a directory, wherever that is mounted."""
    relative = os.path.relpath(path, directory)
    return hashlib.blake2b(os.fsencode(relative), digest_size=8).hexdigest()


def parts_beneath(directory: str) -> str:
    """Return the directory for parts that is in a directory; each user has one."""
    return os.path.join(directory, f"{_BESIDE}{os.geteuid()}.parts")


def parts_in(directory: str) -> list[str]:
    """Return the names in a directory for parts; none if it isn't there or can't be looked at."""
    names: list[str] = []
    with _what_fails_stays(directory):
        names += os.listdir(directory)
    return [] if names and _is_foreign(directory) else names


def _found(directory: str, names: Iterable[str]) -> list[FoundPart]:
    """Return the parts of this user among some names, except what can't be looked at."""
    found = []
    for name in names:
        if match := _NAME.fullmatch(name):
            path = os.path.join(directory, name)
            with _what_fails_stays(path):
                found.append(_looked_at(path, match[1], match[3].replace(",", "/")))
    return [part for part in found if part is not None]


@contextlib.contextmanager
def _what_fails_stays(path: str) -> Iterator[None]:
    """Log what another fetch has left and can't be looked at or removed; it ends no fetch."""
    try:
        yield
    except FileNotFoundError:
        pass  # another process was faster
    except OSError as error:
        logger.warning("What earlier fetches left in '%s' stays: %s", shown(path), told(error))


def _looked_at(path: str, key: str, process: str) -> FoundPart | None:
    """Return what a part is; None if it is gone, another user's, or not made by this package."""
    status = found_at(path)
    if status is None or not stat.S_ISDIR(status.st_mode) or not _is_ours(status, 0o700):
        return None
    data, record, new = (found_at(os.path.join(path, name)) for name in (_DATA, _RECORD, _NEW))
    files = [each for each in (data, record, new) if each is not None]
    # None of them has another name, by which something else of this user would be read or lost.
    if not all(stat.S_ISREG(s.st_mode) and s.st_nlink == 1 and _is_ours(s, 0o600) for s in files):
        return None
    changed = max(each.st_mtime for each in (status, *files))
    n_bytes = 0 if data is None or record is None else max(1, data.st_blocks * 512)
    return FoundPart(path, key, process, n_bytes, changed)


def _is_ours(status: os.stat_result, mode: int) -> bool:
    # Of this user, with the rights that it takes to go on.
    return status.st_uid == os.geteuid() and status.st_mode & mode == mode


def sweep_parts(
    directory: str,
    is_unwanted: Callable[[str], bool] = lambda _: False,
    *,
    names: Collection[str] | None = None,
) -> None:
    """Remove parts of unwanted keys or of no use, old ones, and all but one for each file."""
    names = parts_in(directory) if names is None else names
    kept: set[str] = set()
    for part in sorted(_found(directory, names), key=lambda part: -part.n_bytes):
        is_useless = part.key in kept or not part.n_bytes or is_unwanted(part.key)
        is_old = time.time() - part.changed > KEPT_SECONDS
        if (part.is_free and is_useless) or (not part.is_busy and is_old):
            _drop(part)
        elif part.is_free:
            kept.add(part.key)
    _remove_beside(directory)


def _drop(part: FoundPart) -> None:
    """Remove a part, under a name that no other process takes over."""
    own = _path_of(os.path.dirname(part.path), part.key)
    with _what_fails_stays(part.path):
        try:
            _files.move(part.path, own)
        finally:  # an interrupt, too, leaves nothing that no process would sweep
            _remove(own)


def _remove(path: str) -> None:
    if _files.remove_empty(path):  # as it mostly is, once the bytes have their name
        return
    for name in (_NEW, _RECORD, _DATA):
        _files.remove(os.path.join(path, name))
    _files.remove_empty(path)


_known = functools.cache(lambda _pid: this_process())  # which takes a look at /proc


def _path_of(directory: str, key: str, process: str | None = None) -> str:
    """Return a new name for a part, by default one that this process writes."""
    writer = (process or _known(os.getpid())).replace("/", ",")
    return os.path.join(directory, f"{_BESIDE}{key}.{secrets.token_hex(8)}.{writer}.part")


class OwnPart:
    """The part that one fetch writes, and no other, in a directory for parts."""

    def __init__(self, directory: str, key: str) -> None:
        self._directory, self._key = directory, key
        self.path = _path_of(directory, key)
        self.data = os.path.join(self.path, _DATA)
        self._record = PartRecord(os.path.join(self.path, _RECORD))
        self._fd: int | None = None
        self._part: PartialFile | None = None
        self._is_looked_at = False  # while what another has left is compared with its record

    def opened(self, wanted: Provenance, names: Collection[str], deadline: Deadline) -> PartialFile:
        """Return the part, with what others have left of the wanted file among these names."""
        others = _found(self._directory, names) if names else []
        others = [each for each in others if each.key == self._key and not each.is_busy]
        others.sort(key=lambda part: -part.n_bytes)
        left, known = self._taken(others, wanted) if others else (None, None)
        self._fd = os.open(self.data, _OWN_FLAGS, 0o666)
        self._part = PartialFile(self._fd, self._record)
        if left is not None and known is not None:
            extents = extents_in(os.path.join(left, _RECORD))
            if left == self.path:
                self._part.take_over(known, extents, self._fd, deadline)
            else:
                with closing_fd(os.open(os.path.join(left, _DATA), OPEN_FLAGS)) as fd:
                    self._part.take_over(known, extents, fd, deadline)
            self._is_looked_at = False
        for other in others:
            if other.is_free:
                _drop(other)
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
                _files.move(other.path, self.path)  # which is empty
            except OSError as error:  # another process was faster, or it can't be read
                self._is_looked_at = False
                logger.info("Not going on from '%s': %s", shown(other.path), told(error))
            else:
                return self.path, known
        return None, None

    def publish(self, target: str, *, is_final: bool) -> None:
        """Give the bytes their name: for good, unless the caller gives them another one then."""
        assert self._fd is not None  # noqa: S101 - for a type checker
        _files.sync(self._fd)
        move = _files.move_whole if is_final else _files.move
        move(self.data, target)
        self._part = None

    def leave(self, *, keep: bool) -> None:
        """Let others go on from here, if they could and are to; else remove it."""
        has_bytes = self._part is not None and self._part.can_go_on
        can_go_on = keep and (has_bytes or self._is_looked_at)
        if can_go_on and self._part is not None:
            with _what_fails_stays(self.path):
                self._part.record_what_came()
        self._record.close()
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
        try:
            if can_go_on:
                _files.remove(os.path.join(self.path, _NEW))
                _files.move(self.path, _path_of(self._directory, self._key, _LEFT))
                sweep_parts(self._directory)
            else:
                _remove(self.path)
                _remove_beside(self._directory)
        except FileNotFoundError:
            pass  # it was left before
        except OSError as error:
            text = "What was fetched to '%s' stays there: %s"
            logger.warning(text, shown(self.path), told(error))


@contextlib.contextmanager
def own_part(directory: str, key: str) -> Iterator[OwnPart]:
    """Yield a new part; others may go on from it after an error, but not one of the disk."""
    own = OwnPart(directory, key)
    keep = True
    try:
        _make(own.path)
        yield own
    except FetchError:
        raise
    except OSError:
        keep = False  # a full disk needs the room, and what a failing one has is not believed
        raise
    finally:
        own.leave(keep=keep)


def _make(path: str) -> None:
    """Make a part, and the directory that it is in, which goes when another fetch ends."""
    directory = os.path.dirname(path)
    for _ in range(_ATTEMPTS):
        try:
            if _is_beside(directory):
                os.mkdir(directory, 0o700)  # what is fetched may be nobody else's to read
        except FileExistsError as error:
            if _is_foreign(directory):
                above, name = os.path.split(directory)
                there = os.path.join(real_path(above), name)
                problem = f"expected a directory of this user's at '{shown(there)}'"
                problem = f"{problem}, found something else; move that away"
                raise NotADirectoryError(errno.ENOTDIR, problem, directory) from error
        with contextlib.suppress(FileNotFoundError):
            os.mkdir(path)
            return
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)


def _is_foreign(directory: str) -> bool:
    """Whether something has the name of a directory for parts, and is none of this user's."""
    status = found_at(directory) if _is_beside(directory) else None
    return status is not None and not (stat.S_ISDIR(status.st_mode) and _is_ours(status, 0o700))


def _is_beside(directory: str) -> bool:
    return os.path.basename(directory).startswith(_BESIDE)


def _remove_beside(directory: str) -> None:
    """Remove a directory for parts that has none any more, unless it is a cache's."""
    with _what_fails_stays(directory):
        if _is_beside(directory) and not _is_foreign(directory):
            _files.remove_empty(directory)

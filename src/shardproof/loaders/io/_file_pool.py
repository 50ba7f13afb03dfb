"""Files of one directory that stay open; none is closed while it is in use."""

import collections
import contextlib
import errno
import resource
import threading
import weakref
from collections.abc import Sequence

from shardproof._base.names import open_inside, open_root
from shardproof._base.opening import HeldFile
from shardproof._base.work import apart, begin_in_forks
from shardproof.errors import ShardproofError

_TOO_MANY = {errno.EMFILE, errno.ENFILE}
_FEWEST, _MOST = 16, 4096


class FilePool:
    """Opens files of a directory when they are wanted, and keeps open those that were used last."""

    # What it lets go is closed as soon as no thread reads from it. Files are opened in a thread
    # that no interrupt reaches: it might lose a descriptor.

    def __init__(self, root: str, names: Sequence[str]) -> None:
        self._root, self._names = root, names
        self._directory: HeldFile | None = None
        self._files: collections.OrderedDict[int, HeldFile] = collections.OrderedDict()
        self._begin()
        begin_in_forks(self._begin)
        _living.add(self)

    def _begin(self) -> None:
        """Begin with a lock of its own, also in a fork: a thread of the parent may hold that."""
        self._lock = threading.Lock()

    @property
    def most(self) -> int:
        """How many files stay open: a quarter of the descriptors that the process may have."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return max(_FEWEST, min(_MOST, soft // 4 if soft >= 0 else _MOST))

    def close(self) -> None:
        """Let go of every descriptor; what is wanted later is opened anew."""
        with self._lock:
            self._directory, self._files = None, collections.OrderedDict()

    def file(self, index: int) -> HeldFile:
        """Return a file, open as long as it is referred to."""
        return self._known(index) or apart(lambda _: self._opened(index))

    def files(self, indices: Sequence[int]) -> list[HeldFile]:
        """Return files, at most ``most``: all, or those before one that can't be opened."""
        known = list(filter(None, map(self._known, indices)))
        return known if len(known) == len(indices) else apart(lambda _: self._each(indices))

    def _each(self, indices: Sequence[int]) -> list[HeldFile]:
        found: list[HeldFile] = []
        with contextlib.suppress(OSError, ShardproofError):
            found += (self._known(index) or self._opened(index) for index in indices)
        return found

    def _known(self, index: int) -> HeldFile | None:
        with self._lock:
            file = self._files.get(index)
            if file is not None:
                self._files.move_to_end(index)
        return file

    def _opened(self, index: int) -> HeldFile:
        try:
            file = self._open(index)
        except OSError as error:
            if error.errno not in _TOO_MANY:
                raise
            for pool in list(_living):
                pool.close()  # what is in use stays open
            file = self._open(index)
        with self._lock:
            file = self._files.setdefault(index, file)
            while len(self._files) > self.most:
                self._files.popitem(last=False)
        return file

    def _open(self, index: int) -> HeldFile:
        directory = self._directory
        if directory is None:
            directory = HeldFile(open_root(self._root))
            with self._lock:  # another thread may have been faster, and this be another directory
                directory = self._directory = self._directory or directory
        return HeldFile(open_inside(self._names[index], root=self._root, dir_fd=directory.fd))

    def forget(self, index: int) -> None:
        """Open a file anew when it is wanted next."""
        with self._lock:
            self._files.pop(index, None)


_living: weakref.WeakSet[FilePool] = weakref.WeakSet()

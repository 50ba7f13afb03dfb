"""Files of one directory, and queues of the kernel, that stay open; none is closed while in use."""

import collections
import contextlib
import dataclasses
import errno
import os
import resource
import threading
import weakref
from collections.abc import Sequence

from shardproof._base.names import open_inside, open_root
from shardproof._base.work import apart
from shardproof.errors import ShardproofError
from shardproof.loaders.io._submissions import Submissions, open_submissions

_TOO_MANY = {errno.EMFILE, errno.ENFILE}


@dataclasses.dataclass(slots=True, eq=False)
class OpenFile:
    """A descriptor."""

    fd: int

    def close(self) -> None:
        """Close it; a second time does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


Held = list[OpenFile | Submissions]
"""What one thread uses. It begins empty, and ends so: see `FilePool.give_back`."""


class FilePool:
    """Opens files of a directory when they are wanted, and keeps open those that were used last.

    What is to be closed goes to ``_left`` first, where no thread finds it any more. The last thread
    that uses it closes it; until then its number is of no other file.
    """

    def __init__(self, root: str, names: Sequence[str]) -> None:
        self._root, self._names = root, names
        self._directories: list[OpenFile] = []  # none or one
        self._files: collections.OrderedDict[int, OpenFile] = collections.OrderedDict()
        self._queues: list[Submissions] = []
        self._n_enough = 0  # files that are open, after which some are to be closed
        self._left: Held = []
        self._held: dict[int, Held] = {}  # by its identity
        self._lock = threading.Lock()
        _living.add(self)

    @property
    def most(self) -> int:
        """How many files stay open: a quarter of the descriptors that the process may have."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return max(_FEWEST, min(_MOST, soft // 4 if soft >= 0 else _MOST))

    @property
    def is_open(self) -> bool:
        """Whether there is any descriptor or queue to close, but for those that a thread closes."""
        used = self._used()
        is_left = any(id(one) not in used for one in self._left)
        return bool(is_left or self._queues or self._files or self._directories)

    def close(self) -> None:
        """Close every descriptor and queue; those in use are closed as they are given back.

        Several threads may do so, and others may read meanwhile. What is wanted later is opened
        anew; that is closed by another call, or when this object is gone.
        """
        with self._lock:
            found, nothing = self._all(), collections.OrderedDict[int, OpenFile]()
            # In one step and without a call, behind which an interrupt might come.
            self._left, self._files, self._queues, self._directories = found, nothing, [], []
            self._sweep()

    def _all(self) -> Held:
        return [*self._left, *self._queues, *self._files.values(), *self._directories]

    def _used(self) -> set[int]:
        return {id(one) for held in self._held.copy().values() for one in held}

    def _sweep(self) -> None:
        """Close what was left and is not in use; the lock is held."""
        used = self._used() if self._left else set()
        for one in [one for one in self._left if id(one) not in used]:
            one.close()
            self._left.remove(one)

    def _close_left(self) -> None:
        with self._lock:
            self._sweep()

    def __del__(self) -> None:
        """Close what stayed open, as where two interrupts came while it was being closed.

        Nothing is in use then: a reader would hold this object.
        """
        with contextlib.suppress(AttributeError):  # cut short while it was made: nothing is open
            self._held = {}
            self.close()

    def _begin_in_child(self) -> None:
        """Drop the lock, which another thread of the parent may hold, and what its threads use."""
        self._lock = threading.Lock()
        self._queues = []  # which are the parent's alone: here the kernel has none of them
        self._held = {}
        self._sweep()  # the threads that were to close these are not here

    def give_back(self, held: Held) -> None:
        """Close what waited for a list that was cleared.

        Its holder clears it, as the first thing where a ``finally`` begins: there no interrupt
        comes before it, while one that comes in here leaves nothing that looks as if in use.
        """
        self._held.pop(id(held), None)
        if self._left:
            self._close_left()

    def share(self, others: Held, held: Held) -> bool:
        """Hold what another thread holds, too; return whether it still does."""
        with self._lock:
            held += others
            self._held[id(held)] = held
        return bool(held)

    def file(self, index: int, held: Held) -> OpenFile:
        """Return a file that is open, and held from then on."""
        return self._known(index, held) or apart(lambda _: self._opened(index, held))

    def files(self, indices: Sequence[int], held: Held) -> list[OpenFile]:
        """Return files that are open, and held from then on: all, or those before one that is not.

        Args:
            indices: Which files, at most ``most``.
            held: They are added to this.
        """
        with self._lock:
            known = [self._files[index] for index in indices if index in self._files]
            held += known
            self._held[id(held)] = held
            for index in indices:
                if index in self._files:
                    self._files.move_to_end(index)
        return known if len(known) == len(indices) else apart(lambda _: self._each(indices, held))

    def _each(self, indices: Sequence[int], held: Held) -> list[OpenFile]:
        found: list[OpenFile] = []
        with contextlib.suppress(OSError, ShardproofError):
            found += (self._known(index, held) or self._opened(index, held) for index in indices)
        return found

    def _known(self, index: int, held: Held) -> OpenFile | None:
        with self._lock:
            file = self._files.get(index)
            if file is not None:
                self._files.move_to_end(index)
                held += [file]  # and then no call, behind which an interrupt might come
                self._held[id(held)] = held
        return file

    def _opened(self, index: int, held: Held) -> OpenFile:
        """Open one in a thread that no interrupt reaches: it might lose a descriptor."""
        try:
            file = self._open(index)
        except OSError as error:
            if error.errno not in _TOO_MANY:
                raise
            for files in list(_living):
                files.close_unused()
            file = self._open(index)
        with self._lock:
            other = self._files.setdefault(index, file)
            held += [other]
            self._held[id(held)] = held
            if other is not file:
                self._left.append(file)
            if len(self._files) > self._n_enough:
                self._leave_unused(most := self.most)
                # Where most are in use, to look at all for each that is opened would take longer.
                self._n_enough = max(most, len(self._files) + most // 4)
            self._sweep()
        return other

    def _open(self, index: int) -> OpenFile:
        held: Held = []
        try:
            directory = self._directory(held)
            return OpenFile(open_inside(self._names[index], root=self._root, dir_fd=directory.fd))
        finally:
            held.clear()
            self.give_back(held)

    def _directory(self, held: Held) -> OpenFile:
        with self._lock:
            if not self._directories:
                self._directories.append(OpenFile(open_root(self._root)))
            directory = self._directories[0]
            held += [directory]
            self._held[id(held)] = held
        return directory

    def _leave_unused(self, n_kept: int) -> None:
        """Have as many files closed as are too many, if they are not in use; the lock is held.

        A fourth of them at once, those that were not used for longest: looking at all for each
        one that is opened would take longer than opening it.
        """
        if len(self._files) > n_kept:
            used = self._used()
            unused = [index for index, file in self._files.items() if id(file) not in used]
            for index in unused[: len(self._files) - n_kept * 3 // 4]:
                self._left.append(self._files.pop(index))

    def close_unused(self) -> None:
        """Close the files that are not in use, since descriptors are short."""
        with self._lock:
            self._leave_unused(0)
            self._sweep()

    def forget(self, index: int) -> None:
        """Open a file anew when it is wanted next."""
        with self._lock:
            if index in self._files:
                self._left += [self._files[index]]  # without a call, as in `close`
                del self._files[index]
            self._sweep()

    def queue(self, held: Held) -> Submissions | None:
        """Return a queue that no other thread uses, and that is held from then on.

        None where the kernel offers none.
        """
        with self._lock:
            others = self._held.copy().values()
            for queue in self._queues:
                if queue.is_open and not any(queue in each for each in others):
                    held += [queue]
                    self._held[id(held)] = held
                    return queue
        return apart(lambda _: self._new_queue(held))

    def _new_queue(self, held: Held) -> Submissions | None:
        queue = open_submissions()
        if queue is not None:
            with self._lock:
                held += [queue]
                self._held[id(held)] = held
                self._queues = [*(one for one in self._queues if one.is_open), queue]
        return queue


_FEWEST, _MOST = 16, 4096

_living: weakref.WeakSet[FilePool] = weakref.WeakSet()


def _begin_each_in_child() -> None:
    for files in list(_living):
        files._begin_in_child()


os.register_at_fork(after_in_child=_begin_each_in_child)

"""Many small reads handed to the kernel by one call, where it offers that (io_submit(2)).

A read of a row from Python takes longer around the system call than in it. The files are in the
page cache or are read into it within the call: nothing is left under way when it returns.
"""

import collections
import contextlib
import ctypes
import os
import platform
import sys
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from shardproof._base.work import apart
from shardproof.loaders.io._memory import read_vectors

MOST_AT_ONCE = 512  # reads in one call: no signal is seen before all are done, on a slow disk too
_MOST_QUEUES = 32  # of 128 that a system has by default; more threads make a call for each read
_READ = 7  # IOCB_CMD_PREADV of linux/aio_abi.h, as all that follows

_CALLS = {  # io_setup, io_destroy, io_getevents, io_submit: the C library has no names for them
    "Linux x86_64": (206, 207, 208, 209),  # elsewhere, the numbers are of other calls
    "Linux aarch64": (0, 1, 4, 2),
}
_REQUEST = np.dtype(  # of its fields those that are not zero
    {
        "names": ["data", "opcode", "fd", "buffers", "n_buffers", "offset"],
        "formats": [np.uint64, np.uint16, np.uint32, np.uint64, np.uint64, np.int64],
        "offsets": [0, 16, 20, 24, 32, 40],
        "itemsize": 64,
    }
)
_EVENT = np.dtype(
    [("data", np.uint64), ("request", np.uint64), ("result", np.int64), ("result2", np.int64)]
)

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long

Numbers = npt.NDArray[np.int64]
Requests = npt.NDArray[np.void]


class Submissions:
    """A queue of the kernel's, for one thread at a time; an `OSError` where it offers none."""

    def __init__(self) -> None:
        self._queue, self._pid = ctypes.c_ulong(0), os.getpid()
        calls = _CALLS[f"{platform.system()} {platform.machine()}"]
        set_up, self._destroy, self._get_events, self._submit = calls
        _call(set_up, MOST_AT_ONCE, ctypes.byref(self._queue))
        self._events = np.zeros(MOST_AT_ONCE, _EVENT)

    @property
    def is_open(self) -> bool:
        """Whether it is still to be closed."""
        return bool(self._queue.value)

    def close(self) -> None:
        """Give the queue back; a second time does nothing, nor in a forked process."""
        queue, self._queue = self._queue, ctypes.c_ulong(0)
        if queue.value and self._pid == os.getpid():
            _call(self._destroy, queue)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Give the queue back, unless the interpreter ends, and the kernel takes all at once."""
        if not is_finalizing():
            self.close()

    def read(self, requests: Requests, results: Numbers) -> None:
        """Do at most `MOST_AT_ONCE` of the reads that were asked for together."""
        # After an error the queue is closed: what it holds is no answer to the next reads.
        try:
            places = requests.ctypes.data + np.arange(len(requests)) * _REQUEST.itemsize
            count = _call(self._submit, self._queue, len(requests), places.ctypes.data)
            _call(self._get_events, self._queue, count, count, self._events.ctypes.data, None)
            done = self._events[:count]
            results[done["data"].astype(np.int64)] = done["result"]
        except BaseException:
            self.close()
            raise


def requests_of(fds: Numbers, offsets: Numbers, buffers: Numbers, n_buffers: Numbers) -> Requests:
    """Return requests for reads, with their place among them as their number; see readv(2)."""
    requests = np.zeros(len(fds), _REQUEST)
    requests["data"] = np.arange(len(fds))
    requests["opcode"], requests["fd"] = _READ, fds
    requests["buffers"], requests["n_buffers"] = buffers, n_buffers
    requests["offset"] = offsets
    return requests


def read_singly(requests: Requests, results: Numbers) -> None:
    """Do as `Submissions.read`, by a call for each read, where the kernel offers no queue."""
    fields = (requests[name].tolist() for name in ("data", "fd", "buffers", "n_buffers", "offset"))
    for place, *request in zip(*fields, strict=True):
        with contextlib.suppress(OSError):
            results[place] = read_vectors(*request)


def open_submissions() -> Submissions | None:
    """Return a queue, or None where there are none."""
    try:
        return Submissions()
    except (OSError, KeyError):  # no such call, not allowed, none left; another kind of machine
        return None


class Queues:
    """Queues of this process, which stay open: to give one back takes the kernel 30 ms."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a forked process does: the queues are its parent's."""
        self._free: collections.deque[Submissions] = collections.deque()
        self._all: weakref.WeakSet[Submissions] = weakref.WeakSet()

    @contextlib.contextmanager
    def taken(self) -> Iterator[Submissions | None]:
        """Yield a queue that no other thread uses; None if there are enough, or none is offered."""
        queue = None
        try:
            queue = self._free.pop()
        except IndexError:
            if len(self._all) < _MOST_QUEUES:
                queue = apart(lambda _: open_submissions())
                self._all.update([queue] if queue is not None else [])
        yield queue
        if queue is not None and queue.is_open:
            self._free.append(queue)


queues = Queues()
os.register_at_fork(after_in_child=queues.forget)


def _call(number: int, *arguments: object) -> int:
    given = [ctypes.c_void_p(value) if isinstance(value, int) else value for value in arguments]
    result: int = _syscall(ctypes.c_long(number), *given)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result

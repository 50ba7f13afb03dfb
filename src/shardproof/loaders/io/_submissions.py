"""Many small reads handed to the kernel by one call, where it offers that (io_submit(2)).

A read of a row from Python takes longer around the system call than in it. The files are in the
page cache or are read into it within the call: nothing is left under way when it returns.
"""

import contextlib
import ctypes
import os
import platform

import numpy as np
import numpy.typing as npt

__all__ = ["Submissions", "open_submissions"]

_AT_ONCE = 128
"""Reads in one call: no signal is seen before all of them are done, on a slow disk too."""

_READ = 0  # IOCB_CMD_PREAD of linux/aio_abi.h, as all that follows

_CALLS = {  # io_setup, io_destroy, io_getevents, io_submit: the C library has no names for them
    "x86_64": (206, 207, 208, 209),
    "aarch64": (0, 1, 4, 2),
}
_REQUEST = np.dtype(
    [
        ("data", np.uint64),
        ("key", np.uint32),
        ("rw_flags", np.int32),
        ("opcode", np.uint16),
        ("priority", np.int16),
        ("fd", np.uint32),
        ("buffer", np.uint64),
        ("n_bytes", np.uint64),
        ("offset", np.int64),
        ("reserved", np.uint64),
        ("flags", np.uint32),
        ("event_fd", np.uint32),
    ]
)
_EVENT = np.dtype(
    [("data", np.uint64), ("request", np.uint64), ("result", np.int64), ("result2", np.int64)]
)

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long

Numbers = npt.NDArray[np.int64]


class Submissions:
    """A queue of the kernel's; for one thread at a time.

    Attributes:
        readers: An item for each thread that uses it, none or one; its owner counts.

    Raises:
        OSError: The kernel, or a sandbox around this process, offers none.
    """

    def __init__(self) -> None:
        self.readers: list[None] = []
        self._queue = ctypes.c_ulong(0)
        _, self._destroy, self._get_events, self._submit = _CALLS[platform.machine()]
        _call(_CALLS[platform.machine()][0], _AT_ONCE, ctypes.byref(self._queue))
        self._events = np.zeros(_AT_ONCE, _EVENT)

    @property
    def is_open(self) -> bool:
        """Whether it is still to be closed."""
        return bool(self._queue.value)

    def close(self) -> None:
        """Give the queue back; a second time does nothing."""
        queue, self._queue = self._queue, ctypes.c_ulong(0)
        if queue.value:
            with contextlib.suppress(OSError):  # a forked process has none of its parent's queues
                _call(self._destroy, queue)

    def read(self, fd: int, offsets: Numbers, addresses: Numbers, n_bytes: Numbers) -> Numbers:
        """Read pieces of a file, each to its own address.

        Returns:
            How many bytes each read gave, or the negative of its errno; 0 for what the kernel did
            not take.

        Raises:
            OSError: The kernel takes no reads; as after any error, the queue is closed then, since
                what it still holds must not pass for an answer to the next reads.
        """
        try:
            requests = np.zeros(len(offsets), _REQUEST)
            requests["data"] = np.arange(len(offsets))
            requests["opcode"], requests["fd"] = _READ, fd
            requests["buffer"], requests["n_bytes"] = addresses, n_bytes
            requests["offset"] = offsets
            results = np.empty(len(offsets), np.int64)
            for start in range(0, len(requests), _AT_ONCE):
                some = requests[start : start + _AT_ONCE]
                places = some.ctypes.data + np.arange(len(some)) * _REQUEST.itemsize
                count = _call(self._submit, self._queue, len(some), places.ctypes.data)
                _call(self._get_events, self._queue, count, count, self._events.ctypes.data, None)
                done = self._events[:count]
                results[done["data"].astype(np.int64)] = done["result"]
                results[some["data"][count:].astype(np.int64)] = 0
        except BaseException:
            self.close()
            raise
        return results


def open_submissions() -> Submissions | None:
    """Return a queue, or None where there are none."""
    try:
        return Submissions()
    except (OSError, KeyError):  # no such call, not allowed, none left; another kind of machine
        return None


def _call(number: int, *arguments: object) -> int:
    given = [ctypes.c_void_p(value) if isinstance(value, int) else value for value in arguments]
    result: int = _syscall(ctypes.c_long(number), *given)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result

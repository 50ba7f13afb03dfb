"""Make permission bits count for root too, as they do for every other user."""

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable, Iterator

# linux/capability.h: with version 3 the kernel reads and writes two blocks of three 32-bit sets.
_VERSION_3 = 0x20080522
_BOTH = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
_EFFECTIVE = 0  # index, in the first block, of the set that the kernel consults


@contextlib.contextmanager
def without_root_override() -> Iterator[None]:
    """Let ``chmod 0`` keep root out of a file, for as long as the context lasts.

    Root reads every file because of two capabilities, CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
    They are taken out of the calling thread's effective set, and put back on leaving the context,
    which must happen in the same thread. Threads started inside inherit the lack of them; threads
    that run already keep them.

    For a user without these capabilities nothing changes, nor on systems other than Linux.
    `os.access` is no witness: it asks for the real user, and says True.

    Raises:
        OSError: The kernel refused.

    Example:
        >>> with without_root_override():
        ...     open(unreadable).close()
        Traceback (most recent call last):
        PermissionError: [Errno 13] Permission denied: ...
    """
    dropped = _change(lambda effective: effective & ~_BOTH) & _BOTH
    try:
        yield
    finally:
        _change(lambda effective: effective | dropped)


def _change(change: Callable[[int], int]) -> int:
    """Change the effective set of the calling thread, and return what it was."""
    libc = _libc()
    if libc is None:
        return 0
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)  # 0: the calling thread
    blocks = (ctypes.c_uint32 * 6)()
    _raise_if(libc.capget(header, blocks), "capget")
    before = blocks[_EFFECTIVE]
    blocks[_EFFECTIVE] = change(before)
    if blocks[_EFFECTIVE] != before:
        _raise_if(libc.capset(header, blocks), "capset")
    return before


def _raise_if(failed: int, name: str) -> None:
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


@functools.cache
def _libc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "capset") else None

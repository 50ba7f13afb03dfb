"""What stands in for the functions of numpy that read and write in C."""

import functools
import os
from collections.abc import Callable
from typing import Any

from shardproof.testing.faults.file_system._calls import through, watched
from shardproof.testing.faults.file_system._paths import absolute

__all__ = ["reading", "telling_files"]

_fstat = os.fstat

_UNREAD = 0xAA


def reading(numpy: Any, real: Callable[..., Any]) -> Callable[..., Any]:
    """Make what stands in for ``numpy.fromfile``; one call of it is one read.

    The real one takes no notice of errors: with a ``count`` it returns fewer items; without one as
    many as the file holds, and those that were not read are what the memory held before. (Found by
    strace's fault injection with numpy 1.26 and 2.4.) Here they are bytes 0xAA.
    """

    @functools.wraps(real)
    def fromfile(
        file: Any, dtype: Any = float, count: int = -1, sep: str = "", offset: int = 0, **like: Any
    ) -> Any:
        if sep or not watched(file):
            return real(file, dtype, count, sep, offset, **like)
        if isinstance(file, str | bytes | os.PathLike):
            with open(file, "rb") as opened:
                return fromfile(opened, dtype, count, sep, offset, **like)
        item = numpy.dtype(dtype)
        held = max(0, _fstat(file.fileno()).st_size - file.tell() - offset) // (item.itemsize or 1)
        n_items = held if count < 0 else min(count, held)
        size: int = n_items * item.itemsize
        found = []

        def read(limit: int | None) -> int:
            if limit is None or limit:  # fread(3) asks again after a short read
                found.append(real(file, dtype, count, sep, offset, **like))
                return size
            none = real(file, dtype, 0, sep, offset, **like)
            found.append(none if count >= 0 else _unread(numpy, item, n_items))
            return 0

        through(
            [("read", (absolute(file),))],
            read,
            size=size,
            instead=lambda: read(0),
        )
        return found[0]

    return fromfile


def _unread(numpy: Any, item: Any, n_items: int) -> Any:
    whole = numpy.empty(n_items, item)
    whole.view(numpy.uint8).fill(_UNREAD)
    return whole


def telling_files(real: Callable[..., Any]) -> Callable[..., Any]:
    """Make what stands in for numpy's ``isfileobj``, by which ``numpy.save`` decides how to write.

    To be told that a file is none makes it call the file's own ``write``.
    """

    @functools.wraps(real)
    def isfileobj(file: Any) -> bool:
        return bool(real(file)) and not (watched(file) and file.writable())

    return isfileobj

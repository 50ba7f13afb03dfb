"""What stands in for the classes `io.FileIO` and `mmap.mmap`."""

import abc
import functools
import io
import mmap
import os
from collections.abc import Callable
from typing import Any, Self, TypeVar

from shardproof.testing.faults.file_system._calls import remember, through
from shardproof.testing.faults.file_system._paths import absolute

__all__ = ["FileIO", "Mmap"]

T = TypeVar("T")

_fstat = os.fstat


class _StandIn(abc.ABCMeta):
    """Lets isinstance and issubclass answer as for the class that is stood in for."""

    def __instancecheck__(cls, instance: object) -> bool:
        return issubclass(type(instance), cls)

    def __subclasscheck__(cls, subclass: type) -> bool:
        if "stands_in" in vars(cls):
            return issubclass(subclass, cls.__mro__[1])
        return super().__subclasscheck__(subclass)


class FileIO(io.FileIO, metaclass=_StandIn):
    """A raw file whose opening, reads, writes and truncation are intercepted."""

    stands_in = True

    def __init__(
        self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None
    ) -> None:
        def open_(_limit: int | None = None) -> None:
            super(FileIO, self).__init__(file, mode, closefd, opener)

        path = absolute(file)
        if isinstance(file, int):
            open_()
            return
        if opener is None:
            through([("open", (path,))], open_, names=(file,))
        else:
            open_()  # whatever the opener calls is counted there
        remember(path, self.fileno())

    def read(self, size: int | None = -1, /) -> Any:
        if size is None or size < 0:
            return self.readall()
        asked: int = size
        return self._through(
            "read",
            lambda limit: super(FileIO, self).read(asked if limit is None else limit),
            asked,
            allowed=self.readable(),
        )

    def readall(self) -> Any:
        """Read as the real one does, one call after the other until there is nothing more."""
        chunks = []
        while chunk := self.read(self._at_once()):
            chunks.append(chunk)
        return None if chunk is None and not chunks else b"".join(chunks)

    def _at_once(self) -> int:
        size = _fstat(self.fileno()).st_size - (self.tell() if self.seekable() else 0)
        return max(size + 1, io.DEFAULT_BUFFER_SIZE)

    def readinto(self, buffer: Any, /) -> Any:
        return self._through(
            "read",
            lambda limit: super(FileIO, self).readinto(_cut(buffer, limit)),
            memoryview(buffer).nbytes,
            allowed=self.readable(),
        )

    def write(self, data: Any, /) -> Any:
        return self._through(
            "write",
            lambda limit: super(FileIO, self).write(_cut(data, limit)),
            memoryview(data).nbytes,
            allowed=self.writable(),
        )

    def truncate(self, size: int | None = None, /) -> Any:
        return self._through(
            "truncate", lambda _: super(FileIO, self).truncate(size), None, allowed=self.writable()
        )

    def _through(
        self, operation: str, run: Callable[[int | None], T], size: int | None, *, allowed: bool
    ) -> T:
        if not allowed:
            return run(None)  # which raises, without a system call
        return through([(operation, (absolute(self.fileno()),))], run, size=size)


def _cut(data: Any, limit: int | None) -> Any:
    return data if limit is None else memoryview(data).cast("B")[:limit]


class Mmap(mmap.mmap, metaclass=_StandIn):
    """A memory map whose making and flushing are intercepted; what the kernel pages in is not."""

    stands_in = True
    _path: str | None

    def __new__(cls, *args: Any, **keywords: Any) -> Self:
        path = absolute(args[0] if args else keywords.get("fileno"))
        new = functools.partial(super().__new__, cls, *args, **keywords)
        made: Self = through([("mmap", (path,))], lambda _: new())
        made._path = path
        return made

    def flush(self, *args: Any) -> Any:
        parts = [("fsync", (self._path,))]
        return through(parts, lambda _: super(Mmap, self).flush(*args))


for _class, _module in ((FileIO, "_io"), (Mmap, "mmap")):
    _class.__name__ = _class.__qualname__ = _class.__mro__[1].__name__
    _class.__module__ = _module

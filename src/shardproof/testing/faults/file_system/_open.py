"""What stands in for `open`, for the classes `io.FileIO` and `mmap.mmap`, and for numpy's reads."""

import abc
import functools
import io
import mmap
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

from shardproof.testing.faults.file_system._schedule import absolute, remember, through, watched

T = TypeVar("T")

_Layers = tuple[str | None, str | None, str | None]  # encoding, errors, newline

_fstat = os.fstat


class _StandIn(abc.ABCMeta):
    """Makes isinstance and issubclass answer as for the class that is stood in for."""

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
        real = super().read
        return self._through("read", lambda limit: real(asked if limit is None else limit), asked)

    def readall(self) -> Any:
        """Read as the real one does, one call after the other until there is nothing more."""
        chunks = []
        while True:
            n_left = _fstat(self.fileno()).st_size - (self.tell() if self.seekable() else 0)
            chunk = self.read(max(n_left + 1, io.DEFAULT_BUFFER_SIZE))
            if not chunk:
                break
            chunks.append(chunk)
        return None if chunk is None and not chunks else b"".join(chunks)

    def readinto(self, buffer: Any, /) -> Any:
        real, size = super().readinto, memoryview(buffer).nbytes
        return self._through("read", lambda limit: real(_cut(buffer, limit)), size)

    def write(self, data: Any, /) -> Any:
        real, size = super().write, memoryview(data).nbytes
        return self._through("write", lambda limit: real(_cut(data, limit)), size)

    def truncate(self, size: int | None = None, /) -> Any:
        real = super().truncate
        return self._through("truncate", lambda _: real(size), None)

    def _through(self, operation: str, run: Callable[[int | None], T], size: int | None) -> T:
        if not (self.readable() if operation == "read" else self.writable()):
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
        real = super().flush
        return through([("fsync", (self._path,))], lambda _: real(*args))


for _class, _module in ((FileIO, "_io"), (Mmap, "mmap")):
    _class.__name__ = _class.__qualname__ = _class.__mro__[1].__name__
    _class.__module__ = _module


def opening(real: Callable[..., Any]) -> Callable[..., Any]:
    """Make the function; below a root it puts the real buffers and decoders on a `FileIO`."""

    @functools.wraps(real)
    def open(  # noqa: A001, PLR0917 - this is what it is
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        layers: _Layers = (encoding, errors, newline)
        if not watched(file) or not _is_valid(mode, buffering, layers):
            return real(file, mode, buffering, *layers, closefd, opener)
        if "b" in mode and buffering == 1:
            warnings.warn("buffering=1 means lines: not for bytes", RuntimeWarning, stacklevel=2)
        if "b" not in mode:
            layers = (io.text_encoding(encoding), errors, newline)
        path = os.fspath(file) if isinstance(file, os.PathLike) else file
        raw = FileIO(path, mode.translate(_RAW_MODE), closefd, opener)
        try:
            return _layered(raw, mode, buffering, layers)
        except BaseException:
            raw.close()
            raise

    return open


_RAW_MODE = str.maketrans("", "", "bt")


def _is_valid(mode: object, buffering: object, layers: _Layers) -> bool:
    """Return whether the real one takes these arguments; what it refuses, it refuses itself."""
    if not isinstance(mode, str) or not isinstance(buffering, int):
        return False
    letters = set(mode)
    if len(letters) != len(mode) or not letters <= set("rwxa+bt"):
        return False
    if len(letters & set("rwxa")) != 1 or {"b", "t"} <= letters:
        return False
    return all(layer is None for layer in layers) if "b" in mode else buffering != 0


def _layered(raw: FileIO, mode: str, buffering: int, layers: _Layers) -> Any:
    if buffering == 0:
        return raw
    by_line = buffering == 1 or (buffering < 0 and raw.isatty())
    size = buffering if buffering > 1 else _fstat(raw.fileno()).st_blksize
    if "+" in mode:
        buffer_class: Callable[..., Any] = io.BufferedRandom
    else:
        buffer_class = io.BufferedReader if "r" in mode else io.BufferedWriter
    buffered = buffer_class(raw, size)
    if "b" in mode:
        return buffered
    encoding, errors, newline = layers
    text = io.TextIOWrapper(buffered, encoding, errors, newline, by_line)
    text.mode = mode  # type: ignore[misc] # read-only for type checkers; the real open sets it too
    return text


def of_numpy() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yield what numpy reads and asks with, and what stands in; unless it is imported later."""
    numpy: Any = sys.modules.get("numpy")
    files: Any = sys.modules.get("numpy.lib.format")
    if not (hasattr(numpy, "fromfile") and hasattr(files, "write_array")):
        return
    home = sys.modules[files.write_array.__globals__["__name__"]]  # depends on numpy's version
    is_file_object: Callable[[Any], bool] = home.isfileobj

    # To be told that a file is none makes numpy.save call the file's own ``write``.
    @functools.wraps(is_file_object)
    def isfileobj(file: Any) -> bool:
        return bool(is_file_object(file)) and not (watched(file) and file.writable())

    yield numpy, "fromfile", _reading(numpy, numpy.fromfile)
    yield home, "isfileobj", isfileobj


def _reading(numpy: Any, real: Callable[..., Any]) -> Callable[..., Any]:
    # The real one takes no notice of errors: it returns fewer items, or, without a ``count``, what
    # the memory held before (found with strace); here those are bytes 0xAA. A call is one read.

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
            nothing = real(file, dtype, 0, sep, offset, **like)
            if count < 0:
                nothing = numpy.empty(n_items, item)
                nothing.view(numpy.uint8).fill(0xAA)
            found.append(nothing)
            return 0

        through([("read", (absolute(file),))], read, size=size, instead=lambda: read(0))
        return found[0]

    return fromfile

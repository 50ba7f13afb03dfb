"""What stands in for the functions of `os`, and for the entries that `os.scandir` yields."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from shardproof.testing.faults.file_system._calls import remember, through, watched
from shardproof.testing.faults.file_system._paths import absolute

__all__ = ["stand_ins"]

_Function = Callable[..., Any]
_Make = Callable[[str, _Function], _Function]


def stand_ins() -> Iterator[tuple[str, _Function]]:
    """Yield the name of each intercepted function of `os`, and what stands in for it."""
    for operation, make, names in _TABLE:
        for name in names.split():
            real = getattr(os, name, None)
            if real is not None:
                yield name, functools.wraps(real)(make(operation, real))


def _by_path(operation: str, real: _Function, *, descriptors_named: bool = True) -> _Function:
    def call(*args: Any, **keywords: Any) -> Any:
        place = _argument(args, keywords, 0, "path")
        path = absolute("." if place is None else place, keywords.get("dir_fd"))
        names = _named(place) if descriptors_named or not isinstance(place, int) else ()
        return through([(operation, (path,))], lambda _: real(*args, **keywords), names=names)

    return call


def _opening(operation: str, real: _Function) -> _Function:
    open_ = _by_path(operation, real)

    def call(*args: Any, **keywords: Any) -> Any:
        # Asked before: if the path is relative, somebody may change the directory meanwhile.
        path = absolute(_argument(args, keywords, 0, "path"), keywords.get("dir_fd"))
        descriptor = open_(*args, **keywords)
        remember(path, descriptor)
        return descriptor

    return call


def _by_descriptor(operation: str, real: _Function) -> _Function:
    def call(*args: Any, **keywords: Any) -> Any:
        path = absolute(_argument(args, keywords, 0, "fd"))
        return through([(operation, (path,))], lambda _: real(*args, **keywords))

    return call


def _by_two_paths(operation: str, real: _Function) -> _Function:
    def call(*args: Any, **keywords: Any) -> Any:
        source, target = _argument(args, keywords, 0, "src"), _argument(args, keywords, 1, "dst")
        paths = (
            absolute(source, keywords.get("src_dir_fd")),
            absolute(target, keywords.get("dst_dir_fd")),
        )
        names = _named(source, target)
        return through([(operation, paths)], lambda _: real(*args, **keywords), names=names)

    return call


def _making_symlink(operation: str, real: _Function) -> _Function:
    """Make it for ``symlink``, whose first argument is a text, and no file that is asked for."""

    def call(*args: Any, **keywords: Any) -> Any:
        text, place = _argument(args, keywords, 0, "src"), _argument(args, keywords, 1, "dst")
        path = absolute(place, keywords.get("dir_fd"))
        names = _named(text, place)
        return through([(operation, (path,))], lambda _: real(*args, **keywords), names=names)

    return call


def _moving(operation: str, real: _Function) -> _Function:
    """Make it for what moves bytes between a descriptor and a buffer, several, or new bytes."""

    def call(*args: Any) -> Any:
        descriptor, amount, *_ = *args, None, None  # too few are for the real one to refuse

        def run(limit: int | None) -> Any:
            if limit is None:
                return real(*args)
            return real(descriptor, _cut(amount, limit), *args[2:])

        return through([(operation, (absolute(descriptor),))], run, size=_size(amount))

    return call


def _copying(source: int, target: int, count: int, names: str) -> _Make:
    """Make it for what moves bytes between two descriptors; both ends are counted."""
    name = names.split()

    def make(_operation: str, real: _Function) -> _Function:
        def call(*args: Any, **keywords: Any) -> Any:
            ends = [_argument(args, keywords, index, name[index]) for index in (source, target)]
            size = _argument(args, keywords, count, name[count])

            def run(limit: int | None) -> Any:
                if limit is None:
                    return real(*args, **keywords)
                given = {**dict(zip(name, args, strict=False)), **keywords, name[count]: limit}
                return real(**given)

            parts = [("read", (absolute(ends[0]),)), ("write", (absolute(ends[1]),))]
            return through(parts, run, size=size)

        return call

    return make


def _argument(args: Sequence[Any], keywords: dict[str, Any], index: int, name: str) -> Any:
    return args[index] if len(args) > index else keywords.get(name)


def _named(*places: Any) -> list[Any]:
    return [os.fspath(place) if isinstance(place, os.PathLike) else place for place in places]


def _size(amount: Any) -> int | None:
    """Return how many bytes; None for a wrong argument, which the real call will refuse."""
    if isinstance(amount, int):
        return amount
    with contextlib.suppress(TypeError):
        return sum(memoryview(buffer).nbytes for buffer in _buffers(amount))
    return None


def _cut(amount: Any, limit: int) -> Any:
    if isinstance(amount, int):
        return limit
    views = []
    for buffer in _buffers(amount):
        views.append(memoryview(buffer).cast("B")[:limit])
        limit -= len(views[-1])
    return views if isinstance(amount, list | tuple) else views[0]


def _buffers(amount: Any) -> Sequence[Any]:
    return amount if isinstance(amount, list | tuple) else [amount]


def _scanning(operation: str, real: _Function) -> _Function:
    """Make the function; below a root, its entries are counted where they ask about a file."""

    def scandir(path: Any = None) -> Any:
        directory = absolute("." if path is None else path)
        if directory is None or not watched(directory):
            return real(path)
        name = os.fspath(path) if isinstance(path, os.PathLike) else path
        names = () if isinstance(path, int) else (name,)
        entries = through([(operation, (directory,))], lambda _: real(path), names=names)
        return _Scan(entries, directory, names)

    return scandir


class _Scan:
    """What `os.scandir` returns; each step is counted."""

    def __init__(self, entries: Any, directory: str, names: Sequence[Any]) -> None:
        self._entries = entries
        self._directory = directory
        self._names = names

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        parts = [("readdir", (self._directory,))]
        entry = through(parts, lambda _: next(self._entries, None), names=self._names)
        if entry is None:
            raise StopIteration
        return _Entry(entry, self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries.close()


class _Entry:
    """An `os.DirEntry` that asks for each type and status as if the listing had not told it.

    There are file systems that tell no type in a listing (readdir(3), d_type); there every entry
    does this.
    """

    def __init__(self, entry: Any, directory: str) -> None:
        self._entry = entry
        self._absolute = os.path.join(directory, os.fsdecode(entry.name))
        self._known: set[bool] = set()

    # isinstance(entry, os.DirEntry) looks here; the class itself can't be inherited from.
    @property  # type: ignore[misc] # a property in place of an attribute is the trick
    def __class__(self) -> type:
        return type(self._entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def __fspath__(self) -> Any:
        return self._entry.path

    def __repr__(self) -> str:
        return repr(self._entry)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._whether(self._entry.is_dir, follow_symlinks=follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._whether(self._entry.is_file, follow_symlinks=follow_symlinks)

    def is_symlink(self) -> bool:
        return self._whether(lambda **_: self._entry.is_symlink(), follow_symlinks=False)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        status: os.stat_result = self._ask(self._entry.stat, follow_symlinks=follow_symlinks)
        return status

    def _whether(self, question: Callable[..., Any], *, follow_symlinks: bool) -> bool:
        try:
            return bool(self._ask(question, follow_symlinks=follow_symlinks))
        except FileNotFoundError:  # which the real entries take for a no
            return False

    def _ask(self, question: Callable[..., Any], *, follow_symlinks: bool) -> Any:
        if follow_symlinks in self._known:  # an entry asks the file system once
            return question(follow_symlinks=follow_symlinks)
        answer = through(
            [("stat", (self._absolute,))],
            lambda _: question(follow_symlinks=follow_symlinks),
            names=(self._entry.path,),
        )
        self._known.add(follow_symlinks)
        return answer


_by_path_not_naming_descriptors = functools.partial(_by_path, descriptors_named=False)

_TABLE: Sequence[tuple[str, _Make, str]] = (
    ("open", _opening, "open"),
    ("stat", _by_path, "stat lstat"),
    ("stat", _by_descriptor, "fstat"),
    ("scandir", _scanning, "scandir"),
    ("scandir", _by_path_not_naming_descriptors, "listdir"),
    ("read", _moving, "read readinto pread readv preadv"),
    ("write", _moving, "write pwrite writev pwritev"),
    ("copy", _copying(1, 0, 3, "out_fd in_fd offset count"), "sendfile"),
    (
        "copy",
        _copying(0, 1, 2, "src dst count offset_src offset_dst flags"),
        "copy_file_range splice",
    ),
    ("fsync", _by_descriptor, "fsync fdatasync"),
    ("truncate", _by_path_not_naming_descriptors, "truncate"),
    ("truncate", _by_descriptor, "ftruncate posix_fallocate"),
    ("rename", _by_two_paths, "rename replace"),
    ("link", _by_two_paths, "link"),
    ("link", _making_symlink, "symlink"),
    ("unlink", _by_path, "unlink remove"),
    ("mkdir", _by_path, "mkdir"),
    ("rmdir", _by_path, "rmdir"),
    ("chmod", _by_path, "chmod chown lchown utime"),
    ("chmod", _by_descriptor, "fchmod fchown"),
)

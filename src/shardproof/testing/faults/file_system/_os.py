"""What stands in for the functions of `os`, and for the entries that `os.scandir` yields."""

import contextlib
import functools
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from shardproof.testing.faults.file_system._schedule import absolute, remember, through, watched

_Function = Callable[..., Any]
_Make = Callable[[str, _Function], _Function]


def stand_ins() -> Iterator[tuple[str, _Function]]:
    """Yield the name of each intercepted function of `os`, and what stands in for it."""
    for operation, make, names in _TABLE:
        for name in names.split():
            real = getattr(os, name, None)
            if real is not None:
                yield name, functools.wraps(real)(make(operation, real))


def _about(arguments: Mapping[str, str | None], *, named: Any = object) -> _Make:
    """Make the stand-in of a function of whole files; arguments: name, and whose directory's fd."""

    def make(operation: str, real: _Function) -> _Function:
        def call(*args: Any, **keywords: Any) -> Any:
            given = {**keywords, **dict(zip(arguments, args, strict=False))}
            # Asked before: if a path is relative, a thread may change the directory meanwhile.
            paths = []
            for name, base in arguments.items():
                place = given.get(name)
                if place is None and name == "path":
                    place = "."  # which os.listdir() lists
                if base is not None:
                    paths.append(absolute(place, given.get(base)))
            names = [
                os.fspath(place) if isinstance(place, os.PathLike) else place
                for place in map(given.get, arguments)
                if isinstance(place, named)
            ]
            result = through([(operation, paths)], lambda _: real(*args, **keywords), names=names)
            if operation == "open":
                remember(paths[0], result)
            return result

        return call

    return make


def _moving(operation: str, real: _Function) -> _Function:
    """Make the stand-in for what moves bytes between a descriptor and a buffer, or several."""

    def call(*args: Any) -> Any:
        amount: Any
        descriptor, amount, *_ = *args, None, None  # too few are for the real one to refuse
        if operation == "read":
            with contextlib.suppress(TypeError):  # what to read into
                amount = operator.index(amount)  # one of numpy is a buffer, too
        buffers = amount if isinstance(amount, list | tuple) else [amount]
        size: int | None = amount if isinstance(amount, int) else None
        if size is None:
            with contextlib.suppress(TypeError):  # which the real one will raise
                size = sum(memoryview(buffer).nbytes for buffer in buffers)

        def run(limit: int | None) -> Any:
            if limit is None:
                return real(*args)
            if isinstance(amount, int):
                return real(descriptor, limit, *args[2:])
            views = []
            for buffer in buffers:
                views.append(memoryview(buffer).cast("B")[:limit])
                limit -= len(views[-1])
            return real(descriptor, views if buffers is amount else views[0], *args[2:])

        return through([(operation, (absolute(descriptor),))], run, size=size)

    return call


def _copying(source: int, target: int, names: str) -> _Make:
    """Make the stand-in for what moves bytes between two descriptors; both ends are counted."""
    name = names.split()

    def make(_operation: str, real: _Function) -> _Function:
        def call(*args: Any, **keywords: Any) -> Any:
            given = {**keywords, **dict(zip(name, args, strict=False))}
            ends = {"read": name[source], "write": name[target]}
            parts = [(end, (absolute(given.get(place)),)) for end, place in ends.items()]
            return through(parts, lambda _: real(*args, **keywords))  # never cut

        return call

    return make


def _scanning(operation: str, real: _Function) -> _Function:
    """Make the stand-in; below a root, its entries are counted where they ask about a file."""

    def scandir(path: Any = None) -> Any:
        directory = absolute("." if path is None else path)
        if directory is None or not watched(directory):
            return real(path)
        name = os.fspath(path) if isinstance(path, os.PathLike) else path
        names = () if isinstance(path, int) else (name,)
        entries = through([(operation, (directory,))], lambda _: real(path), names=names)
        return _Scan(entries, directory, names)

    return scandir


class _Scan(Iterator[Any], contextlib.AbstractContextManager["_Scan"]):
    """What `os.scandir` returns; each step is counted."""

    def __init__(self, entries: Any, directory: str, names: Sequence[Any]) -> None:
        self._entries = entries
        self._directory = directory
        self._names = names

    def __next__(self) -> Any:
        parts = [("readdir", (self._directory,))]
        entry = through(parts, lambda _: next(self._entries, None), names=self._names)
        if entry is None:
            raise StopIteration
        return _Entry(entry, self._directory)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries.close()


class _Entry:
    """An `os.DirEntry` that asks for each type anew, as where listings give none (readdir(3))."""

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


_by_path = _about({"path": "dir_fd"})
_by_path_alone = _about({"path": "dir_fd"}, named=str | bytes | os.PathLike)  # no descriptor
_by_descriptor = _about({"fd": "dir_fd"}, named=())
_by_two_paths = _about({"src": "src_dir_fd", "dst": "dst_dir_fd"})

_TABLE: Sequence[tuple[str, _Make, str]] = (
    ("open", _by_path, "open"),
    ("stat", _by_path, "stat lstat"),
    ("stat", _by_descriptor, "fstat"),
    ("scandir", _scanning, "scandir"),
    ("scandir", _by_path_alone, "listdir"),
    ("read", _moving, "read readinto pread readv preadv"),
    ("write", _moving, "write pwrite writev pwritev"),
    ("copy", _copying(1, 0, "out_fd in_fd offset count"), "sendfile"),
    ("copy", _copying(0, 1, "src dst count offset_src offset_dst flags"), "copy_file_range splice"),
    ("fsync", _by_descriptor, "fsync fdatasync"),
    ("truncate", _by_path_alone, "truncate"),
    ("truncate", _by_descriptor, "ftruncate posix_fallocate"),
    ("rename", _by_two_paths, "rename replace"),
    ("link", _by_two_paths, "link"),
    ("link", _about({"src": None, "dst": "dir_fd"}), "symlink"),
    ("unlink", _by_path, "unlink remove"),
    ("mkdir", _by_path, "mkdir"),
    ("rmdir", _by_path, "rmdir"),
    ("chmod", _by_path, "chmod chown lchown utime"),
    ("chmod", _by_descriptor, "fchmod fchown"),
)

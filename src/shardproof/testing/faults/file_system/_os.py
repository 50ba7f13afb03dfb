"""What stands in for the functions of `os`."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shardproof.testing.faults.file_system._calls import remember, through
from shardproof.testing.faults.file_system._paths import absolute
from shardproof.testing.faults.file_system._scandir import scanning

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


def _by_path_not_naming_descriptors(operation: str, real: _Function) -> _Function:
    return _by_path(operation, real, descriptors_named=False)


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
    """The first argument is what the link says: no file is asked for by that name."""

    def call(*args: Any, **keywords: Any) -> Any:
        text, place = _argument(args, keywords, 0, "src"), _argument(args, keywords, 1, "dst")
        path = absolute(place, keywords.get("dir_fd"))
        names = _named(text, place)
        return through([(operation, (path,))], lambda _: real(*args, **keywords), names=names)

    return call


def _moving(operation: str, real: _Function) -> _Function:
    """For what moves bytes between a descriptor and a buffer, a list of them, or new bytes."""

    def call(*args: Any) -> Any:
        descriptor, amount, *_ = *args, None, None  # too few are for the real one to refuse

        def run(limit: int | None) -> Any:
            if limit is None:
                return real(*args)
            return real(descriptor, _cut(amount, limit), *args[2:])

        return through([(operation, (absolute(descriptor),))], run, size=_size(amount))

    return call


def _copying(source: int, target: int, count: int, names: str) -> _Make:
    """For what moves bytes between two descriptors; both ends are counted."""
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
    """How many bytes; None for a wrong argument, which the real call will refuse."""
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


_TABLE: Sequence[tuple[str, _Make, str]] = (
    ("open", _opening, "open"),
    ("stat", _by_path, "stat lstat"),
    ("stat", _by_descriptor, "fstat"),
    ("scandir", scanning, "scandir"),
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

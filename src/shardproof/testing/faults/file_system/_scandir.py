"""What stands in for `os.scandir`, and for the entries that it yields."""

import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from shardproof.testing.faults.file_system._calls import through, watched
from shardproof.testing.faults.file_system._paths import absolute

__all__ = ["scanning"]


def scanning(operation: str, real: Callable[..., Any]) -> Callable[..., Any]:
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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

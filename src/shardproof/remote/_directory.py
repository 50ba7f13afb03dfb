"""A directory as a store lists it, and its files, of which bytes are asked for where they are.

Names come from outside: those by which no file could lie in a directory are passed over, and noted.
"""

import collections
import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence, Set

from shardproof._base import digest
from shardproof._base.beneath import NotRegularError
from shardproof._base.digest import Digest
from shardproof._base.messages import quoted
from shardproof._base.names import refusals
from shardproof._base.opening import OpenFile
from shardproof._base.work import Deadline, Stop, current
from shardproof.errors import FetchError
from shardproof.fetching import HubSource, Limits, RemoteFile, Source
from shardproof.fetching.transfer import Goal, ask, listed, read_listed

_WINDOW, _MOST_WINDOW = 2**16, 2**21
"""Bytes that are read at once, at first and where reads follow one another."""

_BLOCK_BYTES = 512  # of st_blocks (inode(7))


def unseen(error: FetchError, where: str) -> OSError:
    """Return what is raised where a store could not be asked: what it has may be whole."""
    said = error.causes[-1] if error.causes else error.problem
    return OSError(errno.EIO, said, where)


class ListedDirectory:
    """What a source listed; see `RemoteDirectory`."""

    def __init__(self, source: Source, files: Sequence[RemoteFile], limits: Limits) -> None:
        self.root, self.source, self._limits = source.url, source, limits
        names = [file.name.removesuffix("/") for file in files]
        self._refused = refusals(names, twins=True)
        odd = {refusal.entry for refusal in self._refused}
        self._files = {
            file.name: file
            for entry, file in enumerate(files)
            if entry not in odd and not file.name.endswith("/")
        }
        self._folders: dict[str, list[str]] = {"": []}
        for entry, name in enumerate(names):
            if entry not in odd:
                self._enter(name, is_folder=files[entry].name.endswith("/"))
        for folder, found in self._folders.items():
            self._folders[folder] = sorted({*found})
        self.proven: list[str] = []
        """By what each file was proven that was asked for its digests."""

    def _enter(self, name: str, *, is_folder: bool) -> None:
        if is_folder:
            self._folders.setdefault(name, [])
        while name:
            folder, _, last = name.rpartition("/")
            is_new = folder not in self._folders
            self._folders.setdefault(folder, []).append(last)
            name = folder if is_new else ""

    def status(self, name: str) -> os.stat_result | None:
        """Return what is known of a file or a folder; None where there is none."""
        if (file := self._files.get(name)) is not None:
            return _status(stat.S_IFREG, file)
        return _status(stat.S_IFDIR, RemoteFile(name, 0)) if name in self._folders else None

    def names(self, folder: str) -> Sequence[str]:
        """Return what is in a folder, sorted; nothing where there is none."""
        return self._folders.get(folder, ())

    def open(self, name: str) -> OpenFile:
        """Open a file; no store is asked yet."""
        if (file := self._files.get(name)) is not None:
            return _ListedFile(self, file)
        if name in self._folders:
            raise NotRegularError("directory")
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.root}/{name}")

    def read(self, file: RemoteFile, start: int, stop: int) -> bytes:
        """Return bytes of a file, if it is the one that was listed."""
        return read_listed(self.source, file, start, stop, limits=self._limits)

    def digests_of(self, file: RemoteFile) -> Mapping[tuple[str, int], Digest]:
        """Return the digests that the store states of a file: as listed, else as it is asked."""
        if file.digest is None and not isinstance(self.source, HubSource):
            where = f"{self.root}/{file.name}"
            told = ask(
                self.source,
                file.name,
                goal=Goal(quoted(file.name), where, where),
                limits=self._limits,
                deadline=Deadline(None, current.stop or Stop()),
            )
            file = told if told.size == file.size else file
        stated = (text for text in (file.digest, *file.checksums) if text is not None)
        return {(each.algorithm, 0): each for each in map(digest.parse, digest.provable(stated))}

    def changed(self, names: Iterable[str]) -> list[str]:
        """List it again, and return which files are others by now, or gone."""
        deadline = Deadline(None, current.stop or Stop())
        files = listed(self.source, self._limits, deadline, self.root)
        now = ListedDirectory(self.source, files, self._limits)
        return [name for name in names if now.status(name) != self.status(name)]

    def notes(self) -> tuple[str, ...]:
        """Return what a report says: by what files were proven, and what was passed over."""
        by, self.proven = collections.Counter(self.proven).most_common(), []
        notes = ["verified: " + ", ".join(f"{n} by {what}" for what, n in by)] if by else []
        if self._refused:
            n, first = len(self._refused), self._refused[0]
            what = f"{n} object{'s' * (n > 1)} passed over, since no file can have such a name"
            notes.append(f"{what}: {quoted(first.name)}: {first.reason}")
        return tuple(notes)


def _status(kind: int, file: RemoteFile) -> os.stat_result:
    # The number of a file is another one once the file is, as far as its store tells.
    size, name = file.size or 0, f"{file.name}\0{file.identity}"
    told = hashlib.blake2b(name.encode(errors="backslashreplace"), digest_size=7)
    fields = kind | 0o444, int.from_bytes(told.digest()), 0, 0, 0, 0, size, 0, 0, 0
    more = {"st_blocks": -(-size // _BLOCK_BYTES), "st_mtime_ns": 0, "st_ctime_ns": 0}
    return os.stat_result(fields, more)


class _ListedFile:
    """A file whose bytes are asked for; see `OpenFile`. One that failed once fails again."""

    def __init__(self, directory: ListedDirectory, file: RemoteFile) -> None:
        self._directory, self._file = directory, file
        self.status, self.size = _status(stat.S_IFREG, file), file.size or 0
        self._windows: list[tuple[int, bytes]] = []
        self._ahead = _WINDOW
        self._failure: OSError | None = None

    def __call__(self, n_bytes: int, offset: int = 0, /) -> bytes:
        stop = min(offset + n_bytes, self.size)
        for begin, block in reversed(self._windows):
            if begin <= offset and stop <= begin + len(block):
                return block[offset - begin : stop - begin]
        if offset >= stop:
            return b""
        begin, end = self._window(offset, stop)
        block = self._asked(begin, end)
        self._windows = [*self._windows[-1:], (begin, block)]
        return block[offset - begin : stop - begin]

    def __index__(self) -> int:
        problem = "a file in a bucket has no descriptor: a probe reads by `read(n_bytes, offset)`"
        raise TypeError(problem)

    def _window(self, offset: int, stop: int) -> tuple[int, int]:
        """Return what is read at once: more where reads follow one another, the end as a whole."""
        last, block = self._windows[-1] if self._windows else (0, b"")
        if block and last <= offset <= last + len(block):
            self._ahead = min(2 * self._ahead, _MOST_WINDOW)
        return min(offset, max(0, self.size - _WINDOW)), max(
            stop, min(self.size, offset + self._ahead)
        )

    def _asked(self, start: int, stop: int) -> bytes:
        if self._failure is None:
            try:
                return self._directory.read(self._file, start, stop)
            except FetchError as error:
                self._failure = unseen(error, f"{self._directory.root}/{self._file.name}")
                self._failure.__cause__ = error
        raise self._failure

    def stated(self, asked: Set[tuple[str, int]]) -> Mapping[tuple[str, int], Digest]:
        """Return digests of it that its store states, if those are all that are asked for."""
        found = self._directory.digests_of(self._file) if asked else {}
        if not asked or not asked <= found.keys():
            self._directory.proven += ["reading"] * bool(asked)
            return {}
        names = " and ".join(sorted({algorithm for algorithm, _ in asked}))
        self._directory.proven.append(f"the {names} that the store states")
        return {each: found[each] for each in asked}

    def close(self) -> None:
        """Raise what a reading of it raised: a probe may have taken that for damage."""
        if self._failure is not None:
            raise self._failure

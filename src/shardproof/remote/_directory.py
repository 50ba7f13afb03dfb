"""List what is at an address, and let the listing answer; bytes are asked for where they are.

Names come from outside: those by which no file could lie in a directory are passed over, and noted.
"""

import collections
import contextlib
import errno
import functools
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from shardproof._base import digest
from shardproof._base.addresses import OpenFile, RemoteDirectory, mounted, mounted_at, remote_at
from shardproof._base.beneath import NotRegularError
from shardproof._base.messages import quoted
from shardproof._base.names import Refusal, refusals
from shardproof._base.work import Deadline, Stop, apart
from shardproof.errors import FetchError, ManifestError, ManifestNotFoundError, RevisionError
from shardproof.fetching import HttpSource, Limits, RemoteFile, Source, open_source, sources
from shardproof.fetching.transfer import Goal, ask, listed, read_listed, read_range

_WINDOW, _MOST_WINDOW = 2**16, 2**21  # bytes that are read at once, at first and after some reads
_FILE, _FOLDER = stat.S_IFREG | 0o444, stat.S_IFDIR | 0o444
_BLOCK_BYTES = 512  # of st_blocks (inode(7))
_NOTHING = (
    "no object lies below this address. Are bucket and folder right? A store keeps no empty folders"
)
_NO_LINKS = (
    "the page at this address links to no file below it. Does the server list its folders? If not, "
    "give the address of a store, or fetch the files and check them here"
)


@contextlib.contextmanager
def _asking(where: str) -> Iterator[None]:
    """Raise that a store could not be asked as what it is: nobody could look."""
    try:
        yield
    except FetchError as error:
        raise OSError(errno.EIO, [error.problem, *error.causes][-1], where) from error


@contextlib.contextmanager
def at_address(address: str) -> Iterator[str]:
    """List an address, and yield the path that it then is; see `mounted`."""
    if mounted_at(known := sources.bare(address)):
        yield known
        return
    if sources.is_on_disk(address):
        remote_at(address)  # which says what to give instead
    with contextlib.closing(open_source(address)) as source:
        before, directory = mounted.directories, _listed(source)
        mounted.directories = (*before, directory)
        try:
            yield directory.root
        finally:
            mounted.directories = before


def _listed(source: Source) -> RemoteDirectory:
    try:
        with _asking(source.url):
            files = apart(lambda stop: _files_of(source, stop))
    except OSError as error:
        cause = getattr(error.__cause__, "__cause__", None)  # of the fetch that failed
        is_gone = isinstance(getattr(cause, "__cause__", None), FileNotFoundError)
        if is_gone or isinstance(cause, RevisionError):
            said = f"the store says that it is not there: {error.strerror}"
            raise ManifestNotFoundError(said, path=source.url) from error
        raise
    if [file.name for file in files] == [""]:
        raise ManifestError("expected the address of a directory, found a file", path=source.url)
    if not files:
        what = _NO_LINKS if isinstance(source, HttpSource) else _NOTHING
        raise ManifestNotFoundError(what, path=source.url)
    return ListedFiles(source, files).directory()


def _files_of(source: Source, stop: Stop | None = None) -> Sequence[RemoteFile]:
    """Return what a source lists, a web server in its pages."""
    return listed(source, Limits(), Deadline(None, stop), source.url, links=True)


class ListedFiles:
    """What a source listed, and by what its files were proven."""

    def __init__(self, source: Source, files: Sequence[RemoteFile]) -> None:
        self._source, self._proven = source, list[str]()
        names = [file.name.removesuffix("/") for file in files]
        self._refused = refusals(names, twins=True)
        odd = {refusal.entry for refusal in self._refused}
        self._files, folders = dict[str, RemoteFile](), collections.defaultdict[str, set[str]](set)
        for entry, (name, file) in enumerate(zip(names, files, strict=True)):
            if entry in odd:
                continue
            if name == file.name:
                self._files[name] = file
            else:
                folders[name] |= set()  # all that the file is for
            folder = name
            while folder:
                folder, _, last = folder.rpartition("/")
                is_new = folder not in folders
                folders[folder].add(last)
                folder *= is_new
        self._folders = {folder: sorted(found) for folder, found in folders.items()}
        below = tuple(f"{name}/" for name in self._files.keys() & folders.keys())
        hidden = (n for n, name in enumerate(names) if n not in odd and name.startswith(below))
        self._refused += [Refusal(n, names[n], "its folder is a file, too") for n in hidden]

    def directory(self) -> RemoteDirectory:
        """Return what answers for the address."""
        asked = self.mode, self.status, self.names, self.open, self.changed, self.notes
        return RemoteDirectory(self._source.url, self._source, *asked)

    def mode(self, name: str) -> int:
        if name in self._files:
            return _FILE
        return _FOLDER if name in self._folders else 0

    def status(self, name: str) -> os.stat_result | None:
        if name in self._files:
            return _status(_FILE, self._sized(name))
        return _status(_FOLDER, RemoteFile(name)) if name in self._folders else None

    def _sized(self, name: str) -> RemoteFile:
        """Return what is known of a file; web servers tell its size only if they are asked."""
        file = self._files[name]
        if file.size is None:
            with _asking(self._path(name)):
                file = self._ask(name)
                if file.size is None:  # they may say 0 of any file
                    n_bytes = len(read_range(self._source, name))
                    file = RemoteFile(name, n_bytes, file.identity)
            self._files[name] = file
        return file

    def _ask(self, name: str) -> RemoteFile:
        goal = Goal(quoted(name), self._path(name), "")
        return ask(self._source, name, goal=goal, limits=Limits(), deadline=Deadline(None))

    def names(self, folder: str) -> Sequence[str]:
        return self._folders.get(folder, ())

    def open(self, name: str) -> OpenFile:
        if name in self._files:
            return _ListedFile(self, self._sized(name))
        if name in self._folders:
            raise NotRegularError("directory")
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._source.url}/{name}"

    def read(self, file: RemoteFile, start: int, stop: int) -> bytes:
        with _asking(self._path(file.name)):
            return read_listed(self._source, file, start, stop, limits=Limits())

    def stated(
        self, file: RemoteFile, asked: Set[tuple[str, int]]
    ) -> Mapping[tuple[str, int], digest.Digest]:
        if asked and file.digest is None and isinstance(self._source, sources.FsspecSource):
            with _asking(self._path(file.name)):
                told = self._ask(file.name)
            file = told if told.size == file.size else file
        texts = digest.provable(filter(None, (file.digest, *file.checksums)))
        found = {(each.algorithm, 0): each for each in map(digest.parse, texts)}
        is_all = asked <= found.keys()
        if asked:
            names = " and ".join(sorted({algorithm for algorithm, _ in asked}))
            self._proven.append(f"the {names} that the store states" if is_all else "reading")
        return {each: found[each] for each in asked} if is_all else {}

    def changed(self, names: Iterable[str]) -> list[str]:
        with _asking(self._source.url):
            now = ListedFiles(self._source, _files_of(self._source))
        return [name for name in names if now.status(name) != self.status(name)]

    def notes(self) -> Sequence[str]:
        by, self._proven = collections.Counter(self._proven).most_common(), []
        notes = ["verified: " + ", ".join(f"{n} by {what}" for what, n in by)] if by else []
        if n_refused := len(self._refused):
            _, name, reason = self._refused[0]
            what = f"{n_refused} object{'s' * (n_refused > 1)} passed over, since no file can have"
            notes.append(f"{what} such a name: {quoted(name)}: {reason}")
        return notes


def _status(mode: int, file: RemoteFile) -> os.stat_result:
    # The number of a file is another one once the file is, as far as its store tells.
    size, name = file.size or 0, f"{file.name}\0{file.identity}"
    told = hashlib.blake2b(name.encode(errors="backslashreplace"), digest_size=7)
    fields = mode, int.from_bytes(told.digest()), 0, 0, 0, 0, size, 0, 0, 0
    more = {"st_blocks": -(-size // _BLOCK_BYTES), "st_mtime_ns": 0, "st_ctime_ns": 0}
    return os.stat_result(fields, more)


class _ListedFile:
    """A file whose bytes are asked for; see `OpenFile`. One that failed once fails again."""

    def __init__(self, listed: ListedFiles, file: RemoteFile) -> None:
        self.stated = functools.partial(listed.stated, file)
        self._read = functools.partial(listed.read, file)
        self.status = _status(_FILE, file)
        self._windows: list[tuple[int, bytes]] = []  # two of what was read
        self._ahead = _WINDOW
        self._failure: OSError | None = None

    def __call__(self, n_bytes: int, offset: int = 0, /) -> bytes:
        size = self.status.st_size
        stop = min(offset + n_bytes, size)
        for begin, block in self._windows:
            if begin <= offset and stop <= begin + len(block):
                return block[offset - begin : stop - begin]
        if offset >= stop:
            return b""
        begin = min(offset, max(0, size - _WINDOW))
        self.close()
        try:
            block = self._read(begin, max(stop, min(size, offset + self._ahead)))
        except OSError as error:
            self._failure = error
            raise
        self._ahead = min(2 * self._ahead, _MOST_WINDOW)
        self._windows = [*self._windows[-1:], (begin, block)]
        return block[offset - begin : stop - begin]

    def close(self) -> None:
        if self._failure is not None:  # a probe may have taken it for damage
            raise self._failure

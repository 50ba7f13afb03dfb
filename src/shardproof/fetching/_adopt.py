"""Take over files that other tools fetched as shards of a cache: proven, or on a user's word."""

import contextlib
import fnmatch
import itertools
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from shardproof._base import fanout, files
from shardproof._base.arguments import checked, count
from shardproof._base.messages import quoted, shown, told
from shardproof._base.names import file_type
from shardproof._base.opening import is_there, real_path, refuse_no_path, tree
from shardproof._base.progress import reporting
from shardproof._base.work import Deadline, Stop, apart, telling_of_stops
from shardproof.errors import FetchError
from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.cache._places import STATE, refuse_name
from shardproof.fetching.cache._proofs import OtherBytesError
from shardproof.fetching.sources._open import open_source
from shardproof.fetching.sources._source import Cancellation, RemoteFile, Source
from shardproof.fetching.transfer._attempts import Goal, Limits
from shardproof.fetching.transfer._requests import ask, listed
from shardproof.report import Finding, FindingKind, Report

logger = logging.getLogger("shardproof.fetching.adopt")  # which the command shows also when quiet

_FILE = "a regular file"


@checked
def adopt(
    path: str | os.PathLike[str],
    source: Source | str | None = None,
    *,
    match: str = "*",
    trust: bool = True,
    workers: int | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    cancellation: Cancellation | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> Report:
    """Take over what other tools fetched, so that it need not be fetched again.

    A file whose digest the source states is proven by reading every byte. One whose digest it does
    not state is taken over on your word, if its size is not another one; the report has it among
    the ``unproven``. One that the source does not have is left alone: it is in the log, and not in
    the report. Nothing is moved, changed or removed, neither now nor when it is not needed any
    more; links are not followed. Files whose names begin with a dot are left out, and those that go
    before they are checked.

    Args:
        path: The directory that a prefetcher keeps the source's shards in, or a manager.
        source: Where they come from: a `Source`, or an address for `open_source`. None if it can't
            be asked; then they are taken for what the source has when it is first asked.
        match: Which files, as in `fnmatch`, by their paths below ``path``.
        trust: Whether your word counts; if not, what can't be proven is a finding.
        workers: Files that are read at once; by default as many as there are processors.
        limits: How long and how often the source is asked.
        cancellation: Ends the call with an error, from another thread.
        progress: As for `validate`.

    Returns:
        A report of level ``valid``, about what the source has. A finding is not taken over: it has
        another size or digest, is no regular file, or could not be looked at.

    Raises:
        FetchError: The source can't be asked, or the call was stopped.
        NotADirectoryError: There is something else.
        OSError: The directory can't be used.
        ValueError: An address that names no source; an empty path.

    Example:
        >>> output_dir.mkdir()
        >>> n_bytes = (output_dir / "0.bin").write_bytes(b"1234")
        >>> report = adopt(output_dir)
        >>> report.ok, [file.name for file in report.unproven]
        (True, ['0.bin'])
    """
    refuse_no_path(path=path)
    if workers is not None:
        count("workers", workers, 1)

    def work(own: Stop) -> Report:
        stop = own if cancellation is None else Stop()
        with (cancellation or Cancellation()).register(stop.set), ExitStack() as stack:
            root = real_path(path)
            entries = list(_entries(root, match))
            opened = source
            if isinstance(opened, str):
                opened = stack.enter_context(closing(open_source(opened)))
            asked = _SourceFiles(opened, root, limits, stop)
            cache = stack.enter_context(Cache(root, cleanup="keep"))

            def look(entries: Sequence[tuple[str, int]]) -> list[_Adoption | None]:
                return [_look(cache, asked, trust, *e) for e in entries if not stop.is_set()]

            n_threads = workers or fanout.available_cpus()
            found = fanout.collected(look, entries, n_threads, chunk=1, is_told=True)
        if stop.is_set():
            raise FetchError("it was stopped", path=root)
        looks = [each for each in found if each is not None]
        findings = tuple(look.finding for look in looks if look.finding)
        unproven = tuple(look.path for look in looks if not look.finding and not look.is_proven)
        n_proven = sum(look.is_proven for look in looks)
        return Report(Path(root), "adopted", "valid", len(looks), findings, unproven, n_proven)

    with telling_of_stops(os.fspath(path)), reporting(progress, "files") as show:
        return apart(work, show)


class _Adoption(NamedTuple):
    """What became of a file that is meant: a finding, or whether its digest is proven."""

    path: Path
    finding: Finding | None = None
    is_proven: bool = False


def _entries(root: str, match: str) -> Iterator[tuple[str, int]]:
    """Yield path and type of what lies below a directory, except what is hidden or moved aside."""
    for here, folders, others in tree(root):
        if here != root and STATE in folders:
            problem = "expected the directory of one source, found one in it"
            raise ValueError(f"path: {problem}: '{shown(os.path.relpath(here, root))}'")
        folders[:] = itertools.filterfalse(_is_left_out, folders)
        for each in itertools.filterfalse(_is_left_out, others):
            path = os.path.join(here, each)
            name = os.path.relpath(path, root)
            if fnmatch.fnmatchcase(name, match):
                with contextlib.suppress(FileNotFoundError):  # it is gone by now
                    yield name, os.stat(path, follow_symlinks=False).st_mode


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or files.is_aside(name)


def _look(
    cache: Cache, asked: "_SourceFiles", trust: bool, name: str, mode: int
) -> _Adoption | None:
    """Take over what can be taken over; return None for what the source does not have."""
    path = Path(cache.root, name)
    finding = None
    if not stat.S_ISREG(mode):
        finding = Finding(FindingKind.NOT_REGULAR, path, _FILE, file_type(mode))
    try:
        refuse_name(name)  # whatever the source says of it
    except ValueError as error:
        expected = "a name that a shard can have"
        finding = finding or Finding(FindingKind.UNREADABLE, path, expected, told(error))
    if finding is not None:
        return _Adoption(path, finding)
    file = asked.file(name)
    if file is None:
        logger.warning("'%s' is left alone: the source does not list it", shown(path))
        return None
    try:
        return _Adoption(path, is_proven=cache.take_over(file, asked.stop, trust=trust))
    except OtherBytesError as error:
        kind = FindingKind.SIZE if error.is_size else FindingKind.DIGEST
        return _Adoption(path, Finding(kind, path, error.expected, error.found))
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not is_there(path):
            return None
        problem = error.strerror or told(error)
        return _Adoption(path, Finding(FindingKind.UNREADABLE, path, _FILE, problem, error.errno))


class _SourceFiles:
    """What a source tells of files below ``root``, if there is one to ask."""

    def __init__(
        self, source: Source | None, root: str, limits: Limits, stop: threading.Event
    ) -> None:
        self.stop = stop
        self._source, self._root, self._limits = source, root, limits
        self._listed: dict[str, RemoteFile] = {}
        if source is not None:
            there = listed(source, limits, Deadline(limits.deadline, stop), root)
            self._listed = {file.name: file for file in there}

    def file(self, name: str) -> RemoteFile | None:
        """Return what is told of a file; None if the source does not know of it."""
        if self._source is None:
            return RemoteFile(name)
        listed = self._listed.get(name)
        if listed not in {None, RemoteFile(name)} or (self._listed and listed is None):
            return listed
        path = os.path.join(self._root, name)
        goal = Goal(quoted(name), f"{self._source.url}/{name}", path)
        deadline = Deadline(self._limits.deadline, self.stop)
        file = ask(self._source, name, goal=goal, limits=self._limits, deadline=deadline)
        return listed if file == RemoteFile(name) else file

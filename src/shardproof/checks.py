"""Manifest -> findings, level by level.

The directory is listed once, which tells the type of each file without asking for it (d_type in
readdir(3)). Each promised file is then opened, examined through its descriptor and closed, all
relative to one descriptor of the directory.
"""

import contextlib
import functools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from shardproof._base import digest, fanout
from shardproof._base.fanout import Executor
from shardproof._base.messages import told
from shardproof._base.names import OPEN_FLAGS, NotRegularError, file_type, open_inside, open_root
from shardproof.manifest import Contradiction, Manifest, Probe, PromisedFile
from shardproof.report import Finding, FindingKind, Level, Report

__all__ = ["OnProgress", "check"]

OnProgress = Callable[[int, int], None]
"""Called in the caller's thread with how many files were looked at, and of how many."""

Regular = frozenset[str]

_TYPE_BITS = stat.S_IFMT(0o7777777)


class _Question(NamedTuple):
    """What is asked about every file."""

    root: str
    level: Level
    probe: Probe | None
    digest_threads: int


class _BrokenPromise(NamedTuple):
    """Why a promise is not kept."""

    kind: FindingKind
    expected: str
    found: str
    errno: int | None = None


def check(
    manifest: Manifest,
    *,
    level: Level = "present",
    workers: int | None = None,
    executor: Executor | None = None,
    on_progress: OnProgress | None = None,
    list_first: bool = True,
) -> Report:
    """Return what a look at each promised file found.

    Args:
        manifest: The promise.
        level: How hard to look.
        workers: Number of threads; None to decide by how long the file system takes.
        executor: Look from there instead; each chunk of files opens the directory anew.
        on_progress: Called with how far it is, every few hundred files.
        list_first: Whether to list the directory, which is faster unless it holds far more files
            than are promised.

    Raises:
        ManifestError: The directory is gone, or is none.
        OSError: The directory itself can't be looked at.
    """
    root, n_threads = os.fspath(manifest.root), _digest_threads(manifest.files, level, workers)
    question = _Question(root, level, manifest.probe, n_threads)
    findings: list[Finding] = []
    n_done, n_files = 0, len(manifest.files)
    dir_fd = open_root(question.root)
    try:
        # Closed before the descriptor, which the threads use until they are joined.
        with contextlib.closing(
            _looks(question, dir_fd, manifest.files, workers, executor, list_first=list_first)
        ) as runs:
            for n_looks, broken in runs:
                findings += broken
                n_done += n_looks
                if on_progress is not None:
                    on_progress(n_done, n_files)
    finally:
        os.close(dir_fd)
    n_broken = len(findings)  # one for each file at most; what follows is about the manifest
    findings += _structural(manifest, manifest.damaged)
    if level != "present":
        findings += _structural(manifest, manifest.contradictions())
    unproven = tuple(_unproven(manifest, level, findings))
    n_proven = n_files - n_broken - len(unproven)
    found = tuple(findings)
    return Report(manifest.root, manifest.format, level, n_files, found, unproven, n_proven)


def _digest_threads(files: Sequence[PromisedFile], level: Level, workers: int | None) -> int:
    """Return how many threads hash one file: several files are hashed at once, each in a thread."""
    n_hashed = sum(file.digest is not None for file in files) if level == "valid" else 0
    return fanout.threads_each(min(workers or fanout.available_cpus(), n_hashed))


def _looks(
    question: _Question,
    dir_fd: int,
    files: Sequence[PromisedFile],
    workers: int | None,
    executor: Executor | None,
    *,
    list_first: bool,
) -> fanout.Done[Finding]:
    hashes = question.level == "valid" and any(file.digest is not None for file in files)
    if executor is not None:
        work = functools.partial(_look_from_afar, question)
        return fanout.over_executor(work, files, executor, chunk=1 if hashes else 256)
    regular = _list(dir_fd, workers) if list_first else frozenset()
    work = functools.partial(_look_at_all, question, dir_fd, regular)
    if hashes:
        return fanout.over_threads(work, files, workers or fanout.available_cpus(), chunk=1)
    return fanout.over_threads(work, files, workers)


def _list(dir_fd: int, workers: int | None) -> Regular | None:
    """Return the names of the directory's regular files; None where it holds nothing else.

    Only a help: of a name that is not among them, the type is asked for before it is opened.
    """

    def other_names(entries: Sequence["os.DirEntry[str]"]) -> list[str]:
        return [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]

    try:
        with os.scandir(dir_fd) as iterator:
            entries = list(iterator)
        # Threads, because a file system without d_type has to be asked about each entry.
        runs = fanout.over_threads(other_names, entries, workers)
        others = {name for _, names in runs for name in names}
    except OSError:
        return frozenset()
    return frozenset(entry.name for entry in entries) - others if others else None


def _look_from_afar(question: _Question, files: Sequence[PromisedFile]) -> list[Finding]:
    """Look from wherever an executor runs this, perhaps on another host."""
    dir_fd = open_root(question.root)
    try:
        return _look_at_all(question, dir_fd, frozenset(), files)
    finally:
        os.close(dir_fd)


def _look_at_all(
    question: _Question, dir_fd: int, regular: Regular | None, files: Sequence[PromisedFile]
) -> list[Finding]:
    if question.level == "present" or (question.level == "complete" and question.probe is None):
        files = _not_plainly_kept(question, dir_fd, regular, files)
    findings = []
    for file in files:
        answer = _look_closely(question, dir_fd, file)
        if answer is not None:
            findings.append(Finding(answer.kind, Path(question.root, file.name), *answer[1:]))
    return findings


def _not_plainly_kept(
    question: _Question, dir_fd: int, regular: Regular | None, files: Sequence[PromisedFile]
) -> list[PromisedFile]:
    """Pass over what is listed as a regular file, opens and has its size: nearly every file.

    The time of a look goes into this loop: one more system call costs a tenth of that.
    """
    open_, fstat, close = os.open, os.fstat, os.close
    any_size = question.level == "present"
    odd = []
    for file in files:
        name = file.name
        # Of a folder the listing tells nothing, and the flags only guard the last part of a name.
        if name in regular if regular is not None else "/" not in name:
            try:
                fd = open_(name, OPEN_FLAGS, dir_fd=dir_fd)
                try:
                    status = fstat(fd)
                finally:
                    close(fd)
                size = status.st_size
                if (
                    size
                    and (any_size or size == file.size)
                    and status.st_mode & _TYPE_BITS == stat.S_IFREG
                ):
                    continue
            except OSError:
                pass  # the listing may be out of date, a handle stale: the closer look decides
        odd.append(file)
    return odd


def _look_closely(question: _Question, dir_fd: int, file: PromisedFile) -> _BrokenPromise | None:
    try:
        fd = open_inside(file.name, root=question.root, dir_fd=dir_fd)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise NotRegularError(file_type(status.st_mode))
            if not status.st_size:
                expected = "more than 0 bytes" if file.size is None else f"{file.size} bytes"
                is_kept = file.size == 0
                return None if is_kept else _BrokenPromise(FindingKind.EMPTY, expected, "0 bytes")
            if question.level == "present":
                return None
            return _examine(question, fd, status.st_size, file)
        finally:
            os.close(fd)
    except NotRegularError as error:
        return _BrokenPromise(FindingKind.NOT_REGULAR, "a regular file", error.found)
    except FileNotFoundError as error:
        return _BrokenPromise(FindingKind.MISSING, "a regular file", "nothing", error.errno)
    except OSError as error:
        found = os.strerror(error.errno) if error.errno else told(error)
        return _BrokenPromise(FindingKind.UNREADABLE, "a readable file", found, error.errno)


def _examine(question: _Question, fd: int, size: int, file: PromisedFile) -> _BrokenPromise | None:
    """Look at size, structure and digest, as far as the level asks."""
    if file.size is not None and size != file.size:
        # Interned: where one shard was cut, all of 100 000 may have been, to the same size.
        expected, found = f"{file.size} bytes", f"{size} bytes"
        return _BrokenPromise(FindingKind.SIZE, sys.intern(expected), sys.intern(found))
    mismatch = question.probe(file, fd, size) if question.probe else None
    if mismatch is not None:
        return _BrokenPromise(FindingKind.STRUCTURE, mismatch.expected, mismatch.found)
    if question.level != "valid" or file.digest is None:
        return None
    promised = digest.parse(file.digest)
    size = os.fstat(fd).st_size
    algorithm, n_threads = promised.algorithm, question.digest_threads
    computed = digest.of_file(fd, algorithm, size, start=file.digest_from, threads=n_threads)
    if digest.same(promised, computed):
        return None
    return _BrokenPromise(FindingKind.DIGEST, str(promised), str(computed))


def _structural(manifest: Manifest, known: Iterable[Contradiction]) -> Iterator[Finding]:
    for name, mismatch in known:
        path = manifest.root / name
        yield Finding(FindingKind.STRUCTURE, path, mismatch.expected, mismatch.found)


def _unproven(manifest: Manifest, level: Level, findings: Sequence[Finding]) -> Iterator[Path]:
    """Yield files that look whole, and about which there is nothing at this level to prove."""
    if level == "present" or (level == "complete" and manifest.probe is not None):
        return
    broken = {finding.path for finding in findings}
    for file in manifest.files:
        if (file.digest if level == "valid" else file.size) is None:
            path = manifest.root / file.name
            if path not in broken:
                yield path

"""Looks at every file that a manifest promises, in threads or from an executor, and the report.

The directory is listed once, which tells the type of each file without asking for it (d_type in
readdir(3)). Each promised file is then opened relative to one descriptor of the directory.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from shardproof._base import fanout
from shardproof._base.fanout import Executor
from shardproof._base.names import open_root
from shardproof._base.proofs import SealedProof
from shardproof.checks._look import Links, Noting, Question, Regular, Said, look_at_all
from shardproof.checks._strays import strays
from shardproof.manifest import Contradiction, Manifest, PromisedFile, disagreements
from shardproof.report import Finding, FindingKind, Level, Report

__all__ = ["Links", "OnProgress", "check"]

OnProgress = Callable[[int, int], None]
"""Called in the caller's thread with how many files were looked at, and of how many."""


def check(
    manifest: Manifest,
    *,
    level: Level = "present",
    workers: int | None = None,
    executor: Executor | None = None,
    on_progress: OnProgress | None = None,
    list_first: bool = True,
    links: Links = "inside",
    beside: Sequence[str] | None = None,
    proofs: Mapping[str, SealedProof] | None = None,
    noting: Noting | None = None,
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
        links: Whether links that lead out of the root are followed; those into the format's own
            stores always are.
        beside: Patterns of what may lie beside the promised files; all else is a finding. None to
            look at promised files alone.
        proofs: What a journal tells of files; one that is as it was then is not read again.
        noting: At ``valid``, what is computed of each file besides; and who is told it, and raises
            what this raises.

    Raises:
        ManifestError: The directory is gone, or is none.
        OSError: The directory itself can't be looked at.
    """
    n_threads = _digest_threads(manifest, level, workers, is_noted=noting is not None)
    question = Question(
        root=os.fspath(manifest.root),
        level=level,
        probe=manifest.probe,
        prove=manifest.prove,
        digest_threads=n_threads,
        links=links,
        stores=manifest.stores,
        proofs=proofs or {},
        noting=noting,
    )
    said: list[Said] = []
    n_done, n_files = 0, len(manifest.files)
    dir_fd = open_root(question.root)
    try:
        # Closed before the descriptor, which the threads use until they are joined.
        with contextlib.closing(
            _looks(question, dir_fd, manifest.files, workers, executor, list_first=list_first)
        ) as runs:
            for n_looks, more in runs:
                said += more
                n_done += n_looks
                if on_progress is not None:
                    on_progress(n_done, n_files)
    finally:
        os.close(dir_fd)
    unproven = tuple(each for each in said if isinstance(each, Path))
    findings = _numbered([each for each in said if isinstance(each, Finding)], manifest)
    n_proven = n_files - len(findings) - len(unproven)  # what follows is about the manifest
    findings += _structural(manifest, manifest.damaged)
    if level != "present":
        findings += _structural(manifest, manifest.contradictions())
        findings += _structural(manifest, disagreements(manifest.files))
    if beside is not None:
        findings += strays(manifest, beside)
    return Report(
        path=manifest.root,
        format=manifest.format,
        level=level,
        n_files=n_files,
        findings=tuple(findings),
        unproven=unproven,
        n_proven=n_proven,
        n_unread=said.count(None),
    )


def _digest_threads(
    manifest: Manifest, level: Level, workers: int | None, *, is_noted: bool
) -> int:
    """Return how many threads hash one file: several files are hashed at once, each in a thread."""
    n_hashed = sum(is_noted or bool(file.digests) for file in manifest.files if level == "valid")
    return fanout.threads_each(min(workers or fanout.available_cpus(), n_hashed))


def _looks(
    question: Question,
    dir_fd: int,
    files: Sequence[PromisedFile],
    workers: int | None,
    executor: Executor | None,
    *,
    list_first: bool,
) -> fanout.Done[Said]:
    hashes = question.level == "valid" and (
        (question.prove or question.noting) is not None or any(file.digests for file in files)
    )
    if executor is not None:
        work = functools.partial(_look_from_afar, question)
        return fanout.over_executor(work, files, executor, chunk=1 if hashes else 256)
    regular = _list(dir_fd, workers) if list_first else frozenset()
    work = functools.partial(look_at_all, question, dir_fd, regular)
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


def _look_from_afar(question: Question, files: Sequence[PromisedFile]) -> list[Said]:
    """Look from wherever an executor runs this, perhaps on another host."""
    dir_fd = open_root(question.root)
    try:
        return look_at_all(question, dir_fd, frozenset(), files)
    finally:
        os.close(dir_fd)


def _numbered(findings: list[Finding], manifest: Manifest) -> list[Finding]:
    """Give findings the numbers of the promised files that they are about."""
    if not findings:
        return []
    root = os.path.join(manifest.root, "")
    index_of = {file.name: index for index, file in enumerate(manifest.files)}
    return [
        dataclasses.replace(each, index=index_of[os.fspath(each.path).removeprefix(root)])
        for each in findings
    ]


def _structural(manifest: Manifest, known: Iterable[Contradiction]) -> Iterator[Finding]:
    for name, mismatch in known:
        path = manifest.root / name
        yield Finding(FindingKind.STRUCTURE, path, mismatch.expected, mismatch.found)

"""Looks at every file that a manifest promises, in threads or from an executor, and the report.

The directory is listed once, which tells the type of each file without asking for it (d_type in
readdir(3)). Each promised file is then opened relative to one descriptor of the directory.
"""

import array
import collections
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
from shardproof.checks._look import Links, Question, Regular, Said, look_at_all
from shardproof.checks._strays import strays
from shardproof.manifest import Contradiction, Manifest, PromisedFile
from shardproof.report import Finding, FindingKind, Level, MoreFindings, Report

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
    most: int | None = None,
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
        most: How many findings the report has whole; further ones are counted. None for all.

    Raises:
        ManifestError: The directory is gone, or is none.
        OSError: The directory itself can't be looked at.
    """
    n_threads = _digest_threads(manifest, level, workers)
    question = Question(
        root=os.fspath(manifest.root),
        level=level,
        probe=manifest.probe,
        prove=manifest.prove,
        digest_threads=n_threads,
        links=links,
        stores=manifest.stores,
        proofs=proofs or {},
    )
    tally = _FindingCounter(manifest, most)
    n_done, n_files = 0, len(manifest.files)
    dir_fd = open_root(question.root)
    try:
        # Closed before the descriptor, which the threads use until they are joined.
        with contextlib.closing(
            _looks(question, dir_fd, manifest.files, workers, executor, list_first=list_first)
        ) as runs:
            for n_looks, said in runs:
                tally.add_looks(said, range(n_done, n_done + n_looks))
                n_done += n_looks
                if on_progress is not None:
                    on_progress(n_done, n_files)
    finally:
        os.close(dir_fd)
    n_proven = n_files - tally.n_findings - len(tally.unproven)  # what follows is of the manifest
    tally.add(_structural(manifest, manifest.damaged))
    if level != "present":
        tally.add(_structural(manifest, manifest.contradictions()))
    if beside is not None:
        tally.add(strays(manifest, beside))
    return Report(
        path=manifest.root,
        format=manifest.format,
        level=level,
        n_files=n_files,
        findings=tuple(tally.kept),
        unproven=tuple(tally.unproven),
        n_proven=n_proven,
        n_unread=tally.n_unread,
        more=MoreFindings(tally.counts, tally.n_unseen, tally.names, tally.indices),
    )


class _FindingCounter:
    """What there is to say of files, as it comes: the first findings are kept, others counted."""

    def __init__(self, manifest: Manifest, most: int | None) -> None:
        self._files, self._root = manifest.files, os.path.join(manifest.root, "")
        self._most = most
        self.kept: list[Finding] = []
        self.unproven: list[Path] = []
        self.n_unread = self.n_unseen = 0
        self.counts = collections.Counter[FindingKind]()
        self.names, self.indices = list[str](), array.array("Q")

    @property
    def n_findings(self) -> int:
        """How many there are by now."""
        return len(self.kept) + self.counts.total()

    def add_looks(self, said: Sequence[Said], of: range) -> None:
        """Add what looks at some of the promised files said, whose numbers are these."""
        self.n_unread += said.count(None)
        self.unproven += [each for each in said if isinstance(each, Path)]
        findings = [each for each in said if isinstance(each, Finding)]
        numbers = {self._files[n].name: n for n in of} if findings else {}
        for finding in findings:
            number = numbers[os.fspath(finding.path).removeprefix(self._root)]
            if self._is_kept(finding):
                self.kept.append(dataclasses.replace(finding, index=number))
            elif finding.conclusive:
                self.names.append(self._files[number].name)
                self.indices.append(number)

    def add(self, findings: Iterable[Finding]) -> None:
        """Add findings that are about no promised file."""
        self.kept += filter(self._is_kept, findings)

    def _is_kept(self, finding: Finding) -> bool:
        """Whether there is room for one more finding; where there is none, it is counted."""
        if self._most is None or len(self.kept) < self._most:
            return True
        self.counts[finding.kind] += 1
        self.n_unseen += not finding.conclusive
        return False


def _digest_threads(manifest: Manifest, level: Level, workers: int | None) -> int:
    """Return how many threads hash one file: several files are hashed at once, each in a thread."""
    n_hashed = sum(file.digest is not None for file in manifest.files) if level == "valid" else 0
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
        question.prove is not None or any(file.digest is not None for file in files)
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


def _structural(manifest: Manifest, known: Iterable[Contradiction]) -> Iterator[Finding]:
    for name, mismatch in known:
        path = manifest.root / name
        yield Finding(FindingKind.STRUCTURE, path, mismatch.expected, mismatch.found)

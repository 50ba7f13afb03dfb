"""Looks at every file that a manifest promises, in threads or from an executor, and the report.

The directory is listed once, which tells the type of each file without asking for it (d_type in
readdir(3)). Each expected file is then opened relative to one descriptor of the directory.
"""

import contextlib
import dataclasses
import fnmatch
import functools
import itertools
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from shardproof._base import fanout
from shardproof._base.addresses import remote_at
from shardproof._base.messages import quoted
from shardproof._base.names import file_type, open_root, spelled
from shardproof._base.opening import (
    UNFINISHED,
    Descriptor,
    closing_fd,
    files_below,
    is_conclusive,
    mode_of,
    names_in,
)
from shardproof.checks._engine import Engine, Executor
from shardproof.checks._look import (
    Links,
    Question,
    Regular,
    Said,
    Unproven,
    judge,
    look_at_all,
)
from shardproof.checks._near import with_near_files
from shardproof.checks._proofs import FileRead, SealedProof, journal, journal_name, proofs_of
from shardproof.manifest import Contradiction, ExpectedFile, Manifest, RefusedEntry, disagreements
from shardproof.report import Finding, FindingKind, Level, MoreFindings, Report

__all__ = [
    "Executor",
    "FileRead",
    "Links",
    "Said",
    "SealedProof",
    "Unproven",
    "check",
    "flaw_of",
    "journal",
    "journal_name",
    "proofs_of",
]


def check(
    manifest: Manifest,
    *,
    level: Level = "present",
    workers: int | None = None,
    executor: Executor | None = None,
    is_told: bool = False,
    list_first: bool = True,
    links: Links = "inside",
    beside: Sequence[str] | None = None,
    proofs: Mapping[str, SealedProof] | None = None,
    most: int | None = None,
    algorithm: str | None = None,
    note: Callable[[FileRead], None] | None = None,
    share: slice = slice(None),
    joining: Callable[[fanout.Done[Said]], fanout.Done[Said]] = lambda runs: runs,
) -> Report:
    """Return what a look at each expected file found; the arguments are those of `validate`."""
    # A file that is as ``proofs`` tell is not read again. Digests by ``algorithm`` are told to
    # ``note``, whose errors end the look. Of more than ``most`` findings the others are counted. Of
    # a ``share`` of the files, ``joining`` adds to what is said of them what is said of the others.
    to_hash = manifest.files if level == "valid" else ()
    n_hashed = sum(algorithm is not None or bool(file.digests) for file in to_hash)
    question = Question(
        root=os.fspath(manifest.root),
        level=level,
        probe=manifest.probe,
        prove=manifest.prove,
        # Several files are hashed at once, each in a thread.
        digest_threads=fanout.threads_each(min(workers or fanout.available_cpus(), n_hashed)),
        links="none" if links == "inside" and not manifest.links else links,
        stores=manifest.stores,
        proofs=proofs or {},
        algorithm=algorithm,
    )
    files, notes = manifest.files, list(manifest.notes)
    found = _Collected(question.root, files, most)
    with closing_fd(open_root(question.root)) as dir_fd:
        own = files[share]
        if executor is None:
            runs = _looks(question, dir_fd, own, workers, list_first=list_first)
        else:
            runs = Engine(executor, question, dir_fd, own).run(notes)
        # Closed before the descriptor, which the threads use until they are joined.
        with contextlib.closing(fanout.telling(runs, len(own)) if is_told else runs) as runs:
            for _, said in joining(runs):
                found.take(said, note)
        found.kept = with_near_files(question, dir_fd, files, found.kept)
    found.add(_about_the_manifest(manifest, level, {each.path for each in found.kept}))
    if beside is not None or manifest.permits is not None:
        found.add(_strays(manifest, beside, follow=links == "follow"))
    return Report(
        path=manifest.root,
        format=manifest.format,
        level=level,
        n_files=len(files),
        findings=tuple(found.kept),
        unproven=tuple(each.path for each in found.unproven),
        n_proven=len(files) - found.n_broken - len(found.unproven),
        n_unread=found.n_unread,
        n_agreed=sum(each.agrees for each in found.unproven),
        notes=tuple(notes),
        more=found.more,
    )


class _Collected:
    """What a check has said so far; of more than ``most`` findings the others are counted."""

    def __init__(self, root: str, files: Sequence[ExpectedFile], most: int | None) -> None:
        self._begin, self._files, self._most = os.path.join(root, ""), files, most
        self._numbers = dict[str, int]()
        self.kept, self.more = list[Finding](), MoreFindings()
        self.unproven, self.n_unread, self.n_broken = list[Unproven](), 0, 0

    def take(self, said: Sequence[Said], note: Any) -> None:
        """Take in what was said of some files; of most of them that is nothing."""
        for each in said:
            if isinstance(each, Finding):
                if not self._numbers:
                    self._numbers = {file.name: number for number, file in enumerate(self._files)}
                name = os.fspath(each.path).removeprefix(self._begin)
                self.add([dataclasses.replace(each, index=self._numbers[name])])
                self.n_broken += 1
            elif each is None:
                self.n_unread += 1
            elif isinstance(each, FileRead):
                note(each)
            else:
                self.unproven.append(each)

    def add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if self._most is None or len(self.kept) < self._most:
                self.kept.append(finding)
            else:
                name = "" if finding.index is None else self._files[finding.index].name
                self.more.add(finding, name)


def flaw_of(manifest: Manifest, file: ExpectedFile, fd: int) -> str | None:
    """Return how an open file, whose digest was proven, is not as expected at ``valid``."""
    own = [] if file.digest is None or file.digest_from else [(file.digest, 0)]
    proofs = {file.name: SealedProof.of(own)}
    root = os.fspath(manifest.root)
    question = Question(root, "valid", manifest.probe, manifest.prove, proofs=proofs)
    answer = judge(question, Descriptor(fd), file)
    if isinstance(answer, Finding):
        return f"expected {answer.expected}, found {answer.found}"
    return None


def _looks(
    question: Question,
    dir_fd: int,
    files: Sequence[ExpectedFile],
    workers: int | None,
    *,
    list_first: bool,
) -> fanout.Done[Said]:
    hashes = question.level == "valid" and (
        (question.prove or question.algorithm) is not None or any(file.digests for file in files)
    )
    is_here = remote_at(question.root) is None  # what is elsewhere was listed, and makes it wait
    regular = _list(dir_fd, workers) if list_first and is_here else frozenset()
    work = functools.partial(look_at_all, question, dir_fd, regular)
    if hashes and is_here:
        return fanout.over_threads(work, files, workers or fanout.available_cpus(), chunk=1)
    return fanout.over_threads(work, files, workers)


def _list(dir_fd: int, workers: int | None) -> Regular | None:
    """Return the names of regular files, as a help only; None where there is nothing else."""

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


def _about_the_manifest(
    manifest: Manifest, level: Level, seen: Container[object]
) -> Iterator[Finding]:
    known: list[Iterable[Contradiction]] = [manifest.damaged]
    if level != "present":
        known += [manifest.contradictions(), disagreements(manifest.files), _unfinished(manifest)]
    for each in itertools.chain.from_iterable(known):
        path, is_of_entry = manifest.root / each.name, isinstance(each, RefusedEntry)
        if path in seen and each in manifest.damaged and not is_of_entry:
            continue  # it is one of the files, too
        yield Finding(
            FindingKind.STRUCTURE, path, each.expected, each.found, is_of_entry=is_of_entry
        )


def _strays(manifest: Manifest, beside: Sequence[str] | None, *, follow: bool) -> Iterator[Finding]:
    """Yield a finding for each file, or link, that is not promised nor fits ``beside``, if any."""
    promised = {file.name for file in manifest.files}
    patterns = ("*",) if beside is None else beside
    is_beside = re.compile("|".join(map(fnmatch.translate, patterns)) or r"(?!)").match
    permits, root = manifest.permits or (lambda *_: True), os.fspath(manifest.root)
    for name in spelled(files_below(root, hidden=True), promised, root):
        if name not in promised and not (is_beside(name) and permits(name, follow)):
            path = manifest.root / name
            yield Finding(FindingKind.STRAY, path, "nothing", f"a {file_type(mode_of(path))}")


def _unfinished(manifest: Manifest) -> Iterator[Contradiction]:
    """Yield expected files beside which a download has left its mark, such as ``x.aria2``."""
    promised, root = {file.name for file in manifest.files}, os.fspath(manifest.root)
    for folder in sorted({name.rpartition("/")[0] for name in promised}):
        try:
            names = names_in(manifest.root / folder)
        except OSError as error:
            if is_conclusive(error.errno):  # it leads nowhere, or may not be listed
                continue
            raise
        marks = [os.path.join(folder, name) for name in names if name.lower().endswith(UNFINISHED)]
        wholes = [os.path.splitext(mark)[0] for mark in marks]
        for mark, whole in zip(marks, spelled(wholes, promised, root), strict=True):
            if whole in promised and mark not in promised:
                found = f"{quoted(mark)} beside it: let that end, or remove both and fetch it again"
                yield Contradiction(whole, "a finished download", found)

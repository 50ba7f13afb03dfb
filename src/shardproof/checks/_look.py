"""Check some expected files: each is opened, examined through its descriptor and closed.

At 100 000 files one more system call from Python in `_not_plainly_kept` is a tenth of the whole. So
it does nothing else, and `_look_closely` finds the words for whatever it does not wave through.
"""

import contextlib
import dataclasses
import errno
import os
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from shardproof._base import digest
from shardproof._base.addresses import path_of, remote_at
from shardproof._base.messages import told
from shardproof._base.names import (
    OPEN_FLAGS,
    NotRegularError,
    file_type,
    open_file,
    open_folder,
    open_inside,
    open_regular,
)
from shardproof._base.opening import Descriptor, OpenFile
from shardproof._base.work import go_on
from shardproof.checks._proofs import FileRead, SealedProof
from shardproof.manifest import ExpectedFile, Mismatch, Probe, Prove
from shardproof.probes.impostors import impostor, is_text
from shardproof.report import Finding, FindingKind, Level

Links = Literal["inside", "follow"]
"""Which symbolic links are followed: those that stay in the directory, or all."""

Regular = frozenset[str]
"""Names that a listing of the directory shows as regular files."""

_TYPE_BITS = stat.S_IFMT(0o7777777)
_BLOCK_BYTES = 512  # of st_blocks (inode(7))


class Unproven(NamedTuple):
    """A file that could not be proven, and whether checksums that are no proof agree with it."""

    path: Path
    agrees: bool


class Question(NamedTuple):
    """What is asked about every file."""

    root: str
    level: Level
    probe: Probe | None
    prove: Prove | None
    digest_threads: int = 1
    links: Links | Literal["none"] = "inside"
    stores: Sequence[str] = ()
    proofs: Mapping[str, SealedProof] = {}
    algorithm: str | None = None  # of a digest that is computed besides

    def broken(self, file: ExpectedFile, kind: FindingKind, *about: Any) -> Finding:
        """Return a finding about a file: what was expected, what was found, and an errno."""
        return Finding(kind, path_of(self.root, file.name), *about)

    def unproven(self, file: ExpectedFile, *, agrees: bool = False) -> Unproven:
        """Return that a file could not be proven."""
        return Unproven(path_of(self.root, file.name), agrees)


Said = Finding | FileRead | Unproven | None
"""A finding; what was read; what could not be proven; None for a file that was not read again."""

_Answer = Said | Literal["kept"]


def look_at_all(
    question: Question, dir_fd: int, regular: Regular | None, files: Sequence[ExpectedFile]
) -> list[Said]:
    """Return what there is to say of files that are not simply as expected."""
    is_brief = question.level == "present" or (question.level == "complete" and not question.probe)
    if is_brief and remote_at(question.root) is None:
        files = _not_plainly_kept(question, dir_fd, regular, files)
    with contextlib.closing(_Opener(question, dir_fd)) as opener:
        answers = (_look_closely(question, opener, file) for file in files)
        return [each for each in answers if each != "kept"]


def _not_plainly_kept(
    question: Question, dir_fd: int, regular: Regular | None, files: Sequence[ExpectedFile]
) -> list[ExpectedFile]:
    """Pass over what is listed as a regular file, opens and has its size: nearly every file."""
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
                    and (any_size or (size == file.size and not _may_be_unwritten(status)))
                    and status.st_mode & _TYPE_BITS == stat.S_IFREG
                ):
                    continue
            except OSError:
                pass  # the listing may be out of date, a handle stale: the closer look decides
        odd.append(file)
    return odd


class _Opener:
    """Opens files of the root. The folder of the last one stays open: the next is mostly in it."""

    def __init__(self, question: Question, dir_fd: int) -> None:
        self._question, self._dir_fd = question, dir_fd
        self._folder, self._fd = "", -1
        self._is_here = remote_at(question.root) is None

    def open(self, name: str) -> OpenFile:
        """Open a file; by a link that leaves the root only where that is promised, or asked for."""
        if not self._is_here:
            return open_file(name, root=self._question.root, dir_fd=self._dir_fd)
        folder, _, last = name.rpartition("/")
        if folder != self._folder:
            self._enter(folder)
        if self._fd >= 0:
            with contextlib.suppress(OSError, NotRegularError):  # the whole name tells which
                if (fd := open_regular(last, self._fd)) is not None:
                    return Descriptor(fd)
        return Descriptor(self._walk(name))

    def close(self) -> None:
        """Close the folder."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _enter(self, folder: str) -> None:
        self.close()
        self._folder, root = folder, self._question.root
        with contextlib.suppress(OSError, NotRegularError):
            links = self._question.links != "none"
            self._fd = open_folder(folder, root=root, dir_fd=self._dir_fd, links=links)

    def _walk(self, name: str) -> int:
        links, root = self._question.links, self._question.root
        try:
            return open_inside(name, root=root, dir_fd=self._dir_fd, links=links != "none")
        except NotRegularError as error:
            if (target := error.outside) is None:
                raise
            stores = self._question.stores
            is_stored = any(os.path.commonpath([each, target]) == each for each in stores)
            fd = open_regular(target) if is_stored or links == "follow" else None
            if fd is None:  # it is not meant, or became a link meanwhile
                raise
            return fd


def _look_closely(question: Question, opener: _Opener, file: ExpectedFile) -> _Answer:
    try:
        opened = opener.open(file.name)
        try:
            return judge(question, opened, file)
        finally:
            opened.close()
    except NotRegularError as error:
        return question.broken(file, FindingKind.NOT_REGULAR, "a regular file", error.found)
    except FileNotFoundError as error:
        return question.broken(file, FindingKind.MISSING, "a regular file", "nothing", error.errno)
    except OSError as error:
        found = error.strerror or told(error)
        return question.broken(file, FindingKind.UNREADABLE, "a readable file", found, error.errno)


def judge(question: Question, opened: OpenFile, file: ExpectedFile) -> _Answer:
    """Judge an open file, whatever its name is."""
    if file.is_listed_only:
        question = question._replace(probe=None, prove=None)
    status = opened.status
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError(file_type(status.st_mode))
    if not status.st_size and file.size != 0:
        expected = "more than 0 bytes" if file.size is None else f"{file.size} bytes"
        return question.broken(file, FindingKind.EMPTY, expected, "0 bytes")
    return "kept" if question.level == "present" else _examine(question, opened, status, file)


def _examine(
    question: Question, opened: OpenFile, status: os.stat_result, file: ExpectedFile
) -> _Answer:
    """Look at size, structure and bytes, as far as the level asks."""
    is_asked = question.level == "valid"
    answer: _Answer = _judge_outside(question, opened, status, file) if status.st_size else None
    if answer is None and not (is_asked and file.digests):
        answer = _judge_unknown(question, opened, status.st_size, file)
    if answer is None:
        answer = _judge_bytes(question, opened, status, file) if is_asked else "kept"
    if isinstance(answer, Finding) and (instead := impostor(opened, status.st_size)) is not None:
        return dataclasses.replace(answer, kind=FindingKind.IMPOSTOR, found=instead)
    return answer


def _judge_outside(
    question: Question, opened: OpenFile, status: os.stat_result, file: ExpectedFile
) -> Finding | None:
    """Judge a file by all but its digest."""
    size = status.st_size
    if file.size is not None and size != file.size:
        # Interned: where one shard was cut, all of 100 000 may have been, to the same size.
        expected, found = f"{file.size} bytes", f"{size} bytes"
        return question.broken(file, FindingKind.SIZE, sys.intern(expected), sys.intern(found))
    is_owed = file.n_items != 0 and (question.level == "complete" or file.digest is None)
    if is_owed and isinstance(opened, int) and _may_be_unwritten(status):
        try:
            os.lseek(opened, 0, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing was ever written; else that can't be told
                hole = f"a hole of {size} bytes"
                return question.broken(file, FindingKind.UNWRITTEN, "data", hole)
    mismatch = question.probe(file, opened, size) if question.probe else None
    if mismatch is None:
        return None
    return question.broken(file, FindingKind.STRUCTURE, mismatch.expected, mismatch.found)


def _may_be_unwritten(status: os.stat_result) -> bool:
    """Whether a file has fewer blocks than bytes; where a file system compresses, every one has."""
    return status.st_blocks * _BLOCK_BYTES < status.st_size


def _judge_unknown(
    question: Question, opened: OpenFile, size: int, file: ExpectedFile
) -> _Answer | None:
    """Judge a file of which nothing is known, neither size nor structure: by its first bytes."""
    if file.size is not None or question.probe is not None:
        return None
    instead = impostor(opened, size, among_texts=is_text(file.name))
    if instead is not None:
        return question.broken(file, FindingKind.IMPOSTOR, "what its name says", instead)
    return None if question.level == "valid" else question.unproven(file)


def _judge_bytes(
    question: Question, opened: OpenFile, status: os.stat_result, file: ExpectedFile
) -> _Answer:
    """Judge a file by each digest that is stated of it, and by the checksums that it has itself."""
    if not (file.digests or question.prove or question.algorithm):
        return question.unproven(file)
    stated = [(digest.parse(text), begin) for text, begin in file.digests]
    asked = {(each.algorithm, begin) for each, begin in stated}
    if question.algorithm is not None:
        asked.add((question.algorithm, 0))
    journal = question.proofs.get(file.name)
    known = journal and journal.digests_of(status, stated, asked)
    if known and question.algorithm is None:
        return None
    size, n_threads = opened.status.st_size, question.digest_threads
    by_store = opened.stated(asked)
    found = known or by_store
    if not found:
        found = digest.each_of_file(opened, asked, size, threads=n_threads, go_on=go_on)
    for promised, begin in stated:
        computed = found[promised.algorithm, begin]
        if promised != computed:
            return question.broken(file, FindingKind.DIGEST, str(promised), str(computed))
    is_whole = journal is not None and journal.is_whole
    inside = question.prove if size and not by_store else None
    proof = is_whole or (inside(file, opened, size) if inside else False)
    if isinstance(proof, Mismatch):
        return question.broken(file, FindingKind.DIGEST, proof.expected, proof.found)
    if question.algorithm is not None:
        return FileRead(file.name, found, status, opened.status, time.time(), bool(known))
    is_kept = stated or proof is True
    return "kept" if is_kept else question.unproven(file, agrees=bool(proof))

"""What is staged, and one process's part in it."""

import contextlib
import dataclasses
import errno
import functools
import glob
import hashlib
import logging
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from shardproof import _fanout, _files, _json, formats
from shardproof._work import in_threads
from shardproof.checks import OnProgress, check
from shardproof.errors import ManifestError, ShardReadError
from shardproof.manifest import Manifest, PromisedFile
from shardproof.report import Finding, Level, Report
from shardproof.staging._copies import BrokenPromiseError, StagedFiles, StoppedError

__all__ = ["StageJob", "StageSource"]

logger = logging.getLogger("shardproof.staging")

_SHOWN_NAME = 100
_TEMPORARY = ".shardproof-*.tmp"


@dataclasses.dataclass(frozen=True, slots=True)
class StageSource:
    """A shards directory that is to be copied.

    Attributes:
        root: Its real absolute path.
        manifest: What it promises.
        listing: Name of the file that lists the shards.
        data: The bytes of that file.
        files: Every other file that belongs to it.
    """

    root: str
    manifest: Manifest
    listing: str
    data: bytes
    files: Sequence[PromisedFile]

    @classmethod
    def read(cls, root: str) -> "StageSource":
        """Return what there is to copy; raises as `shardproof.validate` does."""
        form = formats.detect(root)
        listing = min(glob.glob(form.manifest_file, root_dir=root), default=form.manifest_file)
        data = _json.read_bytes(root, listing, max_bytes=_json.MAX_BYTES)
        manifest = form.read(root)
        parts = [
            name for pattern in form.further_parts for name in glob.glob(pattern, root_dir=root)
        ]
        files = {file.name: file for file in (*map(PromisedFile, sorted(parts)), *manifest.files)}
        files.pop(listing, None)
        source = cls(root, manifest, listing, data, list(files.values()))
        source.refuse_change()
        return source

    @property
    def name(self) -> str:
        """The name of the directory of its copy."""
        digest = hashlib.blake2b(os.fsencode(self.root) + b"\0" + self.data, digest_size=8)
        shown = re.sub(r"[^0-9A-Za-z_.\-]", "_", os.path.basename(self.root))[:_SHOWN_NAME]
        return f"{shown}-{digest.hexdigest()}"

    def read_listing(self, root: str) -> bytes:
        """Return the bytes of the list of shards, there or in the copy."""
        return _json.read_bytes(root, self.listing, max_bytes=_json.MAX_BYTES)

    def refuse_change(self) -> None:
        """Raise if the list of shards is not the one that was read."""
        if self.read_listing(self.root) != self.data:
            problem = "it changed while it was staged: stage it when nobody writes to it"
            raise ShardReadError(problem, path=os.path.join(self.root, self.listing))

    def check(self, names: set[str], level: Level) -> Report:
        """Look at some of its files; digests are compared later, when they are copied."""
        files = [file for file in self.manifest.files if file.name in names]
        looked = dataclasses.replace(self.manifest, files=files)
        many = 2 * len(files) >= len(self.manifest.files)
        at = "complete" if level == "valid" else level
        return check(looked, level=at, list_first=many)

    def report(self, level: Level, findings: Sequence[Finding]) -> Report:
        """Return what was found while it was copied."""
        n_files = len(self.manifest.files)
        return Report(self.manifest.root, self.manifest.format, level, n_files, tuple(findings))


class StageJob:
    """One process's part in a copy.

    Args:
        source: What is copied.
        place: Absolute path of the directory of the copy.
        level: How hard to look.
        threads: How many files to copy at once.
        on_progress: Told how many files are there, and of how many.
    """

    def __init__(
        self,
        source: StageSource,
        place: str,
        level: Level,
        threads: int,
        on_progress: OnProgress | None,
    ) -> None:
        self.source, self.place, self.level = source, place, level
        self.files = StagedFiles(source.root, place, hashes=level == "valid")
        self._threads, self._on_progress = threads, on_progress
        self._error: BaseException | None = None

    def run(self) -> Path:
        """Return the copy's directory when all of it is there and proven; raises as `stage`."""
        report = self._bring_and_check()
        if report.findings:
            # The disk lost something that was proven: once more, without believing what it had.
            logger.warning("%s\nThese files are copied again", report)
            for finding in report.findings:
                self.files.distrust(os.path.relpath(finding.path, self.place))
            report = self._bring_and_check()
        report.raise_for_findings()
        return Path(self.place)

    def _bring_and_check(self) -> Report:
        unproven = self._unproven()
        self.source.check(
            {self.source.files[i].name for i in unproven}, self.level
        ).raise_for_findings()
        self._bring_all(unproven)
        self.source.refuse_change()
        self._write_listing()
        return self._check()

    def _unproven(self) -> list[int]:
        """Numbers of the files that are to be copied, in an order of this process's own.

        Several processes at once begin at different places, and so seldom wait for each other.
        """
        free, in_flight = self._free()
        names = [file.name for file in self.source.files]
        todo = [index for index, name in enumerate(names) if not self.files.is_proven(name)]
        self._refuse_small_disk(todo, free + in_flight)
        middle = secrets.randbelow(len(todo)) if todo else 0
        return todo[middle:] + todo[:middle]

    def _free(self) -> tuple[int, int]:
        """Bytes that are free, and that others' unfinished copies take of those that are not."""
        found = os.statvfs(self.place)
        pattern = os.path.join(glob.escape(self.place), "**", _TEMPORARY)
        in_flight = 0
        for path in glob.iglob(pattern, recursive=True, include_hidden=True):
            with contextlib.suppress(FileNotFoundError):
                in_flight += os.stat(path).st_blocks * 512
        return found.f_bavail * found.f_frsize, in_flight

    def _refuse_small_disk(self, todo: Sequence[int], free: int) -> None:
        wanted = sum(self.files.source_size(self.source.files[index].name) for index in todo)
        if wanted > free:
            problem = (
                f"expected {wanted} bytes free for {len(todo)} files of '{self.source.root}', "
                f"found {free}; make room, or stage to another disk"
            )
            raise OSError(errno.ENOSPC, problem, self.place)

    def _bring_all(self, todo: Sequence[int]) -> None:
        """Copy what no other process is copying, then see to the rest."""
        findings: list[Finding] = []
        done = len(self.source.files) - len(todo)
        for wait in (False, True):
            left: list[int] = []
            with contextlib.closing(self._runs(todo, wait)) as runs:
                for n_files, outcomes in runs:
                    found = [outcome for outcome in outcomes if isinstance(outcome, Finding)]
                    busy = [outcome for outcome in outcomes if isinstance(outcome, int)]
                    findings += found
                    left += busy
                    done += n_files - len(busy)
                    if self._on_progress is not None:
                        self._on_progress(done, len(self.source.files))
            todo = left
        self.source.report(self.level, findings).raise_for_findings()

    def _runs(self, todo: Sequence[int], wait: bool) -> _fanout.Done[Finding | int]:
        work = functools.partial(self._bring, wait)
        runs = in_threads(
            work,
            [[index] for index in todo],
            n_threads=self._threads,
            name="shardproof-stage",
            stop=self.files.stop,
        )
        try:
            for outcomes in runs:
                yield 1, outcomes
        except StoppedError:
            if self._error is None:
                raise
            raise self._error from None
        finally:
            runs.close()
            self.files.stop.clear()

    def _bring(self, wait: bool, indices: Sequence[int]) -> list[Finding | int]:
        """What is wrong with some files, and the numbers of those that others are at."""
        outcomes: list[Finding | int] = []
        for index in indices:
            try:
                if not self.files.bring(index, self.source.files[index], wait=wait):
                    outcomes.append(index)
            except BrokenPromiseError as error:
                outcomes.append(error.finding)
            except StoppedError:
                raise
            except BaseException as error:
                self._error = self._error or error
                self.files.stop.set()
                raise
        return outcomes

    def _write_listing(self) -> None:
        """Last of all: a directory without it is no shards directory."""
        with contextlib.suppress(ManifestError, OSError):
            if self.source.read_listing(self.place) == self.source.data:
                return
        path = os.path.join(self.place, self.source.listing)
        with _files.being_written(path, sync=False) as fd, open(fd, "wb", closefd=False) as file:
            file.write(self.source.data)

    def _check(self) -> Report:
        """Look at the copy, as whoever reads it will."""
        manifest = formats.detect(self.place).read(self.place)
        files = [self.files.promised(file) for file in self.source.files]
        return check(dataclasses.replace(manifest, files=files), level=self.level)

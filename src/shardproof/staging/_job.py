"""One process's part in a copy."""

import contextlib
import errno
import functools
import logging
import os
import secrets
from collections.abc import Sequence

from shardproof import formats
from shardproof._base import fanout
from shardproof._base import files as _files
from shardproof._base.messages import printable, shown, told
from shardproof._base.opening import is_directory, tree
from shardproof._base.work import in_threads
from shardproof.checks import OnProgress
from shardproof.errors import ManifestError, ShardReadError
from shardproof.report import Finding, Level, Report
from shardproof.staging._copies import BrokenPromiseError, StagedFiles, StoppedError
from shardproof.staging._source import StageSource

__all__ = ["StageJob"]

logger = logging.getLogger("shardproof.staging")


class StageJob:
    """One process's part in a copy.

    Args:
        source: What is copied.
        place: Absolute path of the directory in which it is made.
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
        self._all = [*source.parts, *source.promised]
        self.files = StagedFiles(source.root, place, hashes=level == "valid")
        self._threads, self._on_progress = threads, on_progress
        self._error: BaseException | None = None
        self._strange: list[str] = []

    def run(self) -> None:
        """Return when all of the copy is there and proven; raises as `stage`."""
        self._bring_what_lacks()
        doubted = self._doubted()
        if doubted:
            for name in doubted:
                self.files.distrust(name)
            self._bring_what_lacks()
            self._check().raise_for_findings()

    def _doubted(self) -> list[str]:
        """Names of files that are to be copied again, since the disk lost what was proven."""
        try:
            report = self._check()
        except PermissionError:  # nobody could look: nothing is known to be lost
            raise
        except (ManifestError, ShardReadError) as error:
            self._refuse_moved()
            logger.warning("%s\nWhat states the promise is copied again", told(error))
            return [file.name for file in self.source.parts]
        if report.findings:
            self._refuse_moved()
            logger.warning("%s\nThese files are copied again", printable(str(report)))
        return [os.path.relpath(finding.path, self.place) for finding in report.findings]

    def _refuse_moved(self) -> None:
        """Raise if the copy is not there any more: mostly it has its final name by now."""
        if not is_directory(self.place):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.place)

    def _bring_what_lacks(self) -> None:
        """What is promised comes before the promise, and the list of shards is the last of all."""
        todo = self._unproven()
        wanted = {self._all[index].name for index in todo}
        self.source.check(wanted, self.level).raise_for_findings()
        self._drop_what_is_gone()
        n_parts = len(self.source.parts)
        parts = [index for index in todo if index < n_parts]
        self._bring_all([index for index in todo if index >= n_parts], then=len(parts))
        self._bring_all(parts, then=0)
        self.source.refuse_change()
        self._write_listing()

    def _drop_what_is_gone(self) -> None:
        """Let the copy promise no more than the source; what was not staged stays, for `_check`."""
        surplus = self.source.surplus_in(self.place)
        self._strange = [name for name in surplus if not self.files.drop(name)]

    def _unproven(self) -> list[int]:
        """Numbers of the files that are to be copied, in an order of this process's own.

        Several processes at once begin at different places, and so seldom wait for each other.
        """
        free, in_flight = self._free()
        names = [file.name for file in self._all]
        todo = [index for index, name in enumerate(names) if not self.files.is_proven(name)]
        self._refuse_small_disk(todo, free + in_flight)
        middle = secrets.randbelow(len(todo)) if todo else 0
        return todo[middle:] + todo[:middle]

    def _free(self) -> tuple[int, int]:
        """Bytes that are free, and that others' unfinished copies take of those that are not."""
        found = os.statvfs(self.place)
        in_flight = 0
        for folder, _, names in tree(self.place):
            for name in filter(_files.is_temporary, names):
                with contextlib.suppress(FileNotFoundError):
                    in_flight += os.lstat(os.path.join(folder, name)).st_blocks * 512
        return found.f_bavail * found.f_frsize, in_flight

    def _refuse_small_disk(self, todo: Sequence[int], free: int) -> None:
        wanted = sum(self.files.source_size(self._all[index].name) for index in todo)
        if wanted > free:
            problem = (
                f"expected {wanted} bytes free for {len(todo)} files of "
                f"'{shown(self.source.root)}', found {free}; make room, or stage to another disk"
            )
            raise OSError(errno.ENOSPC, problem, self.place)

    def _bring_all(self, todo: Sequence[int], then: int) -> None:
        """Copy what no other process is copying, then what was left; ``then`` so many follow."""
        findings: list[Finding] = []
        done = len(self._all) - len(todo) - then
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
                        self._on_progress(done, len(self._all))
            todo = left
        self.source.report(self.level, findings).raise_for_findings()

    def _runs(self, todo: Sequence[int], wait: bool) -> fanout.Done[Finding | int]:
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
                if not self.files.bring(index, self._all[index], wait=wait):
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
            if self.source.is_listed_in(self.place):
                return
        path = os.path.join(self.place, self.source.listing)
        with (
            _files.being_written(path, sync=False) as fd,
            _files.telling_where(path),
            open(fd, "wb", closefd=False) as file,
        ):
            file.write(self.source.stated[self.source.listing])

    def _check(self) -> Report:
        """Look at the copy, as whoever reads it will."""
        path = self.source.at(self.place)
        copy = formats.detect(path).read_manifest(path)
        self.source.refuse_other(copy, self._strange)
        files = [self.files.promised(file) for file in self._all]
        return self.source.check_copy(copy, files, self.level)

"""One process's part in a copy."""

import contextlib
import errno
import functools
import logging
import os
import secrets
from collections.abc import Generator, Sequence

from shardproof import formats
from shardproof._base import files as _files
from shardproof._base.fanout import in_threads
from shardproof._base.messages import printable, shown, told
from shardproof._base.opening import is_directory, tree
from shardproof._base.work import Cancelled, go_on
from shardproof.checks import OnProgress
from shardproof.errors import ManifestError, ShardReadError
from shardproof.report import Finding, Level, Report
from shardproof.staging._copies import BrokenPromiseError, StagedFiles
from shardproof.staging._proofs import telling_whole
from shardproof.staging._source import StageSource

logger = logging.getLogger("shardproof.staging")


class StageJob:
    """One process's part in the copy of ``source``, which is made in the directory ``place``."""

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
            _raise_for_findings(self._check())

    def _doubted(self) -> list[str]:
        """Return the names of files to copy again, since the disk lost what was proven."""
        try:
            report = self._check()
        except PermissionError:  # it could not be looked at: nothing is known to be lost
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
        """Copy what is promised before the promise, and the list of shards as the last of all."""
        todo = self._unproven()
        wanted = {self._all[index].name for index in todo}
        _raise_for_findings(self.source.check(wanted, self.level))
        # The copy is to promise no more than the source; what was not staged stays, for `_check`.
        surplus = self.source.surplus_in(self.place)
        self._strange = [name for name in surplus if not self.files.drop(name)]
        n_parts = len(self.source.parts)
        parts = [index for index in todo if index < n_parts]
        self._bring_all([index for index in todo if index >= n_parts], then=len(parts))
        self._bring_all(parts, then=0)
        self.source.refuse_change()
        self._write_listing()

    def _unproven(self) -> list[int]:
        """Return the numbers of the files to copy, in an order of this process's own.

        Several processes at once begin at different places, and so seldom wait for each other.
        """
        found = os.statvfs(self.place)
        free = found.f_bavail * found.f_frsize
        for folder, _, names in tree(self.place):
            # Unfinished copies of the same files give their room back.
            for name in filter(_files.is_temporary, names):
                with contextlib.suppress(FileNotFoundError):
                    free += os.lstat(os.path.join(folder, name)).st_blocks * 512
        names = [file.name for file in self._all]
        todo = [index for index, name in enumerate(names) if not self.files.is_proven(name)]
        wanted = sum(self.files.source_size(names[index]) for index in todo)
        if wanted > free:
            problem = (
                f"expected {wanted} bytes free for {len(todo)} files of "
                f"'{shown(self.source.root)}', found {free}; make room, or stage to another disk"
            )
            raise OSError(errno.ENOSPC, problem, self.place)
        middle = secrets.randbelow(len(todo)) if todo else 0
        return todo[middle:] + todo[:middle]

    def _bring_all(self, todo: Sequence[int], then: int) -> None:
        """Copy what no other process is copying, then what was left; ``then`` so many follow."""
        findings: list[Finding] = []
        done = len(self._all) - len(todo) - then
        for wait in (False, True):
            left: list[int] = []
            with contextlib.closing(self._outcomes(todo, wait)) as outcomes:
                for index, outcome in zip(todo, outcomes, strict=True):
                    if isinstance(outcome, Finding):
                        findings.append(outcome)
                    if outcome is False:
                        left.append(index)
                    else:
                        done += 1
                    if self._on_progress is not None:
                        self._on_progress(done, len(self._all))
            todo = left
        manifest, found = self.source.manifest, tuple(findings)
        report = Report(manifest.root, manifest.format, self.level, len(manifest.files), found)
        report.raise_for_findings()

    def _outcomes(self, todo: Sequence[int], wait: bool) -> Generator[Finding | bool, None, None]:
        """Yield what `_bring` returns of each file; raise the first error that one met."""
        outcomes = in_threads(
            functools.partial(self._bring, wait),
            todo,
            n_threads=self._threads,
            name="shardproof-stage",
            stop=self.files.stop,
        )
        try:
            yield from outcomes
        except Cancelled:
            go_on()  # where all of the work is wanted no more, that is what ends it
            if self._error is None:
                raise
            raise self._error from None
        finally:
            outcomes.close()
            self.files.stop.clear()

    def _bring(self, wait: bool, index: int) -> Finding | bool:
        """Copy a file; return what is wrong with the source's, or False if others are at it."""
        try:
            return self.files.bring(index, self._all[index], wait=wait)
        except BrokenPromiseError as error:
            return error.finding
        except Cancelled:
            raise
        except BaseException as error:
            self._error = self._error or error
            self.files.stop.set()
            raise

    def _write_listing(self) -> None:
        """Write the list of shards, last of all: without it, a directory is no shards directory."""
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
        """Look at the copy, as its readers will."""
        path = self.source.at(self.place)
        with telling_whole(self.place):
            copy = formats.detect(path).read_manifest(path)
        self.source.refuse_other(copy, self._strange)
        files = [self.files.promised(file) for file in self._all]
        return self.source.check_copy(copy, files, self.level)


def _raise_for_findings(report: Report) -> None:
    """Raise what is wrong; an `OSError` where all that is known is that no look was possible.

    `ShardValidationError` says of its files that they are not there.
    """
    unseen = [finding for finding in report.findings if not finding.conclusive]
    if unseen and len(unseen) == len(report.findings):
        first, n_files = unseen[0], report.n_files
        problem = f"could not look at {len(unseen)} of {n_files} files: {first.found}; the first is"
        raise OSError(first.errno, problem, str(first.path))
    report.raise_for_findings()

"""Repair a directory: fetch what is missing or wrong, prove it, and leave all else alone."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from shardproof import formats
from shardproof._base import fanout, files
from shardproof._base.arguments import checked, count
from shardproof._base.messages import shown, told
from shardproof._base.opening import is_link, is_there, names_in, real_path, refuse_empty
from shardproof._base.progress import bar
from shardproof._base.work import Deadline, apart, to_waiter
from shardproof.checks import check
from shardproof.errors import FetchError
from shardproof.fetching import (
    Cancellation,
    FsspecSource,
    HttpSource,
    HubSource,
    Limits,
    RemoteFile,
    Source,
    fetch_file,
    open_source,
)
from shardproof.fetching.transfer import listed
from shardproof.manifest import PromisedFile
from shardproof.promises import Promise, promise_of
from shardproof.report import Finding, FindingKind, Level, Report

__all__ = ["Repair", "Replacement", "repair"]

_AT_ONCE = 4
"""Files that are fetched at once; a large one uses several connections by itself."""

_N_ADDED = len(".bad-01234567")
"""Characters that are added to the name of a file which is moved aside."""

_WRONG_BYTES = {
    *(FindingKind.DIGEST, FindingKind.EMPTY, FindingKind.IMPOSTOR, FindingKind.SIZE),
    *(FindingKind.STRUCTURE, FindingKind.UNWRITTEN),
}


class Replacement(NamedTuple):
    """A file that is to be fetched.

    Attributes:
        name: Its promised name.
        size: Its bytes, where the promise or the source tells.
    """

    name: str
    size: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Repair:
    """What was broken, what was fetched, and what is left.

    Attributes:
        wanted: What was missing or wrong and can be fetched, in the manifest's order; then what a
            promise that was fetched itself names.
        repaired: Names of those that are as promised now; none in a dry run.
        failed: Names of those that could not be fetched, or are not as promised even now, and why.
        report: What is left, as `validate` would find it now; a file that was whole at the first
            look is not looked at again.
    """

    wanted: tuple[Replacement, ...]
    repaired: tuple[str, ...]
    failed: Mapping[str, str]
    report: Report

    @property
    def ok(self) -> bool:
        """Whether every promise is kept now."""
        return self.report.ok

    @property
    def n_bytes(self) -> int:
        """How many bytes what is wanted has, as far as that is known."""
        return sum(file.size or 0 for file in self.wanted)

    def __bool__(self) -> bool:
        """Whether every promise is kept now, as of a report."""
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain JSON values."""
        return {
            "wanted": [file._asdict() for file in self.wanted],
            "n_bytes": self.n_bytes,
            "repaired": list(self.repaired),
            "failed": dict(self.failed),
            "report": self.report.to_dict(),
        }


@checked
def repair(
    path: str | os.PathLike[str],
    source: Source | str,
    *,
    level: Level = "valid",
    format: str | None = None,  # noqa: A002 - as of validate
    against: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    workers: int | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    progress: bool | Callable[[int, int], None] = False,
    cancellation: Cancellation | None = None,
) -> Repair:
    """Fetch what a directory promises and does not have as promised, and nothing else.

    Each file is fetched beside its place, proven by its size and digest as far as anybody states
    them, looked at as `validate` does, and only then the wrong one, which was moved aside, is
    removed. Interrupted and called again it does what is left.

    Args:
        path: The directory.
        source: Where its files are: a `Source`, an address, or a directory.
        level: How hard to look for what is wrong; at ``"valid"`` every byte is read whose digest is
            known.
        format: Name of its format, where the directory does not tell it.
        against: The promise, where it is elsewhere; see `validate`.
        dry_run: Only tell what would be fetched.
        workers: How many files are fetched at once; by default 4.
        limits: How long and how often to try.
        progress: True for a bar on a terminal; or a callable that gets how many files are fetched,
            and of how many.
        cancellation: Ends the call with an error, from another thread.

    Returns:
        What was done. What could not be fetched is in ``failed``, and its finding in ``report``.

    Raises:
        ManifestError: What is promised can't be read: name another promise by ``against``.
        FetchError: The source can't be asked, or the call was stopped.
        ValueError: An address that names no source; an empty path.

    Example:
        >>> import shardproof
        >>> from shardproof.testing.faults import serve_hub
        >>> whole = {path.name: path.read_bytes() for path in shards_dir.iterdir()}
        >>> (shards_dir / "acts000001.bin").unlink()
        >>> with serve_hub(whole) as hub:
        ...     repair = shardproof.repair(shards_dir, source=hub.url)
        >>> repair.ok, repair.repaired
        (True, ('acts000001.bin',))
    """
    refuse_empty(path=path, source=source if isinstance(source, str) else None, against=against)
    if workers is not None:
        count("workers", workers, 1)
    form = None if format is None else formats.get(format)
    chosen = bar("repair") if progress is True else contextlib.nullcontext(progress or None)
    with chosen as on_progress:

        def work(stop: Any) -> Repair:
            located = formats.locate(path)
            ask = functools.partial(
                promise_of, located.path, form=form, against=against, level=level
            )
            promise = ask()
            report = check(promise.manifest, level=level)
            report = dataclasses.replace(report, path=Path(located.path))
            with contextlib.ExitStack() as stack:
                stack.enter_context((cancellation or Cancellation()).register(stop.set))
                opened = source
                if isinstance(opened, str):
                    opened = _opened(opened, located.root)
                    stack.enter_context(contextlib.closing(opened))
                visit = _RepairVisit(promise, opened, level, limits, stop)
                done = Repair((), (), {}, report)
                while wanted := visit.wanted(done):
                    if dry_run:
                        return dataclasses.replace(done, wanted=tuple(visit.told(wanted)))
                    failed = visit.fetch(wanted, workers or _AT_ONCE, to_waiter(on_progress))
                    done = visit.judge(done, wanted, failed, promise if against else ask())
                return done

        return apart(work)


def _opened(address: str, root: str) -> HubSource | HttpSource | FsspecSource:
    if "://" in address:
        return open_source(address)
    if real_path(address) == root:
        problem = "expected a source that is another one, found the directory itself"
        raise ValueError(f"source: {problem}, '{shown(root)}'")
    return open_source(f"file://{os.path.abspath(address)}")


class _RepairVisit:
    """What is asked of the source, and what comes of it."""

    def __init__(
        self, promise: Promise, source: Source, level: Level, limits: Limits, stop: Any
    ) -> None:
        self._promise, self._manifest = promise, promise.manifest
        self._root = os.fspath(self._manifest.root)
        self._source, self._level, self._limits, self._stop = source, level, limits, stop
        deadline = Deadline(limits.deadline, stop)
        there = listed(source, limits, deadline, self._root)
        self._there: Mapping[str, RemoteFile] = {file.name: file for file in there}

    def wanted(self, done: Repair) -> list[PromisedFile]:
        """Return what is to be fetched, and was not tried yet."""
        tried = {file.name for file in done.wanted}
        broken = [self._manifest.files[index] for index in done.report.broken().indices]
        return [file for file in broken if file.name not in tried]

    def told(self, wanted: Sequence[PromisedFile]) -> Iterator[Replacement]:
        """Yield what is to be fetched, with its size."""
        for file in wanted:
            there = self._there.get(self._promise.name_at_source(file.name))
            told_size = None if there is None else there.size
            yield Replacement(file.name, told_size if file.size is None else file.size)

    def fetch(
        self,
        wanted: Sequence[PromisedFile],
        workers: int,
        on_progress: Callable[[int, int], object] | None,
    ) -> dict[str, str]:
        """Fetch files; return why those that could not be fetched could not."""
        failed: dict[str, str] = {}
        n_done = 0
        with contextlib.closing(
            fanout.over_threads(self._fetched, wanted, workers, chunk=1)
        ) as runs:
            for n_more, problems in runs:
                failed |= problems
                n_done += n_more
                if on_progress is not None:
                    on_progress(n_done, len(wanted))
        if self._stop.is_set():
            raise FetchError("it was stopped", path=self._root)
        return failed

    def _fetched(self, wanted: Sequence[PromisedFile]) -> list[tuple[str, str]]:
        problems = []
        for file in wanted:
            if self._stop.is_set():
                break
            try:
                self._fetch_one(file)
            except (FetchError, ValueError) as error:
                problems.append((file.name, told(error)))
        return problems

    def _fetch_one(self, file: PromisedFile) -> None:
        name = self._promise.name_at_source(file.name)
        known = self._there.get(name)
        if self._there and known is None:
            raise ValueError("the source has no such file")
        size = None if known is None else known.size
        if None not in {size, file.size} and size != file.size:
            raise ValueError(f"expected {file.size} bytes, the source has {size}")
        digest, target = None if file.digest_from else file.digest, self._target(file.name)
        if digest is None and (known is None or known.digest is None) and is_there(target):
            self._move_aside(file, target)
        fetch_file(
            self._source,
            name,
            target,
            file=known or (file.size and RemoteFile(name, size=file.size)) or None,
            digest=digest,
            limits=self._limits,
        )

    def _move_aside(self, file: PromisedFile, target: str) -> None:
        """Move a file aside that its structure alone tells from the right one, as no fetch does.

        Unless it is right by now, since somebody else repairs too, or nobody can look at it.
        """
        if any(finding.kind in _WRONG_BYTES for finding in self._look_at([file]).findings):
            files.move_aside(target)

    def _target(self, name: str) -> str:
        """Return where a file is to be: behind its link, if that stays where it may lead."""
        path = os.path.join(self._root, name)
        folder = real_path(os.path.dirname(path))
        target = real_path(path) if is_link(path) else os.path.join(folder, os.path.basename(path))
        for root in (self._root, *self._manifest.stores):
            if os.path.commonpath([root, target]) == root:
                return target
        raise ValueError(f"it is a link that leads out, to '{shown(target)}'")

    def judge(
        self,
        done: Repair,
        wanted: Sequence[PromisedFile],
        failed: Mapping[str, str],
        promise: Promise,
    ) -> Repair:
        """Look again at what was fetched, and remove the wrong files that it is in the place of.

        The promise is the one of now: an index or a list may be among what was fetched.
        """
        fetched = [file.name for file in wanted if file.name not in failed]
        asked, seen = tuple(self.told(wanted)), self._manifest.files
        self._promise, self._manifest = promise, promise.manifest
        report = self._look_again(done.report, seen, {file.name for file in wanted})
        wrong = dict(self._problems(report, fetched))
        repaired = tuple(name for name in fetched if name not in wrong)
        for name in repaired:
            self._remove_asides(name)
        # Last, because a promise of nothing else counts what was moved aside.
        rest = check(dataclasses.replace(self._manifest, files=()), level=self._level)
        report = dataclasses.replace(report, findings=(*report.findings, *rest.findings))
        failed = {**done.failed, **failed, **wrong}
        return Repair((*done.wanted, *asked), (*done.repaired, *repaired), failed, report)

    def _look_again(
        self, before: Report, seen: Sequence[PromisedFile], tried: Collection[str]
    ) -> Report:
        """Return what there is to say about files; what was seen and promised so is not asked."""
        known = {file.name: file for file in seen if file.name not in tried}
        files = self._manifest.files
        anew = [file for file in files if known.get(file.name) != file]
        looked = self._look_at(anew)
        number_of = {file.name: number for number, file in enumerate(files)}
        stands = number_of.keys() - {file.name for file in anew}
        found = [each for each in _named(before, seen) if each[0] in stands]
        found += _named(looked, anew)
        findings = [dataclasses.replace(finding, index=number_of[name]) for name, finding in found]
        paths = {self._manifest.root / name for name in stands} if before.unproven else ()
        unproven = [*(path for path in before.unproven if path in paths), *looked.unproven]
        return dataclasses.replace(
            before,
            n_files=len(files),
            findings=tuple(sorted(findings, key=attrgetter("index"))),
            unproven=tuple(unproven),
            n_proven=len(files) - len(findings) - len(unproven),
        )

    def _look_at(self, some: Sequence[PromisedFile]) -> Report:
        manifest = dataclasses.replace(self._manifest, files=some, damaged=(), contradictions=tuple)
        return check(manifest, level=self._level)

    def _problems(self, report: Report, fetched: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield which of the fetched files are not as promised, and why."""
        found = dict(_named(report, self._manifest.files))
        promised = {file.name for file in self._manifest.files}
        for name in fetched:
            if name in found:
                yield name, f"expected {found[name].expected}, found {found[name].found}"
            elif name not in promised:
                yield name, "it was fetched, and is not promised any more"

    def _remove_asides(self, name: str) -> None:
        """Remove what was moved aside under the name of a file that is whole now."""
        folder, base = os.path.split(self._target(name))
        for other in names_in(folder):
            if files.is_aside(other) and other[:-_N_ADDED] == base:
                files.remove(os.path.join(folder, other))


def _named(report: Report, files: Sequence[PromisedFile]) -> Iterator[tuple[str, Finding]]:
    """Yield the findings about promised files, with the names of those."""
    for finding in report.findings:
        if finding.index is not None:
            yield files[finding.index].name, finding

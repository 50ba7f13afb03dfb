"""Repair a directory: check, want, fetch beside, prove, exchange, until nothing is left."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shardproof import formats
from shardproof._base.addresses import is_address
from shardproof._base.arguments import checked, count
from shardproof._base.messages import shown
from shardproof._base.names import open_root, replaced
from shardproof._base.opening import closing_fd, is_directory, is_there, real_path, refuse_empty
from shardproof._base.progress import reporting
from shardproof._base.work import Deadline, apart, telling_of_stops
from shardproof.checks import Executor
from shardproof.errors import FetchError, ManifestError
from shardproof.fetching import Cancellation, Limits, Source, open_source, sources
from shardproof.fetching.transfer import listed, parts_beneath
from shardproof.manifest import ExpectedFile
from shardproof.promises import Promise, promise_of
from shardproof.repairing._fetch import Fetcher, broken_in, look, sweep, want
from shardproof.report import MOST_KEPT, FindingKind, Level, MoreFindings, Report

__all__ = ["Repair", "Replacement", "repair"]

_IN_STORE = (
    "upload the files that `shardproof validate --json` lists again, with the store's own tool; or "
    "repair a local copy, and synchronize it"
)
_AT_ONCE = 4
"""Files that are fetched at once; a large one uses several connections by itself."""


class Replacement(NamedTuple):
    """A file that is to be fetched.

    Attributes:
        name: Its name in the manifest.
        size: Its bytes, where the manifest or the source states them.
    """

    name: str
    size: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Repair:
    """What was broken, what was fetched, and what is left.

    Attributes:
        wanted: What was missing or wrong and can be fetched, in the manifest's order; then what a
            manifest that was fetched itself lists.
        repaired: Names of those that are as expected now; none in a dry run.
        failed: Names of those that could not be fetched, or are not as expected even now, and why.
            Those that could not be fetched are as they were.
        report: What is left, as `validate` finds it now; what was proven is not read again.
    """

    wanted: tuple[Replacement, ...]
    repaired: tuple[str, ...]
    failed: Mapping[str, str]
    report: Report

    @property
    def ok(self) -> bool:
        """Whether all is as expected now, and nothing that was tried has failed."""
        return self.report.ok and not self.failed

    @property
    def n_bytes(self) -> int:
        """How many bytes what is wanted has, as far as that is known."""
        return sum(file.size or 0 for file in self.wanted)

    def __bool__(self) -> bool:
        """The same, as of a report."""
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
    executor: Executor | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    progress: bool | Callable[[int, int], None] = False,
    cancellation: Cancellation | None = None,
) -> Repair:
    """Fetch the files of a directory that are missing or not as expected, and nothing else.

    Each file is fetched beside its place, and proven there: by its size and digests, as far as
    anybody states them, and by all that `validate` asks of it. Only then it takes the name, in one
    rename. What can't be fetched and proven is left as it is. Interrupted and called again it does
    what is left.

    Args:
        path: The directory.
        source: Where its files are: a `Source`, an address, or a directory.
        level: How thoroughly to check; at ``"valid"`` every byte is read whose digest is known.
        format: Name of its format, where the directory does not tell it.
        against: The manifest, where it is elsewhere; see `validate`.
        dry_run: Only report what would be fetched.
        workers: How many files are fetched at once; by default 4.
        executor: Whose workers check the files; see `validate`. Threads of this process fetch them.
        limits: How long and how often to try.
        progress: True for a bar on a terminal; or a callable that gets how many files are checked,
            or fetched after that, and of how many.
        cancellation: Ends the call with an error, from another thread.

    Returns:
        What was done. What could not be fetched is in ``failed``, and its finding in ``report``.

    Raises:
        ManifestError: The manifest can't be read: name another one by ``against``.
        FetchError: The source can't be asked, or the call was stopped.
        ValueError: An address that names no source; an empty path; an address as the path.

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
    if is_address(path):
        where = sources.bare(os.fspath(path))
        raise ValueError(f"path: '{shown(where)}' is not repaired in place: {_IN_STORE}")
    if workers is not None:
        count("workers", workers, 1)
    form = None if format is None else formats.get(format)
    with reporting(progress, "repair") as show:

        def work(stop: Any) -> Repair:
            located = formats.locate(path)
            ask = functools.partial(
                promise_of, located.path, form=form, against=against, level=level
            )
            with contextlib.ExitStack() as stack:
                stack.enter_context((cancellation or Cancellation()).register(stop.set))
                opened = source
                if isinstance(opened, str):
                    opened = open_source(_address(opened, located.root))
                    stack.enter_context(contextlib.closing(opened))
                there = None
                if not sources.is_on_disk(opened.url):
                    listing = listed(opened, limits, Deadline(limits.deadline, stop), located.root)
                    there = {file.name: file for file in listing}
                fetcher = Fetcher(opened, there, limits, stop, workers or _AT_ONCE)
                how = {"level": level, "executor": executor}
                done = _repaired(ask, fetcher, how, dry_run=dry_run, is_fixed=against is not None)
            return dataclasses.replace(done, report=_bounded(done.report, Path(located.path)))

        with telling_of_stops(os.fspath(path)):
            return apart(work, show)


def _bounded(report: Report, path: Path) -> Report:
    """Return a report as `validate` gives it: of many findings the first, the others counted."""
    more = MoreFindings()
    for finding in report.findings[MOST_KEPT:]:
        more.add(finding, os.path.relpath(finding.path, report.path))
    return dataclasses.replace(report, path=path, findings=report.findings[:MOST_KEPT], more=more)


def _address(source: str, root: str) -> str:
    """Return the address of a source; a directory is there, and another one."""
    is_address = "://" in source
    if is_address and not sources.is_on_disk(source):
        return source
    path = source.partition("://")[2] if is_address else source
    if (real := real_path(path)) == root:
        problem = "expected a source that is another one, found the directory itself"
        raise ValueError(f"source: {problem}, '{shown(root)}'")
    if not is_directory(real):
        raise FetchError(f"source: expected a directory, found none: '{shown(path)}'")
    return f"file://{real}"


def _repaired(
    ask: Callable[[], Promise], fetcher: Fetcher, how: Any, *, dry_run: bool, is_fixed: bool
) -> Repair:
    promise, proven = ask(), set[ExpectedFile]()
    root = os.fspath(promise.manifest.root)
    tried, asked = set[ExpectedFile](), dict[str, Replacement]()
    problems, missing = dict[str, str | None](), set[Path]()  # None: it came
    parts = os.path.basename(parts_beneath(root))
    if any(file.name.startswith(f"{parts}/") for file in promise.manifest.files):
        problem = f"it lists files in '{shown(parts)}', where fetches put theirs: rename it"
        raise ManifestError(problem, path=promise.manifest.path)
    with closing_fd(open_root(root)) as root_fd:
        while True:
            report = look(promise.manifest, proven, **how)
            missing |= {each.path for each in report.findings if each.kind is FindingKind.MISSING}
            wanted = [*want(promise, report, fetcher.told_of, tried)]
            tried |= {each.file for each in wanted}
            sizes = {f.name: remote.size if remote else f.size for f, remote in wanted}
            asked |= {name: Replacement(name, size) for name, size in sizes.items()}
            if dry_run:
                return Repair(tuple(asked.values()), (), {}, report)
            problems |= fetcher.fetch(wanted, promise.manifest, root_fd)
            sweep(promise.manifest, root_fd, but={name for name, why in problems.items() if why})
            if not wanted:
                break
            # An index or a list may be among what came.
            if not is_fixed and not all(problems[each.file.name] for each in wanted):
                promise = ask()
        if not os.path.samestat(os.lstat(root), os.fstat(root_fd)):
            raise replaced(root)
    broken = {
        file.name: f"expected {each.expected}, found {each.found}"
        for file, each in broken_in(promise.manifest, report)
    }
    # What counts is the last manifest. What it does not list is there, or never was.
    for name in problems.keys() - {file.name for file in promise.manifest.files}:
        path = promise.manifest.root / name
        if not (is_there(path) or (problems[name] and path in missing)):
            broken[name] = "it is gone, and no manifest lists it any more"
    failed = {name: why or broken[name] for name, why in problems.items() if name in broken}
    repaired = tuple(name for name, why in problems.items() if not (why or name in broken))
    return Repair(tuple(asked.values()), repaired, failed, report)

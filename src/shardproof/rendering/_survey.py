"""What all forms of a report are made of: each file with its state, size and last use."""

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from shardproof import formats
from shardproof._base import fanout, json
from shardproof._base.messages import shown
from shardproof._base.opening import real_path, status_of
from shardproof._base.work import apart
from shardproof.errors import ManifestError
from shardproof.promises import promise_of
from shardproof.report import Finding, FindingKind, Level, Report

STATES = {
    "as-expected": "As expected",
    "unproven": "Not verified",
    **{kind.value: kind.heading for kind in FindingKind},
    "other": "Other findings",
    "unseen": "Could not be checked",
}
"""The states of a file, with their titles; those that matter most come last."""

_NOT_OPENED = {FindingKind.MISSING, FindingKind.UNREADABLE, FindingKind.NOT_REGULAR}


class FileState(NamedTuple):
    """What is known of one file; None where it could not be looked at."""

    name: str
    state: str
    finding: Finding | None
    size: int | None
    used: float | None  # when it was last read or written, as its file system tells


class Change(NamedTuple):
    """What is different since an earlier report, by names of files."""

    broke: Sequence[str]
    healed: Sequence[str]
    notes: Sequence[str]


class Survey(NamedTuple):
    """A report, and each of its files: those that are expected, then others with findings."""

    report: Report
    files: Sequence[FileState]
    seconds: float  # that the check took
    looked_at: float  # seconds since 1970
    change: Change | None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values, and what is different since an earlier one."""
        return self.report.to_dict() | ({"since": self.change._asdict()} if self.change else {})


def survey(
    report: Report,
    *,
    seconds: float,
    format: str | None = None,  # noqa: A002 - as for `validate`
    against: str | None = None,
    since: str | None = None,
) -> Survey:
    """Return what the forms of a report are made of; ``since`` is an earlier one, as JSON."""
    form, path = None if format is None else formats.get(format), os.fspath(report.path)

    def work(_: object) -> Survey:
        promise = promise_of(path, form=form, against=against, level=report.level)
        root = os.fspath(promise.manifest.root)
        findings = {_name_in(root, each.path): each for each in reversed(report.findings)}
        states = dict.fromkeys(report.more.broken.values(), "other")
        states |= dict.fromkeys((_name_in(root, path) for path in report.unproven), "unproven")
        names = [file.name for file in promise.manifest.files]
        names += sorted(findings.keys() - {*names})

        def look(some: Sequence[str]) -> list[FileState]:
            return [_look(root, n, findings.get(n), states.get(n, "as-expected")) for n in some]

        files = fanout.collected(look, names)
        change = since and _change(report, root, files, since)
        return Survey(report, files, seconds, time.time(), change or None)

    return apart(work)


def _look(root: str, name: str, finding: Finding | None, state: str) -> FileState:
    if finding is not None:
        state = finding.kind.value if finding.conclusive else "unseen"
    if finding is None or finding.kind not in _NOT_OPENED:
        with contextlib.suppress(OSError):  # of an age that is not known, that is said
            if status := status_of(os.path.join(root, name)):
                used = max(status.st_atime, status.st_mtime) or None  # a bucket lists no times
                return FileState(name, state, finding, status.st_size, used)
    return FileState(name, state, finding, None, None)


def _name_in(root: str, path: str | os.PathLike[str]) -> str:
    return os.fspath(path).removeprefix(os.path.join(root, ""))


class _EarlierFinding(msgspec.Struct):
    path: str


class _Earlier(msgspec.Struct):
    """What is needed of an earlier report; of a directory without one, its path."""

    schema_version: Literal[1]
    path: str
    level: Level = "present"
    n_findings: int = 0
    findings: tuple[_EarlierFinding, ...] = ()


def _change(report: Report, root: str, files: Sequence[FileState], since: str) -> Change:
    folder, name = os.path.split(real_path(since))
    found = json.read(folder, name, list[_Earlier] | _Earlier)  # type: ignore[arg-type]
    reports = found if isinstance(found, list) else [found]
    path = os.fspath(report.path)
    same = [each for each in reports if each.path == path] or reports
    if len(same) != 1:
        problem = f"expected a report of '{shown(path)}', found {len(same)} of other directories"
        raise ManifestError(problem, path=since)
    (earlier,) = same
    # Of a prefix, the directory is the one that it is in.
    theirs = earlier.path if root == path else os.path.dirname(earlier.path)
    before = {_name_in(theirs, each.path) for each in earlier.findings}
    whole = {file.name for file in files if file.state in {"as-expected", "unproven"}}
    broke = {f.name for f in files if f.finding and f.finding.conclusive} - before
    gone = before - {file.name for file in files}
    notes = {
        f"It is of another directory: '{shown(earlier.path)}'": earlier.path != path,
        f"Its level was {earlier.level}, not {report.level}": earlier.level != report.level,
        f"It lists {len(earlier.findings)} of its {earlier.n_findings} findings": (
            earlier.n_findings > len(earlier.findings)
        ),
        f"{len(gone)} of its files are not expected any more": bool(gone),
    }
    hold = [note for note, holds in notes.items() if holds]
    return Change(sorted(broke), sorted(before & whole), hold)

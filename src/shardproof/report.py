"""What one check of a shards directory found: findings, their text, JSON and exit code."""

import collections
import dataclasses
import enum
import errno
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from shardproof._base.messages import shown
from shardproof._base.opening import is_conclusive
from shardproof.errors import ShardproofError

__all__ = [
    "MOST_KEPT",
    "SCHEMA_VERSION",
    "BrokenFiles",
    "Finding",
    "FindingKind",
    "Level",
    "MoreFindings",
    "Report",
    "ShardValidationError",
]

Level = Literal["present", "complete", "valid"]
"""How hard to look; each level includes the ones before it."""

MOST_KEPT = 10_000
"""Findings that a report has whole: it is for people, and a program needs memory for more."""

SCHEMA_VERSION = 1
"""Of a report as JSON; fields may be added to it, and none changes its meaning or goes."""


class FindingKind(enum.StrEnum):
    """In which way a file is not as expected, in the order in which a report groups them.

    Attributes:
        heading: That of its group in a report.
        advice: What to do about such a file.
    """

    heading: str
    advice: str

    def __new__(cls, value: str, heading: str, advice: str) -> Self:
        """Make a member of its value, its heading and what to do."""
        kind = str.__new__(cls, value)
        kind._value_, kind.heading, kind.advice = value, heading, advice
        return kind

    MISSING = "missing", "Missing files", "make it again, or restore it"
    EMPTY = "empty", "Empty files", "make it again, or restore it"
    UNREADABLE = "unreadable", "Unreadable files", "make it readable, or ask its owner to"
    NOT_REGULAR = "not-regular", "Not regular files", "move it away, and restore the shard"
    IMPOSTOR = "impostor", "Files that are something else", "fetch the file itself"
    UNWRITTEN = (
        "unwritten",
        "Files of which nothing was written",
        "its writer was killed, or power failed: make it again, or restore it",
    )
    SIZE = (
        "size",
        "Files of another size",
        "a copy or a writer stopped half-way: make it again, or copy it again",
    )
    STRUCTURE = (
        "structure",
        "Files of another structure",
        "the writer was killed or ran twice: make it again",
    )
    DIGEST = (
        "digest",
        "Files with another digest",
        "its bytes changed after it was written: restore it",
    )
    STRAY = "stray", "Unexpected files", "move it away if it does not belong there"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One file that is not as expected.

    Attributes:
        kind: In which way.
        path: Absolute path of the file.
        expected: What was expected, in words.
        found: What is there, in words.
        errno: The number that the operating system gave, where it gave one (errno(3)).
        index: The file's number among those that the manifest lists, from 0; None where the
            finding is about something else.
        is_of_entry: Whether it is about one entry of a manifest file, which ``found`` names.
        mend: The shell command that makes a missing file of one that is there under nearly its name
            and is right; empty where none does.
        host: On which the file was checked, where each host has a directory of its own.
    """

    kind: FindingKind
    path: Path
    expected: str
    found: str
    errno: int | None = None
    index: int | None = None
    is_of_entry: bool = False
    mend: str = ""
    host: str = ""

    @property
    def conclusive(self) -> bool:
        """Whether the file was checked; if not (EIO, ESTALE), the shard may be whole."""
        return is_conclusive(self.errno)

    @property
    def advice(self) -> str:
        """What to do about the file."""
        if not self.conclusive:
            return "it could not be checked and may be intact: check again when the cause is gone"
        return self.mend or self.kind.advice

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain JSON values."""
        name = None if self.errno is None else errno.errorcode.get(self.errno, str(self.errno))
        return {
            "kind": self.kind.value,
            "path": str(self.path),
            "expected": self.expected,
            "found": self.found,
            "errno": name,
            "index": self.index,
            "conclusive": self.conclusive,
            "mend": self.mend,
            **({"host": self.host} if self.host else {}),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class BrokenFiles:
    """The expected files that have to be made or fetched again.

    Attributes:
        names: Their paths relative to the directory, in the manifest's order.
        indices: Their numbers among the expected files, from 0.
    """

    names: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def ranges(self) -> str:
        """The numbers as ``"3,7,12-40"``, which ``sbatch --array`` takes.

        Example:
            >>> BrokenFiles(("a", "b", "c", "d"), (3, 7, 8, 9)).ranges
            '3,7-9'
        """
        runs: list[list[int]] = []
        for index in self.indices:
            if runs and runs[-1][-1] == index - 1:
                runs[-1][1:] = [index]
            else:
                runs.append([index])
        return ",".join("-".join(map(str, run)) for run in runs)


@dataclasses.dataclass(slots=True)
class MoreFindings:
    """Findings beyond those that a report has whole: they are counted.

    Attributes:
        counts: How many there are of each kind.
        n_unseen: How many of them say that a check was not possible.
        broken: The expected files that have to be made again, by their numbers.
    """

    counts: collections.Counter[FindingKind] = dataclasses.field(
        default_factory=collections.Counter
    )
    n_unseen: int = 0
    broken: dict[int, str] = dataclasses.field(default_factory=dict)

    def add(self, finding: Finding, name: str = "") -> None:
        """Count a finding; the name is that of its file in the manifest."""
        self.counts[finding.kind] += 1
        self.n_unseen += not finding.conclusive
        if finding.index is not None and finding.conclusive:
            self.broken[finding.index] = name


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Report:
    """All findings of one check of a shards directory; ``str()`` gives the text.

    ``repr()`` is one line, which pytest shows where ``assert report.ok`` fails.

    Attributes:
        path: Absolute path of the directory, or of the prefix of a checkpoint.
        format: Name of its format, such as ``"saev"``.
        level: How hard it was checked.
        n_files: How many files the manifest lists.
        findings: Every file that is not as expected, in the manifest's order; of more than
            `MOST_KEPT` that `validate` finds, the first.
        unproven: Files that are as expected as far as the level asks, and about which the manifest
            states nothing that the level could prove: at ``complete`` no size and no structure, at
            ``valid`` no digest.
        n_proven: How many of the files are as expected, as far as the level asks; None
            where they were not counted.
        n_unread: How many of those were not read again, because they are as they were when their
            digests were last proven: size, times and inode.
        n_agreed: How many of the unproven were read and agree with checksums that are no proof,
            since whoever changes the file may change them, such as the ``.crc`` that Spark leaves.
        notes: How something in the manifest was taken, in a sentence each: that a signature was not
            verified, that checksums are weak.
        more: What is known of further findings.
    """

    path: Path
    format: str
    level: Level
    n_files: int
    findings: tuple[Finding, ...] = ()
    unproven: tuple[Path, ...] = ()
    n_proven: int | None = None
    n_unread: int = 0
    n_agreed: int = 0
    notes: tuple[str, ...] = ()
    more: MoreFindings = dataclasses.field(default_factory=MoreFindings, hash=False)

    def __bool__(self) -> bool:
        """Whether every file is as expected: ``assert validate(path)`` means what it says."""
        return self.ok

    @property
    def ok(self) -> bool:
        """Whether every file is as expected, as far as the level asks: all of them were checked.

        A manifest of no files never comes here: to read it is a `ManifestError`.
        """
        return not self.n_findings

    @property
    def exit_code(self) -> int:
        """0 all files as expected; 1 findings; 3 something could not be checked."""
        return 3 if self.n_unseen else 0 if self.ok else 1

    @property
    def counts(self) -> dict[FindingKind, int]:
        """How many findings there are of each kind, in the order of the kinds; of none, nothing."""
        found = collections.Counter(finding.kind for finding in self.findings) + self.more.counts
        return {kind: found[kind] for kind in FindingKind if found[kind]}

    @property
    def n_findings(self) -> int:
        """How many findings there are."""
        return len(self.findings) + self.more.counts.total()

    @property
    def n_unseen(self) -> int:
        """How many of them say that a check was not possible: such a file may be whole."""
        return sum(not finding.conclusive for finding in self.findings) + self.more.n_unseen

    @property
    def summary(self) -> str:
        """How many findings there are of each kind: ``"3 findings: 2 missing, 1 not regular"``."""
        unseen = f" ({self.n_unseen} could not be checked)" if self.n_unseen else ""
        return totals_of(self.counts) + unseen

    def broken(self) -> BrokenFiles:
        """Return which expected files have to be made or fetched again.

        One that could not be checked is not among them, since it may be whole.

        Example:
            >>> import shardproof
            >>> (shards_dir / "acts000001.bin").unlink()
            >>> broken = shardproof.validate(shards_dir).broken()
            >>> broken.ranges, broken.names
            ('1', ('acts000001.bin',))
        """
        found = {
            # Of a prefix, the directory is the one that it is in.
            finding.index: os.path.relpath(finding.path, self.path).removeprefix("../")
            for finding in self.findings
            if finding.index is not None and finding.conclusive
        }
        found |= self.more.broken
        indices = sorted(found)
        return BrokenFiles(tuple(found[index] for index in indices), tuple(indices))

    def __repr__(self) -> str:
        # pytest leaves out the middle of more than 240 characters: the kinds come first.
        names = [shown(finding.path.name, 40) for finding in self.findings[:3]]
        names += ["..."] if self.n_findings > len(names) else []
        first = f" [{', '.join(names)}]" if names else ""
        return f"<Report: {self.summary}{first}, {self.level} in '{shown(self.path)}'>"

    def __str__(self) -> str:
        return "\n".join([*_verdict_of(self), *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values, for `json.dumps`, by the published schema."""
        return {
            "schema_version": SCHEMA_VERSION,
            "path": str(self.path),
            "format": self.format,
            "level": self.level,
            "ok": self.ok,
            "exit_code": self.exit_code,
            "n_files": self.n_files,
            "n_findings": self.n_findings,
            "counts": {kind.value: n for kind, n in self.counts.items()},
            "findings": [finding.to_dict() for finding in self.findings],
            "unproven": [str(path) for path in self.unproven],
            "n_proven": self.n_proven,
            "n_unread": self.n_unread,
            "n_agreed": self.n_agreed,
            "notes": list(self.notes),
        }

    def raise_for_findings(self) -> Self:
        """Return the report itself when every file is as expected.

        Raises:
            ShardValidationError: There are findings; its text names every one.
        """
        if not self.ok:
            raise ShardValidationError(self)
        return self


class ShardValidationError(ShardproofError, FileNotFoundError):
    """Files of a shards directory are not as expected; the message lists each one.

    Args:
        report: The report whose findings are raised.

    Attributes:
        report: The same, to read findings as data.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(str(report))

    @property
    def exit_code(self) -> int:
        """That of the report."""
        return self.report.exit_code


def _verdict_of(report: Report) -> Iterator[str]:
    if report.ok:
        yield summary_of(report)
        return
    yield f"Shard validation failed in '{shown(report.path)}':"
    for kind, n_findings in report.counts.items():
        found = [finding for finding in report.findings if finding.kind is kind]
        yield from ("", f"{kind.heading} ({n_findings}):")
        for finding in found:
            # An impostor says what to do; of an entry, the path tells nothing.
            is_told = kind is FindingKind.IMPOSTOR or finding.is_of_entry
            where = shown(finding.path) + (f" on {shown(finding.host)}" if finding.host else "")
            yield f"  - {where}" + (f": {finding.found}" if is_told else "")
        if n_findings > len(found):
            yield f"  and {n_findings - len(found)} more"
    # None are broken where the findings are about the manifest itself, or a receipt.
    if report.n_proven is not None and (report.level == "valid" or report.unproven):
        yield from ("", summary_of(report, in_full=True))


def summary_of(report: Report, about: str = "", *, in_full: bool = False) -> str:
    """Return how many files are as expected; a count of none only if that is wanted in full."""
    n_files, n_unproven = report.n_files, len(report.unproven)
    n_proven = n_files - n_unproven if report.ok else report.n_proven or 0
    n_broken = n_files - n_proven - n_unproven
    unread = f" ({report.n_unread} not read again)" if report.n_unread else ""
    counts = " "
    if n_unproven or in_full:
        lacking = "digest" if report.level == "valid" else "size or structure"
        agreed = f" ({report.n_agreed} agree with checksums beside them)" if report.n_agreed else ""
        broken = f"{n_broken} not as expected, " if n_broken else ""
        counts = f" proven, {n_unproven} without a {lacking}{agreed}, {broken}"
    of_files = f"of {n_files} files of '{shown(report.path)}'"
    is_lacking = report.ok and n_unproven and report.level == "valid"
    tip = "; `shardproof seal` gives them one" if is_lacking else ""
    return f"{report.level}: {n_proven}{unread}{counts}{of_files}{about}{tip}"


def totals_of(counts: Mapping[FindingKind, int]) -> str:
    """Return how many findings there are, and of each kind, in a line."""
    n_findings = sum(counts.values())
    title = f"{n_findings or 'no'} finding{'s' * (n_findings != 1)}"
    rest = re.compile("^files (that are )?| files$")
    words = {kind: rest.sub("", kind.heading.lower()) for kind in FindingKind}
    kinds = [f"{counts[kind]} {words[kind]}" for kind in FindingKind if counts.get(kind)]
    return f"{title}: {', '.join(kinds)}" if kinds else title

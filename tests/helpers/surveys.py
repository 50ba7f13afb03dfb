"""Surveys without a directory: of any size, and with hostile names."""

from collections.abc import Iterable
from pathlib import Path

from shardproof import Finding, FindingKind, Report
from shardproof.rendering import Survey
from shardproof.rendering._survey import Change, FileState

ROOT = Path("/scratch/user/saev/shards/abc12345")
DAY = 86400.0
NOW = 1_790_000_000.0
KINDS = [kind for kind in FindingKind if kind is not FindingKind.STRAY]


def file_state(index: int, name: str, kind: FindingKind | None = None) -> FileState:
    """One file of which the size and the age follow from its number."""
    if kind is None:
        return FileState(name, "as-expected", None, 1000 * (index + 1), NOW - DAY * (index % 100))
    finding = Finding(kind, ROOT / name, "4096 bytes", "nothing", index=index)
    return FileState(name, kind.value, finding, None, None)


def survey_of(files: Iterable[FileState], change: Change | None = None, **about) -> Survey:
    files = tuple(files)
    findings = tuple(file.finding for file in files if file.finding)
    about = {"format": "saev", "level": "complete", "n_proven": len(files) - len(findings)} | about
    report = Report(path=ROOT, n_files=len(files), findings=findings, **about)
    return Survey(report, files, 1.25, NOW, change)


def large(n_files: int) -> Survey:
    """One in a hundred has a finding; so have the eight hundred that one stopped copy left out."""
    files = []
    for index in range(n_files):
        is_gone = n_files // 3 <= index < n_files // 3 + 800
        is_odd = index * 7919 % 101 == 0
        kind = FindingKind.MISSING if is_gone else KINDS[index % len(KINDS)] if is_odd else None
        files.append(file_state(index, f"acts{index:06d}.bin", kind))
    broke = [file.name for file in files[n_files // 3 : n_files // 3 + 800]]
    return survey_of(files, Change(broke, [files[1].name], []))

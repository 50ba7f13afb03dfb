"""What lies in a directory and is not promised: files of any kind, marks of downloads."""

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from shardproof._base.messages import quoted
from shardproof._base.names import file_type
from shardproof._base.opening import UNFINISHED, files_below, is_conclusive, mode_of, names_in
from shardproof.manifest import Contradiction, Manifest
from shardproof.report import Finding, FindingKind


def strays(manifest: Manifest, beside: Sequence[str] | None, *, follow: bool) -> Iterator[Finding]:
    """Yield a finding for each file, or link, that is not promised nor fits ``beside``, if any."""
    promised = {file.name for file in manifest.files}
    patterns = ("*",) if beside is None else beside
    is_beside = re.compile("|".join(map(fnmatch.translate, patterns)) or r"(?!)").match
    permits = manifest.permits or (lambda *_: True)
    for name in files_below(manifest.root, hidden=True):
        if name not in promised and not (is_beside(name) and permits(name, follow)):
            path = manifest.root / name
            yield Finding(FindingKind.STRAY, path, "nothing", f"a {file_type(mode_of(path))}")


def unfinished(manifest: Manifest) -> Iterator[Contradiction]:
    """Yield promised files beside which a download has left its mark, such as ``x.aria2``."""
    folders = {file.name.rpartition("/")[0] for file in manifest.files}
    marks = [mark for folder in sorted(folders) for mark in _marks_in(manifest.root, folder)]
    promised = {file.name for file in manifest.files} if marks else set()
    for mark in marks:
        name = os.path.splitext(mark)[0]
        if name in promised and mark not in promised:
            found = f"{quoted(mark)} beside it: let that end, or remove both and fetch it again"
            yield Contradiction(name, "a finished download", found)


def _marks_in(root: Path, folder: str) -> list[str]:
    try:
        names = names_in(root / folder)
    except OSError as error:
        if is_conclusive(error.errno):  # it leads nowhere, or may not be listed
            return []
        raise
    return [os.path.join(folder, name) for name in names if name.lower().endswith(UNFINISHED)]

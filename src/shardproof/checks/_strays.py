"""What lies in a directory and is not promised."""

import fnmatch
import re
from collections.abc import Iterator, Sequence

from shardproof._base.names import file_type
from shardproof._base.opening import files_below, mode_of
from shardproof.manifest import Manifest
from shardproof.report import Finding, FindingKind

__all__ = ["strays"]


def strays(manifest: Manifest, beside: Sequence[str] | None, *, follow: bool) -> Iterator[Finding]:
    """Yield a finding for each file that is neither promised nor one of those that may lie there.

    No link to a folder is entered; a link that nothing promises is a stray itself.

    Args:
        manifest: The promise, which may say itself what it permits.
        beside: Patterns of fnmatch, of paths relative to the directory; None for all.
        follow: Whether links are followed, wherever they lead.

    Raises:
        OSError: A directory could not be listed.
    """
    promised = {file.name for file in manifest.files}
    patterns = ("*",) if beside is None else beside
    is_beside = re.compile("|".join(map(fnmatch.translate, patterns)) or r"(?!)").match
    permits = manifest.permits or (lambda *_: True)
    for name in files_below(manifest.root, hidden=True):
        if name not in promised and not (is_beside(name) and permits(name, follow)):
            path = manifest.root / name
            yield Finding(FindingKind.STRAY, path, "nothing", f"a {file_type(mode_of(path))}")

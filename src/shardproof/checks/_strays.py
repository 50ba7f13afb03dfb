"""What lies in a directory and is not promised."""

import fnmatch
import re
from collections.abc import Iterator, Sequence

from shardproof._base.opening import files_below
from shardproof.manifest import Manifest
from shardproof.report import Finding, FindingKind

__all__ = ["strays"]


def strays(manifest: Manifest, beside: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for each file that is neither promised nor one of those that may lie there.

    Links are not followed; one that nothing promises is a stray itself.

    Args:
        manifest: The promise.
        beside: Patterns of fnmatch, of paths relative to the directory.

    Raises:
        OSError: A directory could not be listed.
    """
    promised = {file.name for file in manifest.files}
    is_beside = re.compile("|".join(map(fnmatch.translate, beside)) or r"(?!)").match
    for path in files_below(manifest.root, hidden=True):
        if path not in promised and not is_beside(path):
            yield Finding(FindingKind.STRAY, manifest.root / path, "nothing", "a file")

"""What is wanted: promised files that are not as promised, as the source has them."""

import dataclasses
import errno
from collections.abc import Callable, Container, Iterator, Mapping
from typing import NamedTuple

import msgspec

from shardproof._base.proofs import SealedProof
from shardproof.checks import check
from shardproof.fetching import RemoteFile
from shardproof.manifest import Manifest, PromisedFile
from shardproof.promises import Promise
from shardproof.report import Finding, Level, Report

__all__ = ["There", "Wanted", "broken_in", "look", "want"]

There = Callable[[], Mapping[str, RemoteFile]]
"""What the source lists, asked once; nothing where it can't."""


class Wanted(NamedTuple):
    """A promised file that is to be fetched, and what is known of it at the source."""

    file: PromisedFile
    remote: RemoteFile


def look(manifest: Manifest, level: Level, proven: set[PromisedFile]) -> Report:
    """Return what `validate` finds; what is proven is not read again, and more is by now."""
    proofs = {f.name: SealedProof(f.digest or "", None) for f in manifest.files if f in proven}
    report = check(_reading_less(manifest, proven), level=level, proofs=proofs)
    broken, unproven = {f.index for f in report.findings}, {*report.unproven}
    proven |= {
        file
        for index, file in enumerate(manifest.files)
        if index not in broken and manifest.root / file.name not in unproven
    }
    return dataclasses.replace(report, n_unread=0)


def _reading_less(manifest: Manifest, proven: Container[PromisedFile]) -> Manifest:
    if (prove := manifest.prove) is None:
        return manifest
    return dataclasses.replace(
        manifest, prove=lambda file, fd, size: file in proven or prove(file, fd, size)
    )


def broken_in(manifest: Manifest, report: Report) -> Iterator[tuple[PromisedFile, Finding]]:
    """Yield each promised file that is not as promised, and what was found."""
    for finding in report.findings:
        if finding.index is not None:
            yield manifest.files[finding.index], finding


def want(promise: Promise, report: Report, there: There, tried: Container[str]) -> Iterator[Wanted]:
    """Yield what was not tried yet; what nobody could look at, or may read, may be whole."""
    for file, finding in broken_in(promise.manifest, report):
        is_seen = finding.conclusive and finding.errno not in {errno.EACCES, errno.EPERM}
        if is_seen and file.name not in tried:
            name = promise.name_at_source(file.name)
            remote = there().get(name, RemoteFile(name))
            size = remote.size if file.size is None else file.size
            yield Wanted(file, msgspec.structs.replace(remote, size=size))

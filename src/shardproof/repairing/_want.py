"""What is wanted: promised files that are not as promised, as the source has them."""

import dataclasses
from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

import msgspec

from shardproof._base.opening import may_be_whole
from shardproof._base.proofs import SealedProof
from shardproof.checks import check
from shardproof.fetching import RemoteFile
from shardproof.manifest import Manifest, PromisedFile
from shardproof.promises import Promise
from shardproof.report import Finding, Level, Report


class Wanted(NamedTuple):
    """A promised file that is to be fetched, and what is known of it where the source has it."""

    file: PromisedFile
    remote: RemoteFile | None


def look(manifest: Manifest, level: Level, proven: set[PromisedFile]) -> Report:
    """Return what `validate` finds; what is proven is not read again, and more is by now."""
    proofs = {f.name: SealedProof.of(f.digests) for f in manifest.files if f in proven}
    if prove := manifest.prove:
        less = lambda file, fd, size: file in proven or prove(file, fd, size)  # noqa: E731
        manifest = dataclasses.replace(manifest, prove=less)
    report = check(manifest, level=level, proofs=proofs)
    not_so = {finding.path for finding in report.findings}.union(report.unproven)
    proven |= {file for file in manifest.files if manifest.root / file.name not in not_so}
    return dataclasses.replace(report, n_unread=0)


def broken_in(manifest: Manifest, report: Report) -> Iterator[tuple[PromisedFile, Finding]]:
    """Yield each promised file that is not as promised, and what was found."""
    for finding in report.findings:
        if finding.index is not None:
            yield manifest.files[finding.index], finding


def want(
    promise: Promise,
    report: Report,
    told_of: Callable[[str], RemoteFile | None],
    tried: Container[PromisedFile],
) -> Iterator[Wanted]:
    """Yield what was not tried yet; what nobody could look at, or may read, may be whole."""
    for file, finding in broken_in(promise.manifest, report):
        if not may_be_whole(finding.errno) and file not in tried:
            remote = told_of(promise.name_at_source(file.name)) or told_of(file.name)
            if remote and file.size is not None:
                remote = msgspec.structs.replace(remote, size=file.size)
            yield Wanted(file, remote)

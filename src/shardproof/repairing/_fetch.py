"""What is wanted: fetched beside its place and proven there; only then it is exchanged."""

import contextlib
import dataclasses
import errno
import functools
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from shardproof._base.fanout import in_threads
from shardproof._base.messages import is_unreached, quoted, told
from shardproof._base.names import OPEN_FLAGS, open_root
from shardproof._base.opening import closing_fd, is_there, may_be_whole
from shardproof._base.work import tell_done
from shardproof.checks import SealedProof, check, flaw_of
from shardproof.errors import FetchError
from shardproof.fetching import Limits, RemoteFile, Source, transfer
from shardproof.fetching.transfer import key_in
from shardproof.manifest import ExpectedFile, Manifest
from shardproof.promises import Promise
from shardproof.repairing._exchange import exchange, place_of
from shardproof.report import Finding, Report


class Wanted(NamedTuple):
    """A expected file that is to be fetched, and what is known of it where the source has it."""

    file: ExpectedFile
    remote: RemoteFile | None


def look(manifest: Manifest, proven: set[ExpectedFile], **how: Any) -> Report:
    """Return what `validate` finds; what is proven is not read again, and more is by now."""
    known = (file for file in manifest.files if file in proven)
    proofs = {file.name: SealedProof.of(file.digests)._replace(is_whole=True) for file in known}
    report = check(manifest, proofs=proofs, is_told=True, **how)
    not_so = {finding.path for finding in report.findings}.union(report.unproven)
    proven |= {file for file in manifest.files if manifest.root / file.name not in not_so}
    return dataclasses.replace(report, n_unread=0)


def broken_in(manifest: Manifest, report: Report) -> Iterator[tuple[ExpectedFile, Finding]]:
    """Yield each expected file that is not as expected, and what was found."""
    for finding in report.findings:
        if finding.index is not None:
            yield manifest.files[finding.index], finding


def want(
    promise: Promise,
    report: Report,
    told_of: Callable[[str], RemoteFile | None],
    tried: Container[ExpectedFile],
) -> Iterator[Wanted]:
    """Yield what was not tried yet; what nobody could look at, or may read, may be whole."""
    for file, finding in broken_in(promise.manifest, report):
        if not may_be_whole(finding.errno) and file not in tried:
            remote = told_of(promise.name_at_source(file.name)) or told_of(file.name)
            if remote and file.size is not None:
                remote = msgspec.structs.replace(remote, size=file.size)
            yield Wanted(file, remote)


class Fetcher(NamedTuple):
    """What brings files of a source below the root of a manifest, which is open."""

    source: Source
    there: Mapping[str, RemoteFile] | None  # None of a directory
    limits: Limits
    stop: Any
    workers: int

    def told_of(self, name: str) -> RemoteFile | None:
        """Return what is known of a file of the source, None if it has none; its links count."""
        if self.there:
            return self.there.get(name)
        try:
            return self.source.stat(name, timeout=1) if self.there is None else RemoteFile(name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            return RemoteFile(name)  # the fetch says why

    def fetch(
        self, wanted: Sequence[Wanted], manifest: Manifest, root_fd: int
    ) -> Iterator[tuple[str, str | None]]:
        """Fetch, prove and exchange files; yield why each is as it was, None if it came."""
        work = functools.partial(self._problem_of, manifest, root_fd)
        runs = in_threads(work, wanted, n_threads=self.workers, name="repair", stop=self.stop)
        with contextlib.closing(runs):
            for n_done, (each, problem) in enumerate(zip(wanted, runs, strict=True), 1):
                yield each.file.name, problem
                tell_done(n_done, len(wanted))
        if self.stop.is_set():
            raise FetchError("it was stopped", path=manifest.root)

    def _problem_of(self, manifest: Manifest, root_fd: int, wanted: Wanted) -> str | None:
        file, remote = wanted
        if remote is None:
            return "the source has no such file"
        try:
            base, place = place_of(file, manifest)
            path = os.path.join(manifest.root, file.name)
            key, key_of_proven = _keys_of(path, base)
            with (
                _opened(base, manifest, root_fd) as (base_fd, parts),
                transfer.own_part(parts, key_of_proven) as own,
            ):
                transfer.fetch_to(
                    self.source,
                    remote.name,
                    own.data,
                    goal=transfer.Goal(quoted(file.name), f"{self.source.url}/{remote.name}", path),
                    file=None if remote == RemoteFile(remote.name) else remote,
                    digest=None if file.digest_from else file.digest,
                    limits=self.limits,
                    stop=self.stop,
                    parts=parts,
                    key=key,
                )
                with open(os.open(own.data, OPEN_FLAGS), "rb", buffering=0) as data:
                    flaw = flaw_of(manifest, file, data.fileno())
                    if flaw is None:
                        exchange(own.data, data.fileno(), place, base_fd)
                return flaw
        except (OSError, ValueError) as error:
            if is_unreached(error):
                raise
            if getattr(error, "errno", None) == errno.EXDEV:
                problem = "its folder is on another file system than the directory, and a rename "
                problem += "leads to none: repair the folder by itself, with --against"
                return problem
            return getattr(error, "strerror", None) or told(error)


@contextlib.contextmanager
def _opened(base: str, manifest: Manifest, root_fd: int) -> Iterator[tuple[int, str]]:
    """Yield a directory that is open, and where it has its parts, whatever has its name by then."""
    with closing_fd(os.dup(root_fd) if base == os.fspath(manifest.root) else open_root(base)) as fd:
        path = f"/proc/self/fd/{fd}"  # proc(5); other systems have none that leads on
        yield fd, transfer.parts_beneath(path if is_there(path) else base)


def _keys_of(path: str, base: str) -> tuple[str, str]:
    """Return the keys of what is fetched for a file, and of what is proven."""
    parts = transfer.parts_beneath(base)
    return key_in(parts, path), key_in(parts, f"{path}/proven")


def sweep(manifest: Manifest, root_fd: int, but: Container[str]) -> None:
    """Remove what earlier calls have left of expected files, but of some."""
    paths = [os.path.join(manifest.root, f.name) for f in manifest.files if f.name not in but]
    for base in (os.fspath(manifest.root), *manifest.stores):
        with contextlib.suppress(FileNotFoundError), _opened(base, manifest, root_fd) as (_, parts):
            if is_there(parts):
                keys = {key for path in paths for key in _keys_of(path, base)}
                transfer.sweep_parts(parts, keys.__contains__)

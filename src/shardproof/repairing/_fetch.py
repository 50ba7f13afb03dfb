"""Fetch files beside their places, and prove them there; only then they are exchanged."""

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shardproof._base.fanout import in_threads
from shardproof._base.messages import is_unreached, quoted, told
from shardproof._base.names import OPEN_FLAGS, open_root
from shardproof._base.opening import is_there
from shardproof.checks import flaw_of
from shardproof.errors import FetchError
from shardproof.fetching import Limits, RemoteFile, Source, transfer
from shardproof.fetching.transfer import key_in
from shardproof.manifest import Manifest
from shardproof.repairing._exchange import exchange, place_of
from shardproof.repairing._want import Wanted


class Fetcher(NamedTuple):
    """What brings files of a source below the root of a manifest, which is open."""

    source: Source
    there: Mapping[str, RemoteFile] | None  # None of a directory
    limits: Limits
    stop: Any
    workers: int
    on_progress: Callable[[int, int], object] | None

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
                if self.on_progress is not None:
                    self.on_progress(n_done, len(wanted))
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
                    on_bytes=None,
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
    fd = os.dup(root_fd) if base == os.fspath(manifest.root) else open_root(base)
    try:
        path = f"/proc/self/fd/{fd}"  # proc(5); other systems have none that leads on
        yield fd, transfer.parts_beneath(path if is_there(path) else base)
    finally:
        os.close(fd)


def _keys_of(path: str, base: str) -> tuple[str, str]:
    """Return the keys of what is fetched for a file, and of what is proven."""
    parts = transfer.parts_beneath(base)
    return key_in(parts, path), key_in(parts, f"{path}/proven")


def sweep(manifest: Manifest, root_fd: int, but: Container[str]) -> None:
    """Remove what earlier calls have left of promised files, but of some."""
    paths = [os.path.join(manifest.root, f.name) for f in manifest.files if f.name not in but]
    for base in (os.fspath(manifest.root), *manifest.stores):
        with contextlib.suppress(FileNotFoundError), _opened(base, manifest, root_fd) as (_, parts):
            if is_there(parts):
                keys = {key for path in paths for key in _keys_of(path, base)}
                transfer.drop_parts(parts, keys.__contains__)

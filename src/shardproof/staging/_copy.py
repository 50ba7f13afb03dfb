"""One process's part in a copy: it makes all of it, or waits while another process does."""

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shardproof._base import digest as _digest
from shardproof._base import files as _files
from shardproof._base.addresses import RemotePlace, remote_at
from shardproof._base.fanout import in_threads
from shardproof._base.liveness import stamp_of
from shardproof._base.messages import printable, quoted, shown, told
from shardproof._base.names import NotRegularError, open_inside, open_root
from shardproof._base.opening import closing_fd, is_directory, is_there, status_of, telling_where
from shardproof._base.work import Cancelled, Stop, current, go_on, tell_done
from shardproof.errors import ManifestError, ShardReadError
from shardproof.manifest import ExpectedFile
from shardproof.report import Finding, FindingKind, Level, Report, ShardValidationError
from shardproof.staging._proofs import Proofs
from shardproof.staging._source import LOCK, StageSource

logger = logging.getLogger("shardproof.staging")

_CHANGED = "it changed while it was copied: stage it when no process writes to it"
_BUFFER = 2**20
_POLL = 0.02
_WAIT_SECONDS = 60.0  # a check of a large source takes a while
_TURNS = 2  # where both that had one hang, or locks do, each process copies for itself
_LEAST_SPEED = 20e6  # bytes a second: a process that copies no file for so long is not waited for
_LEAST_SPEED_OF_STORE = 1e6


class StagedCopy:
    """The copy of a source in the directory ``place``, made or mended, as `stage` is asked to."""

    def __init__(self, source: StageSource, place: str, level: Level, threads: int) -> None:
        self._source, self._place, self._level = source, place, level
        self._threads, self._proofs = threads, Proofs(place)
        self._strange: list[str] = []
        self._errors: list[Exception] = []

    def make(self) -> None:
        """Return when all of the copy is there and proven; raises as `stage`."""
        self._bring(distrusted=())
        if doubted := self._doubted():
            self._bring(doubted)
            _raise_for_findings(self._check())

    def _doubted(self) -> list[str]:
        """Return the names of files to copy again, since the disk lost what was proven."""
        try:
            report = self._check()
        except PermissionError:  # it could not be looked at: nothing is known to be lost
            raise
        except (ManifestError, ShardReadError) as error:
            self._refuse_moved()
            logger.warning("%s\nThe files of the manifest are copied again", told(error))
            return [file.name for file in self._source.parts]
        if report.findings:
            self._refuse_moved()
            logger.warning("%s\nThese files are copied again", printable(str(report)))
        return [os.path.relpath(finding.path, self._place) for finding in report.findings]

    def _refuse_moved(self) -> None:
        """Raise if the copy is not there any more: mostly it has its final name by now."""
        if not is_directory(self._place):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._place)

    def _check(self) -> Report:
        files = [self._known(file) for file in self._source.files]
        return self._source.check_copy(self._place, files, self._strange, self._level)

    def _known(self, file: ExpectedFile) -> ExpectedFile:
        """Return what is known of a copy, which says more than the manifest may."""
        proof = self._proofs.get(file.name)
        if proof is None:
            return file
        size = proof.copy[0] if file.size is None else file.size
        return msgspec.structs.replace(file, size=size, digest=file.digest or proof.digest)

    def _bring(self, distrusted: Collection[str]) -> None:
        """Copy what is not proven: the manifest after what it lists, the listing last of all."""
        sizes = {file.name: self._size_of(file) for file in self._source.files}
        least = _LEAST_SPEED if remote_at(self._source.root) is None else _LEAST_SPEED_OF_STORE
        with self._alone(_WAIT_SECONDS + max(sizes.values(), default=0) / least):
            self._proofs.read()
            todo = {name for name in sizes if name in distrusted or not self._is_proven(name)}
            self._refuse_small_disk(sum(map(sizes.__getitem__, todo)), len(todo))
            _raise_for_findings(self._source.check(todo, self._level))
            # The copy is to list no more than the source; what was not staged stays, for `_check`.
            surplus = self._source.surplus_in(self._place)
            self._strange = [name for name in surplus if not self._drop(name)]
            for files in (self._source.promised, self._source.parts):
                self._copy_all([file for file in files if file.name in todo], todo)
            self._source.refuse_change()
            self._source.write_listing(self._place)

    @contextlib.contextmanager
    def _alone(self, patience: float) -> Iterator[None]:
        """Wait while another process copies files; this saves work, and nothing rests on it."""
        path = os.path.join(self._place, LOCK)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with closing_fd(os.open(path, flags, 0o600)) as fd:
            turn, n_seen, end = 0, self._proofs.n_bytes(), time.monotonic() + patience
            while turn < _TURNS and not _try_lock(fd, turn):
                if n_seen != (n_seen := self._proofs.n_bytes()):
                    end = time.monotonic() + patience
                if time.monotonic() > end:  # who copies hangs: one of those that wait does it
                    turn, end = turn + 1, time.monotonic() + patience
                go_on()
                time.sleep(_POLL)
            yield

    def _size_of(self, file: ExpectedFile) -> int:
        """Return how large a file is to be; where nobody can tell, a copy of it says why."""
        if file.size is not None:
            return file.size
        with contextlib.suppress(OSError):
            if (status := status_of(os.path.join(self._source.root, file.name))) is not None:
                return status.st_size
        return 0

    def _is_proven(self, name: str) -> bool:
        """Whether the copy of a file is the one that was proven, of the file that is there."""
        try:
            source = status_of(os.path.join(self._source.root, name))
            copy = os.lstat(os.path.join(self._place, name))
        except OSError:  # not proven, then: a copy of the file says why it can't be
            return False
        hashed = self._level == "valid"
        return source is not None and self._proofs.fit(name, source, copy, hashed=hashed)

    def _refuse_small_disk(self, wanted: int, n_files: int) -> None:
        found = os.statvfs(self._place)
        if wanted > (free := found.f_bavail * found.f_frsize):
            problem = (
                f"expected {wanted} bytes free for {n_files} files of "
                f"'{shown(self._source.root)}', found {free}; make room, or stage to another disk"
            )
            raise OSError(errno.ENOSPC, problem, self._place)

    def _drop(self, name: str) -> bool:
        """Remove the copy of a file that the source no longer has; False if none here made it."""
        if is_there(os.path.join(self._source.root, name)):
            return True  # it came back, and another process may have copied it
        path = os.path.join(self._place, name)
        with contextlib.suppress(FileNotFoundError):
            if not self._proofs.are_of(name, os.lstat(path)):
                return False
            _files.remove_if(path, lambda status: self._proofs.are_of(name, status))
        return True

    def _copy_all(self, files: Sequence[ExpectedFile], todo: set[str]) -> None:
        """Copy files, each of which leaves ``todo``; raise all that is wrong with the source."""
        n_files, findings = len(self._source.files), list[Finding]()
        outcomes = in_threads(
            self._outcome, files, n_threads=self._threads, name="shardproof-stage"
        )
        with contextlib.closing(outcomes):
            for file, found in zip(files, outcomes, strict=True):
                todo.discard(file.name)
                findings += found
                tell_done(n_files - len(todo), n_files)
        if self._errors:
            raise self._errors[0]
        _raise_for_findings(self._report(findings))

    def _outcome(self, file: ExpectedFile) -> Sequence[Finding]:
        """Copy a file, and return what is wrong with the source's; an error ends all others."""
        try:
            self._copy(file)
        except ShardValidationError as error:
            return error.report.findings
        except Cancelled:
            if not self._errors:
                raise
        except Exception as error:
            self._errors.append(error)
        return ()

    def _go_on(self) -> None:
        go_on()
        if self._errors:
            raise Cancelled

    def _copy(self, file: ExpectedFile) -> None:
        """Make the copy, and write down that it is one."""
        path, target = (os.path.join(at, file.name) for at in (self._source.root, self._place))
        self._go_on()
        if (place := remote_at(path)) is not None:
            self._fetch(file.name, place, target)
            return
        with closing_fd(self._opened(file.name)) as fd:
            before = os.fstat(fd)
            with _files.being_written(target, sync=False) as copy:
                try:
                    digest = self._transfer(fd, copy, before.st_size, file)
                except OSError as error:
                    # Of a call that has but descriptors: let it name what was copied where.
                    if error.errno is not None and error.filename is None:
                        error.filename, error.filename2 = path, target
                    raise
                made, size = os.fstat(copy), before.st_size
                if stamp_of(os.fstat(fd)) != stamp_of(before) or made.st_size != size:
                    raise ShardReadError(_CHANGED, path=path)
                if file.size not in {None, size}:
                    self._refuse(FindingKind.SIZE, path, f"{file.size} bytes", f"{size} bytes")
                if file.digest is not None and digest != str(_digest.parse(file.digest)):
                    self._refuse(FindingKind.DIGEST, path, file.digest, str(digest))
                # Whatever call this is killed at, a copy that has its name is known to be one.
                self._proofs.add(file.name, before, made, digest)

    def _fetch(self, name: str, place: RemotePlace, target: str) -> None:
        """Make the copy of a file that is in a bucket, as its listing tells it."""
        from shardproof.fetching import Limits, transfer  # noqa: PLC0415 - HTTP clients take long

        store, listed = place.directory.source, place.directory.status(place.name)
        goal = transfer.Goal(quoted(name), f"{store.url}/{place.name}", target)
        limits, stop, parts = Limits(), current.stop or Stop(), transfer.parts_beneath(self._place)
        kept: dict[str, Any] = {"parts": parts, "key": transfer.key_in(parts, target)}
        with transfer.own_part(parts, transfer.key_in(parts, f"{target}/proven")) as own:
            fetched = transfer.fetch_to(
                store, place.name, own.data, goal=goal, file=None, limits=limits, stop=stop, **kept
            )
            if listed is not None:  # as in `_copy`, before it has its name
                self._proofs.add(name, listed, os.lstat(own.data), fetched.digest)
            _files.move(own.data, target)

    def _opened(self, name: str) -> int:
        root, path = self._source.root, os.path.join(self._source.root, name)
        with closing_fd(open_root(root)) as dir_fd:
            try:
                with telling_where(path):
                    return open_inside(name, root=root, dir_fd=dir_fd)
            except (FileNotFoundError, NotRegularError) as error:  # since the source was checked
                raise ShardReadError(_CHANGED, path=path) from error

    def _transfer(self, source: int, copy: int, size: int, file: ExpectedFile) -> str | None:
        """Copy so many bytes, and return their digest where one is wanted."""
        wanted = file.digest or ("sha256:" if self._level == "valid" else "")
        algorithm = wanted.partition(":")[0]
        # In one thread, since other files are copied meanwhile.
        digest = _digest.begin(algorithm, size, threads=1) if wanted else None
        buffer = memoryview(bytearray(min(_BUFFER, size)))
        at = 0
        while at < size and (n := os.preadv(source, [buffer[: size - at]], at)):
            if digest is not None:
                digest.update(buffer[max(0, file.digest_from - at) : n])
            self._go_on()
            _files.write_at(copy, buffer[:n], at)
            at += n
        return None if digest is None else f"{algorithm}:{digest.hexdigest()}"

    def _refuse(self, kind: FindingKind, path: str, expected: str, found: str) -> None:
        self._report([Finding(kind, Path(path), expected, found)]).raise_for_findings()

    def _report(self, findings: Sequence[Finding]) -> Report:
        manifest = self._source.manifest
        n_files, found = len(manifest.files), tuple(findings)
        return Report(manifest.root, manifest.format, self._level, n_files, found)


def _try_lock(fd: int, turn: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, turn)
    except OSError as error:  # others: there are no locks
        return error.errno not in {errno.EACCES, errno.EAGAIN}
    return True


def _raise_for_findings(report: Report) -> None:
    """Raise what is wrong; an `OSError` where all that is known is that no check was possible."""
    unseen = [finding for finding in report.findings if not finding.conclusive]
    if unseen and len(unseen) == len(report.findings):
        first, n_files = unseen[0], report.n_files
        problem = f"could not check {len(unseen)} of {n_files} files: {first.found}; the first is"
        raise OSError(first.errno, problem, str(first.path))
    report.raise_for_findings()

"""Fetch one file to a path: go on from what is left of it, prove the bytes, then give the name."""

import contextlib
import dataclasses
import logging
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from shardproof._base import digest as _digest
from shardproof._base import files
from shardproof._base.messages import shown, told
from shardproof._base.names import OPEN_FLAGS, file_type
from shardproof._base.work import Cancelled, Deadline, go_on
from shardproof.errors import FetchError, FetchTimeoutError, SourceError, UnsyncedError
from shardproof.fetching.sources._source import RemoteFile, Source
from shardproof.fetching.transfer._attempts import Goal, Limits
from shardproof.fetching.transfer._file_fetch import FileFetch, OnBytes
from shardproof.fetching.transfer._kept import drop_parts, key_in, own_part, sweep_parts
from shardproof.fetching.transfer._partial_file import PartialFile
from shardproof.fetching.transfer._requests import ask, with_parsed_digest

__all__ = ["FetchResult", "fetch_to"]

logger = logging.getLogger("shardproof.fetching")


@dataclasses.dataclass(frozen=True, slots=True)
class FetchResult:
    """A file that is whole under its name.

    Attributes:
        path: Where it is, absolute.
        file: What the source told of it.
        digest: ``"sha256:<hex>"`` of its bytes.
        proven: Whether a digest that was promised is theirs; otherwise only their number is right.
        n_attempts: How many attempts it took; 0 if it was there.
        n_bytes: How many bytes came over the network, those for nothing too.
        seconds: How long it took.
    """

    path: Path
    file: RemoteFile
    digest: str
    proven: bool
    n_attempts: int
    n_bytes: int
    seconds: float


def fetch_to(
    source: Source,
    name: str,
    target: str,
    *,
    goal: Goal,
    file: RemoteFile | None,
    digest: str | None,
    limits: Limits,
    stop: threading.Event,
    on_bytes: OnBytes | None,
    parts: str | None = None,
    is_asked: bool = False,
) -> FetchResult:
    """Fetch a file as `fetch_file` says; messages tell of ``goal``, and parts are in ``parts``.

    With ``is_asked``, ``file`` is what the source has told, which it may be asked again.
    """
    report = on_bytes or (lambda _n_bytes, _size: None)
    work = FileFetch(source, name, limits, report, is_asked=is_asked or file is None)
    deadline = Deadline(limits.deadline, stop)
    wanted = with_parsed_digest(file, digest)
    try:
        if file is None:
            asked = ask(source, name, goal=goal, limits=limits, deadline=deadline)
            wanted = msgspec.structs.replace(asked, digest=wanted.digest or asked.digest)
        parts = parts or os.path.dirname(target)
        key = key_in(parts, goal.path)
        found = _digest_of_present(target, wanted, goal, deadline)
        if found is None:
            files.make_directories(os.path.dirname(target))
            names = os.listdir(parts)
            files.sweep_leftovers(parts, names)
            sweep_parts(parts, names)
            with own_part(parts, key) as own:
                part = own.opened(work.provenance_of(wanted), names, deadline)
                with _telling_what_is_kept(part, goal):
                    wanted, found = work.run(part, wanted, goal, deadline)
                # Another process may have been faster.
                _digest_of_present(target, RemoteFile(name, digest=found), goal, deadline)
                own.publish(target)
        drop_parts(parts, key.__eq__)  # also of others who were killed meanwhile
        return FetchResult(
            path=Path(target),
            file=wanted,
            digest=found,
            proven=wanted.digest is not None,
            n_attempts=work.n_attempts,
            n_bytes=work.n_bytes,
            seconds=deadline.spent(),
        )
    except Cancelled as error:
        go_on()  # an interrupt is not this error
        raise FetchError("it was stopped", url=goal.url, path=goal.path) from error
    except SourceError as error:  # the time is up, while what is here was hashed
        raise FetchTimeoutError(error.problem, url=goal.url, path=goal.path) from error
    except FetchError:
        raise
    except UnsyncedError as error:  # which says what is there, and what to do
        raise FetchError(told(error), url=goal.url, path=goal.path) from error
    except OSError as error:
        problem = f"{error.strerror or error}; see to the disk, and fetch it again"
        raise FetchError(problem, url=goal.url, path=goal.path) from error


@contextlib.contextmanager
def _telling_what_is_kept(part: PartialFile, goal: Goal) -> Iterator[None]:
    try:
        yield
    except Cancelled as error:
        go_on()  # an interrupt is not this error
        problem = f"it was stopped{_kept(part)}"
        raise FetchError(problem, url=goal.url, path=goal.path) from error
    except SourceError:
        raise
    except FetchError as error:
        problem, cause = f"{error.problem}{_kept(part)}", error.__cause__
        again = type(error)(problem, url=error.url, path=error.path, causes=error.causes)
        raise again from cause


def _kept(part: PartialFile) -> str:
    if not part.can_go_on:
        return ""
    size = "" if part.size is None else f" of {part.size}"
    return f"; {part.n_bytes}{size} bytes are kept, and the next try goes on from there"


def _digest_of_present(
    target: str, wanted: RemoteFile, goal: Goal, deadline: Deadline
) -> str | None:
    """Return the digest of what is there, if it is right; move it aside, if it is wrong.

    Raises:
        FetchError: Something is there that is no regular file.
        Cancelled: It is not wanted any more.
        SourceError: The time is up.
    """
    try:
        status = os.stat(target, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        problem = f"expected a regular file or nothing, found a {file_type(status.st_mode)}"
        raise FetchError(f"{problem}; move it away", url=goal.url, path=goal.path)
    if wanted.size is None and wanted.digest is None:
        return None
    found = _proven(target, wanted, deadline)
    if found is None:
        deadline.raise_if_stopped()
        aside = files.move_aside(target)
        logger.warning(
            "'%s' was not the right one, and is '%s' now", shown(target), shown(str(aside))
        )
    return found


def _proven(target: str, wanted: RemoteFile, deadline: Deadline) -> str | None:
    """Return ``"sha256:<hex>"`` of a file with the right size and digest; None of any other."""
    fd = os.open(target, OPEN_FLAGS)
    try:
        size = os.fstat(fd).st_size
        if wanted.size not in {None, size}:
            return None
        found = other = _digest.of_file(fd, "sha256", size, go_on=deadline.raise_if_stopped)
        if wanted.digest is not None:
            expected = _digest.parse(wanted.digest)
            if expected.algorithm != found.algorithm:
                other = _digest.of_file(
                    fd, expected.algorithm, size, go_on=deadline.raise_if_stopped
                )
            if not _digest.same(expected, other):
                return None
        return str(found)
    finally:
        os.close(fd)

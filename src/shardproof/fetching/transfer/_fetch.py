"""Fetch one file: go on from what is left of it, prove the bytes, and only then give the name."""

import contextlib
import dataclasses
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import msgspec

from shardproof._base import digest as _digest
from shardproof._base import files
from shardproof._base.arguments import checked
from shardproof._base.messages import quoted, shown, told
from shardproof._base.names import OPEN_FLAGS, file_type, refusals
from shardproof._base.opening import closing_fd, found_at, is_there, refuse_no_path
from shardproof._base.progress import reporting
from shardproof._base.work import Deadline, apart, telling_of_stops, to_waiter
from shardproof.errors import FetchError, FetchTimeoutError, SourceError, UnsyncedError
from shardproof.fetching.sources._open import open_source, split_name
from shardproof.fetching.sources._source import Cancellation, RemoteFile, Source
from shardproof.fetching.transfer import _kept
from shardproof.fetching.transfer._attempts import Goal, Limits
from shardproof.fetching.transfer._file_fetch import FileFetch, OnBytes
from shardproof.fetching.transfer._partial_file import PartialFile
from shardproof.fetching.transfer._requests import ask, tells_when_read, with_parsed_digest

logger = logging.getLogger("shardproof.fetching")


@dataclasses.dataclass(frozen=True, slots=True)
class FetchResult:
    """A file that is whole under its name.

    Attributes:
        path: Where it is, absolute.
        file: What the source says of it.
        digest: ``"sha256:<hex>"`` of its bytes.
        proven: Whether they have the expected digest; otherwise only their number is right.
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


@checked
def fetch(
    source: Source | str,
    to: str | os.PathLike[str],
    *,
    name: str | None = None,
    digest: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    progress: bool | Callable[[int, int], object] = False,
    cancellation: Cancellation | None = None,
) -> FetchResult:
    """Fetch one file into a directory: under its name there are the right bytes, or nothing.

    `fetch_file` says what goes on from where. Each call with an address connects anew: for many
    files, give a source that is open.

    Args:
        source: The address of the file, as in the shell: ``https://``, ``hf://``, ``s3://``,
            ``file:///``, ...; or the address of a folder, or a `Source`, and ``name``.
        to: The directory that it is put in; it is made if need be.
        name: What the file is called below ``source``, and below ``to``. None if the address ends
            with it.
        digest: ``"sha256:<hex>"`` or another that `shardproof` can prove; goes before what the
            source states.
        limits: How long and how often to try.
        progress: Whether to draw a bar where there is a terminal; or a function that is called, in
            the caller's thread, with how many bytes are here and of how many.
        cancellation: Ends the fetch with an error, from another thread.

    Raises:
        FetchError: It could not be fetched; with the cause of each attempt. `FetchTimeoutError` if
            the last one took too long.
        ImportError: The package that talks to the source is not installed; the message names it.
        ValueError: An address or a name that is refused, or a digest that can't be parsed.

    Example:
        >>> import shardproof
        >>> from shardproof.testing.faults import serve_hub
        >>> with serve_hub({"train/0.bin": b"1234"}) as hub:
        ...     fetched = shardproof.fetch(f"{hub.url}/train/0.bin", output_dir)
        >>> fetched.path.name, fetched.path.read_bytes(), fetched.proven
        ('0.bin', b'1234', False)
    """
    refuse_no_path(to=to)
    if name is None:
        if not isinstance(source, str):
            raise ValueError("name: expected the name of a file of the source, found None")
        source, name = split_name(source)
    name = _accepted_name(name)
    path = os.path.join(os.path.abspath(to), name)

    def work(own: threading.Event) -> FetchResult:
        def on_bytes(n_bytes: int, size: int | None) -> None:
            if show is not None and not own.is_set():  # then the bar may be gone
                show(n_bytes, size or n_bytes)

        with open_source(source) if isinstance(source, str) else nullcontext(source) as opened:
            return fetch_file(
                opened,
                name,
                path,
                digest=digest,
                limits=limits,
                cancellation=cancellation,
                on_bytes=None if show is None else on_bytes,
            )

    # In the caller's thread, which puts the terminal right even if it does not wait for the work.
    with reporting(progress, name, in_bytes=True) as show:
        return apart(work)


@checked
def fetch_file(
    source: Source,
    name: str,
    path: str | os.PathLike[str],
    *,
    file: RemoteFile | None = None,
    digest: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    cancellation: Cancellation | None = None,
    on_bytes: OnBytes | None = None,
) -> FetchResult:
    """Fetch one file of a source to a path of its own, whole and proven.

    Size and digest are compared before the name exists; until then bytes go to a part beside it.
    When a connection breaks, the next attempt goes on from there, if the source says that the file
    is still the same one, or the digest of the whole is known. So does the next fetch, after an
    error or a kill (docs/prefetch.md). A regular file that has the name already stays if it is the
    right one; if not, it is moved aside, to ``<name>.bad-<8 digits>``.

    Args:
        source: Where it comes from.
        name: What it is called there.
        path: What it is to be called here; its directory is made if need be.
        file: What is known of it: from the source's listing, or from a manifest. None to ask; a web
            server is asked for the file itself, where nothing of it is here.
        digest: ``"sha256:<hex>"`` or another that `shardproof` can prove; goes before the source's.
        limits: How long and how often to try.
        cancellation: Ends the fetch with an error, from another thread.
        on_bytes: Called with how many bytes are here, and of how many where that is known, in the
            caller's thread.

    Raises:
        FetchError: It could not be fetched; with the cause of each attempt. `FetchTimeoutError` if
            the last one took too long.
        ValueError: A name that is refused, or a digest that can't be parsed.

    Example:
        >>> from shardproof.fetching import fetch_file, open_source
        >>> from shardproof.testing.faults import serve_hub
        >>> with serve_hub({"train/0.bin": b"1234"}) as hub:
        ...     with open_source(f"{hub.url}/train") as source:
        ...         fetched = fetch_file(source, "0.bin", output_dir / "first.bin")
        >>> fetched.path.read_bytes(), fetched.proven
        (b'1234', False)
    """
    refuse_no_path(path=path)
    name = _accepted_name(name)
    target = os.path.abspath(path)

    def work(own: threading.Event) -> FetchResult:
        stop = own if cancellation is None else threading.Event()
        with nullcontext() if cancellation is None else cancellation.register(stop.set):
            return fetch_to(
                source,
                name,
                target,
                goal=Goal(quoted(name), f"{source.url}/{name}", target),
                file=file,
                digest=digest,
                limits=limits,
                stop=stop,
                on_bytes=on_bytes and to_waiter(on_bytes),
            )

    return apart(work)


def _accepted_name(name: str) -> str:
    name = str.__str__(name)  # of numpy, or of an enumeration: as Python's
    for refusal in refusals([name]):
        raise ValueError(f"name: {quoted(name)} is refused: {refusal.reason}")
    return name


def fetch_to(
    source: Source,
    name: str,
    target: str,
    *,
    goal: Goal,
    file: RemoteFile | None,
    digest: str | None = None,
    limits: Limits,
    stop: threading.Event,
    on_bytes: OnBytes | None = None,
    parts: str | None = None,
    key: str | None = None,
    is_asked: bool = False,
) -> FetchResult:
    """Fetch a file as `fetch_file` says; messages tell of ``goal``, and parts are in ``parts``."""
    report = on_bytes or (lambda _n_bytes, _size: None)
    work = FileFetch(source, name, limits, report, is_asked=is_asked or file is None)
    deadline = Deadline(limits.deadline, stop)
    wanted = with_parsed_digest(file or RemoteFile(name), digest)
    with _telling_of_failures(target, goal):
        parts = parts or _kept.parts_beneath(os.path.dirname(target))
        key, names = key or _kept.key_in(parts, goal.path), _kept.parts_in(parts)
        is_left = any(f"-{key}." in name for name in names)
        is_new = not is_left and not is_there(target)
        if file is None and not (is_new and tells_when_read(source)):
            asked = ask(source, name, goal=goal, limits=limits, deadline=deadline)
            wanted = msgspec.structs.replace(asked, digest=wanted.digest or asked.digest)
        found = None if is_new else _digest_of_present(target, wanted, goal, deadline)
        if found is None:
            files.make_directories(os.path.dirname(target))
            if names:
                _kept.sweep_parts(parts, names=names)
            with _kept.own_part(parts, key) as own:
                part = own.opened(work.provenance_of(wanted), names, deadline)
                with _telling_of_kept(part, goal):
                    wanted, found = work.run(part, wanted, goal, deadline)
                # Another process may have been faster.
                _digest_of_present(target, RemoteFile(name, digest=found), goal, deadline)
                own.publish(target, is_final=target == goal.path)
        if is_left:
            _kept.sweep_parts(parts, key.__eq__)  # also those of processes that were killed
        return FetchResult(
            path=Path(target),
            file=wanted,
            digest=found,
            proven=wanted.digest is not None,
            n_attempts=work.n_attempts,
            n_bytes=work.n_bytes,
            seconds=deadline.spent(),
        )


@contextlib.contextmanager
def _telling_of_failures(target: str, goal: Goal) -> Iterator[None]:
    """Raise a FetchError for what ends a fetch, but not for an interrupt."""
    try:
        with telling_of_stops(goal.path, goal.url):
            yield
    except SourceError as error:  # the time is up, while what is here was hashed
        raise FetchTimeoutError(error.problem, url=goal.url, path=goal.path) from error
    except FetchError:
        raise
    except OSError as error:
        problem = _told_of_disk(error, is_kept=target == goal.path)
        raise FetchError(problem, url=goal.url, path=goal.path) from error


def _told_of_disk(error: OSError, *, is_kept: bool) -> str:
    said = error.strerror or told(error)
    if isinstance(error, UnsyncedError):
        if is_kept:
            return told(error)  # which says what is there, and what to do
        # What is there goes with the lease that it was fetched for.
        said = os.strerror(error.errno) if error.errno else "no reason was given"
        said = f"a directory could not be synced: {said}"
    return f"{said}; see to the disk, and fetch it again"


@contextlib.contextmanager
def _telling_of_kept(part: PartialFile, goal: Goal) -> Iterator[None]:
    """Say in a FetchError, also in that of a stop, what the next try goes on from."""
    try:
        with telling_of_stops(goal.path, goal.url):
            yield
    except FetchError as error:
        if not part.can_go_on:
            raise
        size = "" if part.size is None else f" of {part.size}"
        kept = f"{part.n_bytes}{size} bytes are kept, and the next try goes on from there"
        problem, cause = f"{error.problem}; {kept}", error.__cause__ or error
        raise type(error)(problem, url=error.url, path=error.path, causes=error.causes) from cause


def _digest_of_present(
    target: str, wanted: RemoteFile, goal: Goal, deadline: Deadline
) -> str | None:
    """Return the digest of what is there, if it is right; move it aside, if it is wrong."""
    if (status := found_at(target)) is None:
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
        text = "'%s' was not the right one, and is '%s' now"
        logger.warning(text, shown(target), shown(str(aside)))
    return found


def _proven(target: str, wanted: RemoteFile, deadline: Deadline) -> str | None:
    """Return ``"sha256:<hex>"`` of a file with the right size and digest; None of any other."""
    with closing_fd(os.open(target, OPEN_FLAGS)) as fd:
        size = os.fstat(fd).st_size
        if wanted.size not in {None, size}:
            return None
        expected = None if wanted.digest is None else _digest.parse(wanted.digest)
        asked = {("sha256", 0), (expected.algorithm if expected else "sha256", 0)}
        found = _digest.each_of_file(fd, asked, size, go_on=deadline.raise_if_stopped)
        if expected and expected != found[expected.algorithm, 0]:
            return None
        return str(found["sha256", 0])

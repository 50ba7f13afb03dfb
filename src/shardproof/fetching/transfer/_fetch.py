"""Fetch one shard: whole and proven under its name, or not there at all."""

import contextlib
import dataclasses
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from shardproof._base import digest as _digest
from shardproof._base import files
from shardproof._base.arguments import checked
from shardproof._base.messages import printable, quoted, shown, told
from shardproof._base.names import OPEN_FLAGS, file_type, refusals
from shardproof._base.paths import refuse_empty
from shardproof._base.threads import Stop
from shardproof._base.work import apart, to_waiter
from shardproof.errors import FetchError, FetchTimeoutError, SourceError, UnsyncedError
from shardproof.fetching.sources._source import Delivery, RemoteFile, Source
from shardproof.fetching.transfer._attempts import Goal, try_again
from shardproof.fetching.transfer._clock import Clock, StoppedError
from shardproof.fetching.transfer._imports import import_for
from shardproof.fetching.transfer._kept import drop_parts, key_in, own_part, sweep_parts
from shardproof.fetching.transfer._limits import Limits
from shardproof.fetching.transfer._part import Part
from shardproof.fetching.transfer._record import Provenance
from shardproof.fetching.transfer._relay import Answered, Came, call, refuse_other, relay
from shardproof.fetching.transfer._spans import Spans, is_worth_sharing

__all__ = ["Fetched", "OnBytes", "ask", "bring", "fetch_shard", "read_range"]

logger = logging.getLogger("shardproof.fetching")

OnBytes = Callable[[int, int | None], None]
"""Called with how many bytes are here, and of how many, where that is known."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fetched:
    """A shard that is whole under its name.

    Attributes:
        path: Where it is, absolute.
        file: What the source told of it.
        digest: ``"sha256:<hex>"`` of its bytes.
        proven: Whether a digest that was promised is theirs; otherwise only their number is right.
        n_attempts: How often it took; 0 if it was there.
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
def fetch_shard(
    source: Source,
    name: str,
    path: str | os.PathLike[str],
    *,
    file: RemoteFile | None = None,
    digest: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    stop: threading.Event | None = None,
    on_bytes: OnBytes | None = None,
    label: str | None = None,
) -> Fetched:
    """Bring a shard under its name, whole and proven; nothing else ever has the name.

    Bytes go to a part beside it. When a connection breaks, the next attempt goes on from where it
    was, if the source says that the file is still the same one (RFC 9110, 13.1.5), or the digest of
    the whole is known, and from the first byte otherwise. So does the next fetch, in this process
    or in another one, after an error or a kill: until then a directory
    ``.shardproof-<...>.part`` is beside the name, for a week at most. Size and digest are compared
    before the name exists. A regular
    file that has the name already is left where it is if it is the right one, and moved aside if
    not: to ``<name>.bad-<8 digits>``.

    Args:
        source: Where it comes from.
        name: What it is called there.
        path: What it is to be called here; its directory is made if need be.
        file: What is known of it: from the source's listing, or from a manifest. None to ask.
        digest: ``"sha256:<hex>"`` or another that `shardproof` can prove; goes before the source's.
        limits: How long and how often to try.
        stop: Set from another thread, it ends the fetch with an error.
        on_bytes: Told how far it is, in the caller's thread.
        label: What messages call it; its name by default.

    Raises:
        FetchError: It could not be fetched; each attempt's cause is told. `FetchTimeoutError` if
            the last one took too long.
        ValueError: A name that is refused, or a digest that can't be parsed.

    Example:
        >>> from shardproof.fetching import fetch_shard, open_source
        >>> from shardproof.testing.faults.hub import serve_hub
        >>> with serve_hub({"train/0.bin": b"1234"}) as hub:
        ...     source = open_source(f"{hub.url}/train")
        ...     fetched = fetch_shard(source, "0.bin", output_dir / "0.bin")
        ...     source.close()
        >>> fetched.path.read_bytes(), fetched.proven
        (b'1234', False)
    """
    refuse_empty(path=path)
    for refusal in refusals([name]):
        raise ValueError(f"name: {quoted(name)} is refused: {refusal.reason}")
    target = os.path.abspath(path)

    def work(own: Stop) -> Fetched:
        import_for(source)
        return bring(
            source,
            name,
            target,
            goal=Goal(label or quoted(name), f"{source.url}/{name}", target),
            file=file,
            digest=digest,
            limits=limits,
            stop=stop or own,
            on_bytes=to_waiter(on_bytes),
        )

    return apart(work)


def bring(
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
) -> Fetched:
    """Do what `fetch_shard` says; messages tell of ``goal``, and parts are in ``parts``.

    With ``is_asked``, ``file`` is what the source has told, which it may be asked again.
    """
    work = _Work(source, name, limits, on_bytes, is_asked=is_asked or file is None)
    clock = Clock(limits.deadline, stop)
    wanted = _promised(file, digest)
    try:
        if file is None:
            asked = ask(source, name, goal=goal, limits=limits, clock=clock)
            wanted = msgspec.structs.replace(asked, digest=wanted.digest or asked.digest)
        parts = parts or os.path.dirname(target)
        key = key_in(parts, goal.path)
        there = _look(target, wanted, goal, clock)
        if there is not None:
            drop_parts(parts, key.__eq__)
            return work.fetched(target, wanted, there, clock)
        files.make_directories(os.path.dirname(target))
        names = _swept(parts)
        with own_part(parts, key) as own:
            part = own.opened(work.provenance_of(wanted), names, clock)
            with _telling_what_is_kept(part, goal):
                wanted, found = work.fetch(part, wanted, goal, clock)
            # Somebody may have been faster.
            _look(target, RemoteFile(name, digest=found), goal, clock)
            own.publish(target)
        drop_parts(parts, key.__eq__)  # of others who were killed meanwhile
        return work.fetched(target, wanted, found, clock)
    except StoppedError as error:
        raise FetchError("it was stopped", url=goal.url, path=goal.path) from error
    except FetchError:
        raise
    except SourceError as error:  # the time is up, while what is here was hashed
        raise FetchTimeoutError(error.problem, url=goal.url, path=goal.path) from error
    except UnsyncedError as error:  # which says what is there, and what to do
        raise FetchError(told(error), url=goal.url, path=goal.path) from error
    except OSError as error:
        problem = f"{error.strerror or error}; see to the disk, and fetch it again"
        raise FetchError(problem, url=goal.url, path=goal.path) from error


def _swept(directory: str) -> list[str]:
    """Remove what earlier fetches have left of no use, and return what was there."""
    names = os.listdir(directory)
    files.sweep_leftovers(directory, names)
    sweep_parts(directory, names)
    return names


@contextlib.contextmanager
def _telling_what_is_kept(part: Part, goal: Goal) -> Iterator[None]:
    try:
        yield
    except StoppedError as error:
        problem = f"it was stopped{_kept(part)}"
        raise FetchError(problem, url=goal.url, path=goal.path) from error
    except FetchError as error:
        problem, cause = f"{error.problem}{_kept(part)}", error.__cause__
        again = type(error)(problem, url=error.url, path=error.path, causes=error.causes)
        raise again from cause


def _kept(part: Part) -> str:
    if not part.can_go_on:
        return ""
    size = "" if part.size is None else f" of {part.size}"
    return f"; {part.n_bytes}{size} bytes are kept, and the next try goes on from there"


def _promised(file: RemoteFile | None, digest: str | None) -> RemoteFile:
    wanted = file or RemoteFile("")
    digest = wanted.digest if digest is None else digest
    parsed = None if digest is None else str(_digest.parse(digest))
    return msgspec.structs.replace(wanted, digest=parsed)


def ask(source: Source, name: str, *, goal: Goal, limits: Limits, clock: Clock) -> RemoteFile:
    """Return what the source tells of a file, asked as often as `limits` say."""
    return try_again(lambda clock: _stat(source, name, limits, clock), goal, limits, clock)


def _stat(source: Source, name: str, limits: Limits, clock: Clock) -> RemoteFile:
    timeout = clock.left(limits.stall_after)
    file = call(lambda cut: source.stat(name, timeout=timeout, cut=cut), limits, clock)
    if file is not None:
        refuse_other(file)
    try:
        return _promised(file, None)
    except ValueError as error:  # a source's word, and no argument
        problem = (
            f"what '{shown(source.url)}' states of {quoted(name)} can't be read: {told(error)}"
        )
        raise SourceError(problem, again="once") from None


def _look(target: str, wanted: RemoteFile, goal: Goal, clock: Clock) -> str | None:
    """Return the digest of what is there, if it is right; move it aside, if it is wrong."""
    try:
        status = os.stat(target, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        problem = f"expected a regular file or nothing, found a {file_type(status.st_mode)}"
        raise FetchError(f"{problem}; move it away", url=goal.url, path=goal.path)
    if wanted.size is None and wanted.digest is None:
        return None
    found = _proof(target, wanted, clock)
    if found is None:
        clock.go_on()
        aside = files.move_aside(target)
        logger.warning(
            "'%s' was not the right one, and is '%s' now", shown(target), shown(str(aside))
        )
    return found


def _proof(target: str, wanted: RemoteFile, clock: Clock) -> str | None:
    """``"sha256:<hex>"`` of a file that is as large as it should be and has the right digest."""
    fd = os.open(target, OPEN_FLAGS)
    try:
        size = os.fstat(fd).st_size
        if wanted.size not in {None, size}:
            return None
        found = other = _digest.of_file(fd, "sha256", size, go_on=clock.go_on)
        if wanted.digest is not None:
            expected = _digest.parse(wanted.digest)
            if expected.algorithm != found.algorithm:
                other = _digest.of_file(fd, expected.algorithm, size, go_on=clock.go_on)
            if not _digest.same(expected, other):
                return None
        return str(found)
    finally:
        os.close(fd)


class _Work:
    """What is done to fetch one file, and what it has cost until now."""

    def __init__(
        self,
        source: Source,
        name: str,
        limits: Limits,
        on_bytes: OnBytes | None,
        *,
        is_asked: bool,
    ) -> None:
        self._source, self._name, self._limits = source, name, limits
        self._is_asked = is_asked
        self._on_bytes = on_bytes or _ignore
        self._connections = limits.connections
        self._n_attempts = self._n_bytes = 0

    def fetched(self, target: str, wanted: RemoteFile, digest: str, clock: Clock) -> Fetched:
        """Return what came of it."""
        return Fetched(
            path=Path(target),
            file=wanted,
            digest=digest,
            proven=wanted.digest is not None,
            n_attempts=self._n_attempts,
            n_bytes=self._n_bytes,
            seconds=clock.spent(),
        )

    def fetch(
        self, part: Part, wanted: RemoteFile, goal: Goal, clock: Clock
    ) -> tuple[RemoteFile, str]:
        """Return which file is in the part, whole and proven, and ``"sha256:<hex>"`` of it."""
        asked: RemoteFile | None = wanted
        if part.is_left:
            logger.info(
                "Going on with %s: %d bytes of it are here", shown(goal.label), part.n_bytes
            )
            self._on_bytes(part.n_bytes, part.size)

        def once(clock: Clock) -> tuple[RemoteFile, str]:
            nonlocal asked
            self._n_attempts += 1
            while True:
                was_left = part.is_left
                try:
                    asked = asked or self._ask_again(wanted, clock)
                    self._transfer(part, asked, clock)
                    return _as_given(asked, part), part.prove(asked, clock)
                except SourceError as error:
                    if not error.keep:
                        part.restart()
                        asked = None
                    if not error.ranges:
                        self._connections = 1
                    if error.keep or not was_left:
                        raise
                    logger.info(
                        "What was left of %s is of no use: %s",
                        shown(goal.label),
                        printable(error.problem),
                    )

        return try_again(once, goal, self._limits, clock)

    def provenance_of(self, wanted: RemoteFile) -> Provenance:
        """Return which file a part is of, as far as that is known before it comes."""
        url = self._source.url.encode(errors="backslashreplace").decode()
        return Provenance(
            source=url,
            resource=getattr(self._source, "resource", url),
            name=self._name,
            size=wanted.size,
            digest=wanted.digest,
        )

    def _ask_again(self, wanted: RemoteFile, clock: Clock) -> RemoteFile:
        """What the source said has turned out to be wrong; what a caller said stays."""
        if not self._is_asked:
            return wanted
        asked = _stat(self._source, self._name, self._limits, clock)
        return msgspec.structs.replace(asked, digest=wanted.digest or asked.digest)

    def _transfer(self, part: Part, wanted: RemoteFile, clock: Clock) -> None:
        if part.n_bytes and part.identity is None and wanted.digest is None:
            part.restart()  # nobody can say whether the rest would be of the same file
        part.expect(wanted.size)
        if part.n_bytes and part.size is not None and not part.missing():
            return
        known = RemoteFile(self._name, part.size, part.identity) if part.n_bytes else None
        connections = self._connections if wanted.ranges else 1
        gaps = part.missing()
        if gaps in ([], [(0, wanted.size)]) and not is_worth_sharing(wanted.size, connections):
            gaps = [(0, None)]
        spans = Spans(gaps, connections)
        events = relay(
            self._source, self._name, spans, known=known, limits=self._limits, clock=clock
        )
        with contextlib.closing(events):
            for event in events:
                if isinstance(event, Answered):
                    _agree(part, event, wanted, is_alone=spans.connections == 1)
                    self._write_down(part, event.answer, wanted)
                else:
                    self._n_bytes += part.write(event.at, event.chunks)
                    self._on_bytes(part.n_bytes, part.size)
        if part.size is not None and part.missing():
            raise SourceError(f"it ended after {part.n_bytes} of {part.size} bytes")

    def _write_down(self, part: Part, answer: Delivery, wanted: RemoteFile) -> None:
        """Let another fetch go on from here, if it could tell that it is the same file."""
        identity = answer.file.identity if answer.file.is_lasting else None
        if answer.has_parts and (identity is not None or wanted.digest is not None):
            known = self.provenance_of(wanted)
            part.begin_record(msgspec.structs.replace(known, size=part.size, identity=identity))


def _ignore(n_bytes: int, size: int | None) -> None:
    """Tell nobody."""


def _agree(part: Part, event: Answered, wanted: RemoteFile, *, is_alone: bool) -> None:
    """Compare what an answer says with what is known, before any byte of it is taken."""
    file, start = event.answer.file, event.answer.start
    if start != event.asked:
        if start or not is_alone:
            problem = f"asked for bytes from {event.asked} on, it gives bytes from {start} on"
            raise SourceError(problem, keep=False, ranges=False)
        part.restart()  # the whole file instead: it has changed, or there are no ranges
    part.expect(wanted.size)
    part.expect(file.size)
    if part.identity not in {None, file.identity}:
        raise SourceError("the file has changed at the source", keep=False)
    if wanted.digest is None and _are_two(wanted.identity, file.identity):
        found = f"expected the file that is {_name_of(wanted)}, the source gives {_name_of(file)}"
        raise SourceError(found, keep=False)
    part.identity = file.identity
    if not is_alone and file.identity is None and wanted.digest is None:
        problem = "parts of a file that has neither entity tag nor digest may be of two files"
        raise SourceError(problem, keep=False, ranges=False)
    if event.answer.is_page and wanted.digest is None:
        raise SourceError("it gives a web page: a login, or an error", keep=False)
    if not event.answer.framed and part.size is None and wanted.digest is None:
        problem = "nobody says how long it is, so that nobody could say whether all of it came"
        raise SourceError(f"{problem}: give its digest", again="no")


def _as_given(wanted: RemoteFile, part: Part) -> RemoteFile:
    """Proven bytes are the wanted ones, by whatever name the source gave them."""
    is_other = _are_two(wanted.identity, part.identity)
    return msgspec.structs.replace(wanted, identity=part.identity) if is_other else wanted


def _are_two(one: str | None, other: str | None) -> bool:
    """Whether two identities are of two files; those of two kinds can't be compared."""
    if one is None or other is None:
        return False
    one, other = str(one), str(other)  # a source of the user's may say a number
    if _kind_of(one) != _kind_of(other):
        return False
    # Some stores list a tag without the quotes that it has elsewhere.
    return one.replace('"', "") != other.replace('"', "")


def _kind_of(identity: str) -> str:
    """An entity tag, what a store calls by a name of its own, or what has none: a digest."""
    if identity.startswith('"'):
        return '"'
    return identity.partition("=")[0] if "=" in identity else ""


def _name_of(file: RemoteFile) -> str:
    return quoted(str(file.identity), 100)


def read_range(
    source: Source,
    name: str,
    start: int,
    stop: int,
    *,
    known: RemoteFile | None = None,
    digest: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    stopped: threading.Event | None = None,
) -> bytes:
    """Return some bytes of a file that stays where it is.

    Args:
        source: Where it is.
        name: What it is called there.
        start: The first byte.
        stop: The byte behind the last one.
        known: What an earlier answer said of the file; it must be the same one still.
        digest: Of these bytes, where it is known.
        limits: How long and how often to try.
        stopped: Set from another thread, it ends the call with an error.

    Raises:
        FetchError: They could not be read.
    """
    clock = Clock(limits.deadline, stopped or Stop())
    goal = Goal(f"bytes {start} to {stop} of {quoted(name)}", f"{source.url}/{name}", "memory")

    def once(clock: Clock) -> bytes:
        spans = Spans([(start, stop)], 1)
        taken: list[bytes] = []
        events = relay(source, name, spans, known=known, limits=limits, clock=clock)
        with contextlib.closing(events):
            for event in events:
                if isinstance(event, Came):
                    taken += event.chunks
                elif event.answer.start != start:
                    raise SourceError("it gives no parts of files", again="no")
                elif known is not None and known.identity not in {None, event.answer.file.identity}:
                    raise SourceError("the file has changed at the source", again="no")
        data = b"".join(taken)
        if len(data) != stop - start:
            raise SourceError(f"expected {stop - start} bytes, found {len(data)}")
        if digest is not None and not _digest.same(_digest.parse(digest), _of_bytes(data, digest)):
            raise SourceError(f"expected bytes whose digest is {digest}, found others")
        return data

    try:
        return try_again(once, goal, limits, clock)
    except StoppedError as error:
        raise FetchError("it was stopped", url=goal.url, path=goal.path) from error


def _of_bytes(data: bytes, like: str) -> _digest.Digest:
    algorithm = _digest.parse(like).algorithm
    found = _digest.begin(algorithm, len(data))
    found.update(data)
    return _digest.Digest(algorithm, found.hexdigest())

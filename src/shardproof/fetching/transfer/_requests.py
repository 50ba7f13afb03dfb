"""Ask a source what it has, or for some bytes of a file that stays where it is."""

import contextlib
import dataclasses
import functools
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from shardproof._base import digest as _digest
from shardproof._base.messages import quoted, shown, told
from shardproof._base.work import Deadline, Settled, settle
from shardproof.errors import SourceError
from shardproof.fetching.sources._fsspec import FsspecSource
from shardproof.fetching.sources._http import HttpSource
from shardproof.fetching.sources._hub import HubSource
from shardproof.fetching.sources._source import Cancellation, RemoteFile, Source, refuse_other
from shardproof.fetching.transfer import _relay
from shardproof.fetching.transfer._attempts import Goal, Limits, retry

Result = TypeVar("Result")


def tells_when_read(source: Source) -> bool:
    """Whether a source says all that it tells of a file again as it gives it; the Hub does not."""
    return type(source) is HttpSource  # another class may tell a digest


def ask(source: Source, name: str, *, goal: Goal, limits: Limits, deadline: Deadline) -> RemoteFile:
    """Return what the source tells of a file, asked as often as ``limits`` say."""
    return retry(lambda own: stat_once(source, name, limits, own), goal, limits, deadline)


def stat_once(source: Source, name: str, limits: Limits, deadline: Deadline) -> RemoteFile:
    """Return what the source tells of a file, asked once."""
    stat = functools.partial(source.stat, name, timeout=deadline.left(limits.stall_timeout))
    file = _call(source, lambda own: stat(cancellation=own), limits, deadline)
    if file is not None:
        refuse_other(file)
    try:
        return with_parsed_digest(file, None)
    except ValueError as error:  # a source's word, and no argument
        what = f"what '{shown(source.url)}' states of {quoted(name)}"
        raise SourceError(f"{what} can't be read: {told(error)}", kind="refused") from None


def with_parsed_digest(file: RemoteFile | None, digest: str | None) -> RemoteFile:
    """Return what is known of a file; ``digest``, if there is one, goes before its own."""
    wanted = file or RemoteFile("")
    digest = wanted.digest if digest is None else digest
    parsed = None if digest is None else str(_digest.parse(digest))
    return msgspec.structs.replace(wanted, digest=parsed)


def listed(
    source: Source, limits: Limits, deadline: Deadline, path: str, *, links: bool = False
) -> Sequence[RemoteFile]:
    """Return what is there, as far as the source can list it; with ``links``, in pages, too."""
    goal = Goal("the listing", source.url, path)
    if not isinstance(source, HubSource):
        # Other sources don't tell how far they are, so that a stall can't be seen.
        limits = dataclasses.replace(limits, stall_timeout=limits.timeout)

    def send(request: Callable[[float, Cancellation | None], Result], /) -> Result:
        def once(deadline: Deadline) -> Result:
            timeout = deadline.left(limits.stall_timeout)
            return _call(source, lambda own: request(timeout, own), limits, deadline)

        return retry(once, goal, limits, deadline)

    if isinstance(source, HubSource):
        return source.files(send)
    if links and isinstance(source, HttpSource):
        return source.linked(send)
    if isinstance(source, FsspecSource):
        return send(lambda _, cancellation: source.files(cancellation))
    return send(lambda *_: source.files())


def read_range(
    source: Source,
    name: str,
    start: int = 0,
    stop: int | None = None,
    *,
    known: RemoteFile | None = None,
    digest: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> bytes:
    """Return bytes of a file, which is still the one ``known`` before; they have ``digest``."""
    what = quoted(name) if stop is None else f"bytes {start} to {stop} of {quoted(name)}"
    goal, most = Goal(what, f"{source.url}/{name}", "memory"), limits.max_unsized_bytes

    def once(deadline: Deadline) -> bytes:
        spans = _relay.Spans([(start, stop)], 1)
        taken: list[bytes] = []
        events = _relay.relay(source, name, spans, known=known, limits=limits, deadline=deadline)
        with contextlib.closing(events):
            for event in events:
                if isinstance(event, _relay.BytesReceived):
                    taken += event.chunks
                    if stop is None and event.at + event.n_bytes > most:
                        problem = f"expected at most {most} bytes, found more: download it first"
                        raise SourceError(problem, kind="unusable")
                elif stop is None and not event.response.is_framed:
                    problem = "its length is unknown, so a truncated file would look complete"
                    raise SourceError(f"{problem}: download it first", kind="unusable")
                elif event.response.start != start:
                    raise SourceError("it gives no parts of files", kind="unusable")
                elif known and known.identity not in {None, event.response.file.identity}:
                    raise SourceError("the file has changed at the source", kind="unusable")
        data = b"".join(taken)
        if stop is not None and len(data) != stop - start:
            raise SourceError(f"expected {stop - start} bytes, found {len(data)}")
        if digest is not None:
            wanted = _digest.parse(digest)
            found = _digest.begin(wanted.algorithm, len(data))
            found.update(data)
            if wanted.value != found.hexdigest():
                raise SourceError(f"expected bytes whose digest is {digest}, found others")
        return data

    return retry(once, goal, limits, Deadline(limits.deadline))


def read_listed(
    source: Source, file: RemoteFile, start: int, stop: int, *, limits: Limits
) -> bytes:
    """Return bytes of a file that was listed, if it is still that one."""
    if not isinstance(source, FsspecSource):  # the Hub's are those of one commit
        known = None if isinstance(source, HubSource) else file
        return read_range(source, file.name, start, stop, known=known, limits=limits)
    goal = Goal(f"bytes {start} to {stop} of {quoted(file.name)}", f"{source.url}/{file.name}", "")

    def once(deadline: Deadline) -> bytes:
        data = _call(source, lambda _: source.part_of(file, start, stop), limits, deadline)
        if len(data) != stop - start:
            raise SourceError(f"expected {stop - start} bytes, found {len(data)}")
        return data

    return retry(once, goal, limits, Deadline(limits.deadline))


def put(source: FsspecSource, name: str, data: bytes, *, replace: bool) -> None:
    """Write a file of a store, asked once: its client asks again by itself."""
    limits = Limits(stall_timeout=Limits().timeout)  # nobody tells how far it is
    deadline = Deadline(limits.timeout)
    _call(source, lambda _: source.put(name, data, replace=replace), limits, deadline)


def _call(
    source: Source, work: Callable[[Cancellation], Result], limits: Limits, deadline: Deadline
) -> Result:
    """Return what a call returns that may wait for a network, if it does so in time."""
    pace = _relay.Pace(limits, deadline)
    if _relay.is_patient(source):
        settled = settle(lambda: work(pace))
    else:
        cancellation = Cancellation()
        results: queue.Queue[Settled[Result]] = queue.Queue()
        thread = threading.Thread(
            target=lambda: results.put(settle(lambda: work(cancellation))),
            name="shardproof-ask",
            daemon=True,
        )
        thread.start()
        try:
            settled = pace.next(results)
        finally:
            cancellation.cancel()
            _relay.join_threads([thread], deadline)
    if isinstance(settled.error, Exception | SystemExit):
        raise _relay.as_source_error(settled.error)
    return settled.get()

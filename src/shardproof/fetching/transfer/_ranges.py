"""Read some bytes of a file that stays where it is."""

import contextlib
import threading

from shardproof._base import digest as _digest
from shardproof._base.deadline import Deadline
from shardproof._base.messages import quoted
from shardproof._base.threads import Stop
from shardproof._base.work import Cancelled, go_on
from shardproof.errors import FetchError, SourceError
from shardproof.fetching.sources._source import RemoteFile, Source
from shardproof.fetching.transfer._attempts import Goal, retry
from shardproof.fetching.transfer._limits import Limits
from shardproof.fetching.transfer._relay import BytesReceived, relay
from shardproof.fetching.transfer._spans import Spans

__all__ = ["read_range"]


def read_range(
    source: Source,
    name: str,
    start: int,
    stop: int,
    *,
    known: RemoteFile | None = None,
    digest: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    cancelled_by: threading.Event | None = None,
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
        cancelled_by: Set from another thread, it ends the call with an error.

    Raises:
        FetchError: They could not be read.
    """
    deadline = Deadline(limits.deadline, cancelled_by or Stop())
    goal = Goal(f"bytes {start} to {stop} of {quoted(name)}", f"{source.url}/{name}", "memory")

    def once(deadline: Deadline) -> bytes:
        spans = Spans([(start, stop)], 1)
        taken: list[bytes] = []
        events = relay(source, name, spans, known=known, limits=limits, deadline=deadline)
        with contextlib.closing(events):
            for event in events:
                if isinstance(event, BytesReceived):
                    taken += event.chunks
                elif event.response.start != start:
                    raise SourceError("it gives no parts of files", kind="unusable")
                elif known is not None and known.identity not in {
                    None,
                    event.response.file.identity,
                }:
                    raise SourceError("the file has changed at the source", kind="unusable")
        data = b"".join(taken)
        if len(data) != stop - start:
            raise SourceError(f"expected {stop - start} bytes, found {len(data)}")
        if digest is not None and not _digest.same(_digest.parse(digest), _of_bytes(data, digest)):
            raise SourceError(f"expected bytes whose digest is {digest}, found others")
        return data

    try:
        return retry(once, goal, limits, deadline)
    except Cancelled as error:
        go_on()  # an interrupt is not this error
        raise FetchError("it was stopped", url=goal.url, path=goal.path) from error


def _of_bytes(data: bytes, like: str) -> _digest.Digest:
    algorithm = _digest.parse(like).algorithm
    found = _digest.begin(algorithm, len(data))
    found.update(data)
    return _digest.Digest(algorithm, found.hexdigest())

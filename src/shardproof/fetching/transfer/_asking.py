"""Ask a source what it has, as often as the limits say, and for no longer."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from shardproof._base import digest as _digest
from shardproof._base.deadline import Deadline
from shardproof._base.messages import quoted, shown, told
from shardproof.errors import SourceError
from shardproof.fetching.sources._fsspec import FsspecSource
from shardproof.fetching.sources._hub import HubSource
from shardproof.fetching.sources._source import Cancellation, RemoteFile, Source, refuse_other
from shardproof.fetching.transfer._attempts import Goal, retry
from shardproof.fetching.transfer._limits import Limits
from shardproof.fetching.transfer._relay import call

__all__ = ["ask", "listed", "stat_once", "with_parsed_digest"]

Result = TypeVar("Result")


def ask(source: Source, name: str, *, goal: Goal, limits: Limits, deadline: Deadline) -> RemoteFile:
    """Return what the source tells of a file, asked as often as ``limits`` say.

    Raises:
        FetchError: It can't be asked, or refuses to tell.
        Cancelled: It is not wanted any more.
    """
    return retry(lambda own: stat_once(source, name, limits, own), goal, limits, deadline)


def stat_once(source: Source, name: str, limits: Limits, deadline: Deadline) -> RemoteFile:
    """Return what the source tells of a file, asked once.

    Raises:
        SourceError: It doesn't tell, or what it tells can't be read.
        Cancelled: It is not wanted any more.
    """
    timeout = deadline.left(limits.stall_timeout)
    file = call(
        lambda cancellation: source.stat(name, timeout=timeout, cancellation=cancellation),
        limits,
        deadline,
    )
    if file is not None:
        refuse_other(file)
    try:
        return with_parsed_digest(file, None)
    except ValueError as error:  # a source's word, and no argument
        problem = (
            f"what '{shown(source.url)}' states of {quoted(name)} can't be read: {told(error)}"
        )
        raise SourceError(problem, kind="refused") from None


def with_parsed_digest(file: RemoteFile | None, digest: str | None) -> RemoteFile:
    """Return what is known of a file, with the digest that goes before, if there is one.

    Raises:
        ValueError: The digest can't be parsed.
    """
    wanted = file or RemoteFile("")
    digest = wanted.digest if digest is None else digest
    parsed = None if digest is None else str(_digest.parse(digest))
    return msgspec.structs.replace(wanted, digest=parsed)


def listed(source: Source, limits: Limits, deadline: Deadline, path: str) -> Sequence[RemoteFile]:
    """Return what is there, as far as the source can list it: a web server can't.

    Args:
        source: Who is asked.
        limits: How long and how often.
        deadline: Of all requests together.
        path: What it is for, for messages.

    Raises:
        FetchError: It can't be asked, or refuses to tell.
        Cancelled: It is not wanted any more.
    """
    goal = Goal("the listing", source.url, path)
    if not isinstance(source, HubSource):
        # Of others nobody can say how far they are.
        limits = dataclasses.replace(limits, stall_timeout=limits.timeout)

    def send(request: Callable[[float, Cancellation | None], Result], /) -> Result:
        def once(deadline: Deadline) -> Result:
            timeout = deadline.left(limits.stall_timeout)
            return call(lambda cancellation: request(timeout, cancellation), limits, deadline)

        return retry(once, goal, limits, deadline)

    if isinstance(source, HubSource):
        return source.files(send)
    if isinstance(source, FsspecSource):
        return send(lambda _, cancellation: source.files(cancellation))
    return send(lambda *_: source.files())

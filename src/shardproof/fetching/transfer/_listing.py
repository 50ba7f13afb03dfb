"""What a source lists, asked for as often as the limits say, and for no longer."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

from shardproof.fetching.sources._fsspec import FsspecSource
from shardproof.fetching.sources._hub import HubSource
from shardproof.fetching.sources._source import Cut, RemoteFile, Source
from shardproof.fetching.transfer._attempts import Goal, try_again
from shardproof.fetching.transfer._clock import Clock
from shardproof.fetching.transfer._limits import Limits
from shardproof.fetching.transfer._relay import call

__all__ = ["listed"]

Result = TypeVar("Result")


def listed(source: Source, limits: Limits, clock: Clock, path: str) -> Sequence[RemoteFile]:
    """Return what is there, as far as the source can list it: a web server can't.

    Args:
        source: Who is asked.
        limits: How long and how often.
        clock: The time for all of it.
        path: What it is for, for messages.

    Raises:
        FetchError: It can't be asked, or refuses to tell.
        StoppedError: The clock was stopped.
    """
    goal = Goal("the listing", source.url, path)
    if not isinstance(source, HubSource):
        # Of others nobody can say how far they are.
        limits = dataclasses.replace(limits, stall_after=limits.download_timeout)

    def ask(request: Callable[[float, Cut | None], Result], /) -> Result:
        def once(clock: Clock) -> Result:
            timeout = clock.left(limits.stall_after)
            return call(lambda cut: request(timeout, cut), limits, clock)

        return try_again(once, goal, limits, clock)

    if isinstance(source, HubSource):
        return source.files(ask)
    if isinstance(source, FsspecSource):
        return ask(lambda _, cut: source.files(cut))
    return ask(lambda *_: source.files())

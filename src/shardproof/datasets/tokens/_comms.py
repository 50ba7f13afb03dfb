"""What a manager of token shards fetches by, how long it tries, and how long ranks wait."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from shardproof._base import files
from shardproof._base.arguments import count, number
from shardproof._base.liveness import is_gone, this_process
from shardproof._base.messages import shown
from shardproof._base.opening import Descriptor
from shardproof._base.work import LoopThreads
from shardproof.errors import SourceError
from shardproof.fetching import sources
from shardproof.fetching.cache import STATE
from shardproof.fetching.transfer import Limits
from shardproof.manifest import ExpectedFile
from shardproof.probes import npy

Comms = str | sources.Source | Callable[[str, Path], object]
"""An address, a source, or a function ``fetch(name, dest)``, which may be asynchronous."""


def source_of(comms: Comms, root: str, threads: LoopThreads) -> sources.Source:
    """Return what to fetch by; what a function brings is kept below the root until it is whole."""
    if isinstance(comms, str):
        return sources.open_source(comms)
    if isinstance(comms, sources.Source):
        return comms
    home = os.path.join(root, STATE, "scratch")
    files.make_directories(home)
    for name in os.listdir(home):
        if is_gone(name.replace(",", "/")):
            files.remove_tree(os.path.join(home, name))
    scratch = os.path.join(home, this_process().replace("/", ",") or "unknown")
    files.make_directories(scratch)
    return FunctionSource(comms, scratch, threads)


def limits_of(
    comms: Comms, limits: Limits | None, max_download_retries: int, download_timeout: float
) -> Limits:
    """Return how long and how often to try, as a user wants it; refuse what is said twice."""
    if limits is None:
        limits = Limits(
            attempts=count("max_download_retries", max_download_retries, 1, 1000),
            timeout=number("download_timeout", download_timeout, 1e-3),
            stall_timeout=download_timeout,
            min_timeout=download_timeout,
        )
    elif (max_download_retries, download_timeout) != (Limits().attempts, Limits().timeout):
        problem = "max_download_retries and download_timeout are among them: give one or the other"
        raise ValueError(f"limits: {problem}")
    if isinstance(comms, str | sources.Source):
        return limits
    # How far a function is can't be seen.
    return dataclasses.replace(limits, stall_timeout=limits.timeout)


def patience(wait_timeout: float | None, limits: Limits) -> float:
    """Return how many seconds a rank waits for rank 0."""
    if wait_timeout is not None:
        return number("wait_timeout", wait_timeout, 1e-3)
    each = limits.attempts * (limits.timeout + limits.max_backoff)
    return 2 * (each if limits.deadline is None else min(each, limits.deadline)) + 60.0


class FunctionSource(sources.CallableSource):
    """A function of the user's own, called in a thread; if it is asynchronous, its loop runs it."""

    def __init__(
        self, fetch: Callable[[str, Path], object], scratch: str, threads: LoopThreads
    ) -> None:
        super().__init__(self._call, name="comms", scratch=scratch)
        self._function, self._threads = fetch, threads
        self._futures: set[concurrent.futures.Future[object]] = set()

    def _call(self, name: str, dest: Path) -> None:
        result = self._function(name, dest)
        if inspect.isawaitable(result):

            async def awaited() -> object:  # what the loop runs must be a coroutine
                return await result

            # Waited for, and cancelled, in threads of ours only: its lock must meet no interrupt.
            future = asyncio.run_coroutine_threadsafe(awaited(), self._threads.loop)
            self._futures.add(future)
            try:
                future.result()
            finally:
                self._futures.discard(future)
        # Whether all of it is there, nothing but the header of the file itself states.
        mismatch = None
        with contextlib.suppress(FileNotFoundError, IsADirectoryError), open(dest, "rb") as file:
            promised, read = ExpectedFile(name=name), Descriptor(file.fileno())
            mismatch = npy.probe(promised, read, read.status.st_size)
        if mismatch is not None:
            problem = f"the function has not written a complete '{shown(name)}'"
            raise SourceError(f"{problem}: expected {mismatch.expected}, found {mismatch.found}")

    @contextlib.contextmanager
    def read(
        self, request: sources.ReadRequest, cancellation: sources.Cancellation | None = None
    ) -> Iterator[sources.Response]:
        """Fetch the whole file; a coroutine that takes too long is cancelled."""

        def cancel() -> None:
            for future in tuple(self._futures):
                future.cancel()

        cancellation = cancellation or sources.Cancellation()
        with cancellation.register(cancel), super().read(request, cancellation) as response:
            yield response

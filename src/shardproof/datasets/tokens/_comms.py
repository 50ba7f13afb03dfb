"""What a manager of token shards is given to fetch by, as a source."""

import asyncio
import concurrent.futures
import contextlib
import inspect
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from shardproof._base import files
from shardproof._base.liveness import is_gone, this_process
from shardproof._base.messages import shown
from shardproof.datasets.tokens._npy import CutHeaderError, HeaderError, read_header, wrong_size
from shardproof.errors import SourceError
from shardproof.fetching.cache import STATE
from shardproof.fetching.sources import (
    CallableSource,
    Cancellation,
    FsspecSource,
    HttpSource,
    ReadRequest,
    Response,
    Source,
    open_source,
)

__all__ = ["Comms", "FunctionSource", "source_of", "states_no_digests"]

Comms = str | Source | Callable[[str, Path], object]
"""An address, a source, or a function ``fetch(name, dest)``, which may be asynchronous."""


def source_of(comms: Comms, root: str) -> Source:
    """Return what to fetch by.

    Args:
        comms: What is given.
        root: Real absolute path of the directory of the shards: what a function brings is kept
            below it until it is whole.
    """
    if isinstance(comms, str):
        return open_source(comms)
    if isinstance(comms, Source):
        return comms
    return FunctionSource(comms, _scratch(root))


def states_no_digests(source: Source) -> bool:
    """Whether it is known, without a request, that a source has no digest of any file."""
    return type(source) in {FsspecSource, FunctionSource, HttpSource}


def _scratch(root: str) -> str:
    """Make a directory of this process's own, and remove those of processes that are gone."""
    home = os.path.join(root, STATE, "scratch")
    files.make_directories(home)
    for name in os.listdir(home):
        if is_gone(name.replace(",", "/")):
            files.remove_tree(os.path.join(home, name))
    path = os.path.join(home, this_process().replace("/", ",") or "unknown")
    files.make_directories(path)
    return path


class FunctionSource(CallableSource):
    """A function of the user's own, called in a thread; if it is asynchronous, its loop runs it.

    What it brings must be a whole ``.npy`` file. One that is empty or cut is a failed attempt.

    Args:
        fetch: The function.
        scratch: A directory for what is on its way.

    Attributes:
        loop: The loop, which must not be blocked while it is to fetch something.
    """

    def __init__(self, fetch: Callable[[str, Path], object], scratch: str) -> None:
        super().__init__(self._call, name="comms", scratch=scratch)
        self._function = fetch
        self._futures: set[concurrent.futures.Future[object]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None

    def _call(self, name: str, dest: Path) -> None:
        self._wait_for(self._function(name, dest))
        _refuse_cut(name, dest)

    def _wait_for(self, result: object) -> None:
        if not inspect.isawaitable(result):
            return
        if self.loop is None:
            raise RuntimeError("an asynchronous function needs a loop that runs")
        # Waited for, and cancelled, in threads of ours only: its lock must meet no interrupt.
        future = asyncio.run_coroutine_threadsafe(_awaited(result), self.loop)
        self._futures.add(future)
        try:
            future.result()
        finally:
            self._futures.discard(future)

    def _cancel(self) -> None:
        for future in tuple(self._futures):
            future.cancel()

    @contextlib.contextmanager
    def read(
        self, request: ReadRequest, cancellation: Cancellation | None = None
    ) -> Iterator[Response]:
        """Fetch the whole file; a coroutine that takes too long is cancelled."""
        cancellation = cancellation or Cancellation()
        with (
            cancellation.register(self._cancel),
            super().read(request, cancellation) as response,
        ):
            yield response


def _refuse_cut(name: str, path: Path) -> None:
    """Nobody states how large it is to be but its own header."""
    try:
        with open(path, "rb", buffering=0) as file:
            mismatch = wrong_size(read_header(file.fileno()), os.fstat(file.fileno()).st_size)
    except CutHeaderError as error:
        mismatch = error.mismatch
    except (FileNotFoundError, IsADirectoryError, HeaderError):  # told by who looks at it next
        return
    if mismatch is not None:
        problem = f"the function has written no whole '{shown(name)}'"
        raise SourceError(f"{problem}: expected {mismatch.expected}, found {mismatch.found}")


async def _awaited(result: Awaitable[object]) -> object:
    return await result

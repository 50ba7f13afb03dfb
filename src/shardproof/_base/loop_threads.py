"""Threads that an event loop waits for: it is never blocked, and no thread outlives its wait."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from shardproof._base import threads

__all__ = ["LoopThreads"]

Result = TypeVar("Result")


class LoopThreads:
    """Runs blocking work for coroutines, each piece in a thread of its own."""

    def __init__(self) -> None:
        self._running: dict[threading.Thread, threading.Event] = {}

    async def run(self, work: Callable[[threading.Event], Result], name: str) -> Result:
        """Return what the work returns; raise what it raises.

        If the wait is cancelled, the work is told to stop, and it has ended when this returns.

        Args:
            work: Takes an event that is set when it is to stop.
            name: Of the thread.
        """
        loop, stop = asyncio.get_running_loop(), threads.Stop()
        future: asyncio.Future[Result] = loop.create_future()

        def run() -> None:
            try:
                result = work(stop)
            except BaseException as error:
                problem = error
                tell(lambda: future.set_exception(problem))
            else:
                tell(lambda: future.set_result(result))

        def tell(set_it: Callable[[], None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(lambda: None if future.done() else set_it())

        thread = threading.Thread(target=run, name=name, daemon=True)
        threads.start(thread, stop)
        self._running[thread] = stop
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            stop.set()
            await _ended(future)
            raise
        finally:
            stop.set()  # where nobody awaits it any more
            if not threads.is_collecting():
                thread.join()
                del self._running[thread]

    def end(self) -> None:
        """Tell all work to stop, and join its threads, but for the one that calls it."""
        running = dict(self._running)
        for stop in running.values():
            stop.set()
        for thread in running:
            if thread is not threading.current_thread():
                thread.join()


async def _ended(future: "asyncio.Future[Result]") -> None:
    """Wait until it is done, however often that is cancelled; what it raises is not told."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    if not future.cancelled():
        future.exception()

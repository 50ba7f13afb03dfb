"""Threads that an event loop waits for: it is never blocked, and no thread outlives its wait."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from shardproof._base.work import Settled, Stop, apart, settle, stoppable

P = ParamSpec("P")
Result = TypeVar("Result")


class LoopThreads:
    """Runs blocking work for coroutines, each piece in a thread of its own."""

    def __init__(self) -> None:
        self._running: dict[threading.Thread, Stop] = {}

    async def run(self, work: Callable[[Stop], Result], name: str) -> Result:
        """Return what the work returns; raise what it raises."""
        loop, stop = asyncio.get_running_loop(), Stop()
        self.loop = loop
        has_ended, settled = asyncio.Event(), list[Settled[Result]]()

        def run() -> None:
            settled.append(settle(lambda: work(stop)))
            with contextlib.suppress(RuntimeError):  # the loop is closed: no wait is left
                loop.call_soon_threadsafe(has_ended.set)

        # A daemon: an interpreter that ends does not wait for it before it is told to stop.
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._running[thread] = stop
        try:
            apart(lambda _: thread.start())
            await has_ended.wait()
        except asyncio.CancelledError:
            stop.set()
            while not has_ended.is_set():  # however often this wait is cancelled, too
                with contextlib.suppress(asyncio.CancelledError):
                    await has_ended.wait()
            raise
        finally:
            stop.set()  # where no coroutine awaits it any more
            if has_ended.is_set():
                thread.join()
                del self._running[thread]
        return settled.pop().get()

    def end(self) -> None:
        """Stop all work, and join its threads, but for the one that calls it."""
        running = dict(self._running)
        for stop in running.values():
            stop.set()
        for thread in running:
            if thread is not threading.current_thread():
                thread.join()


def in_thread(method: Callable[P, Result]) -> Callable[P, Coroutine[Any, Any, Result]]:
    """Return a coroutine function that does as a method does, in a thread of its own."""

    @functools.wraps(method)
    async def twin(*args: P.args, **keywords: P.kwargs) -> Result:
        return await LoopThreads().run(
            lambda stop: stoppable(lambda: method(*args, **keywords), stop),
            f"shardproof-{method.__name__.partition('_')[0]}",
        )

    twin.__name__, twin.__qualname__ = f"{method.__name__}_async", f"{method.__qualname__}_async"
    twin.__doc__ = (
        f"Do as `{method.__name__}` in a thread, which has ended when this returns or is cancelled."
    )
    return twin

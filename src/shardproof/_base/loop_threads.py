"""Threads that an event loop waits for: it is never blocked, and no thread outlives its wait."""

import asyncio
import contextlib
import functools
import inspect
import threading
import types
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, cast

from shardproof._base.arguments import checked
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
    name, function = f"{method.__name__}_async", cast("Any", inspect.unwrap(method))
    # A copy, since refusals of arguments name the function that was called.
    copy = types.FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, function.__annotations__
    copy.__module__, copy.__qualname__ = function.__module__, f"{function.__qualname__}_async"
    blocking: Callable[P, Result] = checked(copy)

    @functools.wraps(blocking)
    async def twin(*args: P.args, **keywords: P.kwargs) -> Result:
        return await LoopThreads().run(
            lambda stop: stoppable(lambda: blocking(*args, **keywords), stop),
            f"shardproof-{name.partition('_')[0]}",
        )

    twin.__doc__ = (
        f"Do as `{method.__name__}` in a thread, which has ended when this returns or is cancelled."
    )
    return twin

"""Threads that an event loop waits for: it is never blocked, and no thread outlives its wait."""

import asyncio
import contextlib
import functools
import inspect
import threading
import types
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, cast

from shardproof._base import threads
from shardproof._base.arguments import checked
from shardproof._base.work import stoppable

P = ParamSpec("P")
Result = TypeVar("Result")


class LoopThreads:
    """Runs blocking work for coroutines, each piece in a thread of its own."""

    def __init__(self) -> None:
        self._running: dict[threading.Thread, threading.Event] = {}

    async def run(self, work: Callable[[threading.Event], Result], name: str) -> Result:
        """Return what the work returns; raise what it raises.

        If the wait is cancelled, the event that the work takes is set, and it has ended when this
        returns. The name is that of the thread.
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
            with contextlib.suppress(RuntimeError):  # the loop is closed: no wait is left
                loop.call_soon_threadsafe(lambda: None if future.done() else set_it())

        thread = threading.Thread(target=run, name=name, daemon=True)
        threads.start(thread, stop)
        self._running[thread] = stop
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            stop.set()
            # However often this wait is cancelled, too; what the work raises by then is lost.
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            if not future.cancelled():
                future.exception()
            raise
        finally:
            stop.set()  # where no coroutine awaits it any more
            if not threads.is_collecting():
                thread.join()
                del self._running[thread]

    def end(self) -> None:
        """Stop all work, and join its threads, but for the one that calls it."""
        running = dict(self._running)
        for stop in running.values():
            stop.set()
        for thread in running:
            if thread is not threading.current_thread():
                thread.join()


def in_thread(method: Callable[P, Result]) -> Callable[P, Coroutine[Any, Any, Result]]:
    """Return a coroutine function that does as a method does, in a thread of its own.

    The thread has ended when the coroutine returns. Where the wait for it is cancelled, the work is
    stopped first.

    Args:
        method: One that is `checked`; its twin has its name with ``_async`` behind it.
    """
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

"""Methods for coroutines, each made of the one that blocks."""

import asyncio
import inspect
import threading

import pytest

from shardproof._base.arguments import checked
from shardproof._base.loop_threads import in_thread
from shardproof._base.work import Cancelled, apart, go_on


class Looker:
    """Looks until it is told to stop, or at once."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.ended_by: list[type[BaseException]] = []

    @checked
    def look(self, n: int = 1, *, fast: bool = True) -> tuple[int, str]:
        """Return how much was seen, and where."""
        return apart(lambda _: self._look(n, fast))

    look_async = in_thread(look)

    def _look(self, n: int, fast: bool) -> tuple[int, str]:
        try:
            self.has_begun.set()
            while not fast:
                go_on()
        except BaseException as error:
            self.ended_by.append(type(error))
            raise
        return n, threading.current_thread().name


def test_it_does_the_same_in_a_thread() -> None:
    n, thread = asyncio.run(Looker().look_async(7))

    assert (n, thread) == (7, "shardproof-look")
    assert thread not in {found.name for found in threading.enumerate()}


def test_it_has_a_name_arguments_and_words_of_its_own() -> None:
    twin = Looker.look_async

    assert inspect.iscoroutinefunction(twin)
    assert (twin.__name__, twin.__qualname__) == ("look_async", "Looker.look_async")
    assert inspect.signature(twin) == inspect.signature(Looker.look)
    assert "`look`" in (twin.__doc__ or "")
    assert Looker.look.__name__ == "look"


def test_a_refusal_names_the_method() -> None:
    with pytest.raises(TypeError, match=r"look\(\): n: expected int, found 'x'"):
        asyncio.run(Looker().look_async("x"))  # type: ignore[arg-type]


def test_a_wait_that_is_cancelled_ends_the_work_first() -> None:
    looker = Looker()

    async def cancel() -> None:
        task = asyncio.ensure_future(looker.look_async(fast=False))
        while not looker.has_begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())
    assert looker.ended_by == [Cancelled]
    assert not [t for t in threading.enumerate() if t.name.startswith("shardproof")]

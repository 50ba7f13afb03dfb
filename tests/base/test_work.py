"""Work that no interrupt reaches, what it wants called, and what is closed when it is dropped."""

import asyncio
import gc
import inspect
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from shardproof._base import work as _work
from shardproof._base.arguments import checked
from shardproof._base.work import Cancelled, apart, go_on, in_thread
from shardproof.cli import signals as _signals


def interrupted_import() -> str:
    """Be interrupted in code that Python takes for its own."""
    code = "def end_import():\n    signal.raise_signal(signal.SIGINT)\n    return 'ended'"
    names = {"signal": signal}
    exec(compile(code, "<frozen importlib._bootstrap>", "exec"), names)
    return names["end_import"]()


class TestApart:
    @pytest.fixture(autouse=True)
    def handlers(self) -> Iterator[None]:
        yield
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)

    def test_it_returns_and_raises_what_work_does(self) -> None:
        with _signals.listening():
            assert _work.apart(lambda stop: stop.is_set()) is False
            with pytest.raises(ZeroDivisionError):
                _work.apart(lambda stop: 1 // 0)

    def test_where_no_thread_can_be_had_it_is_done_here(self, monkeypatch) -> None:
        """As where the interpreter ends: Python 3.11 would take a thread, and never run it."""

        def refused(*_: object) -> None:
            raise RuntimeError("can't create new thread at interpreter shutdown")

        here = threading.get_ident()
        with monkeypatch.context() as patched:
            patched.setattr("_thread.start_new_thread", refused)
            patched.setattr("_thread.start_joinable_thread", refused, raising=False)
            assert _work.apart(lambda _: threading.get_ident()) == here
        monkeypatch.setattr(sys, "is_finalizing", lambda: True)
        assert _work.apart(lambda _: threading.get_ident()) == here

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGALRM])
    def test_work_ends_by_itself_before_the_interrupt_is_raised(self, number: int) -> None:
        """An alarm that somebody else has set is one too."""
        ended = []

        def work(stop: threading.Event) -> None:
            assert threading.current_thread() is not threading.main_thread()
            os.kill(os.getpid(), number)
            assert stop.wait(30)
            ended.append(True)

        with pytest.raises(KeyboardInterrupt), _signals.listening():
            _work.apart(work)
        assert ended == [True]

    def test_an_interrupt_that_another_thread_takes_stops_the_work_too(self) -> None:
        """The wait sees it at its next tick, at a jump that is in no `try` up to Python 3.12."""
        stopped = []

        def work(stop: threading.Event) -> None:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            stopped.append(stop.wait(5))

        with pytest.raises(KeyboardInterrupt), _signals.listening():
            _work.apart(work)
        assert stopped == [True]

    def test_its_thread_is_listed_no_more_when_it_returns(self) -> None:
        """Also one that was asked for its name, as each record of a log does."""
        before = threading.enumerate()
        found = {_work.apart(lambda _: threading.current_thread().name) for _ in range(20)}
        assert "MainThread" not in found
        assert threading.enumerate() == before

    def test_its_thread_is_traced_as_each_thread_is(self) -> None:
        """Or no debugger and no measure of coverage would see what is done there."""
        seen = []
        before = threading.gettrace(), threading.getprofile()
        threading.settrace(lambda *_: seen.append("trace"))
        threading.setprofile(lambda *_: seen.append("profile"))
        try:
            _work.apart(lambda _: None)
        finally:
            threading.settrace(before[0])
            threading.setprofile(before[1])
        assert {"trace", "profile"} <= {*seen}

    def test_one_in_the_midst_of_an_import_is_raised_a_little_later(self) -> None:
        """Raised there, it may be lost, and may leave the lock of all imports behind."""
        ended = []

        def go_on() -> None:
            ended.append(interrupted_import())
            time.sleep(30)

        with _signals.listening(), pytest.raises(KeyboardInterrupt):
            go_on()
        assert ended == ["ended"]

    def test_ignored_ones_stay_ignored(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with _signals.listening():
                signal.raise_signal(signal.SIGINT)
                assert _work.apart(lambda stop: stop.is_set()) is False
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class Cycle:
    """What nobody holds but itself, until the collector finds it; then it is closed."""

    def __init__(self, close: Callable[[], object]) -> None:
        self._close, self.cycle = close, self

    def __del__(self) -> None:
        _work.closed_apart(self._close)


class TestClosedApart:
    def test_it_is_closed_when_this_returns(self) -> None:
        closed = []
        _work.closed_apart(lambda: closed.append(threading.get_ident()))
        assert len(closed) == 1
        assert closed != [threading.get_ident()]

    def test_its_error_is_raised_also_where_no_thread_can_be_had(self, monkeypatch) -> None:
        for is_finalizing in (False, True):
            monkeypatch.setattr(sys, "is_finalizing", lambda here=is_finalizing: here)
            with pytest.raises(ZeroDivisionError):
                _work.closed_apart(lambda: 1 // 0)

    def test_what_the_collector_finds_may_need_what_was_interrupted(self, monkeypatch) -> None:
        """The wait ends, and so does the closing, once the lock is given back."""
        monkeypatch.setattr(_work, "_PATIENCE", 0.05)
        lock, is_closed = threading.Lock(), threading.Event()

        def close() -> None:
            with lock:
                is_closed.set()

        Cycle(close)
        with lock:
            gc.collect()
            assert not is_closed.is_set()
        assert is_closed.wait(30)


class TestToWaiter:
    def test_the_calls_are_made_in_the_thread_that_waits_in_order(self) -> None:
        seen: list[tuple[int, int]] = []

        def work(_: object) -> None:
            tell = _work.to_waiter(lambda n: seen.append((n, threading.get_ident())))
            for number in range(100):
                tell(number)

        _work.apart(work)
        assert seen == [(number, threading.get_ident()) for number in range(100)]

    def test_an_error_of_a_call_stops_the_work_and_is_raised(self) -> None:
        ended = []

        def work(stop: threading.Event) -> None:
            tell = _work.to_waiter(lambda: 1 // 0)
            with pytest.raises(_work.Cancelled):
                tell()
            ended.append(stop.is_set())

        with pytest.raises(ZeroDivisionError):
            _work.apart(work)
        assert ended == [True]

    def test_where_nobody_waits_it_is_called_here(self) -> None:
        seen: list[int] = []
        _work.to_waiter(seen.append)(1)
        assert seen == [1]

    def test_what_a_call_returns_comes_back(self) -> None:
        assert (
            _work.apart(lambda _: _work.to_waiter(threading.get_ident)()) == threading.get_ident()
        )


class TestWatched:
    def test_it_is_watched_from_here_until_its_result_is_there(self) -> None:
        seen: list[int] = []

        def work() -> int:
            while not seen:
                go_on()
            return threading.get_ident()

        here = threading.get_ident()
        assert _work.watched(work, lambda: seen.append(here)) not in seen
        assert {*seen} == {here}

    def test_what_a_watch_raises_stops_the_work(self) -> None:
        ended = []

        def work() -> None:
            try:
                while True:
                    go_on()
            finally:
                ended.append(True)

        with pytest.raises(ZeroDivisionError):
            _work.watched(work, lambda: 1 // 0)
        assert ended == [True]

    def test_what_may_never_end_is_left_behind(self) -> None:
        is_over, ended_by = threading.Event(), queue.SimpleQueue[object]()

        def work() -> None:
            is_over.wait()
            ended_by.put(_work.settle(go_on).error)

        with pytest.raises(ZeroDivisionError):
            _work.watched(work, lambda: 1 // 0, waits=False)
        is_over.set()
        assert isinstance(ended_by.get(timeout=30), _work.Cancelled)  # it takes nothing any more


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

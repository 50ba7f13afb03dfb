"""Starting a thread, what an interrupt of it comes out as, and work that no interrupt reaches."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator

import pytest

from shardproof._base import crew
from shardproof._base import threads as _threads
from shardproof._base import work as _work
from shardproof.cli import signals as _signals
from shardproof.testing.contracts._child import returned, run_in_child


def interrupted_wait() -> None:
    """Wait as Thread.start does, and be interrupted where the lock is not held."""
    condition = threading.Condition(threading.Lock())
    condition._acquire_restore = interrupt
    with condition:
        condition.wait(0.001)


def interrupt(state: object) -> None:
    raise KeyboardInterrupt


def test_python_turns_this_interrupt_into_an_error_of_a_lock() -> None:
    """The control: why _threads exists."""
    with pytest.raises(RuntimeError, match="release unlocked lock"):
        interrupted_wait()


class InterruptedStart(threading.Thread):
    """Interrupts the main thread while it waits for the start."""

    def start(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        super().start()


def test_an_interrupted_start_is_an_interrupt_and_tells_the_thread_to_stop() -> None:
    stop = threading.Event()
    thread = InterruptedStart(target=stop.wait, args=(30,), daemon=True)

    with pytest.raises(KeyboardInterrupt):
        _threads.start(thread, stop)

    assert stop.is_set()
    assert thread.ident is not None  # it was started all the same, or never would have been
    thread.join(30)
    assert not thread.is_alive()


def test_another_error_is_not_called_an_interrupt() -> None:
    thread = threading.Thread(target=int)
    _threads.start(thread)
    thread.join()

    with pytest.raises(RuntimeError, match="threads can only be started once"):
        _threads.start(thread)


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
        """As from Python 3.12 on, where the interpreter ends and something is to be closed."""

        def refused(*_: object) -> None:
            raise RuntimeError("can't create new thread at interpreter shutdown")

        monkeypatch.setattr("_thread.start_new_thread", refused)
        monkeypatch.setattr("_thread.start_joinable_thread", refused, raising=False)
        here = threading.get_ident()
        assert _work.apart(lambda _: threading.get_ident()) == here

    def test_work_ends_by_itself_before_the_interrupt_is_raised(self) -> None:
        ended = []

        def work(stop: threading.Event) -> None:
            assert threading.current_thread() is not threading.main_thread()
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.wait(30)
            ended.append(True)

        with pytest.raises(KeyboardInterrupt), _signals.listening():
            _work.apart(work)

        assert ended == [True]

    def test_the_second_one_is_raised_at_once(self) -> None:
        release, ended = threading.Event(), threading.Event()

        def work(stop: threading.Event) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.wait(30)
            os.kill(os.getpid(), signal.SIGINT)
            assert release.wait(30)
            ended.set()

        with pytest.raises(KeyboardInterrupt), _signals.listening():
            _work.apart(work)

        assert not ended.is_set()
        release.set()
        assert ended.wait(30)

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

    def test_none_is_raised_by_an_alarm_when_nobody_listens_any_more(self, monkeypatch) -> None:
        monkeypatch.setattr(_signals, "_LATER", 0.5)
        with _signals.listening():
            assert interrupted_import() == "ended"

        time.sleep(0.6)

    @pytest.mark.parametrize(
        "signals", [["SIGINT", "SIGALRM"], ["SIGALRM"], ["SIGALRM", "SIGALRM"]]
    )
    def test_one_that_comes_back_while_work_is_awaited_is_the_same_one(self, signals: list) -> None:
        """And an alarm that somebody else has set is one, too."""
        ended = []

        def work(stop: threading.Event) -> None:
            for name in signals:
                os.kill(os.getpid(), signal.Signals[name])
                time.sleep(0.01)
            assert stop.wait(30)
            ended.append(True)

        with pytest.raises(KeyboardInterrupt), _signals.listening():
            _work.apart(work)

        assert ended == [True]

    def test_one_that_python_loses_is_known_all_the_same(self, monkeypatch) -> None:
        """As in any callback of a weak reference."""
        lost = []
        monkeypatch.setattr(sys, "unraisablehook", lambda seen: lost.append(seen.exc_type))

        with _signals.listening():
            thing = threading.Event()
            reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
            del thing
            assert (reference(), lost) == (None, [KeyboardInterrupt])  # it went no further

            with pytest.raises(KeyboardInterrupt):
                _work.apart(lambda stop: stop.wait(30))

    def test_one_that_nothing_waits_for_is_raised_where_it_comes(self) -> None:
        with _signals.listening(), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    def test_whoever_does_not_listen_is_interrupted_at_once_and_work_is_told(self) -> None:
        told = []

        def work(stop: threading.Event) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            told.append(stop.wait(30))

        with pytest.raises(KeyboardInterrupt):
            _work.apart(work)

        assert told == [True]

    def test_ignored_ones_stay_ignored(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with _signals.listening():
                signal.raise_signal(signal.SIGINT)
                assert _work.apart(lambda stop: stop.is_set()) is False
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def test_it_works_in_any_thread(self) -> None:
        found = []

        def listen() -> None:
            with _signals.listening():
                found.append(_work.apart(lambda stop: 42))

        thread = threading.Thread(target=listen)
        thread.start()
        thread.join(30)
        assert found == [42]


def test_no_thread_is_begun_as_the_interpreter_ends(monkeypatch) -> None:
    """Python 3.11 would take one, and never run it."""
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    assert _work.apart(lambda _: threading.current_thread()) is threading.current_thread()


class TestThreads:
    def test_work_that_gets_no_thread_says_so(self, monkeypatch) -> None:
        def none_left(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        def work(_: object) -> list[int]:
            monkeypatch.setattr(threading.Thread, "start", none_left)
            return [*crew.in_threads(abs, [-1, 2], n_threads=2, name="test")]

        with pytest.raises(RuntimeError, match="can't start new thread"):
            _work.apart(work)

    def test_they_end_by_themselves_where_each_try_to_end_them_was_interrupted(
        self, monkeypatch
    ) -> None:
        def interrupted(_: object) -> None:
            raise KeyboardInterrupt

        before = threading.active_count()
        monkeypatch.setattr(crew.Crew, "end", interrupted)
        with pytest.raises(KeyboardInterrupt):
            [*crew.in_threads(abs, [-1, 2], n_threads=2, name="test")]
        end = time.monotonic() + 30
        while threading.active_count() > before and time.monotonic() < end:
            time.sleep(0.01)
        assert threading.active_count() == before

    def test_one_of_them_does_not_wait_for_itself(self) -> None:
        """As where a user's function, which is called in it, closes what it belongs to."""

        def run(_: object) -> None:
            threads.end()
            ended.set()

        ended = threading.Event()
        threads = _threads.Threads(run, "test")
        threads.begin()
        assert ended.wait(30)
        threads.end()

    def test_nor_where_no_thread_can_be_had(self, monkeypatch) -> None:
        """Then the one that should begin them does the work."""

        def none_left(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        ended = threading.Event()
        threads = _threads.Threads(lambda _: (threads.end(), ended.set()), "test")
        monkeypatch.setattr(threading.Thread, "start", none_left)
        threads.begin()
        assert ended.wait(30)
        threads.end()

    def test_a_forked_process_does_not_wait_for_those_of_its_parent(self) -> None:
        threads = _threads.Threads(lambda stop: stop.wait(60), "test")
        threads.begin()
        try:
            assert returned(run_in_child(threads.end, deadline=30)) is None
        finally:
            threads.end()


class Cycle:
    """What nobody holds but itself, until the collector finds it."""

    def __init__(self, held: object) -> None:
        self.held, self.cycle = held, self


class WhenFound:
    """Calls a function where the collector finds it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call, self.cycle = call, self

    def __del__(self) -> None:
        self._call()


def in_a_process(work: Callable[[], object]) -> object:
    """Whatever hangs, or breaks the collector, does so in another process."""

    def without_other_collections() -> object:
        gc.collect()
        gc.disable()
        return work()

    return returned(run_in_child(without_other_collections, deadline=60))


class TestCollector:
    """It may run in any thread, between any two steps: what waits there may wait for itself."""

    def test_threads_that_it_finds_in_one_of_them_end_and_it_goes_on(self) -> None:
        def found() -> list[bool]:
            is_dropped = threading.Event()

            def work(number: int) -> None:
                if number and is_dropped.wait(30):
                    gc.collect()

            dropped = Cycle(crew.in_threads(work, [0, 1], n_threads=1, name="test"))
            next(dropped.held)
            (thread,) = (t for t in threading.enumerate() if t.name == "test")
            reference = weakref.ref(dropped)
            del dropped
            is_dropped.set()
            thread.join(30)
            gc.collect()
            return [thread.is_alive(), reference() is None]

        assert in_a_process(found) == [False, True]

    def test_nor_does_it_wait_for_others_which_may_need_what_was_interrupted(self) -> None:
        def found() -> bool:
            is_over, lock = threading.Event(), threading.Lock()

            def work(number: int) -> None:
                if number:
                    with lock:
                        is_over.set()

            dropped = Cycle(crew.in_threads(work, [0, 1], n_threads=1, name="test"))
            with lock:
                next(dropped.held)
                del dropped
                gc.collect()
            return is_over.wait(30)

        assert in_a_process(found) is True

    def test_whoever_closes_meanwhile_in_another_thread_waits(self) -> None:
        def seen() -> list[bool]:
            found = []

            def look() -> None:
                thread = threading.Thread(target=lambda: found.append(_threads.is_collecting()))
                thread.start()
                thread.join()
                found.append(_threads.is_collecting())

            found.append(_threads.is_collecting())
            WhenFound(look)
            gc.collect()
            found.append(_threads.is_collecting())
            return found

        assert in_a_process(seen) == [False, False, True, False]

    def test_an_interrupt_that_comes_while_it_runs_is_not_lost_in_a_function_of_ours(self) -> None:
        """The interpreter raises it in the next one that is written in Python."""
        told = (_threads._latest, _threads._here)
        ours = [
            call for call in gc.callbacks if getattr(call, "args", ())[:1] in {told[:1], told[1:]}
        ]
        assert [type(call.func) for call in ours] == [types.BuiltinFunctionType] * 2

    def test_what_is_left_to_another_thread_is_done_in_one(self) -> None:
        done: list[int] = []
        told = threading.Event()
        _work.later(lambda: (done.append(threading.get_ident()), told.set()))
        assert told.wait(30)
        assert done != [threading.get_ident()]

    def test_where_none_can_be_had_the_next_one_does_it(self, monkeypatch) -> None:
        def refused(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        done: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr("_thread.start_new_thread", refused)
            patch.setattr("_thread.start_joinable_thread", refused, raising=False)
            _work.later(lambda: done.append("first"))
        assert done == []
        told = threading.Event()
        _work.later(lambda: (done.append("second"), told.set()))
        assert told.wait(30)
        assert done == ["first", "second"]

    @pytest.mark.parametrize("is_refused", [False, True])
    def test_the_interpreter_does_not_end_before_it_is_done(self, is_refused: bool) -> None:
        code = (
            "import sys, threading, time, _thread\n"
            "from shardproof._base import work as _work\n"
            "def refused(*_):\n"
            "    raise RuntimeError\n"
            f"if {is_refused}:\n"
            "    _thread.start_new_thread = _thread.start_joinable_thread = refused\n"
            "_work.later(lambda: (time.sleep(0.5), print('done')))\n"
        )
        command = [sys.executable, "-c", code]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert (run.stdout, run.stderr) == ("done\n", "")

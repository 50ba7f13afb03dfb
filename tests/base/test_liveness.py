"""Which process this is, whether it is gone, and what signs of life tell of it."""

import ast
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from shardproof._base import liveness
from shardproof._base.liveness import Heartbeat, ObservedSilence
from tests.helpers.hand_clock import HandClock


def test_this_one_is_not_gone() -> None:
    assert liveness.this_process()
    assert not liveness.is_gone(liveness.this_process())


def test_one_that_ended_is_gone() -> None:
    code = "from shardproof._base.liveness import this_process; print(this_process())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert liveness.is_gone(done.stdout.strip()), done.stderr


def test_one_that_is_hidden_is_alive(monkeypatch) -> None:
    """Where /proc shows nobody but one's own processes (hidepid in proc(5))."""
    process = liveness.this_process()
    monkeypatch.setattr(liveness, "_started", lambda _: None)
    assert not liveness.is_gone(process)

    def deny(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", deny)
    assert not liveness.is_gone(process)


def test_without_namespaces_of_times(monkeypatch) -> None:
    """Before Linux 5.6 all processes go by one clock."""
    real = os.stat

    def stat(path, **keywords):
        if path == "/proc/self/ns/time":
            raise FileNotFoundError(path)
        return real(path, **keywords)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(liveness, "_known", {})
    boot, namespace, pid, _ = liveness.this_process().split("/")
    assert boot
    assert namespace.isdecimal()
    assert pid == str(os.getpid())
    assert not liveness.is_gone(liveness.this_process())


def test_a_zombie_is_gone() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, liveness.this_process().encode())
        os._exit(0)
    process = os.read(reading, 1000).decode()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert liveness.is_gone(process)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)


def test_one_whose_first_thread_has_ended_is_alive() -> None:
    """So it is for a moment when it is killed: its other threads have its files and locks still."""
    script = (
        "import ctypes, sys, threading; from shardproof._base.liveness import this_process\n"
        "print(this_process(), flush=True)\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as child:
        process = child.stdout.readline().strip()
        while b") Z " not in Path(f"/proc/{child.pid}/stat").read_bytes():
            time.sleep(1e-3)
        assert not liveness.is_gone(process)
        child.kill()
    assert liveness.is_gone(process)


def test_another_process_of_the_same_number_is_gone() -> None:
    here, _, _ = liveness.this_process().rpartition("/")
    assert liveness.is_gone(f"{here}/1")


@pytest.mark.parametrize(
    "process", ["", "/", "x", "a/b/c/d", "///", "{boot}/0/1/1", "x/{ns}/1/1", "{here}/-1/1",
                "{here}/../1", "{here}//1", "{here}/self/1"],
)  # fmt: skip
def test_what_can_not_be_told_is_alive(process: str) -> None:
    boot, ns, _, _ = liveness.this_process().split("/")
    assert not liveness.is_gone(process.format(boot=boot, ns=ns, here=f"{boot}/{ns}"))


def test_where_the_system_does_not_tell(monkeypatch) -> None:
    monkeypatch.setattr(liveness, "_here", lambda: "")
    assert liveness.this_process() == ""
    assert not liveness.is_gone(liveness.this_process())


def test_another_users_process_is_alive(monkeypatch) -> None:
    def deny(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", deny)
    assert liveness.is_alive(1)


def test_a_tag_is_of_one_process() -> None:
    process = liveness.this_process()
    assert liveness.process_of(liveness.tag_of(process)) == process
    assert liveness.tag_of("") == ""
    other = "/".join(["0", *process.split("/")[1:]])
    assert liveness.process_of(liveness.tag_of(other)) == ""


def test_a_child_is_not_its_parent() -> None:
    """Not even where it has the same number, as the first one in a namespace may."""
    assert liveness._here()
    child = os.fork()
    if not child:
        os._exit(len(liveness._known))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


NESTED = "from shardproof._base.liveness import this_process; print(repr(this_process()))"


@pytest.mark.parametrize("options", [["--mount-proc"], []], ids=["its own proc", "another's proc"])
def test_a_namespace_of_numbers_within(options) -> None:
    """Where /proc is that of the namespace around it, it shows others under the same numbers."""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", *options]
    done = subprocess.run([*command, sys.executable, "-c", NESTED], capture_output=True, text=True)
    if "Operation not permitted" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    found = ast.literal_eval(done.stdout)
    assert bool(found) == bool(options), done.stderr
    assert not liveness.is_gone(found)
    assert not liveness.is_here(found)


LOOKED_AT = (
    "import sys; from shardproof._base import liveness; print(liveness.is_gone(sys.argv[1]))"
)


@pytest.mark.parametrize("offset", ["0", "100000"])
def test_one_that_goes_by_another_clock_can_not_be_told(offset: str) -> None:
    """In another time namespace it began at another time (time_namespaces(7))."""
    command = ["unshare", "--user", "--map-root-user", "--time", "--boottime", offset, "--fork"]
    process = liveness.this_process()
    done = subprocess.run(
        [*command, sys.executable, "-c", LOOKED_AT, process], capture_output=True, text=True
    )
    if "not permitted" in done.stderr or "unrecognized option" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert done.stdout == "False\n", done.stderr


class TestHeartbeat:
    def test_it_beats_until_it_is_stopped(self) -> None:
        beats: queue.SimpleQueue[str] = queue.SimpleQueue()
        heartbeat = Heartbeat(lambda: not beats.put(threading.current_thread().name), 0.01, "of x")
        assert [beats.get(timeout=30) for _ in range(3)] == ["of x"] * 3
        heartbeat.stop()
        assert "of x" not in [thread.name for thread in threading.enumerate()]
        n_beats = beats.qsize()
        heartbeat.stop()
        assert beats.qsize() == n_beats

    def test_it_ends_when_there_is_no_more_life_to_show(self) -> None:
        beats: queue.SimpleQueue[int] = queue.SimpleQueue()
        heartbeat = Heartbeat(lambda: bool(beats.put(0)), 0.001, "of x")
        heartbeat._thread.join(30)
        assert not heartbeat._thread.is_alive()
        assert beats.qsize() == 1
        heartbeat.stop()

    def test_nothing_is_shown_before_the_time_is_over(self) -> None:
        beats: list[int] = []
        heartbeat = Heartbeat(lambda: not beats.append(0), 3600.0, "of x")
        heartbeat.stop()
        assert beats == []

    def test_stopped_in_its_own_thread_it_ends(self) -> None:
        """There the collector of garbage may close what nobody has any more."""
        met: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def beat() -> bool:
            try:
                heartbeat.stop()
            except BaseException as error:
                met.put(error)
            else:
                met.put(None)
            return True

        heartbeat = Heartbeat(beat, 0.2, "of x")
        assert met.get(timeout=30) is None
        heartbeat.stop()


class TestObservedSilence:
    def test_it_begins_when_a_sign_is_first_seen(self) -> None:
        clock = HandClock()
        silence: ObservedSilence[str, bytes] = ObservedSilence(clock)
        assert silence.seconds("a", b"1") == 0.0
        clock.now += 5
        assert silence.seconds("a", b"1") == 5.0
        assert silence.seconds("b", b"1") == 0.0
        clock.now += 5
        assert (silence.seconds("a", b"2"), silence.seconds("b", b"1")) == (0.0, 5.0)
        assert (silence.last("a"), silence.last("b"), silence.last("c")) == (b"2", b"1", None)

    def test_nothing_to_see_is_a_sign_as_any_other(self) -> None:
        clock = HandClock()
        silence: ObservedSilence[str, bytes | None] = ObservedSilence(clock)
        assert silence.seconds("a", None) == 0.0
        clock.now += 5
        assert silence.seconds("a", None) == 5.0

    def test_those_that_are_over_are_forgotten(self) -> None:
        clock = HandClock()
        silence: ObservedSilence[str, bytes] = ObservedSilence(clock)
        for key in ("a", "b"):
            silence.seconds(key, b"1")
        clock.now += 5
        silence.forget("a".__eq__)
        assert (silence.last("a"), silence.last("b")) == (None, b"1")
        assert (silence.seconds("a", b"1"), silence.seconds("b", b"1")) == (0.0, 5.0)


class TestStamp:
    def test_it_changes_with_the_file(self, tmp_path) -> None:
        path = tmp_path / "x"
        path.write_bytes(b"abc")
        os.utime(path, (1, 1))
        stamps = [liveness.stamp_of(path.stat())]
        assert liveness.stamp_of(path.stat()) == stamps[0]
        path.write_bytes(b"abcd")
        os.utime(path, (1, 1))
        stamps.append(liveness.stamp_of(path.stat()))
        os.utime(path, (1, 2))
        stamps.append(liveness.stamp_of(path.stat()))
        path.rename(tmp_path / "y")
        (tmp_path / "y.tmp").write_bytes(b"abcd")
        os.utime(tmp_path / "y.tmp", (1, 2))
        (tmp_path / "y.tmp").rename(path)
        stamps.append(liveness.stamp_of(path.stat()))
        assert len(set(stamps)) == 4

    def test_the_mark_of_a_file_stays_when_it_gets_its_name(self, tmp_path) -> None:
        path = tmp_path / "x.tmp"
        path.write_bytes(b"abc")
        mark = liveness.mark_of(path.stat())
        path = path.rename(tmp_path / "x")
        assert liveness.mark_of(path.stat()) == mark
        (tmp_path / "y").write_bytes(b"abc")
        os.utime(tmp_path / "y", ns=(mark[1], mark[1]))
        assert liveness.mark_of((tmp_path / "y").stat()) != mark
        os.utime(path, (1, 1))
        assert liveness.mark_of(path.stat()) != mark
        path.write_bytes(b"abcd")
        os.utime(path, ns=(mark[1], mark[1]))
        assert liveness.mark_of(path.stat()) != mark

    def test_what_just_changed_may_change_again_under_the_same_one(self, tmp_path) -> None:
        assert liveness.settled_stamp_of(tmp_path.stat()) is None
        os.utime(tmp_path, (1, 1))
        assert liveness.settled_stamp_of(tmp_path.stat()) == liveness.stamp_of(tmp_path.stat())

    def test_what_is_to_change_in_future_never_settles(self, tmp_path) -> None:
        later = time.time() + 3600
        os.utime(tmp_path, (later, later))
        assert liveness.settled_stamp_of(tmp_path.stat()) is None


def test_people_are_told_who_it_is() -> None:
    text = liveness.owner_text()
    assert text.startswith(f"uid {os.geteuid()} on ")
    assert text.endswith(f", process {os.getpid()}")

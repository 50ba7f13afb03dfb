"""Who a process is, and whether it is gone."""

import os
import subprocess
import sys

import pytest

from shardproof import _processes


def test_this_one_is_not_gone() -> None:
    assert _processes.this_process()
    assert not _processes.is_gone(_processes.this_process())


def test_one_that_ended_is_gone() -> None:
    code = "from shardproof._processes import this_process; print(this_process())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert _processes.is_gone(done.stdout.strip()), done.stderr


def test_one_that_is_hidden_is_alive(monkeypatch) -> None:
    """Where /proc shows nobody but one's own processes (hidepid in proc(5))."""
    process = _processes.this_process()
    monkeypatch.setattr(_processes, "_started", lambda _: None)
    assert not _processes.is_gone(process)

    def deny(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", deny)
    assert not _processes.is_gone(process)


def test_a_zombie_is_gone() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, _processes.this_process().encode())
        os._exit(0)
    process = os.read(reading, 1000).decode()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert _processes.is_gone(process)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)


def test_another_process_of_the_same_number_is_gone() -> None:
    here, _, _ = _processes.this_process().rpartition("/")
    assert _processes.is_gone(f"{here}/1")


@pytest.mark.parametrize(
    "process", ["", "/", "x", "a/b/c/d", "///", "{boot}/0/1/1", "x/{ns}/1/1", "{here}/-1/1",
                "{here}/../1", "{here}//1", "{here}/self/1"],
)  # fmt: skip
def test_what_can_not_be_told_is_alive(process: str) -> None:
    boot, ns, _, _ = _processes.this_process().split("/")
    assert not _processes.is_gone(process.format(boot=boot, ns=ns, here=f"{boot}/{ns}"))


def test_where_the_system_does_not_tell(monkeypatch) -> None:
    monkeypatch.setattr(_processes, "_here", lambda: "")
    assert _processes.this_process() == ""
    assert not _processes.is_gone(_processes.this_process())

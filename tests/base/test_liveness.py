"""Which process this is, whether it is gone, and what signs of life tell of it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardproof._base import liveness
from tests.helpers.descriptors import needs_proc


def test_one_that_ended_is_gone_and_this_one_is_not() -> None:
    assert liveness.this_process()
    assert not liveness.is_gone(liveness.this_process())
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


@needs_proc
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


@needs_proc
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


@pytest.mark.parametrize("process", ["", "/", "x", "a/b/c/d", "///", "{boot}/9/1/1", "x/{ns}/1/1",
    "{here}/-1/1", "{here}/../1", "{here}//1", "{here}/self/1"])  # fmt: skip
def test_what_can_not_be_told_is_alive(process: str) -> None:
    boot, ns, _, _ = liveness.this_process().split("/")
    assert not liveness.is_gone(process.format(boot=boot, ns=ns, here=f"{boot}/{ns}"))


def test_a_tag_is_of_one_process_and_another_one_of_the_same_number_is_gone() -> None:
    process = liveness.this_process()
    assert liveness.is_gone(f"{process.rpartition('/')[0]}/1")
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


@needs_proc
@pytest.mark.parametrize(
    "own", [["--pid"], ["--time", "--boottime", "100000"]], ids=lambda own: own[0]
)
def test_one_of_another_namespace_can_not_be_told(own: list[str]) -> None:
    """Where /proc has other numbers, or it began at another time (time_namespaces(7))."""
    command = ["unshare", "--user", "--map-root-user", *own, "--fork", sys.executable, "-c"]
    code = "import sys; from shardproof._base.liveness import *; print(is_gone(sys.argv[1]))"
    process = liveness.this_process()
    done = subprocess.run([*command, code, process], capture_output=True, text=True)
    if "not permitted" in done.stderr or "unrecognized option" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert done.stdout == "False\n", done.stderr


def written(path: Path, content: bytes, ns: int = 1) -> Path:
    path.write_bytes(content)
    os.utime(path, ns=(ns, ns))
    return path


def test_the_stamp_and_the_mark_of_a_file_change_with_it_and_only_the_stamp_with_its_name(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "x", b"abc")
    before = path.stat()
    assert liveness.stamp_of(path.stat()) == liveness.stamp_of(before)
    path = path.rename(tmp_path / "y")
    assert liveness.mark_of(path.stat()) == liveness.mark_of(before)
    others = [written(path, b"abcd").stat(), written(path, b"abc", 2).stat()]
    others += [written(tmp_path / "z", b"abc").stat()]
    for tell in (liveness.stamp_of, liveness.mark_of):
        assert tell(before) not in set(map(tell, others))

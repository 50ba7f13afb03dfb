"""What `FileSystemFaults` plans happens at that call, is recorded, ends, and must be reached."""

import concurrent.futures
import errno
import itertools
import os
import shutil
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardproof import validate
from shardproof.testing import MakeShardsDir
from shardproof.testing.faults import OPERATIONS, Call, FileSystemFaults, Outcome, PlannedFault

DEADLINE = 60  # seconds; only a hang takes so long

# A test run has threads of its own (pytest-xdist); Python 3.12 and later warn of a fork then.
forks = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    for name in ("a", "b", "acts000000.bin"):
        (root / name).write_bytes(b"1234567890")
    return root


def outcomes(fs: FileSystemFaults) -> list[Outcome]:
    return [call.outcome for call in fs.calls]


def stats(path: Path, times: int) -> str:
    """One letter for each call of stat: . or x."""
    found = ""
    for _ in range(times):
        try:
            os.stat(path)
            found += "."
        except OSError:
            found += "x"
    return found


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({}, "xxxxx"),
        ({"times": 1}, "x...."),
        ({"nth": 2}, ".xxxx"),
        ({"nth": 2, "times": 1}, ".x..."),
        ({"nth": 2, "times": 2}, ".xx.."),
        ({"nth": 6, "optional": True}, "....."),
    ],
)
def test_which_calls_suffer(when: Any, expected: str, root: Path) -> None:
    with FileSystemFaults(root) as fs:
        fault = fs.fail("stat", errno.EIO, **when)
        assert stats(root / "a", 5) == expected
    assert fault.reached is fs.reached is ("x" in expected)
    assert fault.n_calls == 5


def test_calls_are_counted_from_when_the_fault_is_planned(root: Path) -> None:
    with FileSystemFaults(root) as fs:
        assert stats(root / "a", 3) == "..."
        fs.fail("stat", errno.EIO, nth=2)
        assert stats(root / "a", 3) == ".xx"


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("a", "x."),
        ("acts*.bin", ".x"),
        ("*", "xx"),
        ("root/a", "x."),
        ("other/a", ".."),
        ("A", ".."),
    ],
)
def test_which_files_suffer(match: str, expected: str, root: Path) -> None:
    with FileSystemFaults(root) as fs:
        fault = fs.fail("stat", errno.EIO, match=match, optional=True)
        assert stats(root / "a", 1) + stats(root / "acts000000.bin", 1) == expected
    assert fault.n_calls == expected.count("x")


@pytest.mark.parametrize("match", ["a", "new"])
def test_either_path_of_a_rename_matches(match: str, root: Path) -> None:
    fs = FileSystemFaults(root)
    fs.fail("rename", errno.EXDEV, match=match)
    with fs, pytest.raises(OSError, match="cross-device"):
        os.replace(root / "a", root / "new")


def test_any_counts_every_call(root: Path) -> None:
    fs = FileSystemFaults(root)
    fs.fail("any", errno.EIO, nth=3)
    with fs:
        os.stat(root)
        os.listdir(root)
        with pytest.raises(OSError, match="Input/output"):
            os.mkdir(root / "new")
    assert [(call.operation, call.outcome) for call in fs.calls] == [
        ("stat", Outcome.OK),
        ("scandir", Outcome.OK),
        ("mkdir", Outcome.FAILED),
    ]


def test_records(root: Path) -> None:
    with FileSystemFaults(root) as fs:
        (root / "new").mkdir()
        os.rename(root / "a", root / "new" / "a")
        assert fs.calls == (
            Call("mkdir", root / "new", Outcome.OK),
            Call("rename", root / "a", Outcome.OK, root / "new" / "a"),
        )
    with pytest.raises(AttributeError):
        fs.calls[0].outcome = Outcome.FAILED  # type: ignore[misc]


def test_a_fault_is_shown_as_it_was_planned(root: Path) -> None:
    fs = FileSystemFaults(root)
    found = [
        fs.fail("read", errno.EIO, nth=2, times=1, match="acts*.bin"),
        fs.slow("any", 0.5),
        fs.short("write", 7),
        fs.kill("rename", nth=3),
    ]
    assert [repr(fault) for fault in found] == [
        "fail('read', EIO, nth=2, times=1, match='acts*.bin')",
        "slow('any', 0.5, nth=1)",
        "short('write', 7, nth=1)",
        "kill('rename', nth=3)",
    ]


# What is slow


def test_a_slow_call_waits_and_is_made(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    with FileSystemFaults(root) as fs:
        monkeypatch.setattr(fs._schedule.closed, "wait", waits.append)
        fs.slow("stat", 3600, times=1)
        fs.slow("any", 0.25)
        assert os.stat(root / "a").st_size == 10
        os.listdir(root)
    assert waits == [3600, 0.25, 0.25]
    assert outcomes(fs) == [Outcome.SLOW, Outcome.SLOW]


def test_leaving_the_context_ends_the_wait(root: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with FileSystemFaults(root) as fs:
            fault = fs.slow("stat", 3600)
            future = pool.submit(os.stat, root / "a")
            future = pool.submit(lambda: os.stat(root / "a"))
            wait_until(lambda: fault.reached)
            assert outcomes(fs) == [Outcome.RUNNING]
        assert future.result(DEADLINE).st_size == 10
    assert outcomes(fs) == [Outcome.SLOW]


def wait_until(condition: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(DEADLINE * 100):
        if condition():
            return
        pause.wait(0.01)
    pytest.fail("it did not come")


# Threads


def test_all_threads_suffer(root: Path) -> None:
    def look(_: int) -> str:
        return stats(root / "a", 50)

    with FileSystemFaults(root) as fs, concurrent.futures.ThreadPoolExecutor(4) as pool:
        fs.fail("stat", errno.EIO, nth=21, times=70)
        found = "".join(pool.map(look, range(4)))
    assert (len(found), found.count("x")) == (200, 70)
    assert outcomes(fs).index(Outcome.FAILED) == 20
    assert outcomes(fs).count(Outcome.FAILED) == 70


def test_a_signal_handler_may_come_in_between(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a call is counted, the same thread makes another one."""
    meets = PlannedFault.meets

    def interrupted(*args: Any) -> bool:
        monkeypatch.undo()
        os.stat(root / "b")
        return meets(*args)

    with FileSystemFaults(root) as fs:
        fs.fail("stat", errno.EIO, optional=True, match="nothing")
        monkeypatch.setattr(PlannedFault, "meets", interrupted)
        os.stat(root / "a")
    assert {call.path.name for call in fs.calls} == {"a", "b"}


def test_who_holds_a_function_that_was_intercepted_makes_real_calls_afterwards(root: Path) -> None:
    with FileSystemFaults(root) as fs:
        stat, open_ = os.stat, open
        fs.fail("any", errno.EIO, optional=True)
    assert stat(root / "a").st_size == 10
    with open_(root / "a") as file:
        assert file.read() == "1234567890"
    assert fs.calls == ()
    with FileSystemFaults(root) as again:
        stat(root / "a")
    assert len(again.calls) == 1


# Several contexts


def test_contexts_nest(root: Path, tmp_path: Path) -> None:
    real = os.stat
    other = tmp_path / "other"
    other.mkdir()
    with FileSystemFaults(root) as fs:
        fs.fail("stat", errno.EIO)
        with FileSystemFaults(other) as inner:
            inner.fail("stat", errno.EACCES)
            assert stats(root, 2) + stats(other, 3) + stats(tmp_path, 1) == "xxxxx."
        assert stats(root, 1) + stats(other, 1) == "x."
    assert os.stat is real
    assert (len(fs.calls), len(inner.calls)) == (3, 3)


def test_a_call_below_two_roots_suffers_for_both(root: Path, tmp_path: Path) -> None:
    with FileSystemFaults(tmp_path) as outer, FileSystemFaults(root) as inner:
        fault = inner.fail("stat", errno.EACCES, times=2)
        outer.fail("stat", errno.EIO, times=1)
        with pytest.raises(OSError, match="Input/output"):
            os.stat(root)
        with pytest.raises(PermissionError):
            os.stat(root)
        os.stat(root)
    assert fault.n_calls == 3
    assert outcomes(outer) == [Outcome.FAILED, Outcome.RAISED, Outcome.OK]
    assert outcomes(inner) == [Outcome.FAILED, Outcome.FAILED, Outcome.OK]


# FileSystemFaults that were not reached


@pytest.mark.parametrize(
    "plan",
    [
        lambda fs: fs.fail("open", errno.EIO, nth=2),
        lambda fs: fs.slow("open", 1, match="b"),
        lambda fs: fs.short("read", 100),
    ],
)
def test_a_fault_that_was_not_reached_is_complained_of(
    plan: Callable[[FileSystemFaults], PlannedFault], root: Path
) -> None:
    fs = FileSystemFaults(root)
    fault = plan(fs)
    with pytest.raises(AssertionError) as caught, fs:
        (root / "a").read_text()
    assert str(caught.value) == (
        f"Planned for '{root}' and never reached:\n"
        f"  - {fault!r} (such calls: {fault.n_calls})\n"
        "Calls seen there: 1 open, 2 read.\n"
        "A test whose fault never bit proves nothing. Give the code under test this root, and a "
        "file large enough; for a call that need not come, say optional=True."
    )
    assert not fault.reached
    assert not fs.reached


def test_an_optional_fault_need_not_be_reached(root: Path) -> None:
    with FileSystemFaults(root) as fs:
        fs.fail("open", errno.EIO, optional=True)
    assert not fs.reached


def test_another_error_is_not_taken_for_the_planned_one(root: Path) -> None:
    fs = FileSystemFaults(root)
    fs.fail("open", errno.EIO, match="acts*.bin")
    with pytest.raises(AssertionError, match="never reached") as caught, fs:
        open(root / "mistyped").close()
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_the_planned_error_passes(root: Path) -> None:
    fs = FileSystemFaults(root)
    fs.fail("open", errno.EIO)
    with pytest.raises(OSError, match="Input/output"), fs:
        open(root / "a").close()


def test_a_failed_assertion_comes_first(root: Path) -> None:
    fs = FileSystemFaults(root)
    fs.fail("open", errno.EIO)
    with pytest.raises(AssertionError, match="mine") as caught, fs:
        raise AssertionError("mine")
    assert "never reached" in caught.value.__notes__[0]


# Wrong arguments


@pytest.mark.parametrize("name", ["fail", "slow", "short", "kill"])
def test_an_operation_that_there_is_not(name: str, root: Path) -> None:
    value = {"fail": [errno.EIO], "slow": [1.0], "short": [1], "kill": []}[name]
    with pytest.raises(ValueError, match="operation: there is no 'reed'; did you mean 'read'"):
        getattr(FileSystemFaults(root), name)("reed", *value)


@pytest.mark.parametrize("operation", [None, 1, ["read"]])
def test_an_operation_of_another_type(operation: Any, root: Path) -> None:
    with pytest.raises(TypeError, match="operation: expected str, found"):
        FileSystemFaults(root).fail(operation, errno.EIO)


def test_the_operations_are_listed(root: Path) -> None:
    with pytest.raises(ValueError, match=", ".join((*OPERATIONS, "any"))):
        FileSystemFaults(root).fail("close", errno.EIO)


@pytest.mark.parametrize(
    "operation", [o for o in (*OPERATIONS, "any") if o not in {"read", "write"}]
)
def test_what_moves_no_bytes_can_not_be_short(operation: str, root: Path) -> None:
    with pytest.raises(ValueError, match=r"operation: (expected one of read, write|there is no)"):
        FileSystemFaults(root).short(operation, 1)


@pytest.mark.parametrize(
    ("when", "error", "text"),
    [
        ({"nth": 0}, ValueError, "nth: expected 1 or more, found 0"),
        ({"nth": True}, TypeError, "nth: expected int, found True"),
        ({"nth": 1.0}, TypeError, "nth: expected int, found 1.0"),
        ({"times": 0}, ValueError, "times: expected 1 or more, found 0"),
        ({"times": True}, TypeError, "times: expected int, found True"),
        ({"match": ""}, ValueError, "match: expected a pattern, found ''"),
        ({"match": "."}, ValueError, "match: expected a pattern, found '.'"),
        ({"match": Path("a")}, TypeError, "match: expected str, found PosixPath"),
        ({"optional": 1}, TypeError, "optional: expected bool, found 1"),
        ({"reached": True}, TypeError, "unexpected keyword argument 'reached'"),
    ],
)
@pytest.mark.parametrize("name", ["fail", "slow", "short", "kill"])
def test_wrong_keywords(
    name: str, when: Any, error: type[Exception], text: str, root: Path
) -> None:
    if name == "kill" and "optional" in when:
        return
    value = {"fail": [errno.EIO], "slow": [1], "short": [1], "kill": []}[name]
    with FileSystemFaults(root) as fs:
        with pytest.raises(error, match=text):
            getattr(fs, name)("read", *value, **when)
        assert fs.reached  # nothing is planned


@pytest.mark.parametrize(
    ("number", "error"),
    [(True, TypeError), ("EIO", TypeError), (None, TypeError), (0, ValueError), (9999, ValueError)],
)
def test_an_error_that_there_is_not(number: Any, error: type[Exception], root: Path) -> None:
    with pytest.raises(error, match="errno: expected"):
        FileSystemFaults(root).fail("read", number)


@pytest.mark.parametrize(
    ("seconds", "error"),
    [
        (True, TypeError),
        ("1", TypeError),
        (-1, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
    ],
)
def test_seconds_that_there_are_not(seconds: Any, error: type[Exception], root: Path) -> None:
    with pytest.raises(error, match="seconds: expected"):
        FileSystemFaults(root).slow("read", seconds)


@pytest.mark.parametrize(
    ("operation", "n_bytes", "error"),
    [
        ("read", -1, ValueError),
        ("write", 0, ValueError),
        ("read", True, TypeError),
        ("write", 1.0, TypeError),
    ],
)
def test_bytes_that_there_are_not(
    operation: str, n_bytes: Any, error: type[Exception], root: Path
) -> None:
    with pytest.raises(error, match="n_bytes: expected"):
        FileSystemFaults(root).short(operation, n_bytes)


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        FileSystemFaults(tmp_path / "missing")


def test_a_root_that_is_a_file(root: Path) -> None:
    with pytest.raises(NotADirectoryError):
        FileSystemFaults(root / "a")


def test_a_context_is_entered_once(root: Path) -> None:
    fs = FileSystemFaults(root)
    with fs, pytest.raises(RuntimeError, match="entered once"):
        fs.__enter__()
    with pytest.raises(RuntimeError, match="entered once"):
        fs.__enter__()


def test_nothing_is_planned_when_all_is_over(root: Path) -> None:
    with FileSystemFaults(root) as fs:
        pass
    with pytest.raises(RuntimeError, match="the context is left"):
        fs.fail("read", errno.EIO)


# Children


def status_of_child(function: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        signal.alarm(DEADLINE)
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def write_whole(path: Path) -> None:
    """A writer without a fault."""
    temporary = path.with_name("temporary")
    with open(temporary, "wb") as file:
        file.write(b"new")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_removing_first(path: Path) -> None:
    path.unlink(missing_ok=True)
    write_whole(path)


def contents_after_each_kill(write: Callable[[Path], None], root: Path) -> Iterator[bytes | None]:
    for nth in itertools.count(1):
        path = root / "directory" / "file"
        path.parent.mkdir()
        path.write_bytes(b"old")

        def killed(path: Path = path, nth: int = nth) -> None:
            with FileSystemFaults(path.parent) as fs:
                fs.kill("any", nth=nth)
                write(path)

        status = status_of_child(killed)
        yield path.read_bytes() if path.exists() else None
        shutil.rmtree(path.parent)
        if status == 0:
            return
        assert status == -signal.SIGKILL


@forks
def test_a_writer_is_killed_at_each_call(root: Path) -> None:
    found = list(contents_after_each_kill(write_whole, root))
    assert found == [b"old"] * 4 + [b"new"]  # open, write, fsync, rename; none


@forks
def test_a_broken_writer_is_found_by_killing_it(root: Path) -> None:
    found = list(contents_after_each_kill(write_removing_first, root))
    assert found == [b"old", None, None, None, None, b"new"]


def test_an_interrupted_call_is_an_error_or_repeated_by_the_buffers(root: Path) -> None:
    with FileSystemFaults(root) as fs, open(root / "a", "rb") as file:
        fs.fail("read", errno.EINTR, times=1)
        with pytest.raises(InterruptedError):
            os.read(file.fileno(), 1)
        fs.fail("read", errno.EINTR, times=3)
        assert file.read(3) == b"123"
    assert outcomes(fs)[1:] == [Outcome.FAILED] * 4 + [Outcome.OK]


def test_an_interruption_for_ever_is_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="times: expected a number for EINTR"):
        FileSystemFaults(root).fail("read", errno.EINTR)


# shardproof itself


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize(
    ("operation", "level"),
    [("open", "present"), ("stat", "present"), ("open", "complete"), ("stat", "complete")],
)
def test_validate_says_what_it_could_not_look_at(
    operation: str, level: Any, workers: int, make_shards_dir: MakeShardsDir
) -> None:
    path = make_shards_dir(n_shards=20, missing_shards=[7])
    with FileSystemFaults(path) as fs:
        fs.fail(operation, errno.EIO, match="acts000003.bin")
        report = validate(path, level=level, workers=workers)
    found = {finding.path.name: (finding.conclusive, finding.errno) for finding in report.findings}
    assert found == {
        "acts000003.bin": (False, errno.EIO),
        "acts000007.bin": (True, errno.ENOENT),
    }
    assert {f"acts{index:06}.bin" for index in range(20)} <= {call.path.name for call in fs.calls}

"""What `FileSystemFaults` plans happens at that call, is recorded, ends, and must be reached."""

import concurrent.futures
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from shardproof.testing.contracts._child import run_in_child
from shardproof.testing.faults import OPERATIONS, Call, FileSystemFaults, Outcome, PlannedFault
from tests.helpers.waiting import until

DEADLINE = 60  # seconds; only a hang takes so long


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


def test_which_files_suffer(root: Path) -> None:
    suffer = {"a": "x.", "acts*.bin": ".x", "*": "xx", "root/a": "x.", "other/a": ".."}
    for match, expected in suffer.items():
        with FileSystemFaults(root) as fs:
            fault = fs.fail("stat", errno.EIO, match=match, optional=True)
            assert stats(root / "a", 1) + stats(root / "acts000000.bin", 1) == expected
        assert fault.n_calls == expected.count("x")
    for match in ("a", "new"):  # either path of a rename
        fs = FileSystemFaults(root)
        fs.fail("rename", errno.EXDEV, match=match)
        with fs, pytest.raises(OSError, match="cross-device"):
            os.replace(root / "a", root / "new")


def test_every_call_is_recorded_and_any_means_each(root: Path) -> None:
    with FileSystemFaults(root) as fs:
        (root / "new").mkdir()
        os.rename(root / "a", root / "new" / "a")
        fs.fail("any", errno.EIO, nth=2)  # counted from now on
        os.listdir(root)
        with pytest.raises(OSError, match="Input/output"):
            os.stat(root)
    assert fs.calls == (
        Call("mkdir", root / "new", Outcome.OK),
        Call("rename", root / "a", Outcome.OK, root / "new" / "a"),
        Call("scandir", root, Outcome.OK),
        Call("stat", root, Outcome.FAILED),
    )


def test_a_fault_is_shown_as_it_was_planned(root: Path) -> None:
    fs = FileSystemFaults(root)
    found = [
        fs.fail("read", errno.EIO, nth=2, times=1, match="acts*.bin"),
        *(fs.slow("any", 0.5), fs.short("write", 7), fs.kill("rename", nth=3)),
    ]
    assert [*map(repr, found)] == [
        "fail('read', EIO, nth=2, times=1, match='acts*.bin')",
        *("slow('any', 0.5, nth=1)", "short('write', 7, nth=1)", "kill('rename', nth=3)"),
    ]


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
            future = pool.submit(lambda: os.stat(root / "a"))
            until(lambda: fault.reached)
            assert outcomes(fs) == [Outcome.RUNNING]
        assert future.result(DEADLINE).st_size == 10
    assert outcomes(fs) == [Outcome.SLOW]


def test_all_threads_suffer(root: Path) -> None:
    with FileSystemFaults(root) as fs, concurrent.futures.ThreadPoolExecutor(4) as pool:
        fs.fail("stat", errno.EIO, nth=21, times=70)
        found = "".join(pool.map(lambda _: stats(root / "a", 50), range(4)))
    assert (len(found), found.count("x")) == (200, 70)
    assert outcomes(fs).index(Outcome.FAILED) == 20


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


def test_contexts_nest_and_a_call_below_two_roots_suffers_for_both(root, tmp_path) -> None:
    real = os.stat
    with FileSystemFaults(tmp_path) as outer:
        fault = outer.fail("stat", errno.EIO, nth=2, times=1)
        with FileSystemFaults(root) as inner:
            inner.fail("stat", errno.EACCES, times=2)
            for error in (PermissionError, OSError):
                with pytest.raises(error) as caught:
                    os.stat(root)
            assert caught.value.errno == errno.EIO  # planned first, of the outermost root
            assert stats(root, 1) + stats(tmp_path, 1) == ".."
        assert stats(root, 1) == "."
    assert os.stat is real
    assert (fault.n_calls, len(inner.calls)) == (5, 3)
    assert outcomes(outer) == ["raised", "failed", "ok", "ok", "ok"]
    assert outcomes(inner) == ["failed", "failed", "ok"]


@pytest.mark.parametrize(
    "plan",
    [
        lambda fs: fs.fail("open", errno.EIO, nth=2),
        lambda fs: fs.slow("open", 1, match="b"),
        lambda fs: fs.short("read", 100),
    ],
)
def test_a_fault_that_was_not_reached_is_complained_of(plan, root) -> None:
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


def test_another_error_is_not_taken_for_the_planned_one_and_a_failed_assertion_comes_first(
    root: Path,
) -> None:
    fs, again = FileSystemFaults(root), FileSystemFaults(root)
    for each in (fs, again):
        each.fail("open", errno.EIO, match="acts*.bin")
    with pytest.raises(AssertionError, match="never reached") as caught, fs:
        open(root / "mistyped").close()
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    with pytest.raises(AssertionError, match="mine") as caught, again:
        raise AssertionError("mine")
    assert "never reached" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("verb", "values", "when", "error", "text"),
    [
        ("fail", ["reed", 5], {}, ValueError, "operation: there is no 'reed'; did you mean 'read'"),
        ("kill", ["close"], {}, ValueError, ", ".join((*OPERATIONS, "any"))),
        ("kill", [["read"]], {}, TypeError, "operation: expected str, found"),
        ("short", ["any", 1], {}, ValueError, "operation: expected one of read, write"),
        ("kill", ["read"], {"nth": 0}, ValueError, "nth: expected 1 or more, found 0"),
        ("short", ["read", 1], {"times": 0}, ValueError, "times: expected 1 or more, found 0"),
        ("fail", ["read", 5], {"match": "."}, ValueError, "match: expected a pattern, found '.'"),
        ("fail", ["read", 5], {"match": Path("a")}, TypeError, "match: expected str, found Posix"),
        ("fail", ["read", 5], {"optional": 1}, TypeError, "optional: expected bool, found 1"),
        ("fail", ["read", 5], {"reached": True}, TypeError, "fail: expected one of match, nth"),
        ("slow", ["read", 1], {"tims": 2}, TypeError, "^slow: there is no 'tims'.* 'times'"),
        ("fail", ["read", "EIO"], {}, TypeError, "errno: expected int"),
        ("fail", ["read", 9999], {}, ValueError, "errno: expected a number of the module errno"),
        ("fail", ["read", errno.EINTR], {}, ValueError, "times: expected a number for EINTR"),
        ("slow", ["read", "1"], {}, TypeError, "seconds: expected"),
        ("slow", ["read", float("nan")], {}, ValueError, "seconds: expected"),
        ("short", ["read", -1], {}, ValueError, "n_bytes: expected 0 or more"),
        ("short", ["write", 0], {}, ValueError, "n_bytes: expected 1 or more"),
    ],
)
def test_wrong_arguments(verb, values, when, error, text, root) -> None:
    with FileSystemFaults(root) as fs:
        with pytest.raises(error, match=text):
            getattr(fs, verb)(*values, **when)
        assert fs.reached  # nothing is planned


def test_what_a_context_is_not_for(root: Path) -> None:
    with FileSystemFaults(root) as fs, pytest.raises(RuntimeError, match="entered once"):
        fs.__enter__()
    with pytest.raises(RuntimeError, match="the context is left"):
        fs.fail("read", errno.EIO)
    with pytest.raises(FileNotFoundError, match="missing"):
        FileSystemFaults(root / "missing")
    with pytest.raises(NotADirectoryError):
        FileSystemFaults(root / "a")


def write_whole(path: Path) -> None:
    """A writer without a fault."""
    temporary = path.with_name("temporary")
    with open(temporary, "wb") as file:
        file.write(b"new")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def test_a_writer_is_killed_at_each_call(root: Path) -> None:
    path, found = root / "file", []
    for nth in range(1, 6):  # open, write, fsync, rename; none
        path.write_bytes(b"old")

        def killed(nth: int = nth) -> None:
            with FileSystemFaults(root) as fs:
                fs.kill("any", nth=nth)
                write_whole(path)

        found.append((run_in_child(killed, deadline=DEADLINE).killed_by, path.read_bytes()))
    assert found == [("SIGKILL", b"old")] * 4 + [("", b"new")]

"""What everything owes that must write whole or not at all."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shardproof.testing.contracts._child import left_behind, traces
from shardproof.testing.contracts._contract import Contract
from shardproof.testing.faults import FileSystemFaults

Write = Callable[[Path, bytes], Any]

_OLD = b"old " * 300
_NEW = b"new, and longer than the old one; " * 300
_MOST_CALLS = 500

_ERRNOS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE),
    *(errno.EROFS, errno.EACCES, errno.EMFILE),
)


class WriterContract(Contract):
    """Tests for a function that writes a file: define the fixture ``write``.

    ::

        class TestMyWriter(WriterContract):
            @pytest.fixture
            def write(self):
                return my_writer  # called with a path and bytes

    Each system call that Python makes below the file's directory fails, once and from then on, with
    each of several errors; and the process is killed before each of them. After that the file
    holds the old bytes or the new ones.

    Attributes:
        name: Name of the file; temporary files must not have its suffix.
        deadline: Seconds after which one write counts as a hang.
    """

    name = "acts000000.bin"
    deadline = 60.0

    @pytest.fixture(params=[None, _OLD], ids=["absent", "present"])
    def old(self, request: pytest.FixtureRequest) -> bytes | None:
        """What the file holds before, if it is there."""
        content: bytes | None = request.param
        return content

    @pytest.fixture
    def target(self, tmp_path: Path, old: bytes | None) -> Path:
        """A path to write to, in a directory that holds nothing else."""
        target = tmp_path / "directory" / self.name
        _reset(target, old)
        return target

    def test_the_file_holds_what_was_written(self, write: Write, target: Path) -> None:
        """And nothing else is there."""
        self.returned(self.look(lambda: _written(write, target)))
        assert target.read_bytes() == _NEW
        assert os.listdir(target.parent) == [self.name]

    def test_it_may_be_empty(self, write: Write, target: Path) -> None:
        """No bytes are written like any others."""
        self.returned(self.look(lambda: _written(write, target, b"")))
        assert target.read_bytes() == b""

    @pytest.mark.parametrize("number", _ERRNOS, ids=errno.errorcode.__getitem__)
    def test_one_call_fails(
        self, write: Write, target: Path, old: bytes | None, number: int
    ) -> None:
        """An error is raised, nothing is torn, lost or left over; or it was written after all."""
        for where in self._failing(write, target, old, number, times=1):
            others = set(os.listdir(target.parent)) - {self.name}
            assert not others, f"{where}: left over: {', '.join(sorted(others))}"

    @pytest.mark.parametrize("number", _ERRNOS, ids=errno.errorcode.__getitem__)
    def test_all_calls_fail_from_one_on(
        self, write: Write, target: Path, old: bytes | None, number: int
    ) -> None:
        """Nothing can be tidied up then, but neither is anything torn, lost or claimed."""
        for _ in self._failing(write, target, old, number, times=None):
            continue  # what is so after each write is looked at there

    def test_killed_at_any_call(self, write: Write, target: Path, old: bytes | None) -> None:
        """The next run finds the old bytes or the new ones, and can write."""
        for nth in range(1, _MOST_CALLS):
            _reset(target, old)

            def write_until_killed(nth: int = nth) -> None:
                with FileSystemFaults(target.parent) as fs:
                    fs.kill("any", nth=nth)
                    _written(write, target)

            outcome = self.look(write_until_killed)
            if outcome.killed_by != "SIGKILL":
                self.returned(outcome)
                return
            where = f"killed before call {nth}"
            _assert_old_or_new(target, old, where)
            others = set(os.listdir(target.parent)) - {self.name}
            alike = sorted(name for name in others if Path(name).suffix == target.suffix)
            assert not alike, f"{where}: {', '.join(alike)} passes for a file of its kind"
            self.returned(self.look(lambda: _written(write, target)))
            assert target.read_bytes() == _NEW, f"{where}: the next run did not write"

    def test_short_writes(self, write: Write, target: Path, old: bytes | None) -> None:
        """write(2) may take fewer bytes than it was given: the rest is not lost."""

        def write_short() -> str:
            with FileSystemFaults(target.parent) as fs:
                fs.short("write", 7, times=None, optional=True)
                return _try(write, target)

        error = self.returned(self.look(write_short))
        _assert_old_or_new(target, old, "short writes")
        assert error or target.read_bytes() == _NEW, "success was claimed"

    def test_it_is_durable(self, write: Write, target: Path) -> None:
        """Synced before it has its name, and then the directory: or a power cut loses it."""

        def calls() -> list[str]:
            with FileSystemFaults(target.parent) as fs:
                write(target, _NEW)
                return [call.operation for call in fs.calls]

        order = self.returned(self.look(calls))
        assert "rename" in order, "the file was not renamed into place: a crash leaves half of it"
        renamed = order.index("rename")
        last_write = max(at for at, call in enumerate(order) if call == "write")
        assert last_write < renamed, "it was written to under its final name"
        assert "fsync" in order[last_write:renamed], "the file was not synced before its rename"
        assert "fsync" in order[renamed:], "the directory was not synced after the rename"

    def test_readers_see_the_old_bytes_or_the_new_ones(
        self, write: Write, target: Path, old: bytes | None
    ) -> None:
        """At any time while it is written, again and again."""

        def read_meanwhile() -> list[str]:
            torn, end = set(), threading.Event()

            def read() -> None:
                while not end.is_set():
                    if _found(target) not in (old, _NEW, _OLD):
                        torn.add(repr(_found(target))[:40])

            reader = threading.Thread(target=read)
            reader.start()
            for number in range(100):
                write(target, _NEW if number % 2 else _OLD)
            end.set()
            reader.join()
            return sorted(torn)

        assert not self.returned(self.look(read_meanwhile)), "a reader saw half of a file"

    def test_writers_at_the_same_time(self, write: Write, target: Path) -> None:
        """The file is one writer's, whole, and all of them end."""
        contents = [bytes([65 + number]) * 50_000 for number in range(4)]

        def write_one(content: bytes) -> list[str]:
            return [error for _ in range(10) if (error := _try(write, target, content))]

        def write_all() -> list[str]:
            with ThreadPoolExecutor(len(contents)) as pool:
                return [error for errors in pool.map(write_one, contents) for error in errors]

        assert self.returned(self.look(write_all)) == []
        assert target.read_bytes() in contents
        assert os.listdir(target.parent) == [self.name]

    def test_nothing_is_left_behind(self, write: Write, target: Path) -> None:
        """No thread, process or descriptor: after a success, and after an error."""

        def write_three_times() -> list[str]:
            _try(write, target)
            before = traces()
            _try(write, target)
            for call in ("write", "fsync"):
                with FileSystemFaults(target.parent) as fs:
                    fs.fail(call, errno.ENOSPC, optional=True)
                    _try(write, target)
            return left_behind(before)

        assert not self.returned(self.look(write_three_times))

    def _failing(
        self, write: Write, target: Path, old: bytes | None, number: int, *, times: int | None
    ) -> Iterator[str]:
        """Write anew for each call that can fail, and yield which one did: nothing is torn then."""
        for nth in range(1, _MOST_CALLS):
            _reset(target, old)

            def write_with_fault(nth: int = nth) -> tuple[str, bool]:
                with FileSystemFaults(target.parent) as fs:
                    fault = fs.fail("any", number, nth=nth, times=times, optional=True)
                    return _try(write, target), fault.reached

            error, reached = self.returned(self.look(write_with_fault))
            if not reached:
                return
            where = f"call {nth} failed with {errno.errorcode[number]}"
            where += "" if times else ", and those after it"
            _assert_old_or_new(target, old, where)
            assert error or target.read_bytes() == _NEW, f"{where}: success was claimed"
            yield where


def _written(write: Write, target: Path, content: bytes = _NEW) -> None:
    """Write; what the function returns need not be plain JSON."""
    write(target, content)


def _try(write: Write, target: Path, content: bytes = _NEW) -> str:
    """Write; return what went wrong, in words, or nothing."""
    try:
        write(target, content)
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


def _reset(target: Path, old: bytes | None) -> None:
    target.parent.mkdir(exist_ok=True)
    for name in os.listdir(target.parent):
        os.unlink(target.parent / name)
    if old is not None:
        target.write_bytes(old)


def _found(target: Path) -> bytes | None:
    try:
        return target.read_bytes()
    except FileNotFoundError:
        return None


def _assert_old_or_new(target: Path, old: bytes | None, where: str) -> None:
    found = _found(target)
    assert found is not None or old is None, f"{where}: the file is gone"
    assert found in (old, _NEW), f"{where}: the file is torn"

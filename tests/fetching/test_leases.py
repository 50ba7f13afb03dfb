"""Leases: who holds a shard, judged by whether the process is there and by what is seen."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shardproof._base import holds
from shardproof.fetching.cache import _leases
from shardproof.fetching.cache._leases import Leases
from shardproof.fetching.cache._places import StateDirs, key_of, make_state
from tests.helpers.forking import ended, forked
from tests.helpers.hand_clock import HandClock
from tests.helpers.waiting import until

NAME = "train/0.bin"
KEY = key_of(NAME)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def dirs(tmp_path) -> StateDirs:
    return make_state(str(tmp_path))


@pytest.fixture
def leases(dirs):
    found = Leases(dirs)
    yield found
    found.close()


@pytest.fixture
def other(dirs, clock, monkeypatch) -> Leases:
    """Those of a process on another host, which can't tell whether one of this host is gone."""
    monkeypatch.setattr(holds, "is_gone", lambda _: False)
    return Leases(dirs, clock)


def files(dirs: StateDirs) -> list[str]:
    return sorted(name.rpartition(".")[2] for name in os.listdir(dirs.leases))


def held_by(leases: Leases, key: str | None = KEY, *, readers: bool = False) -> list[str]:
    return [found.path for found in leases.holders(key, readers=readers)]


class TestHolding:
    def test_a_lease_is_seen_until_it_is_released(self, leases, dirs) -> None:
        lease = leases.hold(NAME)
        assert held_by(leases) == [lease.path]
        assert leases.holders(KEY, lease) == []
        assert held_by(leases, readers=True) == []
        lease.release()
        lease.release()
        assert held_by(leases) == []
        assert files(dirs) == []

    def test_who_reads_is_a_reader_too(self, leases, dirs) -> None:
        with leases.hold(NAME) as lease:
            lease.begin_reading()
            lease.begin_reading()
            assert held_by(leases, readers=True) == [lease.path]
            lease.stop_reading()
            assert held_by(leases, readers=True) == []
            lease.begin_reading()
        assert files(dirs) == []
        with pytest.raises(ValueError, match="was released"):
            lease.begin_reading()
        assert files(dirs) == []

    def test_its_part_goes_with_it(self, leases, dirs) -> None:
        lease = leases.hold(NAME)
        assert os.listdir(dirs.parts) == []
        lease.part.write_bytes(b"1")
        assert lease.part.name == "0.bin"
        assert Path(dirs.parts) == lease.part.parent.parent
        lease.release()
        assert os.listdir(dirs.parts) == []

    def test_closing_releases_all_and_joins_the_thread(self, dirs) -> None:
        before = threading.active_count()
        leases = Leases(dirs)
        lease = leases.hold(NAME)
        assert threading.active_count() == before + 1
        leases.close()
        leases.close()
        assert threading.active_count() == before
        assert files(dirs) == []
        with pytest.raises(RuntimeError, match="a closed cache"):
            leases.hold(NAME)
        lease.release()

    def test_what_can_not_be_made_leaves_nothing(self, leases, dirs, make_shard_faults) -> None:
        make_shard_faults(Path(dirs.leases)).fail("rmdir", errno.EACCES, times=1)
        with leases.removal(KEY), pytest.raises(PermissionError):
            leases.hold(NAME)  # somebody else's removal, which may not be broken off
        assert files(dirs) == []


class TestLife:
    def test_a_file_system_that_fails_once_does_not_end_it(self, dirs, monkeypatch, caplog) -> None:
        failures = []

        def show_life(_, **note: int) -> bool:
            failures.append(1)
            raise OSError(errno.EIO, "disk")

        monkeypatch.setattr(_leases, "HEARTBEAT", 0.01)
        leases = Leases(dirs)
        monkeypatch.setattr(holds.Hold, "show_life", show_life)
        lease = leases.hold(NAME)
        until(lambda: len(failures) >= 3)
        monkeypatch.undo()
        leases.close()
        assert not lease.lost
        assert "No sign of life for shard 'train/0.bin': [Errno 5] disk" in caplog.text

    def test_a_lease_that_is_gone_is_lost_and_its_holder_is_told(
        self, leases, dirs, caplog
    ) -> None:
        lease = leases.hold(NAME)
        lease.beat()
        assert not lease.lost
        os.unlink(lease.path)
        lease.beat()
        assert lease.lost
        assert "The lease on shard 'train/0.bin' is lost" in caplog.text
        lease.beat()
        assert len(caplog.records) == 1

    def test_who_lost_a_lease_and_reads_again_has_it_again(self, leases, other) -> None:
        lease = leases.hold(NAME)
        os.unlink(lease.path)
        lease.beat()
        lease.begin_reading()
        assert not lease.lost
        assert len(held_by(other, readers=True)) == 1


class TestSilence:
    def test_ones_own_counts_though_it_is_silent(self, leases, dirs, clock) -> None:
        mine = Leases(dirs, clock)
        mine.hold(NAME)
        for _ in range(3):
            assert held_by(mine)
            clock.now += 1000
        mine.close()

    def test_names_that_are_no_leases_are_nothing(self, leases, dirs) -> None:
        lease = leases.hold(NAME)
        for name in ("x", f"{KEY}.x.tmp", f"{KEY}.x.txt", f"{KEY[1:]}.hold"):
            Path(dirs.leases, name).write_bytes(b"")
        assert held_by(leases) == [lease.path]


DIES = """
import os, sys, threading
from shardproof.fetching.cache import _leases
from shardproof.fetching.cache._leases import Leases
from shardproof.fetching.cache._places import make_state
leases = Leases(make_state(sys.argv[1]))
lease = leases.hold("train/0.bin")
lease.begin_reading()
lease.part.write_bytes(b"1" * 100)
with leases.downloading("train/0.bin", 60.0, threading.Event()):
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def killed(tmp_path, dirs) -> None:
    run = subprocess.run([sys.executable, "-c", DIES, tmp_path], capture_output=True)
    assert run.returncode == -9, run.stderr
    assert files(dirs) == ["hold"]
    assert len(os.listdir(dirs.parts)) == len(os.listdir(dirs.locks)) == 1


@pytest.mark.usefixtures("killed")
class TestWhoWasKilled:
    def test_does_not_count(self, leases, dirs) -> None:
        assert held_by(leases, readers=True) == []
        assert files(dirs) == []

    def test_its_download_is_not_waited_for(self, leases) -> None:
        with leases.downloading(NAME, 60.0, threading.Event()) as is_held:
            assert is_held

    def test_of_another_user_neither(self, leases, dirs, make_shard_faults) -> None:
        make_shard_faults(Path(dirs.leases)).fail("rename", errno.EACCES)
        assert held_by(leases, readers=True) == []
        assert len(files(dirs)) == 1

    def test_leaves_nothing_once_it_was_swept(self, leases, dirs) -> None:
        held = leases.hold("b")
        held.part.write_bytes(b"2")
        with leases.downloading("b", 60.0, threading.Event()):
            leases.sweep()
            assert len(os.listdir(dirs.locks)) == 1
        assert files(dirs) == ["hold"]
        assert held.part.read_bytes() == b"2"
        assert len(os.listdir(dirs.parts)) == 1

    def test_on_another_host_is_waited_for(self, other, clock, dirs) -> None:
        other.sweep()
        assert len(os.listdir(dirs.parts)) == 1
        clock.now += 601
        other.sweep()
        assert os.listdir(dirs.parts) == []
        assert files(dirs) == []


class TestForks:
    def test_a_child_gives_nothing_of_its_parent_back(self, leases, dirs) -> None:
        lease = leases.hold(NAME)
        lease.part.write_bytes(b"1")

        def act() -> None:
            lease.release()
            leases.close()

        assert ended(forked(act)) == 0
        assert files(dirs) == ["hold"]
        assert lease.part.exists()

    def test_a_child_holds_nothing_without_a_sign_of_life(self, leases, dirs) -> None:
        def act() -> None:
            with pytest.raises(RuntimeError, match="one of another process"):
                leases.hold(NAME)

        assert ended(forked(act)) == 0
        assert files(dirs) == []


class TestDownloading:
    def test_one_at_a_time(self, leases, other, dirs) -> None:
        stop = threading.Event()
        with leases.downloading(NAME, 600.0, stop) as is_held:
            with (
                other.downloading(NAME, 0.0, stop) as is_second,
                other.downloading("b", 0.0, stop) as is_of_another,
            ):
                assert (is_held, is_second, is_of_another) == (True, False, True)
            assert len(os.listdir(dirs.locks)) == 1
        assert os.listdir(dirs.locks) == []
        with other.downloading(NAME, 0.0, stop) as is_held:
            assert is_held

    def test_who_waits_has_it_next(self, leases, other) -> None:
        stop, order = threading.Event(), []

        def wait() -> None:
            with other.downloading(NAME, 60.0, stop) as is_held:
                order.append(is_held)

        thread = threading.Thread(target=wait)
        with leases.downloading(NAME, 60.0, stop):
            thread.start()
            order.append("first")
        thread.join(30)
        assert order == ["first", True]

    def test_who_is_stopped_goes_on_without(self, leases, other) -> None:
        stop = threading.Event()
        stop.set()
        with leases.downloading(NAME, 60.0, stop), other.downloading(NAME, 60.0, stop) as is_held:
            assert not is_held

    def test_where_none_can_be_made_it_goes_on_without(
        self, leases, dirs, make_shard_faults
    ) -> None:
        make_shard_faults(Path(dirs.locks)).fail("open", errno.EROFS)
        with leases.downloading(NAME, 60.0, threading.Event()) as is_held:
            assert not is_held

"""Holds: made, shown to live, lost, and removed by others only when they are over."""

import json
import os
import queue
import threading
from pathlib import Path

import pytest

from shardproof._base import holds
from shardproof._base.holds import Heartbeat, Hold, HoldWatch
from tests.helpers.hand_clock import HandClock


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "x.hold")


@pytest.fixture
def hold(path: str) -> Hold:
    made = Hold(path, stale_after=10.0, n_bytes=3)
    assert made.publish()
    return made


def is_held(hold: Hold) -> bool:
    return hold.is_of(holds.observe(hold.path))


def seen(path: str) -> holds.ObservedHold:
    found = holds.observe(path)
    assert found
    return found


class TestHold:
    def test_it_says_whose_it_is(self, path: str, hold: Hold) -> None:
        found = seen(path)
        assert found.record
        assert found.record.token == hold.token
        assert found.record.note == {"n_bytes": 3}
        assert str(os.getpid()) in found.owner
        assert (found.is_here, found.is_dead) == (True, False)

    def test_of_two_that_want_one_name_one_has_it(self, path: str, hold: Hold) -> None:
        other = Hold(path, stale_after=10.0)
        assert not other.publish()
        with pytest.raises(FileExistsError):
            other.make(is_shared=False)
        assert (is_held(hold), is_held(other)) == (True, False)

    def test_a_sign_of_life_changes_what_is_there(self, path: str, hold: Hold) -> None:
        before = seen(path)
        assert hold.show_life(n_bytes=5, state="reads")
        after = seen(path)
        assert after.record
        assert before != after
        assert len(before.content) == len(after.content)
        assert after.record.note == hold.note == {"n_bytes": 5, "state": "reads"}

    def test_who_gives_it_back_leaves_nothing(self, tmp_path: Path, hold: Hold) -> None:
        hold.give_back()
        assert os.listdir(tmp_path) == []
        assert not hold.show_life()
        hold.give_back()
        assert hold.publish()

    def test_what_another_one_has_is_left_alone(self, path: str, hold: Hold) -> None:
        os.unlink(path)
        other = Hold(path, stale_after=10.0)
        assert other.publish()
        assert not hold.show_life()
        hold.give_back()
        assert is_held(other)

    def test_a_shared_one_is_put_there_again(self, path: str, hold: Hold) -> None:
        os.unlink(path)
        hold.make(is_shared=True)
        hold.make(is_shared=True)
        assert is_held(hold)


class TestWatch:
    def test_it_is_over_when_it_was_seen_to_be_silent(self, path: str, hold: Hold) -> None:
        clock = HandClock()
        watch = HoldWatch(5.0, clock)
        for seconds, is_over in ((0, False), (9.9, False), (0.2, True)):
            clock.now += seconds
            found = seen(path)
            assert watch.is_over(found) == is_over  # the owner may be silent for 10 seconds
        assert watch.last(path) == found
        hold.show_life()
        found = seen(path)
        assert not watch.is_over(found)
        watch.forget(path.__eq__)
        assert watch.last(path) is None

    def test_who_is_gone_is_over_at_once(self, path: str, hold: Hold, monkeypatch) -> None:
        monkeypatch.setattr(holds, "is_gone", lambda _: True)
        found = seen(path)
        assert HoldWatch(5.0).is_over(found)

    def test_what_is_over_goes_unless_it_has_changed(self, path: str, hold: Hold) -> None:
        found = seen(path)
        hold.show_life()
        assert not found.remove()
        assert is_held(hold)
        again = seen(path)
        assert again.remove()
        assert not again.remove()

    @pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b'{"token": 5}', b"x" * 10**6])
    def test_what_can_not_be_read_is_somebodys(self, path: str, content: bytes) -> None:
        Path(path).write_bytes(content)
        clock = HandClock()
        watch, found = HoldWatch(5.0, clock), seen(path)
        assert found.owner == "an unknown process"
        assert not watch.is_over(found)
        clock.now += 5
        assert watch.is_over(found)

    def test_a_file_to_which_its_maker_never_wrote_is_over_in_seconds(self, path: str) -> None:
        Path(path).touch()
        clock = HandClock()
        watch, found = HoldWatch(600.0, clock), seen(path)
        assert not watch.is_over(found)
        clock.now += 5
        assert watch.is_over(found)

    def test_nobody_is_silent_for_ever(self, path: str, hold: Hold) -> None:
        record = json.loads(Path(path).read_bytes()) | {"stale_after": 1e300}
        Path(path).write_text(json.dumps(record))
        clock = HandClock()
        watch, found = HoldWatch(5.0, clock), seen(path)
        assert not watch.is_over(found)
        clock.now += holds.MAX_SILENCE
        assert watch.is_over(found)

    def test_what_is_no_file_is_an_error_that_names_it(self, path: str) -> None:
        assert holds.observe(path) is None
        os.mkdir(path)
        with pytest.raises(OSError, match="expected the file of a hold, found a dir") as error:
            holds.observe(path)
        assert error.value.filename == path


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
        beats: list[int] = []
        heartbeat = Heartbeat(lambda: bool(beats.append(0)), 0.001, "of x")
        heartbeat._thread.join(30)
        assert not heartbeat._thread.is_alive()
        heartbeat.stop()
        Heartbeat(lambda: not beats.append(0), 3600.0, "of y").stop()  # before its time is over
        assert beats == [0]

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

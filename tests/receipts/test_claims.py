"""Claims: one worker at a time, and one that is gone is replaced; judged by what is seen."""

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardproof import (
    ClaimLostError,
    ManifestError,
    ManifestNotFoundError,
    ReceiptStore,
    ShardClaimedError,
    ShardCompletedError,
    UnsyncedError,
    receipts,
)
from shardproof._base import digest, files, holds
from shardproof.cli import app
from shardproof.receipts import _claims
from tests.helpers.descriptors import path_of
from tests.helpers.forking import ended, forked
from tests.helpers.hand_clock import HandClock
from tests.helpers.planning import complete, new_store


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(tmp_path) -> ReceiptStore:
    return new_store(tmp_path, heartbeat=1000.0, stale_after=3000.0)


@pytest.fixture
def other(store, clock, monkeypatch) -> ReceiptStore:
    """Another worker, on a machine that can't tell whether a process of this one is gone."""
    monkeypatch.setattr(holds, "is_gone", lambda _: False)
    return ReceiptStore(store.path, heartbeat=10.0, stale_after=100.0, _clock=clock)


@pytest.fixture
def patient(store, clock, monkeypatch) -> ReceiptStore:
    monkeypatch.setattr(holds, "is_gone", lambda _: False)
    return ReceiptStore(store.path, heartbeat=1000.0, stale_after=3000.0, _clock=clock)


def entries(store: ReceiptStore) -> list[str]:
    return sorted(os.listdir(store.path / "claims"))


def claims(store: ReceiptStore) -> list[str]:
    return [name for name in entries(store) if name.endswith(".json")]


def refused(store: ReceiptStore, index: int = 0, level="complete") -> None:
    with pytest.raises(ShardClaimedError):
        store.claim(index, level=level)


def test_a_claimed_shard_is_refused_with_its_owner(store) -> None:
    with store.claim(0) as work:
        with pytest.raises(ShardClaimedError) as caught:
            ReceiptStore(store.path).claim(0)
        work.mark_empty()
    text = str(caught.value)
    assert text.startswith(f"shard 0 of '{store.path}': claimed by uid {os.geteuid()} on ")
    assert text.endswith(f"process {os.getpid()}")


class TestTakeover:
    def test_after_it_was_seen_not_to_change(self, store, patient, clock) -> None:
        store.claim(0)
        refused(patient)
        clock.now += 2999
        refused(patient)
        clock.now += 2
        with patient.claim(0) as work:
            assert claims(store) == ["shard_000000.json"]
            work.mark_empty()
        assert entries(store) == []
        assert store.is_completed(0)

    def test_one_that_is_held_up_takes_no_name_away(
        self, store, patient, other, clock, monkeypatch
    ) -> None:
        """Else the next holder would have none for a moment, in which a third could claim it."""
        store.claim(0)
        for worker in (patient, other):
            refused(worker)
        clock.now += 3001
        rename = os.rename

        def held_up(source: str, target: str) -> None:
            monkeypatch.setattr(os, "rename", rename)
            refused(other)
            rename(source, target)

        monkeypatch.setattr(os, "rename", held_up)
        patient.claim(0).raise_if_lost()
        assert os.rename is rename

    def test_where_files_have_no_locks(self, store, patient, clock, monkeypatch) -> None:
        def no_locks(*_: object) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        store.claim(0)
        refused(patient)
        clock.now += 3001
        monkeypatch.setattr(fcntl, "flock", no_locks)
        patient.claim(0).raise_if_lost()

    def test_one_that_changes_at_the_last_moment_keeps_it(
        self, store, patient, clock, monkeypatch
    ) -> None:
        work = store.claim(0)
        refused(patient)
        clock.now += 3001
        real = files.remove_if

        def remove_if(path, is_it) -> bool:
            monkeypatch.setattr(files, "remove_if", real)
            work._claim.beat()  # after it was seen, before it is taken over
            return real(path, is_it)

        monkeypatch.setattr(files, "remove_if", remove_if)
        refused(patient)
        assert entries(store) == ["shard_000000.json"]
        work.raise_if_lost()

    def test_one_that_has_no_name_for_a_moment(self, store, monkeypatch) -> None:
        """As while another worker compares it with that of a dead one."""
        work = store.claim(0)
        path = store.path / "claims" / "shard_000000.json"
        with work:
            path.rename(f"{path}.moved")
            monkeypatch.setattr(time, "sleep", lambda _: Path(f"{path}.moved").rename(path))
            work.raise_if_lost()
            work.mark_empty()
        assert store.is_completed(0)

    def test_one_that_was_lost_before_it_was_given_away(self, store, monkeypatch) -> None:
        real = _claims.Claims.acquire

        def acquire(claims, index):
            claim = real(claims, index)
            (store.path / "claims" / "shard_000000.json").unlink()
            return claim

        monkeypatch.setattr(_claims.Claims, "acquire", acquire)
        refused(store)

    def test_one_that_was_done_at_the_last_moment(self, store, patient, clock, monkeypatch) -> None:
        work = store.claim(0)
        refused(patient)
        clock.now += 3001
        real = _claims.Claims.acquire

        def acquire(claims, index):
            with work:
                work.mark_empty()
            return real(claims, index)

        monkeypatch.setattr(_claims.Claims, "acquire", acquire)
        with pytest.raises(ShardCompletedError):
            patient.claim(0)
        assert entries(store) == []


def test_one_that_is_entered_after_it_was_lost(store, patient, clock) -> None:
    """Nothing is written over what the winner recorded."""
    work = store.claim(0)
    refused(patient)
    clock.now += 3001
    with patient.claim(0) as winner:
        winner.mark_empty()
    with pytest.raises(ClaimLostError), work:
        pytest.fail("the work began")
    assert store.is_completed(0)
    assert entries(store) == []


class TestLost:
    """The holder learns of it, and nothing that it did counts."""

    @pytest.fixture
    def lost(self, store, patient, clock):
        work = store.claim(0)
        with work:
            work.output_path("shard_000000.bin").write_bytes(b"loser's")
            refused(patient)
            clock.now += 3001
            self.winner = patient.claim(0)
            yield work
            work.abandon()  # the test was to end it

    def test_a_check_says_so(self, lost) -> None:
        with pytest.raises(ClaimLostError, match="was taken over by uid"):
            lost.raise_if_lost()

    def test_it_does_not_spoil_what_the_winner_did(self, store, lost) -> None:
        with self.winner as work:
            work.output_path("shard_000000.bin").write_bytes(b"in time")
        with pytest.raises(ClaimLostError):
            lost.__exit__(None, None, None)
        assert (store.path / "shard_000000.bin").read_bytes() == b"in time"
        assert store.is_completed(0, level="valid")
        assert entries(store) == []

    def test_its_own_failure_is_not_recorded(self, store, lost) -> None:
        error = ValueError("mine")
        lost.__exit__(ValueError, error, None)
        assert store.receipt(0).status == "started"
        assert "Nothing was recorded: shard 0" in error.__notes__[0]


@pytest.mark.parametrize(
    ("module", "function", "is_moved"),
    [(digest, "of_file", False), (files, "move", True)],
    ids=["before its outputs are moved", "before its receipt is written"],
)
def test_it_is_lost_at_the_end(
    store, patient, clock, monkeypatch, module, function, is_moved
) -> None:
    """Each step of the end looks again, so that little is left between a look and what follows."""
    real = getattr(module, function)

    def lose(*args, **keywords):
        monkeypatch.setattr(module, function, real)
        refused(patient)
        clock.now += 3001
        patient.claim(0)
        return real(*args, **keywords)

    with pytest.raises(ClaimLostError), store.claim(0) as work:  # noqa: PT012
        work.output_path("shard_000000.bin").write_bytes(b"loser's")
        monkeypatch.setattr(module, function, lose)
    assert (store.path / "shard_000000.bin").exists() == is_moved
    assert store.receipt(0).status == "started"


def test_the_thread_finds_out_and_says_so(tmp_path, caplog, monkeypatch) -> None:
    store = new_store(tmp_path, heartbeat=0.01, stale_after=60.0)
    with pytest.raises(ClaimLostError), store.claim(0) as work:  # noqa: PT012
        work.output_path("x.bin").write_bytes(b"x")
        path = store.path / "claims" / "shard_000000.json"
        mine = path.read_bytes()
        path.write_bytes(mine.replace(work._claim._hold.token.encode(), b"b" * 32))
        deadline = time.monotonic() + 30
        while work._lost is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "no longer counts" in caplog.text
        path.write_bytes(mine)
        work.raise_if_lost()
    assert not (store.path / "x.bin").exists()


def test_a_sign_of_life_that_fails_is_told_and_tried_again(tmp_path, caplog, monkeypatch) -> None:
    store = new_store(tmp_path, heartbeat=0.01, stale_after=60.0)
    failures = []

    def show_life(_) -> bool:
        failures.append(1)
        raise OSError(errno.EIO, "disk")

    with store.claim(0) as work:
        monkeypatch.setattr(holds.Hold, "show_life", show_life)
        deadline = time.monotonic() + 30
        while len(failures) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        work.mark_empty()
    assert len(failures) >= 3
    assert "No sign of life of shard 0: [Errno 5] disk" in caplog.text
    assert store.is_completed(0)


def test_the_claim_of_one_that_is_gone_is_taken_over_at_once(store) -> None:
    code = (
        "import sys, os, shardproof; s = shardproof.ReceiptStore(sys.argv[1]);"
        "w = s.claim(0).__enter__(); w.output_path('x.bin').write_bytes(b'x'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(store.path)])
    assert len(entries(store)) == 2
    with store.claim(0) as work:
        work.mark_empty()
    assert entries(store) == []


class TestLeftovers:
    def left_by_a_dead_one(self, store) -> list[Path]:
        (store.path / "claims").mkdir(exist_ok=True)
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        leftovers = [
            store.path / place / files.temporary_name().replace(str(os.getpid()), str(dead.pid))
            for place in ("claims", "receipts")
        ]
        for path in leftovers:
            path.touch()
        return leftovers

    def test_those_of_a_killed_writer_are_swept(self, store) -> None:
        leftovers = self.left_by_a_dead_one(store)
        complete(store, 0)
        assert not any(path.exists() for path in leftovers)

    def test_the_claim_of_a_dead_one_whose_shard_is_done(self, store) -> None:
        """It died between the end of its work and its release."""
        for index in range(store.n_shards):
            complete(store, index)
        self.die_at(store, 0)
        assert entries(store) == ["shard_000000.json"]
        assert [*ReceiptStore(store.path).claim_pending()] == []
        assert entries(store) == []

    def test_where_one_that_lives_writes_stays(self, store, patient, clock) -> None:
        loser = store.claim(0).__enter__()
        loser.output_path("x.bin").write_bytes(b"x")
        refused(patient)
        clock.now += 3001
        with patient.claim(0) as winner:
            winner.output_path("x.bin").write_bytes(b"y")
            assert [work.index for work in ReceiptStore(store.path).claim_pending()] == [1, 2]
            assert len(entries(store)) == 3  # the claim, and where both write
        loser.abandon()
        assert len(entries(store)) == 1
        assert [*ReceiptStore(store.path).claim_pending()] != []
        assert entries(store) == []
        assert store.is_completed(0)

    @staticmethod
    def die_at(store, index: int) -> None:
        assert ended(forked(lambda: ReceiptStore(store.path)._claims.acquire(index))) == 0

    def test_nothing_of_others_is_removed(self, store) -> None:
        (store.path / "claims").mkdir()
        names = ["x", "shard_000000", "shard_000000.zz", "shard_00000.json", ".shardproof-x.tmp"]
        for name in names:
            (store.path / "claims" / name).touch()
        complete(store, 0)
        assert entries(store) == sorted(names)


def test_who_has_what_in_the_directory_at_the_call(store, tmp_path, monkeypatch) -> None:
    for index in (2, 0):
        store.claim(index)
    monkeypatch.chdir(store.path)
    found = receipts.claims_in(".")
    monkeypatch.chdir(tmp_path)
    claims = dict(found)
    assert [*claims] == [0, 2]
    assert all(str(os.getpid()) in claim.owner for claim in claims.values())


def test_a_directory_that_is_no_plan_has_no_claims_to_tell(store, tmp_path) -> None:
    """At the call, so that nobody takes a typo for a plan that no worker is at."""
    for path in (tmp_path / "typo", store.path.parent):
        with pytest.raises(ManifestNotFoundError):
            receipts.claims_in(path)
    with pytest.raises(ValueError, match="plan_dir: expected a path, found an empty text"):
        receipts.claims_in("")
    (store.path / "plan.json").write_text("[]")
    with pytest.raises(ManifestError):
        receipts.claims_in(store.path)


def test_another_thing_under_the_name_of_a_claim_is_named(store) -> None:
    path = store.path / "claims" / "shard_000000.json"
    path.mkdir(parents=True)
    for look in (lambda: store.claim(0), lambda: list(receipts.claims_in(str(store.path)))):
        with pytest.raises(OSError, match="expected the file of a hold, found a") as caught:
            look()
        assert caught.value.filename == str(path)


@pytest.mark.parametrize("name", ["claims", "receipts"])
def test_a_link_in_the_place_of_all_of_them_is_refused(store, name: str) -> None:
    """It could lead anywhere: nothing is swept or written there."""
    elsewhere = store.path.parent / "elsewhere"
    (store.path / name).mkdir(exist_ok=True)
    (store.path / name).rename(elsewhere)
    (store.path / name).symlink_to(elsewhere)
    looks = [lambda: store.claim(1), lambda: ReceiptStore(store.path).claim(1)]
    looks += [lambda: list(receipts.claims_in(str(store.path)))] * (name == "claims")
    for look in looks:
        with pytest.raises(ManifestError, match=f"directory of {name}, found a symbolic link"):
            look()
    assert os.listdir(elsewhere) == []
    assert (store.path / "claims").exists() == (name == "claims")


def test_a_link_to_itself_among_plans(store) -> None:
    top = store.path.parents[2]
    (top / "datasets" / "round").symlink_to("round")
    result = CliRunner().invoke(app.app, ["receipts", str(top)])
    assert result.exit_code == 3
    assert "a symbolic link that leads back to itself" in result.stderr
    assert str(top / "datasets" / "round") in result.stderr


class TestUnsynced:
    """The directory can't be synced after a name was given: what was done is done, and told so."""

    @pytest.fixture
    def unsynced(self, monkeypatch):
        real, names = os.fsync, []

        def fail(fd: int) -> None:
            if os.path.basename(path_of(fd)) in names:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            real(fd)

        monkeypatch.setattr(os, "fsync", fail)
        return names

    def test_a_claim_is_held(self, store, unsynced) -> None:
        with store.claim(1) as work:
            work.mark_empty()
        unsynced.append("claims")
        with store.claim(0) as work:
            refused(ReceiptStore(store.path))
            work.mark_empty()
        assert entries(store) == []
        assert store.is_completed(0)

    def test_a_receipt_is_there(self, store, unsynced) -> None:
        with pytest.raises(UnsyncedError, match="exists, but may not") as caught:
            complete_but_fail_to_sync(store, unsynced, "receipts")
        assert caught.value.path == str(store.path / "receipts" / "shard_000000.json")
        assert store.is_completed(0)
        assert entries(store) == []

    def test_an_output_is_not_believed(self, store, unsynced) -> None:
        with pytest.raises(UnsyncedError):
            complete_but_fail_to_sync(store, unsynced, store.path.name)
        assert store.receipt(0).status == "failed"
        assert entries(store) == []


def complete_but_fail_to_sync(store: ReceiptStore, unsynced: list[str], name: str) -> None:
    with store.claim(0) as work:
        work.output_path("x.bin").write_bytes(b"1")
        unsynced.append(name)


class TestWorkersElsewhere:
    """Of which nothing but their silence tells that they died, as in jobs that don't wait."""

    @pytest.fixture
    def elsewhere(self, other, clock, monkeypatch) -> list[int]:
        """What happens when the worker waits; each wait lasts a second."""
        waits: list[int] = []

        def pause(_) -> None:
            clock.now += 1
            waits.append(1)

        monkeypatch.setattr(holds, "this_process", lambda: "else/where/1/2")
        monkeypatch.setattr(_claims.Claims, "pause", pause)
        return waits

    @pytest.fixture
    def holder(self, tmp_path, other) -> ReceiptStore:
        return ReceiptStore(other.path, heartbeat=30.0, stale_after=100.0)

    def done(self, works) -> list[int]:
        indices = []
        for work in works:
            with work:
                work.mark_empty()
            indices.append(work.index)
        return indices

    def test_a_dead_ones_shard_is_done(self, other, holder, elsewhere) -> None:
        holder.claim(1)
        assert self.done(other.claim_pending()) == [0, 2, 1]
        assert len(elsewhere) == 100
        assert other.pending() == []
        assert entries(other) == []

    def test_its_silence_counts_while_others_are_worked_on(
        self, other, holder, elsewhere, clock
    ) -> None:
        holder.claim(0)
        works = other.claim_pending()
        with next(works) as work:
            clock.now += 1000
            work.mark_empty()
        assert self.done(works) == [2, 0]
        assert len(elsewhere) == 1

    def test_one_that_shows_life_is_left_alone(
        self, other, holder, elsewhere, monkeypatch, clock
    ) -> None:
        held = holder.claim(1)
        pause = _claims.Claims.pause

        def beat_late(claims) -> None:
            pause(claims)
            if len(elsewhere) == 30:
                held._claim.beat()

        monkeypatch.setattr(_claims.Claims, "pause", beat_late)
        assert self.done(other.claim_pending()) == [0, 2]
        assert len(elsewhere) == 30
        held.raise_if_lost()

    def test_nobody_waits_for_one_of_this_machine(self, other, holder, monkeypatch) -> None:
        monkeypatch.setattr(_claims.Claims, "pause", lambda _: pytest.fail("it waits"))
        holder.claim(1)
        assert self.done(other.claim_pending()) == [0, 2]


class TestOfAnotherUser:
    """What only clears up after others fails no work."""

    @pytest.fixture
    def dead(self, store) -> Path:
        """The claim of a worker that died at a shard which was done since."""
        complete(store, 0)
        TestLeftovers.die_at(store, 0)
        return store.path / "claims" / "shard_000000.json"

    def test_what_may_not_be_removed_is_told_of(
        self, store, dead, make_shard_faults, caplog
    ) -> None:
        make_shard_faults(store.path).fail("rename", errno.EACCES, match=f"claims/{dead.name}")
        works = ReceiptStore(store.path).claim_pending()
        assert next(works).index == 1
        told = [text for text in caplog.messages if "could not be removed" in text]
        assert len(told) == 1
        assert told[0].startswith("The claim on shard 0 could not be removed: [Errno 13]")

    def test_one_that_can_not_be_taken_over_is_claimed(self, store, make_shard_faults) -> None:
        """In a directory where only its owner removes what is his."""
        TestLeftovers.die_at(store, 0)
        make_shard_faults(store.path).fail(
            "rename", errno.EPERM, match="claims/shard_000000.json", times=None
        )
        refused(store)

"""The work on one shard: recorded whole, or as failed, or not at all."""

import contextlib
import dataclasses
import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import shardproof
from shardproof import (
    ReceiptError,
    ReceiptStore,
    ShardClaimedError,
    ShardCompletedError,
)
from shardproof._base import files as _files
from tests.helpers.descriptors import path_of
from tests.helpers.planning import complete, new_store, receipt_path


@pytest.fixture
def store(tmp_path) -> ReceiptStore:
    return new_store(tmp_path)


def left_over(store: ReceiptStore) -> list[str]:
    """Files that are neither plan, nor receipt, nor output."""
    return sorted(
        path.relative_to(store.path).as_posix()
        for path in store.path.rglob("*")
        if path.name not in {"plan.json", "receipts", "claims"}  # noqa: RUF021
        and not path.name.startswith("shard_00000")
        or path.parent.name == "claims"
    )


class TestCompleted:
    def test_outputs_get_their_names_at_the_end(self, store) -> None:
        with store.claim(0) as work:
            path = work.output_path("shard_000000.bin")
            path.write_bytes(b"abc")
            assert path.name == "shard_000000.bin"
            assert not (store.path / "shard_000000.bin").exists()
            assert store.receipt(0).status == "started"
        assert (store.path / "shard_000000.bin").read_bytes() == b"abc"
        assert left_over(store) == []

    def test_the_receipt_names_them(self, store) -> None:
        with store.claim(0) as work:
            work.output_path("sub/x.bin").write_bytes(b"abc")
            work.output_path("y.bin", "other").write_bytes(b"")
            work.output_path("LICENSE").write_bytes(b"x")
            work.stats = {"num_sequences": 2, "seconds": 0.5}
        receipt = store.receipt(0)
        sha = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        assert receipt.files["bin"] == {"path": "sub/x.bin", "bytes": 3, "checksum": sha}
        assert set(receipt.files) == {"bin", "other", "LICENSE"}
        assert receipt.stats == {"num_sequences": 2, "seconds": 0.5}
        assert (receipt.status, receipt.dataset_name) == ("completed", "corpus")
        assert receipt.run_hash == store.path.parents[2].name
        assert receipt.started_at <= receipt.completed_at
        assert json.loads(receipt_path(store, 0).read_bytes())["schema_version"] == 1
        assert store.pending(level="valid") == [1, 2]

    def test_what_is_there_is_replaced(self, store) -> None:
        complete(store, 0, b"old")
        (store.path / "shard_000000.idx").unlink()
        complete(store, 0, b"newer")
        assert (store.path / "shard_000000.bin").read_bytes() == b"newer"
        assert store.is_completed(0, level="valid")

    def test_an_empty_shard(self, store) -> None:
        with store.claim(0) as work:
            work.output_path("shard_000000.bin")
            work.mark_empty()
        assert store.is_completed(0, level="valid")
        assert store.receipt(0).files == {}

    def test_everything_is_synced_before_the_receipt(self, store, monkeypatch) -> None:
        synced, real = [], os.fsync

        def fsync(fd: int) -> None:
            synced.append(path_of(fd))
            real(fd)

        with store.claim(0) as work:
            for name in ("x.bin", "sub/x.idx"):
                work.output_path(name).write_bytes(b"x")
            monkeypatch.setattr(os, "fsync", fsync)
        files = [path for path in synced if path.endswith((".bin", ".idx"))]
        assert [Path(path).name for path in files] == ["x.bin", "x.idx"]
        last_file = synced.index(files[-1])
        directories = [str(store.path), str(store.path / "sub")]
        receipt = next(i for i, path in enumerate(synced) if "/receipts/shard_" in path)
        for directory in directories:
            assert last_file < synced.index(directory) < receipt

    def test_a_done_shard_is_not_claimed(self, store) -> None:
        complete(store, 0)
        with pytest.raises(ShardCompletedError, match="shard 0 of .*: completed, 2 outputs"):  # noqa: RUF043
            store.claim(0)
        assert left_over(store) == []


def test_the_second_entry_is_refused_and_no_thread_is_left(store) -> None:
    before = threading.enumerate()
    with store.claim(0) as work:
        with pytest.raises(ReceiptError, match="the work has begun already; enter it once"):
            work.__enter__()
        work.output_path("x.bin").write_bytes(b"x")
    assert store.is_completed(0, level="valid")
    assert {*threading.enumerate()} <= {*before}


class TestOutsideTheBlock:
    """What is written outside `with work:` would be recorded nowhere, and gone with the claim."""

    def test_before_it_no_output_has_a_place(self, store) -> None:
        for work in store.claim_pending():
            with pytest.raises(ReceiptError, match=r"write `with work:`") as caught:
                work.output_path("shard_000000.bin")
            assert (caught.value.path, caught.value.index) == (str(store.path), work.index)
        assert store.pending() == [0, 1, 2]
        assert left_over(store) == []

    def test_after_it_nothing_is_taken_or_begun_again(self, store) -> None:
        with store.claim(0) as work:
            work.mark_empty()
        with pytest.raises(ReceiptError, match=r"the work is over; write `with work:`"):
            work.output_path("shard_000000.bin")
        with pytest.raises(ReceiptError, match="the work is over, and its receipt is written"):
            work.record(split="train")
        with pytest.raises(ReceiptError, match="the work is over; claim the shard again"), work:
            pass
        assert store.is_completed(0)
        assert left_over(store) == []


class TestRefused:
    """And recorded as failed."""

    @pytest.fixture
    def raises(self, store):
        yield
        assert store.receipt(0).status == "failed"
        assert store.receipt(0).error_type == "ReceiptError"
        assert left_over(store) == []

    def test_no_outputs(self, store, raises) -> None:
        with pytest.raises(ReceiptError, match=r"found none; mark_empty\(\)"), store.claim(0):
            pass

    def test_an_output_that_was_not_written(self, store, raises) -> None:
        with pytest.raises(ReceiptError, match="found nothing"), store.claim(0) as work:
            work.output_path("x.bin")

    @pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
    def test_an_output_that_is_no_file(self, store, raises, make) -> None:
        with pytest.raises(ReceiptError, match="expected a regular file"), store.claim(0) as work:
            make(work.output_path("x.bin"))

    @pytest.mark.parametrize(
        "name",
        ["../x", "", "a\nb", "plan.json", "Plan.JSON", "receipts/x", "claims/x"],
    )
    def test_a_name_that_no_output_can_have(self, store, raises, name) -> None:
        with pytest.raises(ReceiptError, match="no output can be called"), store.claim(0) as work:
            work.output_path(name)

    @pytest.mark.parametrize(
        ("name", "twin"),
        [("a.bin", "A.BIN"), ("\u00e9.bin", "e\u0301.BIN"), ("x/y.bin", "X/y.Bin")],
    )
    def test_two_names_that_some_file_systems_can_not_tell_apart(
        self, store, raises, name: str, twin: str
    ) -> None:
        """A receipt that names both is refused when it is read, and the whole plan with it."""
        with pytest.raises(ReceiptError, match="beside its twin"), store.claim(0) as work:  # noqa: PT012
            work.output_path(name).write_bytes(b"1")
            assert work.output_path(name) == work.output_path(name)
            work.output_path(twin).write_bytes(b"2")
        with pytest.raises(shardproof.ManifestError, match="no shard is completed"):
            shardproof.validate(store.path)

    @pytest.mark.parametrize(
        ("second", "text"),
        [(("y.bin",), "give each its kind"), (("x.bin", "other"), "of another kind")],
    )
    def test_an_output_has_one_kind_and_no_other_has_it(self, store, raises, second, text) -> None:
        with pytest.raises(ReceiptError, match=text), store.claim(0) as work:  # noqa: PT012
            assert work.output_path("x.bin") == work.output_path("x.bin")
            work.output_path(*second)


def test_an_output_may_not_be_a_link(store, tmp_path) -> None:
    """It would get its name, and the file that it leads to would not."""
    (tmp_path / "elsewhere").touch()
    with pytest.raises(OSError) as caught, store.claim(0) as work:  # noqa: PT011
        work.output_path("x.bin").symlink_to(tmp_path / "elsewhere")
    assert caught.value.errno == errno.ELOOP
    assert store.receipt(0).status == "failed"


class TestFolders:
    """Of outputs: below the plan's directory, and behind no link."""

    @pytest.fixture
    def outside(self, store) -> Path:
        """A directory in which another program has files of the same names."""
        path = store.path.parent / "outside"
        path.mkdir()
        for name in ("x.bin", "shard_000000.json"):
            (path / name).write_bytes(b"theirs")
        return path

    def test_they_are_made_or_there(self, store) -> None:
        (store.path / "a").mkdir()
        with store.claim(0) as work:
            work.output_path("a/b/c/x.bin").write_bytes(b"x")
        with store.claim(1) as work:
            work.output_path("a/b/y.bin").write_bytes(b"y")
        assert (store.path / "a" / "b" / "c" / "x.bin").read_bytes() == b"x"
        assert store.pending(level="valid") == [2]

    @pytest.mark.parametrize(
        "target", ["../outside", ".", "receipts", "data", "nowhere", "plan.json"]
    )
    @pytest.mark.parametrize("inside", ["", "a/"])
    def test_a_link_is_refused_before_the_work_and_after_it(
        self, store, outside, inside: str, target: str
    ) -> None:
        before = (store.path / "plan.json").read_bytes()
        (store.path / inside).mkdir(exist_ok=True)
        link = store.path / inside / "data"
        link.symlink_to(target if target != "../outside" else outside)
        with pytest.raises(ReceiptError) as caught, store.claim(0) as work:
            work.output_path(f"{inside}data/x.bin")
        assert f"expected a directory at '{link}', found a symbolic link" in str(caught.value)
        assert "put a directory in its place" in str(caught.value)
        with pytest.raises(ReceiptError, match="found a symbolic link"), store.claim(0) as work:  # noqa: PT012
            link.rename(store.path / "link")
            work.output_path(f"{inside}data/x.bin").write_bytes(b"ours")
            (store.path / "link").rename(link)
        assert {path.read_bytes() for path in outside.iterdir()} == {b"theirs"}
        assert (store.path / "plan.json").read_bytes() == before
        assert (store.receipt(0).status, store.receipt(0).error_type) == ("failed", "ReceiptError")

    def test_a_link_under_the_name_of_an_output_is_replaced(self, store, outside) -> None:
        (store.path / "x.bin").symlink_to(outside / "x.bin")
        with store.claim(0) as work:
            work.output_path("x.bin").write_bytes(b"ours")
        assert (outside / "x.bin").read_bytes() == b"theirs"
        assert store.is_completed(0, level="valid")

    def test_one_that_can_not_be_synced_is_made_again(self, store, monkeypatch) -> None:
        synced, real = [], _files.sync

        def sync(fd: int) -> None:
            path = path_of(fd)
            if path == str(store.path) and (store.path / "data").is_dir():
                synced.append(path)
                if len(synced) == 1:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            real(fd)

        monkeypatch.setattr(_files, "sync", sync)
        for raised in (pytest.raises(OSError, match=str(store.path / "data")), NOTHING):
            with raised, store.claim(0) as work:
                work.output_path("data/x.bin").write_bytes(b"x")
        assert len(synced) == 2
        assert store.is_completed(0)

    def test_receipts_are_behind_no_link(self, store) -> None:
        with pytest.raises(ReceiptError, match="found a symbolic link"), store.claim(0) as work:  # noqa: PT012
            work.output_path("x.bin").write_bytes(b"x")
            (store.path / "receipts").rename(store.path / "data")
            (store.path / "receipts").symlink_to("data")
        assert json.loads((store.path / "data" / "shard_000000.json").read_bytes())["status"] == (
            "started"
        )


NOTHING = contextlib.nullcontext()


def test_stats_that_are_no_json_are_refused_before_an_output_is_replaced(store) -> None:
    complete(store, 0, b"old")
    (store.path / "shard_000000.idx").unlink()
    with pytest.raises(TypeError, match=r"receipt\.stats\.x"), store.claim(0) as work:  # noqa: PT012
        work.output_path("shard_000000.bin").write_bytes(b"new")
        work.stats["x"] = {1}
    assert (store.path / "shard_000000.bin").read_bytes() == b"old"
    assert store.receipt(0).status == "failed"


@pytest.mark.parametrize(
    ("stats", "where"),
    [
        ({"n": 1, "x": "\ud800"}, r"receipt\.stats\.x: expected Unicode, found '\\ud800'"),
        ({"x": {"y": ["\udcff"]}}, r"receipt\.stats\.x\.y: expected Unicode, found '\\udcff'"),
        ({"\ud800": {}}, r"receipt\.stats: expected Unicode, found '\\ud800'"),
    ],
)
def test_stats_that_are_no_unicode_are_named(store, stats, where: str) -> None:
    with pytest.raises(ValueError, match=where) as caught, store.claim(0) as work:  # noqa: PT012
        work.output_path("shard_000000.bin").write_bytes(b"new")
        work.stats |= stats
    assert type(caught.value) is ValueError
    assert store.receipt(0).status == "failed"
    assert left_over(store) == []


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise ValueError("it has no text")


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """No note can be added to it."""

    what: str


class TestFailed:
    def test_an_exception_is_recorded_and_raised(self, store) -> None:
        with pytest.raises(ZeroDivisionError), store.claim(0) as work:  # noqa: PT012
            work.output_path("x.bin").write_bytes(b"x")
            1 / 0  # noqa: B018
        receipt = store.receipt(0)
        assert receipt.status == "failed"
        assert receipt.error_type == "ZeroDivisionError"
        assert receipt.error_message == "division by zero"
        assert "1 / 0" in receipt.traceback
        assert receipt.failed_at >= receipt.started_at
        assert left_over(store) == []
        assert store.pending() == [0, 1, 2]

    def test_an_error_that_can_not_say_what_it_is(self, store) -> None:
        with pytest.raises(SpeechlessError), store.claim(0):
            raise SpeechlessError
        assert store.receipt(0).error_type == "SpeechlessError"
        assert "no text" in store.receipt(0).error_message
        assert "raise SpeechlessError" in store.receipt(0).traceback

    @pytest.mark.parametrize(
        "error", [SpeechlessError("x"), FrozenError("x")], ids=["plain", "frozen"]
    )
    def test_that_it_failed_can_not_be_recorded_for_whatever_reason(
        self, store, caplog, error
    ) -> None:
        """The error itself goes on, with a note if it takes one."""
        with pytest.raises(type(error)) as caught, store.claim(0):  # noqa: PT012
            shutil.rmtree(store.path / "receipts")
            (store.path / "receipts").symlink_to(store.path.parent)
            raise error
        said = [*getattr(caught.value, "__notes__", []), *caplog.messages]
        assert "could not be recorded: expected a directory" in said[0]

    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
    def test_an_interrupt_only_gives_the_shard_back(self, store, interrupt) -> None:
        with pytest.raises(interrupt), store.claim(0) as work:  # noqa: PT012
            work.output_path("x.bin").write_bytes(b"x")
            raise interrupt
        assert store.receipt(0).status == "started"
        assert left_over(store) == []
        assert not store.is_completed(0)
        complete(store, 0)


SCRIPT = """
import signal, sys, time, shardproof
{handler}
store = shardproof.ReceiptStore(sys.argv[1])
with store.claim(0) as work:
    work.output_path("shard_000000.bin").write_bytes(b"half")
    print("working", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("handler", "status"),
    [("", -signal.SIGTERM), ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))", 143)],
    ids=["killed", "handled"],
)
def test_a_job_scheduler_ends_the_job(store, handler, status) -> None:
    """The next job goes on at once; with a handler nothing is left over even before."""
    job = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(handler=handler), str(store.path)],
        stdout=subprocess.PIPE,
    )
    with job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"working\n"
        assert store.receipt(0).status == "started"
        with pytest.raises(ShardClaimedError, match=f"process {job.pid}"):
            store.claim(0)
        job.terminate()
    assert job.returncode == status
    assert store.pending() == [0, 1, 2]
    if handler:
        assert left_over(store) == []
    complete(store, 0)
    assert left_over(store) == []
    assert store.is_completed(0, level="valid")


def test_a_forked_child_does_not_end_its_parents_work(store) -> None:
    with store.claim(0) as work:
        work.output_path("x.bin").write_bytes(b"x")
        child = os.fork()
        if not child:
            try:
                work.__exit__(None, None, None)
                work.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert store.receipt(0).status == "started"
        work.raise_if_lost()
    assert store.is_completed(0)


class TestEnd:
    def test_threads_and_descriptors_are_where_they_were(self, store) -> None:
        complete(store, 0)
        before = sorted(os.listdir("/dev/fd")), threading.active_count()
        complete(store, 1)
        with pytest.raises(ZeroDivisionError), store.claim(2):
            1 / 0  # noqa: B018
        assert (sorted(os.listdir("/dev/fd")), threading.active_count()) == before

    def test_started_could_not_be_written(self, store, make_shard_faults) -> None:
        make_shard_faults(store.path / "receipts").fail("rename", errno.EDQUOT, times=1)
        with pytest.raises(OSError, match="quota"), store.claim(0):
            pytest.fail("the work began")
        assert left_over(store) == []
        complete(store, 0)

    def test_the_receipt_could_not_be_written(self, store, make_shard_faults) -> None:
        with pytest.raises(OSError, match="space"), store.claim(0) as work:  # noqa: PT012
            work.output_path("x.bin").write_bytes(b"x")
            make_shard_faults(store.path / "receipts").fail("rename", errno.ENOSPC, times=1)
        assert store.receipt(0).status == "failed"
        assert left_over(store) == ["x.bin"]
        complete(store, 0)

    def test_the_claim_could_not_be_removed(self, store, make_shard_faults, caplog) -> None:
        """What was done is done."""
        with store.claim(0) as work:
            work.mark_empty()
            faults = make_shard_faults(store.path)
            faults.fail("rename", errno.EIO, match="claims/shard_000000.json", times=None)
        assert store.is_completed(0)
        assert "The claim on shard 0 could not be removed" in caplog.text


class TestClaimPending:
    def test_those_of_others_are_skipped_and_the_log_says_whose(self, store, caplog) -> None:
        other = ReceiptStore(store.path)
        held = other.claim(1)
        with caplog.at_level(logging.INFO, "shardproof.receipts"):
            indices = [work.index for work in store.claim_pending()]
        assert indices == [0, 2]
        assert any(f"process {os.getpid()}" in text for text in caplog.messages)
        held.close()

    def test_one_that_was_done_meanwhile_is_skipped(self, store, caplog) -> None:
        works = store.claim_pending()
        first = next(works)
        complete(ReceiptStore(store.path), 1)
        with caplog.at_level(logging.INFO, "shardproof.receipts"):
            assert [work.index for work in works] == [2]
        assert any(text.startswith("Skipping shard 1 of") for text in caplog.messages)
        assert first.index == 0

    def test_waiting_for_others(self, tmp_path) -> None:
        store = new_store(tmp_path, heartbeat=0.01, stale_after=60.0)
        other = ReceiptStore(store.path)
        held = other.claim(1)

        def let_go() -> None:
            with held:
                held.mark_empty()

        indices = []
        for work in store.claim_pending(wait=True):
            with work:
                work.mark_empty()
                indices.append(work.index)
            if work.index == 2:
                threading.Timer(0.1, let_go).start()
        assert indices == [0, 2]
        assert store.pending() == []

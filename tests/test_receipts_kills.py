"""Whatever moment a worker is killed at: nothing is lost, torn, or falsely called done."""

import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from killing import (
    Begin,
    at_every_call,
    at_every_state,
    ends_by_itself,
    skip_where_not_permitted,
)

from shardproof import ReceiptStore, _files, receipts

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True, scope="module")
def _ptrace() -> None:
    skip_where_not_permitted()


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_disks() -> Iterator[None]:
    """What was written is there whether it was synced or not: a killed process is no power cut."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda _: None)
        yield


OLD, NEW = b"old " * 64, b"new " * 64


def torn_and_lost(path, write) -> tuple[int, int, int]:
    """How often a file that is replaced was neither old nor new, or gone; and the kills."""
    torn, lost = [], []

    def prepare() -> None:
        for name in os.listdir(path.parent):
            os.unlink(path.parent / name)
        path.write_bytes(OLD)

    def check(n_calls: int) -> None:
        if not path.exists():
            lost.append(n_calls)
        elif path.read_bytes() not in {OLD, NEW}:
            torn.append(n_calls)

    def act(begin) -> None:
        begin()
        write(path, NEW)

    n_kills = at_every_call(act, prepare=prepare, check=check)
    assert path.read_bytes() == NEW
    return len(torn), len(lost), n_kills


class TestTheKiller:
    """It sees what is there to be seen: else that it sees nothing would prove nothing."""

    def test_a_file_that_is_opened_for_writing_is_torn(self, tmp_path) -> None:
        def write(path, data: bytes) -> None:
            with open(path, "wb") as file:
                file.write(data)

        torn, lost, _ = torn_and_lost(tmp_path / "x", write)
        assert torn
        assert not lost

    def test_a_file_that_is_removed_first_is_lost(self, tmp_path) -> None:
        def write(path, data: bytes) -> None:
            path.unlink()
            _files.write_whole(path, data)

        torn, lost, _ = torn_and_lost(tmp_path / "x", write)
        assert lost
        assert not torn

    def test_a_file_that_is_written_whole_is_neither(self, tmp_path) -> None:
        torn, lost, n_kills = torn_and_lost(tmp_path / "x", _files.write_whole)
        assert (torn, lost) == (0, 0)
        assert n_kills > 5  # open, write, fsync, close, rename, and the directory's

    def test_states_are_those_after_kills(self, tmp_path) -> None:
        """One child that is looked at leaves what many do that are killed."""
        path = tmp_path / "d"
        killed_states, states = set(), set()

        def act(begin: Begin) -> None:
            begin()
            (path / "a").mkdir()
            with open(path / "x", "wb") as file:
                file.write(b"1" * 9)
                file.flush()
                file.write(b"2" * 9)
            os.rename(path / "x", path / "a" / "y")

        def prepare() -> None:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()

        def state() -> frozenset:
            files = [file for file in path.rglob("*") if file.is_file()]
            return frozenset(listing(path)), *(file.read_bytes() for file in files)

        at_every_call(act, prepare=prepare, check=lambda _: killed_states.add(state()))
        prepare()
        assert at_every_state(act, path, check=lambda _: states.add(state())) == 6
        assert states == killed_states

    def test_each_call_is_counted_once(self, tmp_path) -> None:
        made = []

        def act(begin) -> None:
            os.mkdir(tmp_path / "before")
            begin()
            for number in range(3):
                os.mkdir(tmp_path / str(number))

        def prepare() -> None:
            for name in os.listdir(tmp_path):
                os.rmdir(tmp_path / name)

        def check(n_calls: int) -> None:
            made.append(sorted(os.listdir(tmp_path)))

        at_every_call(act, prepare=prepare, check=check)

        everything = ["0", "1", "2", "before"]
        assert made[0] == ["before"]
        assert [[*everything[:n], "before"] for n in range(4)] == sorted(made[:4], key=len)
        assert sorted(os.listdir(tmp_path)) == everything

    def test_calls_of_its_threads_are_counted(self, tmp_path) -> None:
        def act(begin) -> None:
            begin()
            thread = threading.Thread(target=os.mkdir, args=(tmp_path / "x",))
            thread.start()
            thread.join()

        seen = set()
        at_every_call(
            act,
            prepare=lambda: (tmp_path / "x").exists() and os.rmdir(tmp_path / "x"),
            check=lambda _: seen.add((tmp_path / "x").exists()),
        )
        assert seen == {False, True}

    def test_what_it_raises_fails_the_test(self, capfd) -> None:
        with pytest.raises(AssertionError, match="ended with 1"):
            ends_by_itself(lambda _: 1 // 0, 5)
        assert "ZeroDivisionError" in capfd.readouterr().err

    def test_it_works_beside_other_threads(self, tmp_path) -> None:
        end = threading.Event()
        thread = threading.Thread(target=end.wait)
        thread.start()
        try:
            assert ends_by_itself(lambda begin: begin(), 100)
        finally:
            end.set()
            thread.join()


N_SHARDS = 2
KINDS = "bin", "idx"


def outputs(index: int, attempt: str) -> dict[str, bytes]:
    """What an attempt writes; all attempts write as much."""
    return {f"shard_{index:06d}.{kind}": f"{attempt} {kind}".encode() * 9 for kind in KINDS}


def write(work, attempt: str) -> None:
    for name, data in outputs(work.index, attempt).items():
        work.output(name).write_bytes(data)
    work.stats["num_sequences"] = 9


def run(plan_dir: Path, attempt: str, level="complete") -> list[int]:
    """Do what is pending, undisturbed; return which shards."""
    done = []
    for work in ReceiptStore(plan_dir).claim_pending(level):
        with work:
            write(work, attempt)
        done.append(work.index)
    return done


@pytest.fixture(scope="module")
def plan_dirs(tmp_path_factory) -> dict[str, Path]:
    """Plan directories whose shard 0 is to do, by why; shard 1 is done in all of them."""
    corpus = tmp_path_factory.mktemp("corpus")
    for name in "abc":
        (corpus / f"{name}.txt").write_text(name)
    plan = receipts.make_plan("corpus", receipts.source_files(corpus), N_SHARDS)

    def made(why: str) -> Path:
        path = receipts.open_run(tmp_path_factory.mktemp(why), datasets=["corpus"]).open(plan).path
        assert run(path, "old") == [0, 1]
        return path

    dirs = {why: made(why) for why in ("new", "purged", "cut", "rotten", "damaged", "failed")}
    _forget(dirs["new"])
    (dirs["purged"] / "shard_000000.bin").unlink()
    (dirs["cut"] / "shard_000000.idx").write_bytes(b"old")
    rotten = dirs["rotten"] / "shard_000000.bin"
    rotten.write_bytes(rotten.read_bytes()[::-1])
    receipt_of(dirs["damaged"], 0).write_text('{"status": "comp')
    _forget(dirs["failed"])
    with pytest.raises(ZeroDivisionError), ReceiptStore(dirs["failed"]).claim(0):
        raise ZeroDivisionError
    return dirs


def _forget(plan_dir: Path) -> None:
    for path in (receipt_of(plan_dir, 0), *(plan_dir / name for name in outputs(0, ""))):
        path.unlink()


def receipt_of(plan_dir: Path, index: int) -> Path:
    return plan_dir / "receipts" / f"shard_{index:06d}.json"


def is_right(plan_dir: Path, index: int) -> bool:
    """Whether a shard is done, found out without the code under test."""
    try:
        said = json.loads(receipt_of(plan_dir, index).read_bytes())
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    return said["status"] == "completed" and all(
        (plan_dir / file["path"]).is_file()
        and file["checksum"] == "sha256:" + _sha256(plan_dir / file["path"])
        for file in said["files"].values()
    )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def listing(plan_dir: Path) -> list[str]:
    return sorted(path.relative_to(plan_dir).as_posix() for path in plan_dir.rglob("*"))


def everything() -> list[str]:
    """What is in a plan directory whose shards are done, when nothing is left over."""
    files = [name for index in range(N_SHARDS) for name in outputs(index, "")]
    made = [f"receipts/shard_{index:06d}.json" for index in range(N_SHARDS)]
    return sorted(["plan.json", "receipts", "claims", *files, *made])


class Killed:
    """One plan directory, in which a worker is killed again and again.

    Args:
        template: How it is before each kill.
        path: Where it is.
        level: How hard the work looks for what is to do.
    """

    def __init__(self, template: Path, path: Path, level: str = "complete") -> None:
        self.template = template
        self.path = path
        self.level = level
        self.n_done = 0
        self.left_over: set[str] = set()

    def prepare(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.template, self.path)

    def check(self, n_calls: int) -> None:
        self.nothing_is_lost_or_torn()
        self.only_what_is_right_is_done()
        self.one_more_run_does_the_rest()

    def nothing_is_lost_or_torn(self) -> None:
        found, before = (
            {file.name: file.read_bytes() for file in (path / "receipts").iterdir()}
            for path in (self.path, self.template)
        )
        there = {name for name in found if re.fullmatch(r"shard_.*\.json", name)}
        assert before.keys() <= there <= {"shard_000000.json", "shard_000001.json"}
        for name in there:
            if found[name] != before.get(name):  # a damaged one may still be there
                said = json.loads(found[name])
                assert said["status"] in {"started", "completed", "failed"}
                assert name == "shard_000000.json"
                assert said["shard_index"] == 0
        for name, data in outputs(1, "old").items():
            assert (self.path / name).read_bytes() == data
        for name in outputs(0, ""):
            self.is_whole(self.path / name)

    def is_whole(self, path: Path) -> None:
        """Outputs are as they were or as they are to be."""
        kind, before = path.suffix[1:], self.template / path.name
        data = path.read_bytes() if path.exists() else None
        old = before.read_bytes() if before.exists() else None
        assert data in {old, outputs(0, "new")[f"shard_000000.{kind}"]}

    def only_what_is_right_is_done(self) -> None:
        pending = ReceiptStore(self.path).pending(self.level)
        right = is_right(self.path, 0)
        assert pending == ([] if right else [0])
        self.n_done += right

    def one_more_run_does_the_rest(self) -> None:
        was_right = not ReceiptStore(self.path).pending(self.level)
        assert run(self.path, "run", self.level) == ([] if was_right else [0])
        expected = outputs(0, "new" if was_right else "run")
        assert {name: (self.path / name).read_bytes() for name in expected} == expected
        assert is_right(self.path, 0)
        assert is_right(self.path, 1)
        left_over = set(listing(self.path)) - set(everything())
        assert was_right or not left_over
        self.left_over |= left_over


CASES = ["new", "purged", "cut", "rotten", "damaged", "failed"]


def killed(plan_dirs, tmp_path, why: str) -> Killed:
    return Killed(plan_dirs[why], tmp_path / "plan", "valid" if why == "rotten" else "complete")


@pytest.mark.parametrize("why", ["new", "purged"])
def test_killed_while_it_is_completed(plan_dirs, tmp_path, why: str) -> None:
    case = killed(plan_dirs, tmp_path, why)

    def act(begin: Begin) -> None:
        with ReceiptStore(case.path).claim(0, case.level) as work:
            write(work, "new")
            begin()

    n_kills = at_every_call(act, prepare=case.prepare, check=case.check)
    assert n_kills > 30
    assert 0 < case.n_done < n_kills


@pytest.mark.parametrize("why", CASES)
def test_killed_at_any_moment_of_a_claim(plan_dirs, tmp_path, why: str) -> None:
    case = killed(plan_dirs, tmp_path, why)

    def act(begin: Begin) -> None:
        begin()
        with ReceiptStore(case.path).claim(0, case.level) as work:
            write(work, "new")

    case.prepare()
    n_states = at_every_state(act, case.path, check=case.check)
    assert n_states > 15
    assert 0 < case.n_done < n_states


@pytest.mark.parametrize("why", CASES)
def test_killed_while_a_failure_is_recorded(plan_dirs, tmp_path, why: str) -> None:
    case = killed(plan_dirs, tmp_path, why)

    def act(begin: Begin) -> None:
        with suppress(ZeroDivisionError), ReceiptStore(case.path).claim(0, case.level) as work:
            write(work, "new")
            begin()
            raise ZeroDivisionError

    case.prepare()
    assert at_every_state(act, case.path, check=case.check) > 5
    assert case.n_done == 0


def test_nothing_is_left_of_a_worker_that_completed_its_shard(plan_dirs, tmp_path) -> None:
    case = killed(plan_dirs, tmp_path, "purged")

    def act(begin: Begin) -> None:
        with ReceiptStore(case.path).claim(0) as work:
            write(work, "new")
            begin()

    case.prepare()
    at_every_state(act, case.path, check=case.check)
    assert not case.left_over


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> set[str]:
    """What is left over of processes that were killed while they opened a plan."""
    path = tmp_path_factory.mktemp("opened")
    (path / "a.txt").write_text("a")
    plan = receipts.make_plan("corpus", receipts.source_files(path, "*.txt"), N_SHARDS)
    output_dir = path / "out"
    left_over: set[str] = set()

    def open_it() -> ReceiptStore:
        return receipts.open_run(output_dir, datasets=["corpus"]).open(plan)

    run(open_it().path, "run")
    names = set(listing(output_dir))

    def act(begin: Begin) -> None:
        begin()
        open_it()

    def check(n_calls: int) -> None:
        for file in output_dir.rglob("*.json"):
            assert json.loads(file.read_bytes())
        assert open_it().pending() == [0, 1]
        assert run(open_it().path, "run") == [0, 1]
        assert open_it().pending() == []
        left_over.update(set(listing(output_dir)) - names)

    shutil.rmtree(output_dir)
    assert at_every_state(act, output_dir, check=check) > 10
    return left_over


def test_killed_while_a_plan_is_opened(opened) -> None:
    assert all(re.fullmatch(r"\.shardproof-.*\.tmp", Path(name).name) for name in opened)


def test_nothing_is_left_of_who_opened_a_plan(opened) -> None:
    assert not opened

"""Whatever moment a worker is killed at, or the power cut: no receipt is lost, torn or a lie."""

import hashlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shardproof import ReceiptStore, receipts
from shardproof._base import files as _files
from tests.attacks.tally import Tally
from tests.helpers import power
from tests.helpers.killing import (
    Begin,
    Chosen,
    at_every_state,
    at_some_calls,
    skip_where_not_permitted,
)

a_kill = pytest.mark.attack("kill at a system call: receipts, plans, claims")
a_cut = pytest.mark.attack("power cut: receipts")

N_KILLS = 3
"""In the gate, of each kind of work."""

N_CUTS = 2
"""In the gate, of each disk."""


@pytest.fixture(autouse=True, scope="module")
def _ptrace() -> None:
    skip_where_not_permitted()


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
    for work in ReceiptStore(plan_dir).claim_pending(level=level):
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
    plan = receipts.make_plan("corpus", receipts.input_files(corpus), n_shards=N_SHARDS)

    def made(why: str) -> Path:
        path = receipts.open_run(tmp_path_factory.mktemp(why), datasets=["corpus"]).store(plan).path
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
        tally: What is told of each case.
        why: Why shard 0 is to be done.
        template: How it is before each kill.
        path: Where it is.
    """

    def __init__(self, tally: Tally, why: str, template: Path, path: Path) -> None:
        self.tally = tally
        self.why = why
        self.template = template
        self.path = path
        self.level = "valid" if why == "rotten" else "complete"
        self.n_done = 0
        self.left_over: set[str] = set()

    def prepare(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.template, self.path)

    def check(self, n_calls: int) -> None:
        self.tally.count()
        for kind, look in (
            ("torn", self.nothing_is_lost_or_torn),
            ("lie", self.only_what_is_right_is_done),
            ("lost", self.one_more_run_does_the_rest),
        ):
            with self.tally.harmless(kind, f"{self.why}, call {n_calls}"):
                look()

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
        pending = ReceiptStore(self.path).pending(level=self.level)
        right = is_right(self.path, 0)
        assert pending == ([] if right else [0])
        self.n_done += right

    def one_more_run_does_the_rest(self) -> None:
        was_right = not ReceiptStore(self.path).pending(level=self.level)
        assert run(self.path, "run", self.level) == ([] if was_right else [0])
        expected = outputs(0, "new" if was_right else "run")
        assert {name: (self.path / name).read_bytes() for name in expected} == expected
        assert is_right(self.path, 0)
        assert is_right(self.path, 1)
        left_over = set(listing(self.path)) - set(everything())
        assert was_right or not left_over
        self.left_over |= left_over


WHYS = ["new", "purged", "cut", "rotten", "damaged", "failed"]


@pytest.fixture
def killed(plan_dirs, tmp_path, tally, no_waiting_for_disks) -> Callable[[str], Killed]:
    """Make a plan directory whose shard 0 is to be done."""
    return lambda why: Killed(tally, why, plan_dirs[why], tmp_path / "plan")


@a_kill
def test_killed_while_it_is_completed(killed, tally) -> None:
    for why in ("new", "purged"):
        case = killed(why)

        def act(begin: Begin, case: Killed = case) -> None:
            with ReceiptStore(case.path).claim(0, level=case.level) as work:
                write(work, "new")
                begin()

        some = at_some_calls(
            act,
            prepare=case.prepare,
            check=case.check,
            choose=lambda numbers: tally.sample(numbers, N_KILLS),
        )
        assert some > N_KILLS if tally.is_exhaustive else some == N_KILLS


@a_kill
def test_killed_at_any_moment_of_a_claim(killed, tally) -> None:
    for why in tally.sample(WHYS, 3):
        case = killed(why)

        def act(begin: Begin, case: Killed = case) -> None:
            begin()
            with ReceiptStore(case.path).claim(0, level=case.level) as work:
                write(work, "new")

        n_states = at_states(act, case)
        assert not tally.is_exhaustive or (n_states > 15 and 0 < case.n_done < n_states)


def at_states(act: Callable[[Begin], object], case: Killed) -> int:
    case.prepare()
    return at_every_state(
        act, case.path, check=case.check, choose=lambda cases: case.tally.sample(cases, N_KILLS)
    )


@a_kill
def test_killed_while_a_failure_is_recorded(killed, tally) -> None:
    for why in tally.sample(WHYS, 2):
        case = killed(why)

        def act(begin: Begin, case: Killed = case) -> None:
            store = ReceiptStore(case.path)
            with suppress(ZeroDivisionError), store.claim(0, level=case.level) as work:
                write(work, "new")
                begin()
                raise ZeroDivisionError

        at_states(act, case)
        assert case.n_done == 0


@a_kill
def test_nothing_is_left_of_a_worker_that_completed_its_shard(killed, tally) -> None:
    case = killed("purged")

    def act(begin: Begin) -> None:
        with ReceiptStore(case.path).claim(0) as work:
            write(work, "new")
            begin()

    at_states(act, case)
    for name in sorted(case.left_over):
        tally.harm("leftover", name)


@a_kill
def test_killed_while_a_plan_is_opened(tmp_path, tally, no_waiting_for_disks) -> None:
    (tmp_path / "a.txt").write_text("a")
    plan = receipts.make_plan("corpus", receipts.input_files(tmp_path, "*.txt"), n_shards=N_SHARDS)
    output_dir = tmp_path / "out"

    def open_it() -> ReceiptStore:
        return receipts.open_run(output_dir, datasets=["corpus"]).store(plan)

    run(open_it().path, "run")
    names = set(listing(output_dir))

    def act(begin: Begin) -> None:
        begin()
        open_it()

    def check(n_calls: int) -> None:
        tally.count()
        with tally.harmless("torn", n_calls):
            for file in output_dir.rglob("*.json"):
                assert json.loads(file.read_bytes())
        with tally.harmless("lost", n_calls):
            assert open_it().pending() == [0, 1]
            assert run(open_it().path, "run") == [0, 1]
            assert open_it().pending() == []
        for name in sorted(set(listing(output_dir)) - names):
            tally.harm("leftover", name)

    shutil.rmtree(output_dir)
    output_dir.mkdir()
    at_every_state(act, output_dir, check=check, choose=lambda cases: tally.sample(cases, N_KILLS))


def control() -> Tally:
    """A tally for code that does harm, which must be seen."""
    return Tally("control", is_exhaustive=True)


@a_kill
def test_a_receipt_that_is_written_in_place_is_torn(
    plan_dirs, tmp_path, no_waiting_for_disks, monkeypatch
) -> None:
    """Control: the harness sees it."""

    def in_place(source: str, target: str, *, target_fd: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with open(os.open(target, flags, dir_fd=target_fd), "wb", buffering=0) as file:
            file.write(Path(source).read_bytes())

    monkeypatch.setattr(_files, "move", in_place)
    case = Killed(control(), "purged", plan_dirs["purged"], tmp_path / "plan")

    def act(begin: Begin) -> None:
        begin()
        with ReceiptStore(case.path).claim(0) as work:
            write(work, "new")

    at_states(act, case)
    assert case.tally.harms["torn"]


@pytest.fixture(scope="module")
def disk() -> None:
    power.skip_where_not_permitted()


def cut(
    tally: Tally, plan_dir: Path, workspace: Path, choose: Chosen, *, beside_others: bool
) -> int:
    """Cut the power while shard 0 is done; return after how many cuts the disk was looked at."""

    def act(path: Path, begin: Begin) -> None:
        begin()
        with ReceiptStore(path / "plan").claim(0) as work:
            write(work, "new")

    def check(path: Path, has_ended: bool) -> None:
        tally.count()
        with tally.harmless("lie", "after a cut"):
            pending = ReceiptStore(path / "plan").pending()
            assert pending == ([] if is_right(path / "plan", 0) else [0])
        with tally.harmless("lost", f"after a cut, ended: {has_ended}"):
            assert is_right(path / "plan", 1)
            assert is_right(path / "plan", 0) or not has_ended
            run(path / "plan", "run")
            assert is_right(path / "plan", 0)

    return power.at_every_cut(
        act,
        workspace,
        prepare=lambda path: shutil.copytree(plan_dir, path / "plan"),
        check=check,
        beside_others=beside_others,
        choose=choose,
    )


@a_cut
def test_a_cut_of_the_power(plan_dirs, tmp_path, tally, disk) -> None:
    disks = list(itertools.product(("new", "purged"), (False, True)))
    for number, (why, beside_others) in enumerate(tally.sample(disks, 1)):
        workspace = tmp_path / str(number)
        workspace.mkdir()
        assert cut(
            tally,
            plan_dirs[why],
            workspace,
            lambda cases: tally.sample(cases, N_CUTS),
            beside_others=beside_others,
        )


@a_cut
def test_what_is_not_synced_is_lost(plan_dirs, tmp_path, disk, monkeypatch) -> None:
    """Control: the harness sees it."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    found = control()
    cut(found, plan_dirs["new"], tmp_path, lambda cases: cases[-1:], beside_others=True)
    assert found.harms["lost"]

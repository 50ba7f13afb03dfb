"""Many workers share the shards of a plan, and some are killed: each is done, and done once."""

import os
import random
import secrets
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from shardproof import ClaimLostError, ReceiptStore, ShardClaimedError, receipts
from shardproof.receipts.claims import _claim
from tests.helpers.forking import PATIENCE, ended, forked

pytestmark = pytest.mark.once

N_SHARDS, N_WORKERS, N_KILLS = 200, 32, 40
KINDS = "bin", "idx"


@pytest.fixture
def plan_dir(tmp_path) -> Path:
    for number in range(N_SHARDS):
        (tmp_path / f"{number:03}.txt").write_text("text")
    plan = receipts.make_plan("corpus", receipts.input_files(tmp_path, "*.txt"), n_shards=N_SHARDS)
    return receipts.open_run(tmp_path / "out", datasets=["corpus"]).store(plan).path


def content(index: int, token: str) -> bytes:
    return f"shard {index} by {token}\n".encode() * 100


class Worker:
    """A process that does what is pending, and writes into a log of its own what it did.

    Args:
        plan_dir: Where.
        is_known: Whether others on this machine can tell that it is gone; else only its silence
            tells, as if it were on another one.
    """

    def __init__(self, plan_dir: Path, is_known: bool) -> None:
        self.token = secrets.token_hex(8)
        self.plan_dir = plan_dir
        self.is_known = is_known
        self.is_killed = False
        self.log = plan_dir.with_name(f"{self.token}.log")
        self.log.touch()
        self.pid = forked(self._work)

    def _work(self) -> None:
        os.fsync = lambda _: None  # no power cut is tried here
        if not self.is_known:
            _claim.this_process = str
        store = ReceiptStore(self.plan_dir, heartbeat=0.2, stale_after=2.0)
        for work in store.claim_pending(wait=True):
            try:
                with work:
                    self.say("begin", work.index)
                    for kind in KINDS:
                        path = work.output(f"shard_{work.index:06d}.{kind}")
                        path.write_bytes(content(work.index, self.token))
                        time.sleep(random.uniform(0, 0.1))
                    work.stats["token"] = self.token
            except ClaimLostError:
                self.say("lost", work.index)
            else:
                self.say("end", work.index)

    def say(self, what: str, index: int) -> None:
        with self.log.open("a") as log:
            log.write(f"{what} {index}\n")

    def said(self, what: str) -> list[int]:
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [int(index) for said, index in lines if said == what]

    def is_over(self) -> bool:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        assert os.waitstatus_to_exitcode(status) == 0
        return pid != 0

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.is_killed = os.WIFSIGNALED(status)


def all_workers(plan_dir: Path, generator: random.Random) -> list[Worker]:
    """Let workers do everything; kill some, and start others in their place."""
    workers = [Worker(plan_dir, number % 2 == 0) for number in range(N_WORKERS)]
    at_work = list(workers)
    n_kills = 0
    while at_work:
        time.sleep(generator.uniform(0, 0.02))
        at_work = [worker for worker in at_work if not worker.is_over()]
        if at_work and n_kills < N_KILLS:
            place = generator.randrange(len(at_work))
            at_work[place].kill()
            at_work[place] = Worker(plan_dir, at_work[place].is_known)
            workers.append(at_work[place])
            n_kills += 1
    return workers


@pytest.mark.parametrize("seed", [1])
def test_every_shard_is_done_once(plan_dir, seed: int) -> None:
    workers = all_workers(plan_dir, random.Random(seed))
    by_token = {worker.token: worker for worker in workers}

    store = ReceiptStore(plan_dir)
    assert store.pending(level="valid") == []

    ends: dict[int, list[str]] = {index: [] for index in range(N_SHARDS)}
    for worker in workers:
        for index in worker.said("end"):
            ends[index].append(worker.token)
    for index, tokens in ends.items():
        by = store.receipt(index).stats["token"]
        for kind in KINDS:
            path = plan_dir / f"shard_{index:06d}.{kind}"
            assert path.read_bytes() == content(index, by)  # whole, and of one worker
        # The worker that did it has said so, and no other; or it was killed before it could.
        assert tokens == [by] or (tokens == [] and by_token[by].is_killed)

    for worker in workers:
        unended = Counter(worker.said("begin")) - Counter(worker.said("end") + worker.said("lost"))
        assert unended.total() <= worker.is_killed  # no work is given up half-way
    assert sum(worker.is_killed for worker in workers) > N_KILLS // 4


def test_a_worker_that_was_held_up_does_not_spoil_what_another_did(plan_dir) -> None:
    now = 0.0
    other = ReceiptStore(plan_dir, heartbeat=1.0, stale_after=10.0, _clock=lambda: now)

    def held_up() -> None:
        work = ReceiptStore(plan_dir, heartbeat=1.0, stale_after=10.0).claim(3)
        with pytest.raises(ClaimLostError), work:
            late(work.output("shard_000003.bin"))

    def late(path: Path) -> None:
        path.write_bytes(b"late")
        signal.raise_signal(signal.SIGSTOP)

    pid = forked(held_up)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    with pytest.raises(ShardClaimedError):
        other.claim(3)
    now = 10.5
    with other.claim(3) as work:
        work.output("shard_000003.bin").write_bytes(b"in time")
    os.kill(pid, signal.SIGCONT)

    assert ended(pid) == 0
    assert (plan_dir / "shard_000003.bin").read_bytes() == b"in time"
    assert other.is_completed(3, level="valid")
    assert os.listdir(plan_dir / "claims") == []


def test_a_worker_that_shows_life_keeps_its_shard(plan_dir) -> None:
    now = 0.0
    other = ReceiptStore(plan_dir, heartbeat=1.0, stale_after=10.0, _clock=lambda: now)
    reading, writing = os.pipe()

    def at_work() -> None:
        os.close(writing)
        with ReceiptStore(plan_dir, heartbeat=0.02, stale_after=10.0).claim(3) as work:
            work.output("shard_000003.bin").write_bytes(b"at last")
            os.read(reading, 1)  # until the parent closes its end

    pid = forked(at_work)
    os.close(reading)
    claims = plan_dir / "claims"
    begin = time.monotonic()
    seen = set()
    while len(seen) < 8:
        assert time.monotonic() - begin < PATIENCE, "it shows no life"
        content = b"".join(path.read_bytes() for path in claims.glob("shard_*.json"))
        if content and content not in seen and other.verdict(3).status == "started":
            seen.add(content)
            with pytest.raises(ShardClaimedError):
                other.claim(3)
            now += 9.5
    os.close(writing)

    assert ended(pid) == 0
    assert other.is_completed(3, level="valid")

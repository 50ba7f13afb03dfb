"""A worker that is held up, and one that shows life; crowds are in the attack on processes."""

import os
import signal
from pathlib import Path

import pytest

from shardproof import ClaimLostError, ReceiptStore, ShardClaimedError, receipts
from tests.helpers.forking import ended, forked

N_SHARDS = 4


@pytest.fixture
def plan_dir(tmp_path) -> Path:
    for number in range(N_SHARDS):
        (tmp_path / f"{number:03}.txt").write_text("text")
    plan = receipts.make_plan("corpus", receipts.input_files(tmp_path, "*.txt"), n_shards=N_SHARDS)
    return receipts.open_run(tmp_path / "out", datasets=["corpus"]).store(plan).path


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

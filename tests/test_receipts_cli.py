"""``shardproof receipts``: what it prints, and its exit codes."""

import errno
import json
import os

import pytest
from planning import complete, new_store, receipt_path
from typer.testing import CliRunner

from shardproof import ReceiptStore, cli


@pytest.fixture
def store(tmp_path) -> ReceiptStore:
    """Of eight shards, 0, 1 and 7 are done, 3 has lost an output, 4 failed, 5 is claimed."""
    store = new_store(tmp_path, 8)
    for index in (0, 1, 3, 7):
        complete(store, index)
    (store.path / "shard_000003.idx").unlink()
    with pytest.raises(ValueError, match="bad"), store.claim(4):
        raise ValueError("bad \x1b[31mrow")
    return store


def run(*args: object):
    result = CliRunner().invoke(cli.app, ["receipts", *map(str, args)], prog_name="shardproof")
    assert isinstance(result.exception, SystemExit | None), result.exception  # has a code of 1 too
    return result


def lines(result) -> list[list[str]]:
    return [line.split(None, 2) for line in result.stdout.splitlines()]


class TestTable:
    def test_it_says_why(self, store) -> None:
        store.claim(5)
        result = run(store.path)
        assert result.exit_code == 1
        title, header, *rows = result.stdout.splitlines()
        assert title == f"3 of 8 shards completed in '{store.path}'"
        assert header.split() == ["Shard", "State", "Why"]
        shown = [row.split(None, 2) for row in rows]
        assert [row[:2] for row in shown] == [
            ["2", "pending"],
            ["3", "pending"],
            ["4", "failed"],
            ["5", "claimed"],
            ["6", "pending"],
        ]
        assert shown[0][2].strip() == "there is no receipt"
        missing = store.path / "shard_000003.idx"
        assert shown[1][2].strip().endswith(f"at '{missing}', found nothing")
        assert "ValueError: bad" in shown[2][2]
        assert "\x1b" not in result.stdout
        assert f"by uid {os.geteuid()} on " in shown[3][2]
        assert shown[3][2].strip().endswith("for 0:00:00")

    def test_all_done(self, store) -> None:
        for index in store.pending():
            complete(store, index)
        result = run(store.path)
        assert (result.exit_code, result.stdout) == (
            0,
            f"8 of 8 shards completed in '{store.path}'\n",
        )

    def test_a_claim_of_a_done_shard_is_not_shown(self, store) -> None:
        for index in store.pending():
            complete(store, index)
        (store.path / "claims" / "shard_000002.0001.json").write_text("{}")
        assert run(store.path).exit_code == 0

    def test_a_claim_that_can_not_be_read(self, store) -> None:
        (store.path / "claims" / "shard_000002.0001.json").write_text("{")
        assert "by a worker that can't be told" in run(store.path).stdout

    @pytest.mark.parametrize("claimed_at", [1e300, -1e300, 1e12])
    def test_a_clock_that_is_wrong(self, store, claimed_at) -> None:
        store.claim(5)
        path = store.path / "claims" / "shard_000005.0001.json"
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"claimed_at": claimed_at}))
        assert "claimed  by uid" in run(store.path).stdout

    def test_the_level(self, store) -> None:
        (store.path / "shard_000000.bin").write_bytes(b"nekots")
        assert "3 of 8" in run(store.path).stdout
        assert "2 of 8" in run(store.path, "--level", "valid").stdout


class TestPending:
    def test_one_a_line(self, store) -> None:
        result = run(store.path, "--pending")
        assert (result.exit_code, result.stdout) == (0, "2\n3\n4\n5\n6\n")

    def test_for_a_job_array(self, store) -> None:
        complete(store, 4)
        result = run(store.path, "--pending", "--format", "slurm")
        assert (result.exit_code, result.stdout) == (0, "2-3,5-6\n")

    def test_nothing(self, store) -> None:
        for index in store.pending():
            complete(store, index)
        for form in ("lines", "slurm"):
            result = run(store.path, "--pending", "--format", form)
            assert (result.exit_code, result.stdout) == (0, "")


def test_json(store) -> None:
    result = run(store.path, "--json")
    said = json.loads(result.stdout)
    assert result.exit_code == 1
    assert said["root"] == str(store.path)
    assert (said["n_shards"], said["n_completed"]) == (8, 3)
    assert said["plan_hash"] == store.plan_hash
    assert said["shards"][0] == {"shard": 2, "state": "pending", "why": "there is no receipt"}


class TestTrouble:
    def test_no_plan(self, tmp_path) -> None:
        for path in (tmp_path, tmp_path / "none"):
            result = run(path)
            assert result.exit_code == 2
            assert "there is no such" in result.stderr
            assert result.stdout == ""

    def test_could_not_look(self, store, shard_faults) -> None:
        shard_faults(store.path / "receipts").fail("read", errno.EIO)
        result = run(store.path, "--pending")
        assert result.exit_code == 3
        assert result.stdout == ""
        assert f"Could not look at '{store.path}'" in result.stderr

    def test_wrong_usage(self, store) -> None:
        assert run(store.path, "--format", "pbs").exit_code == 2
        assert run().exit_code == 2

    def test_a_damaged_receipt(self, store) -> None:
        receipt_path(store, 0).write_text("{")
        assert "its receipt can't be believed: not JSON" in run(store.path).stdout

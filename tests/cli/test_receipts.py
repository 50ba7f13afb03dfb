"""``shardproof receipts``: what it prints, and its exit codes."""

import errno
import functools
import json
import os
import signal
from pathlib import Path

import pytest

from shardproof import ReceiptStore, receipts
from tests.helpers import commands
from tests.helpers.forking import ended, forked
from tests.helpers.planning import complete, new_store, receipt_path, source


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


run = functools.partial(commands.run, "receipts")


class TestTable:
    def test_each_shard_that_is_not_done_has_a_reason(self, store) -> None:
        store.claim(5)
        result = run(store.path)
        assert result.exit_code == 1
        title, header, *rows = result.stdout.splitlines()
        assert title == f"3 of 8 shards completed in '{store.path}'"
        assert header.split() == ["Index", "Status", "Reason"]
        shown = [row.split(None, 2) for row in rows]
        assert [row[:2] for row in shown] == [
            ["2", "absent"],
            ["3", "completed"],
            ["4", "failed"],
            ["5", "claimed"],
            ["6", "absent"],
        ]
        assert shown[0][2].strip() == "there is no receipt"
        missing = store.path / "shard_000003.idx"
        assert shown[1][2].strip().endswith(f"at '{missing}', found nothing")
        assert "ValueError: bad" in shown[2][2]
        assert "\x1b" not in result.stdout
        assert f"by uid {os.geteuid()} on " in shown[3][2]
        assert shown[3][2].strip().endswith("for 0:00:00")

    def test_a_plan_that_is_done_has_one_line(self, store) -> None:
        for index in store.pending():
            complete(store, index)
        done = f"8 of 8 shards completed in '{store.path}'\n"
        for options, said in (([], done), (["--pending"], ""), (["--pending", "--ranges"], "")):
            result = run(store.path, *options)
            assert (result.exit_code, result.stdout) == (0, said)

    def test_a_claim_that_can_not_be_read(self, store) -> None:
        (store.path / "claims" / "shard_000002.json").write_text("{")
        assert "by an unknown process" in run(store.path).stdout

    def test_a_clock_that_is_wrong(self, store) -> None:
        store.claim(5)
        path = store.path / "claims" / "shard_000005.json"
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"since": 1e300}))
        assert "claimed    by uid" in run(store.path).stdout

    def test_only_valid_sees_changed_outputs(self, store) -> None:
        (store.path / "shard_000000.bin").write_bytes(b"nekots")
        assert "3 of 8" in run(store.path).stdout
        assert "2 of 8" in run(store.path, "--level", "valid").stdout


class TestPending:
    def test_pending_numbers_stand_one_a_line_or_as_a_job_array_has_them(self, store) -> None:
        result = run(store.path, "--pending")
        assert (result.exit_code, result.stdout) == (0, "2\n3\n4\n5\n6\n")
        complete(store, 4)
        result = run(store.path, "--pending", "--ranges")
        assert (result.exit_code, result.stdout) == (0, "2-3,5-6\n")


def test_json_has_counts_and_shards(store) -> None:
    result = run(store.path, "--json")
    said = json.loads(result.stdout)
    assert result.exit_code == 1
    assert said["path"] == str(store.path)
    assert (said["n_shards"], said["n_completed"]) == (8, 3)
    assert said["plan_hash"] == store.plan_hash
    assert said["shards"][0] == {"index": 2, "status": "absent", "reason": "there is no receipt"}


@pytest.mark.parametrize("name", ["gone", "empty"])
def test_json_says_why_there_is_none(tmp_path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    result = run(tmp_path / name, "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, said["exit_code"], said["ok"]) == (2, 2, False)
    assert said["path"] == str(tmp_path / name)
    assert said["error"] in result.stderr


class TestADeadWorker:
    """Whose claim would say for ever that somebody is at the shard."""

    def test_it_is_called_dead(self, store) -> None:
        def killed() -> None:
            store.claim(2).__enter__()
            store.claim(4)
            os.kill(os.getpid(), signal.SIGKILL)

        assert ended(forked(killed)) == -signal.SIGKILL
        store.claim(5)
        said = json.loads(run(store.path, "--json").stdout)
        shown = {row["index"]: row for row in said["shards"]}
        states = {2: "dead", 3: "completed", 4: "dead", 5: "claimed", 6: "absent"}
        assert {index: row["status"] for index, row in shown.items()} == states
        gone = "that process is gone; "
        assert shown[2]["reason"].endswith(f"{gone}it was started, and not completed")
        assert f"{gone}it failed: 'ValueError: bad" in shown[4]["reason"]
        assert [found.is_dead for _, found in receipts.claims_in(str(store.path))] == [1, 1, 0]


class TestOutputDirectory:
    """Who does not know the hashes by heart names the directory that they gave to the job."""

    @pytest.fixture
    def output_dir(self, store, tmp_path) -> Path:
        """A run with two plans, one of them done, and another run without any."""
        plan = receipts.make_plan("other", [source("a")], n_shards=1)
        complete(receipts.open_run(tmp_path, datasets=["corpus"]).store(plan), 0)
        receipts.open_run(tmp_path, datasets=["none"])
        return tmp_path

    @pytest.fixture
    def plans(self, output_dir) -> list[str]:
        return sorted(str(path.parent) for path in output_dir.glob("runs/*/datasets/*/*/plan.json"))

    def test_all_its_plans_are_shown(self, output_dir, plans) -> None:
        result = run(output_dir)
        assert result.exit_code == 1
        titles = [line for line in result.stdout.splitlines() if " completed in " in line]
        assert titles == [
            f"3 of 8 shards completed in '{plans[0]}'",
            f"1 of 1 shards completed in '{plans[1]}'",
        ]
        said = json.loads(run(output_dir, "--json").stdout)
        assert said["path"] == str(output_dir)
        assert [plan["path"] for plan in said["plans"]] == plans
        assert [plan["n_completed"] for plan in said["plans"]] == [3, 1]

    def test_a_plan_that_can_not_be_read_hides_no_other(self, output_dir, plans) -> None:
        (Path(plans[0]) / "plan.json").unlink()
        result = run(output_dir, "--json")
        assert result.exit_code == 2
        assert f"'{plans[0]}/plan.json': there is no such file" in result.stderr
        first, second = json.loads(result.stdout)["plans"]
        assert (first["path"], first["exit_code"]) == (plans[0], 2)
        assert second["n_completed"] == 1

    def test_a_directory_that_can_not_be_listed_is_told(
        self, output_dir, plans, make_shard_faults
    ) -> None:
        place = Path(plans[1]).parent
        make_shard_faults(output_dir).fail("scandir", errno.EIO, match="other", times=2)
        result = run(output_dir)
        assert result.exit_code == 3
        assert f"Could not check '{place}'" in result.stderr
        assert f"3 of 8 shards completed in '{plans[0]}'" in result.stdout
        result = run(output_dir, "--pending")
        assert (result.exit_code, result.stdout) == (3, "")

    def test_nor_the_directory_itself(self, output_dir, make_shard_faults) -> None:
        make_shard_faults(output_dir).fail("scandir", errno.ESTALE)
        result = run(output_dir)
        assert (result.exit_code, result.stdout) == (3, "")
        assert f"Could not check '{output_dir}'" in result.stderr

    def test_a_plan_that_links_lead_to_is_shown_once(self, tmp_path) -> None:
        store = new_store(tmp_path)
        runs = store.path.parents[2]
        (runs.parent / "latest").symlink_to(runs.name)
        (runs.parent / "up").symlink_to("..")
        (store.path.parent / "self").symlink_to(".")
        output_dir = runs.parents[1]
        assert len(list(receipts.plan_dirs(output_dir))) == 1
        result = run(output_dir, "--pending")
        assert (result.exit_code, result.stdout.split()) == (0, ["0", "1", "2"])

    def test_numbers_are_those_of_one_plan(self, output_dir, plans) -> None:
        result = run(output_dir, "--pending")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "expected one plan, found 2 below" in result.stderr
        (Path(plans[1]) / "plan.json").unlink()
        (Path(plans[1]) / "receipts" / "shard_000000.json").unlink()
        (Path(plans[1]) / "receipts").rmdir()
        assert run(output_dir, "--pending").stdout == "2\n3\n4\n5\n6\n"


class TestTrouble:
    def test_without_a_plan_the_exit_code_is_2(self, tmp_path) -> None:
        for path in (tmp_path, tmp_path / "none"):
            result = run(path)
            assert result.exit_code == 2
            assert "there is no such" in result.stderr
            assert result.stdout == ""
        assert "no plan below: runs/*/datasets/*/*/plan.json" in run(tmp_path).stderr

    def test_could_not_look(self, store, make_shard_faults) -> None:
        make_shard_faults(store.path / "receipts").fail("read", errno.EIO)
        result = run(store.path, "--pending")
        assert result.exit_code == 3
        assert result.stdout == ""
        assert f"Could not check '{store.path}'" in result.stderr

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            (["--ranges"], "give --pending too"),  # else sbatch would be handed a table
            (["--pending", "--json"], "leave one of the two out"),
        ],
    )
    def test_forms_that_exclude_each_other(self, store, options, problem: str) -> None:
        result = run(store.path, *options)
        assert result.exit_code == 2
        assert problem in result.stderr
        assert (problem in result.stdout) == ("--json" in options)

    def test_a_damaged_receipt(self, store) -> None:
        receipt_path(store, 0).write_text("{")
        assert "its receipt can't be believed: not JSON" in run(store.path).stdout

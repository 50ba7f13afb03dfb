"""The contracts for loaders: a right one keeps them, and every planted bug breaks one."""

import re
from pathlib import Path

import pytest

from shardproof.testing import Layout
from shardproof.testing.contracts import (
    FormatContract,
    ResumableLoaderContract,
    SeededLoaderContract,
    ShardLoaderContract,
    ValidatorContract,
)
from tests.mutants.loaders import Bug, Loader
from tests.mutants.planting import n_failed, run_contract
from tests.testing.test_kit_page import FAULTS, WRONG

pytestmark = pytest.mark.slow

CATCHES = {
    "test_a_whole_directory_is_delivered": [Bug.NOTHING, Bug.LEFTOVERS],
    "test_no_directory_is_a_file_not_found_error": [Bug.NO_DIRECTORY],
    "test_damage_is_refused_on_opening": [Bug.LATE, Bug.NEVER],
    "test_damage_is_never_delivered": [
        Bug.NO_DAMAGE,
        Bug.EXITS,
        Bug.WAITS,
        Bug.HALF_BATCH,
        Bug.DELETES,
        Bug.UNWRITTEN,
    ],
    "test_all_problems_are_named_at_once": [Bug.FIRST_ONLY, Bug.BLAMES_ALL],
    "test_a_refusal_names_the_absolute_path": [Bug.NAMES_ONLY, Bug.WRONG_SHARD],
    "test_a_missing_shard_is_a_file_not_found_error": [Bug.VALUE_ERROR],
    "test_str_and_path_are_the_same": [Bug.STR_ONLY],
    "test_damage_during_iteration": [Bug.MAPS, Bug.SKIPS, Bug.ANONYMOUS],
    "test_reads_that_fail": [Bug.STOPS, Bug.ZEROS],
    "test_nothing_is_left_behind": [Bug.KEEPS_OPEN, Bug.KEEPS_THREAD, Bug.KEEPS_PROCESS],
    "test_the_directory_is_left_as_it_was": [Bug.CACHES],
    "test_two_loaders_do_not_disturb_each_other": [Bug.SHARES],
    "test_what_is_no_shards_directory_is_refused": [Bug.EMPTY_IS_FINE],
    "test_what_could_not_be_looked_at_is_not_missing": [
        Bug.EIO_IS_MISSING,
        Bug.DENIED_IS_MISSING,
        Bug.STATS,
    ],
    "test_the_seed_is_the_loaders_own": [Bug.GLOBAL_RANDOM],
    "test_another_seed_gives_another_order": [Bug.IGNORES_SEED],
    "test_a_seed_gives_one_order": [Bug.HASHES],
    "test_every_seed_delivers_the_same_samples": [Bug.LOSES],
    "test_resuming_loses_and_repeats_nothing": [Bug.RESTARTS],
    "test_a_run_may_be_resumed_again_and_again": [Bug.OFF_BY_ONE],
    "test_a_refusal_says_what_is_wrong": [Bug.EMPTY_IS_MISSING],
}
CAUGHT_BY = {bug: test for test, bugs in CATCHES.items() for bug in bugs}


class TestReference(ResumableLoaderContract):
    """Without a bug the mutants' stock is right: so it is the bug that is caught."""

    deadline = 60.0  # on a machine that many share

    @pytest.fixture
    def open_loader(self):
        return Loader


class TestSeeded(SeededLoaderContract):
    deadline = 60.0

    @pytest.fixture
    def open_seeded_loader(self):
        return Loader


SEEDED = ("SeededLoaderContract", "open_seeded_loader")
RESUMABLE = ("ResumableLoaderContract", "open_loader")


@pytest.mark.mutants
@pytest.mark.parametrize(
    "bug", [bug for bug in Bug if [bug] not in WRONG], ids=lambda bug: bug.name
)
def test_a_planted_bug_is_caught(bug: Bug, pytester: pytest.Pytester) -> None:
    test = CAUGHT_BY[bug]
    contract = RESUMABLE if hasattr(ResumableLoaderContract, test) else SEEDED
    code = f"functools.partial(Loader, bug=Bug.{bug.name})"
    result = run_contract(pytester, *contract, code, "-k", test, module="loaders")
    assert n_failed(result), bug.value


def test_each_test_of_the_contracts_catches_a_bug() -> None:
    names = {*dir(ResumableLoaderContract), *dir(SeededLoaderContract)}
    assert set(CAUGHT_BY) == set(Bug)
    for fault, wrong in zip(FAULTS, WRONG, strict=True):  # tests/testing/test_kit_page.py runs them
        assert all(CAUGHT_BY[bug] == fault.contract for bug in wrong if isinstance(bug, Bug))
    assert set(CATCHES) == {name for name in names if name.startswith("test_")}


def test_refused_states_are_a_choice(pytester: pytest.Pytester) -> None:
    contract = ("ShardLoaderContract", "open_loader", "Loader", "-v", "-k", "on_opening")
    refused = "refused = ('missing', 'fifo')"
    result = run_contract(pytester, *contract, module="loaders", attributes=refused)
    result.stdout.fnmatch_lines(["*on_opening?missing? PASSED*", "*on_opening?fifo? PASSED*"])
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize("hang", ["lambda path: wait(1000)", "lambda path: map(wait, [1000])"])
def test_a_loader_that_hangs_fails_one_test(hang: str, pytester: pytest.Pytester) -> None:
    hang = hang.replace("wait", "threading.Event().wait")
    contract = ("ShardLoaderContract", "open_loader", hang, "-k", "whole_directory")
    result = run_contract(pytester, *contract, module="loaders", attributes="deadline = 0.5")
    result.stdout.fnmatch_lines(["*it did not end within 0.5 s*"])
    result.assert_outcomes(failed=1)


def run(pytester: pytest.Pytester, bug: Bug, strength: str, *args: str) -> pytest.RunResult:
    contract = ("ShardLoaderContract", "open_loader")
    code = f"functools.partial(Loader, bug=Bug.{bug.name})"
    attributes = f"strength, deadline = {strength!r}, 60.0"  # on a machine that many share
    return run_contract(pytester, *contract, code, *args, module="loaders", attributes=attributes)


def test_a_failure_says_all_that_it_takes_to_see_it_again(pytester: pytest.Pytester) -> None:
    result = run(pytester, Bug.NO_DAMAGE, "strict", "-k", "never_delivered and empty")
    text = result.stdout.str()
    said = dict(re.findall(r"(?m)^  ([\w ]+): (.*)$", text))
    assert re.search(r"(?m)^unsafe: 32 samples did not come, and no error was raised$", text)
    assert eval(said["layout"]) == Layout(n_shards=3, empty=[1], n_examples=12)
    assert Path(said["on disk"], "acts000001.bin").stat().st_size == 0
    assert "take all samples" in said["tried"]
    assert said["rule"].startswith("test_damage_is_never_delivered: The right samples or an error")
    result.stdout.fnmatch_lines(["  if your format can't*: refused = *if s not in ?'empty'?]"])


def test_at_strength_safe_only_what_hurts_somebody_fails(pytester: pytest.Pytester) -> None:
    some = ("-k", "on_opening and fifo or at_once or not_missing or iteration")
    safe, strict = (run(pytester, Bug.LATE, how, *some) for how in ("safe", "strict"))
    safe.assert_outcomes(passed=4 + 3, skipped=1 + 1)
    strict.assert_outcomes(passed=4 + 3, failed=1 + 1)


def test_the_summary_counts_whom_failures_hurt(pytester: pytest.Pytester) -> None:
    result = run(pytester, Bug.NO_DAMAGE, "strict", "-k", "at_once or never_delivered and empty")
    result.stdout.fnmatch_lines(
        [
            "*= shards contracts =*",
            "failed: 1 unsafe, 1 only for manners",
            "unsafe: *::TestMutant::test_damage_is_never_delivered?empty?",
        ]
    )
    assert "shards contracts" not in run(pytester, Bug.LATE, "safe", "-k", "at_once").stdout.str()


def test_another_strength_is_refused(pytester: pytest.Pytester) -> None:
    result = run(pytester, Bug.LATE, "stict", "-k", "whole_directory")
    result.stdout.fnmatch_lines(["*strength: there is no 'stict'; did you mean 'strict'?*"])
    result.assert_outcomes(errors=1)


def test_a_hang_costs_five_seconds() -> None:
    assert {c.deadline for c in (ShardLoaderContract, ValidatorContract, FormatContract)} == {5.0}

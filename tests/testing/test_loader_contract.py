"""The contracts for loaders: what their failures say, and what may be asked for."""

import re
from pathlib import Path

import pytest

from shardproof.testing import Layout
from shardproof.testing.contracts import (
    FormatContract,
    ShardLoaderContract,
    ValidatorContract,
)
from tests.mutants.loaders import Bug
from tests.mutants.planting import run_contract

pytestmark = pytest.mark.slow


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

"""The contract for validators: ours keeps it, and every planted bug breaks it."""

import pytest

from shardproof import validate
from shardproof.testing.contracts import ValidatorContract
from tests.mutants.planting import n_failed, run_contract
from tests.mutants.validators import Bug, find_problems

SAYS = "test_it_says_what_the_oracle_says"
CHANGES = "test_it_says_so_while_the_directory_changes"
EIO = "test_what_could_not_be_looked_at"
TRACES = "test_nothing_is_left_behind"

CAUGHT_BY = dict.fromkeys(Bug, SAYS) | {
    Bug.RELATIVE: "test_paths_are_absolute",
    Bug.SWALLOWS_EIO: EIO,
    Bug.EIO_IS_MISSING: EIO,
    Bug.BLOCKS: "test_a_fifo_is_not_waited_for",
    Bug.REMEMBERS: CHANGES,
    Bug.LEAKS: TRACES,
    Bug.MARKS: TRACES,
}


@pytest.mark.slow
class TestOurs(ValidatorContract):
    @pytest.fixture
    def find_problems(self):
        def find(path, level):
            return [(found.kind, found.path) for found in validate(path, level=level).findings]

        return find


@pytest.mark.slow
class TestReference(ValidatorContract):
    """Without a bug the mutants' stock is right: so it is the bug that is caught."""

    @pytest.fixture
    def find_problems(self):
        return find_problems


@pytest.mark.mutants
@pytest.mark.parametrize("bug", Bug, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug, pytester: pytest.Pytester) -> None:
    result = run_contract(
        pytester,
        "ValidatorContract",
        "find_problems",
        f"functools.partial(find_problems, bug=Bug.{bug.name})",
        *("-k", CAUGHT_BY[bug]),
        module="validators",
        attributes=f"deadline = {3 if bug is Bug.BLOCKS else 60}",
    )
    assert n_failed(result), bug.value


def test_every_bug_is_named_with_the_test_that_catches_it() -> None:
    tests = {name for name in dir(ValidatorContract) if name.startswith("test_")}
    assert set(CAUGHT_BY) == set(Bug)
    assert set(CAUGHT_BY.values()) == tests

"""The contract for writers: ours keeps it, and every planted bug breaks it."""

import pytest

from shardproof._base.files import write_whole
from shardproof.testing.contracts import WriterContract
from tests.mutants.planting import n_failed, run_contract
from tests.mutants.writers import Bug, write

CAUGHT_BY = {
    Bug.IN_PLACE: "test_readers_see_the_old_bytes_or_the_new_ones",
    Bug.REMOVES_FIRST: "test_one_call_fails",
    Bug.NO_SYNC: "test_it_is_durable",
    Bug.NO_DIRECTORY_SYNC: "test_it_is_durable",
    Bug.SYNCS_TOO_LATE: "test_it_is_durable",
    Bug.ONE_TEMPORARY_NAME: "test_writers_at_the_same_time",
    Bug.SAME_SUFFIX: "test_killed_at_any_call",
    Bug.LEAVES_TEMPORARY: "test_one_call_fails",
    Bug.SWALLOWS: "test_all_calls_fail_from_one_on",
    Bug.SHORT_WRITE: "test_short_writes",
    Bug.LEAKS: "test_nothing_is_left_behind",
    Bug.STUMBLES: "test_killed_at_any_call",
    Bug.WRITES_LATER: "test_the_file_holds_what_was_written",
    Bug.REFUSES_EMPTY: "test_it_may_be_empty",
}


@pytest.mark.slow
class TestOurs(WriterContract):
    @pytest.fixture
    def write(self):
        return write_whole


@pytest.mark.slow
class TestReference(WriterContract):
    """Without a bug the mutants' stock is right: so it is the bug that is caught."""

    @pytest.fixture
    def write(self):
        return write


@pytest.mark.mutants
@pytest.mark.parametrize("bug", Bug, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug, pytester: pytest.Pytester) -> None:
    code = f"functools.partial(write, bug=Bug.{bug.name})"
    found = ("WriterContract", "write", code, "-k", CAUGHT_BY[bug])
    assert n_failed(run_contract(pytester, *found, module="writers")), bug.value


def test_each_test_of_the_contract_catches_a_bug() -> None:
    assert set(CAUGHT_BY) == set(Bug)
    assert set(CAUGHT_BY.values()) == {
        name for name in dir(WriterContract) if name.startswith("test_")
    }

"""The contract for formats: saev's keeps it, a right one too, and every planted bug breaks it."""

import pytest

from shardproof import formats
from shardproof.testing.contracts import FormatContract
from tests.mutants.formats import INDEX, Bug, Form, write_dir
from tests.mutants.planting import n_failed, run_contract

CLAIMED = "test_a_whole_directory_is_claimed"
TWINS = "test_twins_are_refused"
PROMISED = "test_every_shard_is_promised_once"

CAUGHT_BY = {
    Bug.CLAIMS_ALL: "test_other_directories_are_not_claimed",
    Bug.CLAIMS_NOTHING: "test_a_directory_without_shards_is_claimed",
    Bug.MARKS: CLAIMED,
    Bug.LISTS: "test_the_promise_does_not_depend_on_what_is_there",
    Bug.FORGETS: PROMISED,
    Bug.TWICE: PROMISED,
    Bug.NO_SIZES: "test_another_size_shows",
    Bug.ROUNDS: "test_promises_of_a_whole_directory_are_kept",
    Bug.RELATIVE: "test_paths_are_absolute",
    Bug.OPENS: "test_no_shard_is_opened",
    Bug.PYTHON_JSON: "test_hostile_json_is_refused",
    Bug.NAMES: "test_hostile_names_are_refused",
    Bug.RAISES_KEY_ERROR: "test_a_missing_manifest_is_refused",
    Bug.BARE: "test_a_damaged_manifest_is_refused",
    Bug.BLOCKS: "test_a_damaged_manifest_is_refused",
    Bug.HIDES_EIO: "test_an_error_of_the_file_system_passes_through",
    Bug.PICKLES: "test_nothing_from_the_manifest_is_executed",
    Bug.KEEPS_OPEN: "test_nothing_is_left_behind",
}


class TestSaev(FormatContract):
    @pytest.fixture
    def form(self):
        return formats.get("saev")


class TestReference(FormatContract):
    """Without a bug the mutants' stock is right: so it is the bug that is caught."""

    manifest_name = INDEX

    @pytest.fixture
    def form(self):
        return Form()

    def write_dir(self, value, base):
        return write_dir(value, base)


@pytest.mark.mutants
@pytest.mark.parametrize(
    ("bug", "test"), [*CAUGHT_BY.items(), (Bug.NAMES, TWINS)], ids=lambda each: str(each)[:40]
)
def test_a_planted_bug_is_caught(bug: Bug, test: str, pytester: pytest.Pytester) -> None:
    attributes = f"manifest_name, deadline = INDEX, {3 if bug is Bug.BLOCKS else 60}; "
    attributes += "write_dir = lambda _, value, base: formats.write_dir(value, base)"
    result = run_contract(
        pytester,
        "FormatContract",
        "form",
        f"Form(Bug.{bug.name})",
        *("-k", test),
        module="formats",
        attributes=attributes,
    )
    assert n_failed(result), bug.value


def test_each_test_of_the_contract_catches_a_bug() -> None:
    tests = {name for name in dir(FormatContract) if name.startswith("test_")}
    assert set(CAUGHT_BY) == set(Bug)
    assert {*CAUGHT_BY.values(), TWINS} == tests

"""The contract for formats: saev's keeps it, a right one too, and every planted bug breaks it."""

import pytest

from shardproof import formats
from shardproof.testing.contracts import FormatContract
from tests.mutants.formats import INDEX, Bug, Form, write_dir

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
@pytest.mark.parametrize("bug", Bug, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
        import pytest
        from tests.mutants.formats import INDEX, Bug, Form, write_dir
        from shardproof.testing.contracts import FormatContract

        class TestMutant(FormatContract):
            manifest_name = INDEX
            deadline = {3 if bug is Bug.BLOCKS else 60}

            @pytest.fixture
            def form(self):
                return Form(Bug.{bug.name})

            def write_dir(self, value, base):
                return write_dir(value, base)
    """)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-k", CAUGHT_BY[bug])
    assert result.parseoutcomes().get("failed", 0) > 0, bug.value


def test_each_test_of_the_contract_catches_a_bug() -> None:
    tests = {name for name in dir(FormatContract) if name.startswith("test_")}
    assert set(CAUGHT_BY) == set(Bug)
    assert {*CAUGHT_BY.values(), TWINS} == tests


def test_twins_are_caught_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from tests.mutants.formats import INDEX, Bug, Form, write_dir
        from shardproof.testing.contracts import FormatContract

        class TestMutant(FormatContract):
            manifest_name = INDEX

            @pytest.fixture
            def form(self):
                return Form(Bug.NAMES)

            def write_dir(self, value, base):
                return write_dir(value, base)
    """)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-k", TWINS)
    result.assert_outcomes(failed=1)

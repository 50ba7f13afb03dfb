"""Contracts: what is ours keeps them, so does what is right, and every planted bug breaks one."""

from collections.abc import Iterator
from typing import Any

import pytest

import shardproof
from shardproof._base.files import write_whole
from shardproof.testing.contracts import (
    FormatContract,
    ResumableLoaderContract,
    SeededLoaderContract,
    ValidatorContract,
    WriterContract,
)
from tests.mutants import formats, loaders, validators, writers
from tests.mutants.planting import run_contract
from tests.testing.test_kit_page import FAULTS, WRONG

TWINS = "test_twins_are_refused"  # which a bug breaks that breaks another test, too
OF_FORMATS = {
    formats.Bug.CLAIMS_ALL: "test_other_directories_are_not_claimed",
    formats.Bug.CLAIMS_NOTHING: "test_a_directory_without_shards_is_claimed",
    formats.Bug.MARKS: "test_a_whole_directory_is_claimed",
    formats.Bug.LISTS: "test_the_promise_does_not_depend_on_what_is_there",
    formats.Bug.FORGETS: "test_every_shard_is_promised_once",
    formats.Bug.TWICE: "test_every_shard_is_promised_once",
    formats.Bug.NO_SIZES: "test_another_size_shows",
    formats.Bug.ROUNDS: "test_promises_of_a_whole_directory_are_kept",
    formats.Bug.RELATIVE: "test_paths_are_absolute",
    formats.Bug.OPENS: "test_no_shard_is_opened",
    formats.Bug.PYTHON_JSON: "test_hostile_json_is_refused",
    formats.Bug.NAMES: "test_hostile_names_are_refused",
    formats.Bug.RAISES_KEY_ERROR: "test_a_missing_manifest_is_refused",
    formats.Bug.BARE: "test_a_damaged_manifest_is_refused",
    formats.Bug.BLOCKS: "test_a_damaged_manifest_is_refused",
    formats.Bug.HIDES_EIO: "test_an_error_of_the_file_system_passes_through",
    formats.Bug.PICKLES: "test_nothing_from_the_manifest_is_executed",
    formats.Bug.KEEPS_OPEN: "test_nothing_is_left_behind",
}

OF_VALIDATORS = dict.fromkeys(validators.Bug, "test_it_says_what_the_oracle_says") | {
    validators.Bug.RELATIVE: "test_paths_are_absolute",
    validators.Bug.SWALLOWS_EIO: "test_what_could_not_be_looked_at",
    validators.Bug.EIO_IS_MISSING: "test_what_could_not_be_looked_at",
    validators.Bug.BLOCKS: "test_a_fifo_is_not_waited_for",
    validators.Bug.REMEMBERS: "test_it_says_so_while_the_directory_changes",
    validators.Bug.LEAKS: "test_nothing_is_left_behind",
    validators.Bug.MARKS: "test_nothing_is_left_behind",
}

OF_WRITERS = {
    writers.Bug.IN_PLACE: "test_readers_see_the_old_bytes_or_the_new_ones",
    writers.Bug.REMOVES_FIRST: "test_one_call_fails",
    writers.Bug.NO_SYNC: "test_it_is_durable",
    writers.Bug.NO_DIRECTORY_SYNC: "test_it_is_durable",
    writers.Bug.SYNCS_TOO_LATE: "test_it_is_durable",
    writers.Bug.ONE_TEMPORARY_NAME: "test_writers_at_the_same_time",
    writers.Bug.SAME_SUFFIX: "test_killed_at_any_call",
    writers.Bug.LEAVES_TEMPORARY: "test_one_call_fails",
    writers.Bug.SWALLOWS: "test_all_calls_fail_from_one_on",
    writers.Bug.SHORT_WRITE: "test_short_writes",
    writers.Bug.LEAKS: "test_nothing_is_left_behind",
    writers.Bug.STUMBLES: "test_killed_at_any_call",
    writers.Bug.WRITES_LATER: "test_the_file_holds_what_was_written",
    writers.Bug.REFUSES_EMPTY: "test_it_may_be_empty",
}

TESTS_OF_LOADERS = {
    "test_a_whole_directory_is_delivered": [loaders.Bug.NOTHING, loaders.Bug.LEFTOVERS],
    "test_no_directory_is_a_file_not_found_error": [loaders.Bug.NO_DIRECTORY],
    "test_damage_is_refused_on_opening": [loaders.Bug.LATE, loaders.Bug.NEVER],
    "test_damage_is_never_delivered": [
        loaders.Bug.NO_DAMAGE,
        loaders.Bug.EXITS,
        loaders.Bug.WAITS,
        loaders.Bug.HALF_BATCH,
        loaders.Bug.DELETES,
        loaders.Bug.UNWRITTEN,
    ],
    "test_all_problems_are_named_at_once": [loaders.Bug.FIRST_ONLY, loaders.Bug.BLAMES_ALL],
    "test_a_refusal_names_the_absolute_path": [loaders.Bug.WRONG_SHARD],
    "test_a_missing_shard_is_a_file_not_found_error": [loaders.Bug.VALUE_ERROR],
    "test_str_and_path_are_the_same": [loaders.Bug.STR_ONLY],
    "test_damage_during_iteration": [loaders.Bug.MAPS, loaders.Bug.ANONYMOUS],
    "test_reads_that_fail": [loaders.Bug.STOPS],
    "test_nothing_is_left_behind": [loaders.Bug.KEEPS_PROCESS],
    "test_the_directory_is_left_as_it_was": [loaders.Bug.CACHES],
    "test_two_loaders_do_not_disturb_each_other": [loaders.Bug.SHARES],
    "test_what_is_no_shards_directory_is_refused": [loaders.Bug.EMPTY_IS_FINE],
    "test_what_could_not_be_looked_at_is_not_missing": [
        loaders.Bug.EIO_IS_MISSING,
        loaders.Bug.DENIED_IS_MISSING,
        loaders.Bug.STATS,
    ],
    "test_the_seed_is_the_loaders_own": [loaders.Bug.GLOBAL_RANDOM],
    "test_another_seed_gives_another_order": [loaders.Bug.IGNORES_SEED],
    "test_a_seed_gives_one_order": [loaders.Bug.HASHES],
    "test_every_seed_delivers_the_same_samples": [loaders.Bug.LOSES],
    "test_resuming_loses_and_repeats_nothing": [loaders.Bug.RESTARTS],
    "test_a_run_may_be_resumed_again_and_again": [loaders.Bug.OFF_BY_ONE],
    "test_a_refusal_says_what_is_wrong": [loaders.Bug.EMPTY_IS_MISSING],
}
OF_LOADERS = {bug: test for test, bugs in TESTS_OF_LOADERS.items() for bug in bugs}


class TestOurFormat(FormatContract):
    @pytest.fixture
    def form(self):
        return shardproof.formats.get("saev")


@pytest.mark.mutants
class TestRightFormat(FormatContract):
    """Without a bug the mutants' stock is right: so it is the bug that is caught."""

    manifest_name = formats.INDEX

    @pytest.fixture
    def form(self):
        return formats.Form()

    def write_dir(self, value, base):
        return formats.write_dir(value, base)


@pytest.mark.slow
class TestOurValidator(ValidatorContract):
    deadline = 60.0  # on a machine that many share

    @pytest.fixture
    def find_problems(self):
        def find(path, level):
            report = shardproof.validate(path, level=level)
            return [(found.kind, found.path) for found in report.findings]

        return find


@pytest.mark.mutants
class TestRightValidator(ValidatorContract):
    deadline = 60.0

    @pytest.fixture
    def find_problems(self):
        return validators.find_problems


@pytest.mark.slow
class TestOurWriter(WriterContract):
    @pytest.fixture
    def write(self):
        return write_whole


@pytest.mark.mutants
class TestRightWriter(WriterContract):
    @pytest.fixture
    def write(self):
        return writers.write


@pytest.mark.mutants
class TestRightLoader(ResumableLoaderContract):
    deadline = 60.0

    @pytest.fixture
    def open_loader(self):
        return loaders.Loader


@pytest.mark.mutants
class TestRightSeededLoader(SeededLoaderContract):
    deadline = 60.0

    @pytest.fixture
    def open_seeded_loader(self):
        return loaders.Loader


def planted() -> Iterator[Any]:
    """Each bug: contract, fixture, what that returns, bug, the test that catches it."""
    of_formats = [*OF_FORMATS.items(), (formats.Bug.NAMES, TWINS)]
    partial = "functools.partial({}, bug={{}})".format
    for bug, test in of_formats:
        yield "FormatContract", "form", "Form({})", bug, test
    for bug, test in OF_VALIDATORS.items():
        yield "ValidatorContract", "find_problems", partial("find_problems"), bug, test
    for bug, test in OF_WRITERS.items():
        yield "WriterContract", "write", partial("write"), bug, test
    for bug, test in OF_LOADERS.items():
        if [bug] not in WRONG:  # which tests/testing/test_kit_page.py plants
            is_resumable = hasattr(ResumableLoaderContract, test)
            kind, fixture = ("Resumable", "") if is_resumable else ("Seeded", "seeded_")
            yield f"{kind}LoaderContract", f"open_{fixture}loader", partial("Loader"), bug, test


@pytest.mark.mutants
@pytest.mark.parametrize(
    ("contract", "fixture", "code", "bug", "test"),
    [pytest.param(*each, id=f"{each[0]}-{each[3].name}-{each[4]}") for each in planted()],
)
def test_a_planted_bug_is_caught(contract, fixture, code, bug, test, pytester) -> None:
    module = type(bug).__module__.rpartition(".")[2]
    attributes = f"deadline = {3 if bug.name == 'BLOCKS' else 60}"
    if module == "formats":
        attributes += "; manifest_name = INDEX"
        attributes += "; write_dir = lambda _, value, base: formats.write_dir(value, base)"
    code = code.format(f"Bug.{bug.name}")
    asked = ("-k", test)
    result = run_contract(
        pytester, contract, fixture, code, *asked, module=module, attributes=attributes
    )
    assert result.parseoutcomes().get("failed"), bug.value


@pytest.mark.parametrize(
    ("contracts", "module", "caught_by"),
    [
        ([FormatContract], formats, OF_FORMATS),
        ([ValidatorContract], validators, OF_VALIDATORS),
        ([WriterContract], writers, OF_WRITERS),
        ([ResumableLoaderContract, SeededLoaderContract], loaders, OF_LOADERS),
    ],
)
def test_each_test_of_a_contract_catches_a_bug(contracts, module, caught_by) -> None:
    tests = {name for contract in contracts for name in dir(contract) if name.startswith("test_")}
    assert set(caught_by) == set(module.Bug)
    assert set(caught_by.values()) == tests - {TWINS}


def test_the_page_plants_each_bug_for_the_same_test() -> None:
    for fault, wrong in zip(FAULTS, WRONG, strict=True):
        assert {OF_LOADERS.get(each, fault.contract) for each in wrong} == {fault.contract}

"""What docs/testing-kit.md says of loaders is so: its tables, its numbers, its tests."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import settings

from shardproof.testing import ShardState
from shardproof.testing.contracts import ShardLoaderContract
from shardproof.testing.samples._oracle import KINDS, MAY_REPORT
from tests.helpers import ROOT
from tests.mutants.loaders import Bug
from tests.mutants.planting import TEST
from tests.test_docs import files_of

PAGE = (ROOT / "docs" / "testing-kit.md").read_text()
FIXTURE, STRATEGY = "test_with_the_fixture.py", "test_with_hypothesis.py"


def rows(table: str) -> list[list[str]]:
    """The cells of each row of a table of the page, which has a comment before it."""
    text = PAGE.partition(f"<!-- {table} -->")[2].partition("<!-- end -->")[0]
    lines = re.findall(r"(?m)^\| (.*) \|$", text)[2:]
    return [[cell.strip() for cell in line.split(" | ")] for line in lines]


class Fault(NamedTuple):
    """A mistake in a loader, whom it hurts, and the tests that find it: a row of the page."""

    number: str
    does: str
    harm: str
    fixture: str
    strategy: str
    contract: str


def taken(kind: str, *others: str) -> list[tuple[str, str]]:
    return [(kind, other) for other in others]


# Row by row the bugs, or which kind is taken for which; each of them is found.
WRONG: list[list[Bug] | list[tuple[str, str]]] = [
    taken("missing", "unreadable", "empty", "not-regular", "size"),
    [Bug.DENIED_IS_MISSING],
    taken("unreadable", "empty", "not-regular", "size"),
    taken("empty", "missing", "unreadable", "not-regular"),
    taken("not-regular", "missing", "empty", "size"),
    taken("size", "missing", "empty", "unreadable", "not-regular"),
    *([bug] for bug in (Bug.EIO_IS_MISSING, Bug.STATS, Bug.NEVER, Bug.NO_DAMAGE, Bug.MAPS)),
    *([bug] for bug in (Bug.EXITS, Bug.WAITS, Bug.WRONG_SHARD, Bug.BLAMES_ALL, Bug.FIRST_ONLY)),
    *([bug] for bug in (Bug.HALF_BATCH, Bug.DELETES, Bug.UNWRITTEN, Bug.STOPS, Bug.LEFTOVERS)),
    [Bug.LATE],
]
FAULTS = [Fault(*(cell.strip("`") for cell in row)) for row in rows("faults")]


def test_the_table_of_refusals_is_the_oracles_too() -> None:
    assert set(MAY_REPORT) == set(ShardState) - {ShardState.OK}
    assert KINDS["complete"] == {
        state: MAY_REPORT[state][0]
        for state in ShardLoaderContract.refused
        if state is not ShardState.SPARSE  # a finding only where it owes an example
    }


def test_the_table_of_states_is_what_a_loader_may_report() -> None:
    classes = {
        "missing": "`FileNotFoundError`",
        "unreadable": "`PermissionError`, or any other `Exception`",
        None: "none: nothing is wrong",
    }
    assert [*map(tuple, rows("states"))] == [
        (
            f"`{state}`",
            classes.get(next(iter(kinds), None), "any `Exception`"),
            ", ".join(f"`{kind}`" for kind in kinds),
        )
        for state in ShardState
        if (kinds := MAY_REPORT.get(state)) is not None
    ]


def test_twenty_two_faults_are_planted_each_another() -> None:
    assert [fault.number for fault in FAULTS] == [str(n) for n in range(1, len(WRONG) + 1)]
    assert len(FAULTS) == 22
    wrong = [each for some in WRONG for each in some]
    assert len(set(wrong)) == len(wrong)


def failures(pytester: pytest.Pytester, *args: str) -> list[pytest.TestReport]:
    """Run tests in this process, and return those that fail."""
    found = pytester.inline_run("-p", "no:cacheprovider", *args)
    reports = found.getreports("pytest_runtest_logreport")
    assert reports, "nothing was run"
    return [report for report in reports if report.failed]


def harms(reports: list[pytest.TestReport]) -> list[str]:
    return [dict(report.user_properties)["shards_contract"] for report in reports]


def loader_of(wrong: object) -> str:
    how = f"taken_for={wrong!r}" if isinstance(wrong, tuple) else f"bug=Bug.{wrong.name}"
    return f"functools.partial(Loader, {how})"


def contract(strength: str, loader: str) -> str:
    """Return a test file; one that hangs for sure is not waited for as one that may."""
    deadline = 2.0 if "WAITS" in loader or loader == "Usual" else 30.0
    return TEST.format(
        contract="ShardLoaderContract",
        fixture="open_loader",
        code=loader,
        module="loaders",
        attributes=f"strength, deadline = {strength!r}, {deadline}",
    )


@pytest.fixture(autouse=True)
def same_profile() -> Iterator[None]:
    """Give the tests that come next, in this process, the profile of Hypothesis that was loaded."""
    name = settings.get_current_profile_name()
    yield
    settings.load_profile(name)


def put_pages_tests(pytester: pytest.Pytester, loader: str) -> None:
    """Write the page's tests, of this loader, and without the time that shrinking takes."""
    pytester.makeconftest("""
        from hypothesis import Phase, settings
        settings.register_profile("once", phases=[Phase.generate], derandomize=True, database=None)
        settings.load_profile("once")
    """)
    pytester.makepyfile(
        my_loader=f"""
        import functools
        from tests.mutants.loaders import Bug, Loader
        MyLoader = {loader}
    """
    )
    for name in (FIXTURE, STRATEGY):
        (pytester.path / name).write_text(files_of(ROOT / "docs" / "testing-kit.md")[name])
    pytester.syspathinsert()


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        pytest.param(fault, wrong, marks=pytest.mark.exhaustive if more else pytest.mark.mutants)
        for fault, some in zip(FAULTS, WRONG, strict=True)
        for more, wrong in enumerate(some)
    ],
    ids=lambda each: each.does if isinstance(each, Fault) else "",
)
def test_each_fault_is_found_as_the_page_says(fault, wrong, pytester) -> None:
    loader = loader_of(wrong)
    pytester.makepyfile(test_contract=contract("strict", loader))
    found = failures(pytester, "test_contract.py", "-k", fault.contract)
    assert fault.harm in harms(found)
    # Once more at strength safe, where what is unsafe is found by the same test.
    pytester.makepyfile(test_safe=contract("safe", loader))
    only = ["-k", fault.contract] if fault.harm == "unsafe" else ["-k", "not_missing"]
    found = failures(pytester, "test_safe.py", *only)
    assert set(harms(found)) == ({"unsafe"} if fault.harm == "unsafe" else set())
    put_pages_tests(pytester, loader)
    for name, test in ((FIXTURE, fault.fixture), (STRATEGY, fault.strategy)):
        assert not test or failures(pytester, name, "-k", test)


@pytest.mark.mutants
def test_a_right_loader_passes_the_pages_tests(pytester: pytest.Pytester) -> None:
    put_pages_tests(pytester, "Loader")
    assert not failures(pytester, FIXTURE, STRATEGY)


@pytest.mark.mutants
@pytest.mark.parametrize(
    ("taken_for", "raises"),
    [
        (("empty", "size"), "ValueError"),
        (("size", "digest"), "OSError"),
        (("not-regular", "unreadable"), "ValueError"),
    ],
)
def test_what_the_table_has_passes_contract_and_page(taken_for, raises, pytester) -> None:
    put_pages_tests(pytester, "Loader")
    (pytester.path / "my_loader.py").write_text(f"""
from tests.mutants.loaders import Loader

class MyLoader(Loader):
    def __init__(self, path):
        try:
            super().__init__(path, taken_for={taken_for})
        except FileNotFoundError:
            raise
        except OSError as error:
            raise {raises}(*error.args) from error
""")
    pytester.makepyfile(test_contract=contract("strict", "__import__('my_loader').MyLoader"))
    asked = ["on_opening", "says_what", "file_not_found", "not_missing"]
    found = failures(
        pytester,
        "test_contract.py",
        FIXTURE,
        STRATEGY,
        "-k",
        f"{' or '.join(asked)} or not contract",
    )
    assert not [report.nodeid for report in found]


@pytest.mark.mutants
def test_what_a_usual_loader_comes_to_is_what_the_page_says(pytester: pytest.Pytester) -> None:
    found = {}
    for strength in ("safe", "strict"):
        pytester.makepyfile(test_usual=contract(strength, "Usual"))
        result = pytester.runpytest_inprocess("-p", "no:cacheprovider").parseoutcomes()
        n_run = result["passed"] + result["failed"]
        found[strength] = f"{result['failed']} of {n_run}"
    said = dict(re.findall(r'(?m)^\| `strength = "(\w+)"` \| (\d+ of \d+) \|', PAGE))
    assert found == said

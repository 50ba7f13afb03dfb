"""What success means, in every format and by every command: docs/success.md has the table."""

import pytest

from shardproof import formats
from tests.formats import success_table
from tests.helpers import ROOT

SAY_NONE = {"saev", "mds", "litdata", "arrow"}
"""Whose list may say that there is nothing."""


@pytest.fixture(scope="module")
def table() -> dict[str, dict[str, str]]:
    return {row.name: row.cells for row in success_table.rows()}


@pytest.mark.once
def test_nothing_ends_with_success_that_is_none(table) -> None:
    """So the page is right, and not only of this state."""
    wrong = [
        (name, situation, cell)
        for name, cells in table.items()
        for situation, cell in cells.items()
        if "0" in cell and not (situation == "nothing promised" and name in SAY_NONE)
    ]
    assert wrong == []
    assert table.keys() == {*formats.names()}


@pytest.mark.once
def test_what_could_not_be_looked_at_is_no_finding(table) -> None:
    # A list of digests is a seal, which is refused before anything is read.
    wrong = {name: cells["could not look"] for name, cells in table.items() if name != "digests"}
    assert {*wrong.values()} == {"3 3 3 1"}, wrong


@pytest.mark.once
def test_the_page_is_of_this_state(table) -> None:
    """`python -m tests.formats.success_table docs/success.md` writes it anew."""
    rows = [success_table.Row(name, cells) for name, cells in table.items()]
    assert (ROOT / "docs/success.md").read_text() == success_table.page(rows)


@pytest.mark.parametrize("name", formats.names())
@pytest.mark.parametrize("situation", success_table.SOURCES)
def test_a_repair_that_can_not_be_made_says_so_and_leaves_all_as_it_was(name, situation) -> None:
    code, is_as_before = success_table.repaired(name, situation)
    assert (code, is_as_before) in {("1", True), ("2", True)}

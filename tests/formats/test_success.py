"""What success means, in every format and by every command: docs/success.md has the table."""

from pathlib import Path

import pytest

from shardproof import formats
from tests.formats import success_table
from tests.helpers import ROOT

SAY_NONE = {"saev", "mds", "litdata", "arrow"}
"""Whose list may say that there is nothing."""


@pytest.fixture(scope="module")
def table() -> dict[str, dict[str, str]]:
    return {row.name: row.cells for row in success_table.rows()}


@pytest.mark.exhaustive
def test_nothing_ends_with_success_that_is_none(table) -> None:
    repair, seal = map([*success_table.COMMANDS].index, ("repair", "seal"))
    wrong = [
        (name, situation, cell)
        for name, cells in table.items()
        for situation, cell in cells.items()
        for at, code in enumerate(cell.split())
        if code == "0"
        and not (situation == "nothing expected" and name in SAY_NONE)
        and not (situation == "all gone" and at == repair)  # what is promised came back: see below
        and not (situation == "all gone" and at == seal and name == "bin")  # meta.pkl is left
    ]
    assert wrong == []
    assert table.keys() == {*formats.names()}


@pytest.mark.exhaustive
def test_what_could_not_be_looked_at_is_no_finding(table) -> None:
    # A list of digests is a seal, which is refused before anything is read.
    wrong = {name: cells["unreadable"] for name, cells in table.items() if name != "digests"}
    assert {*wrong.values()} == {"3 3 3 3 1"}, wrong


@pytest.mark.exhaustive
def test_the_page_is_of_this_state(table) -> None:
    """`python -m tests.formats.success_table docs/success.md` writes it anew."""
    rows = [success_table.Row(name, cells) for name, cells in table.items()]
    assert (ROOT / "docs/success.md").read_text() == success_table.page(rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", formats.names()[::3])
def test_a_repair_from_a_wrong_source_leaves_all_as_it_was(name) -> None:
    test_a_repair_that_can_not_be_made_says_so_and_leaves_all_as_it_was(name, "source wrong")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", formats.names())
@pytest.mark.parametrize("situation", ["source empty", "source wrong"])
def test_a_repair_that_can_not_be_made_says_so_and_leaves_all_as_it_was(name, situation) -> None:
    code, is_as_before, _ = repaired(name, situation)
    assert code in {1, 2}
    assert is_as_before


@pytest.mark.parametrize("name", formats.names())
def test_a_repair_that_ends_with_success_has_brought_back_all(name) -> None:
    code, _, is_whole = repaired(name, "all gone")
    assert is_whole == (code == 0)


def repaired(name: str, situation: str) -> tuple[int, bool, bool]:
    with success_table.prepared(name, situation) as made:
        assert made is not None
        subject, source = made
        # What `map` of datasets cached is in no list, and is made anew where it is gone.
        shards = [path for path in subject.shards if not path.name.startswith("cache-")]
        at = {path: source / path.relative_to(subject.path) for path in shards}
        before = {path: content(path) for path in shards}
        code = success_table.run("repair", subject.path, "--from", source, "-q")
        now = {path: content(path) for path in shards}
        return code, now == before, all(content(at[path]) == now[path] for path in now)


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None

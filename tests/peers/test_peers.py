"""Loaders that people use keep and break the contracts as recorded, in these versions of them."""

import json

import pytest

from tests.peers import outcomes


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, outcomes.Seen]]:
    return outcomes.run_all()


def test_the_installed_versions_are_the_recorded_ones() -> None:
    assert outcomes.versions() == json.loads(outcomes.RECORD.read_text())["versions"]


@pytest.mark.parametrize("peer", outcomes.PEERS)
def test_a_loader_does_as_recorded(peer: str, found: dict[str, dict[str, outcomes.Seen]]) -> None:
    expected = outcomes.recorded()[peer]
    assert found[peer].keys() == expected.keys()
    assert not {
        test: (seen, expected[test])
        for test, seen in found[peer].items()
        if seen.outcome not in expected[test]
    }


def test_the_page_shows_what_is_recorded() -> None:
    page = (outcomes.ROOT / "docs" / "peers.md").read_text()
    for table in outcomes.tables():
        assert table in page

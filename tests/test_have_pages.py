"""Every block of the pages "I have ..." does what the page shows."""

from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.helpers.pages import as_shown

PAGES = sorted((ROOT / "docs" / "have").glob("*.md"))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_block_prints_what_the_page_shows(page: Path, scene, pytestconfig) -> None:
    as_shown(page, scene, pytestconfig)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_is_one_screen(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 60

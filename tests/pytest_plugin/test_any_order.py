"""Somebody's suite that mixes the fixture fs, fake and real directories is green in every order.

A process has a first use once. So each order has a process of its own.
"""

import random
from collections.abc import Sequence

import pytest

from tests.helpers import ROOT

SUITE = (ROOT / "tests" / "helpers" / "mixed_suite.py").read_text()
N_TESTS = SUITE.count("\ndef test_")
CONFTEST = """
def pytest_collection_modifyitems(items):
    items[:] = [items[place] for place in {order}]
"""
MINE = """
from shardproof import validate

def look(path):
    return validate(path)
"""


def run(pytester: pytest.Pytester, order: Sequence[int]) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST.format(order=list(order)))
    pytester.makepyfile(mine=MINE, test_mixed=SUITE)
    return pytester.runpytest_subprocess(
        "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"
    )


@pytest.mark.once
def test_as_it_is_written(pytester: pytest.Pytester) -> None:
    run(pytester, range(N_TESTS)).assert_outcomes(passed=N_TESTS)


@pytest.mark.once
@pytest.mark.parametrize("seed", [3])
def test_in_another_order(pytester: pytest.Pytester, seed: int) -> None:
    order = list(range(N_TESTS))
    random.Random(seed).shuffle(order)
    run(pytester, order).assert_outcomes(passed=N_TESTS)


FIRST = """
def test_first(fs):
    import os
    import shardproof
    from shardproof import formats

    fs.create_dir("/d")
    try:
        shardproof.validate("/d")
    except shardproof.ManifestNotFoundError as error:
        assert "'/d'" in str(error)


def test_second(make_shards_dir):
    import os, sys
    import shardproof

    assert not shardproof.validate(make_shards_dir(missing=[1])).ok
    for name, module in list(sys.modules.items()):
        if name.startswith("shardproof") and hasattr(module, "os"):
            assert module.os is os, name
"""


@pytest.mark.once
def test_a_first_use_inside_fs_holds_no_fakes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FIRST)
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)

"""Somebody's suite that mixes the fixture fs, fake and real directories is green in every order.

A process has a first use once. So each order has a process of its own.
"""

import random

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


@pytest.mark.slow
def test_in_another_order_than_the_one_that_is_written(pytester: pytest.Pytester) -> None:
    # A first use inside fs comes first, and real files are read last.
    order = random.Random(3).sample(range(N_TESTS), N_TESTS)
    pytester.makeconftest(CONFTEST.format(order=order))
    pytester.makepyfile(mine=MINE, test_mixed=SUITE)
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    pytester.runpytest_subprocess(*quiet).assert_outcomes(passed=N_TESTS)

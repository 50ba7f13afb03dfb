"""Somebody's suite that mixes the fixture fs, fake and real directories is green in every order.

A process has a first use once. So each order has a process of its own.
"""

import random
import subprocess
import sys
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


FIRST_INSIDE = """
import threading
from pyfakefs.fake_filesystem_unittest import Patcher

with Patcher() as patcher:
    patcher.fs.create_dir("/d")
    {first}
    inside = shardproof.validate
    try:
        inside("/d")
    except shardproof.ManifestNotFoundError as error:
        assert "'/d'" in str(error)

import shardproof
from shardproof.testing import Layout, shards_dir
with shards_dir(Layout(2, missing=[1])) as path:
    assert not shardproof.validate(path).ok
    assert not inside(path).ok
"""


@pytest.mark.once
@pytest.mark.parametrize("first", ["import shardproof", "import shardproof.testing.faults.fake"])
def test_nothing_was_imported_before(first: str) -> None:
    script = FIRST_INSIDE.format(first=first)
    subprocess.run([sys.executable, "-c", script], check=True)


THREADS = """
import importlib.util
import sys
import threading
import shardproof
from pyfakefs.fake_filesystem_unittest import Patcher

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "shardproof.slow":
            return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        is_inside.set()
        may_end.wait()
        exec("import os, json.tool", module.__dict__)

def load(name):
    __import__(name)
    loaded.append(name)

is_inside, may_end, loaded = threading.Event(), threading.Event(), []
sys.meta_path.append(Slow())
slow = threading.Thread(target=load, args=["shardproof.slow"])
quick = threading.Thread(target=load, args=["shardproof.loaders"])
with Patcher() as patcher:
    patcher.fs.create_file("/mine")
    import os
    slow.start()
    is_inside.wait()
    quick.start()
    quick.join()
    if {inside}:
        may_end.set()
        slow.join()
        assert os.path.exists("/mine") and not os.path.exists(sys.executable)

may_end.set()
slow.join()
import os
assert Patcher.PATCHER is None and os.path.exists(sys.executable)
assert loaded == ["shardproof.loaders", "shardproof.slow"], loaded
for name, module in list(sys.modules.items()):
    if name.startswith("shardproof") and hasattr(module, "os"):
        assert module.os is os, name
"""


@pytest.mark.once
@pytest.mark.parametrize("inside", [True, False])
def test_a_thread_that_loads_beside_another_one_and_outlives_it(inside: bool) -> None:
    script = THREADS.format(inside=inside)
    subprocess.run([sys.executable, "-c", script], check=True)


FINDERS = """
import sys
{first}
import shardproof, importlib
importlib.reload(shardproof)
importlib.reload(sys.modules["shardproof._base.imports"]).install()
n = sum(type(finder).__module__ == "shardproof._base.imports" for finder in sys.meta_path)
assert n == {n}, sys.meta_path
"""
NOT_INSTALLED = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "pyfakefs":
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.once
@pytest.mark.parametrize(
    ("first", "n"), [("", 1), ("import pyfakefs", 1), (NOT_INSTALLED, 0)], ids=str
)
def test_imports_are_looked_at_once_and_only_where_pyfakefs_is(first: str, n: int) -> None:
    script = FINDERS.format(first=first, n=n)
    subprocess.run([sys.executable, "-c", script], check=True)

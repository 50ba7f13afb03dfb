"""Quick tests stay quick, and a checkout without all packages has tests that run."""

from types import SimpleNamespace

import pytest

from tests.helpers import ROOT
from tests.helpers.tiers import Ledger


@pytest.fixture
def outer(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]\nmarkers = slow\naddopts = -p no:cacheprovider -p no:shardproof")
    return pytester


@pytest.mark.parametrize(
    "workers",
    [pytest.param("0", marks=pytest.mark.exhaustive), pytest.param("2", marks=pytest.mark.slow)],
)
def test_a_function_that_is_slow_and_not_marked_fails_the_run(outer, workers: str) -> None:
    """All cases count together, wherever they run; a child counts too."""
    pytest.importorskip("xdist")
    outer.makepyfile(
        """
        import subprocess, sys, time
        import pytest

        def busy(seconds=0.3):
            end = time.process_time() + seconds
            while time.process_time() < end: pass

        @pytest.fixture
        def prepared(): busy()

        @pytest.mark.parametrize("n", range(2))
        def test_in_all(n, prepared): pass

        CHILD = "import time\\nwhile time.process_time() < 0.6: pass"
        def test_in_a_child(): subprocess.run([sys.executable, "-c", CHILD])

        @pytest.mark.slow
        def test_marked(): busy(0.6)

        def test_quick(): busy()
        """
    )
    plugin = ("-p", "tests.helpers.tiers", "-n", workers)
    run = outer.runpytest_subprocess(*plugin, "--limit", "0.5", "--costs", "costs")
    run.assert_outcomes(passed=5)
    assert run.ret == pytest.ExitCode.TESTS_FAILED
    told = [line.partition(": ")[0].partition("::")[2] for line in run.outlines if "quick" in line]
    assert sorted(told) == ["test_in_a_child", "test_in_all"]
    costs = [line.split("\t") for line in (outer.path / "costs").read_text().splitlines()]
    assert {name.partition("::")[2] for _, _, name in costs} == {*told, "test_quick", "test_marked"}
    assert outer.runpytest_subprocess(*plugin, "--limit", "60").ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("took", "is_too_slow"), [((1.9, 2.0), False), ((2.1, 2.1), True), ((0.1, 9.0), True)]
)
@pytest.mark.parametrize("busy", [1, 7])
def test_the_clock_counts_by_what_else_the_machine_does(took, is_too_slow: bool, busy: int) -> None:
    ledger = Ledger(limit=2.0, file=None)
    others = [(f"test_{n}", 1.0, 1.0) for n in range(1000)]
    for name, processor, clock in [*others, ("test_it", *took)]:
        ledger.pytest_runtest_logreport(
            SimpleNamespace(
                nodeid=name, processor_seconds=processor, duration=clock * busy, keywords={}
            )
        )
    assert [*ledger.too_slow()] == ["test_it"] * is_too_slow


@pytest.mark.slow
def test_what_is_not_installed_skips_what_needs_it(outer) -> None:
    outer.makeconftest(
        """
        from tests.helpers import lacking
        lacking.NOT_INSTALLED["not_there"] = "not-there"
        """
    )
    outer.makepyfile(
        test_module="import not_there.deep",
        test_functions="""
        import pytest

        @pytest.fixture
        def needs(): import not_there

        def test_setup(needs): pass

        def test_cause():
            try: import not_there
            except ImportError: raise ValueError("install it") from None

        def test_another(): import neither_there

        def test_passes(): pass
        """,
    )
    run = outer.runpytest_subprocess("-p", "tests.helpers.lacking", "-rs")
    run.assert_outcomes(passed=1, skipped=3, failed=1)
    told = [line for line in run.outlines if line.endswith("needs not-there")]
    assert ["[1]" in told[0], "[2]" in told[1]] == [True, True]

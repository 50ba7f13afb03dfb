"""Runs a contract on code with a planted bug."""

import pytest

TEST = """
    import functools
    import pytest
    from shardproof.testing import contracts
    from tests.mutants import {module}
    from tests.mutants.{module} import *

    class TestMutant(contracts.{contract}):
        {attributes}

        @pytest.fixture
        def {fixture}(self):
            return {code}
"""


def run_contract(
    pytester: pytest.Pytester,
    contract: str,
    fixture: str,
    code: str,
    *args: str,
    module: str,
    attributes: str = "pass",
) -> pytest.RunResult:
    """Run a contract in this process; ``code`` is what its fixture returns, made in a module."""
    text = TEST.format(
        contract=contract, fixture=fixture, code=code, module=module, attributes=attributes
    )
    pytester.makepyfile(text)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *args)

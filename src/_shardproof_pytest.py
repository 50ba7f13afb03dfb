"""What pytest loads, in every run of an environment that has shardproof, on Windows too.

There it takes the options, and refuses only a run that asks for a validation.
"""

import os

import pytest

from _shardproof_entries import UNSUPPORTED

if os.name != "nt":
    from shardproof.pytest_plugin import *  # noqa: F403 - its hooks and fixtures
else:

    def pytest_addoption(parser: pytest.Parser) -> None:
        """Add the options of the plugin, so that a configuration may have them."""
        group = parser.getgroup("shardproof", UNSUPPORTED)
        for name in ("--validate-shards", "--shards-recursive"):
            group.addoption(name, action="store_true", help="Not on Windows.")
        for name in ("dir", "level", "format", "against", "purge-after", "policy", "clock"):
            group.addoption(f"--shards-{name}", action="append", help="Not on Windows.")
        group.addoption("--shards-fail-within", action="append", help="Not on Windows.")
        parser.addini("validate_shards", "Not on Windows.", type="bool", default=False)
        for name in ("shards_dirs", "shards_level", "shards_recursive", "needs_shards"):
            parser.addini(name, "Not on Windows.")

    def pytest_configure(config: pytest.Config) -> None:
        """Register the markers; refuse what was asked for."""
        for marker in ("shards", "needs_shards"):
            config.addinivalue_line("markers", f"{marker}: not on Windows (shardproof)")
        if config.getoption("validate_shards") or config.getini("validate_shards"):
            raise pytest.UsageError(UNSUPPORTED)

    def pytest_runtest_setup(item: pytest.Item) -> None:
        """Run no test whose directory can't be checked."""
        if item.get_closest_marker("needs_shards"):
            end = pytest.fail if item.config.getini("needs_shards") == "fail" else pytest.skip
            end(UNSUPPORTED)

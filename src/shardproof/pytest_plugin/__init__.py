"""``pytest --validate-shards``: shards directories as test items; and fixtures that make some.

Nothing but pytest, the standard library and what is made of it is imported until a directory is
validated or a fixture is used: every test run of every environment that has shardproof loads this.

Shards directories become items, instead of a gate in front of the session, so that all of pytest
applies to them: ``-k``, ``-m``, ``--lf``, ``--deselect``, ``--collect-only``, JUnit XML and
pytest-xdist.
"""

import pytest

from shardproof.pytest_plugin._fixtures import (
    make_checkpoint,
    make_fake_shards_dir,
    make_receipts_dir,
    make_shard_faults,
    make_shards_dir,
    pytest_runtest_call,
    pytest_runtest_setup,
    shard_hub,
    shards_dir_factory,
)
from shardproof.pytest_plugin._hooks import (
    pytest_addoption,
    pytest_configure,
    pytest_make_collect_report,
    pytest_terminal_summary,
)

__all__ = [
    "make_checkpoint",
    "make_fake_shards_dir",
    "make_receipts_dir",
    "make_shard_faults",
    "make_shards_dir",
    "pytest_addoption",
    "pytest_configure",
    "pytest_make_collect_report",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_terminal_summary",
    "shard_hub",
    "shards_dir_factory",
]

pytest.register_assert_rewrite("shardproof.testing.contracts", "shardproof.testing.stateful")

"""``@pytest.mark.needs_shards``: tests that run only where the shards directories are whole."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from shardproof._base.messages import shown, told
from shardproof._base.opening import real_path, refuse_no_path

if TYPE_CHECKING:
    from shardproof import Level

_NEEDED = "needs_shards"


class NeedsShards:
    """Checks what the tests of a run need, each directory once; registered as a plugin."""

    def __init__(self, config: pytest.Config, level: Level) -> None:
        self._level, self._root, becomes = level, config.rootpath, config.getini(_NEEDED)
        if becomes not in {"skip", "fail"}:
            raise pytest.UsageError(f"ini option {_NEEDED}: expected skip or fail")
        self._fails, self._lack_of = becomes == "fail", functools.cache(_lack_of)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip or fail a test, before its fixtures, if a directory that it needs is not whole."""
        for mark in item.iter_markers(_NEEDED):
            options = sorted({"level": self._level, **mark.kwargs}.items())
            for path in mark.args or ("",):
                try:
                    refuse_no_path(path=path)
                    why, may_be_whole = self._lack_of(real_path(self._root / path), *options)
                except (OSError, TypeError, ValueError) as error:
                    why, may_be_whole = f"@pytest.mark.{_NEEDED}: {told(error)}", True
                if why:
                    if self._fails or may_be_whole:
                        pytest.fail(why, pytrace=False)
                    pytest.skip(why)


def _lack_of(path: str, *options: tuple[str, Any]) -> tuple[str, bool]:
    """Return why a directory does not serve, if so, and whether it may be whole all the same."""
    from shardproof import ShardproofError, validate  # noqa: PLC0415 - not before it is needed

    try:
        report = validate(path, **dict(options))
    except ShardproofError as error:
        return told(error).partition("\n")[0], error.exit_code == 3
    why = f"{report.summary}, {report.level} in '{shown(path)}'"
    return "" if report.ok else why, report.n_unseen > 0

"""Contracts: classes of tests that a project subclasses with one fixture.

Needs pytest and hypothesis (``pip install 'shardproof[testing]'``). A class is named so that pytest
doesn't collect it where it is imported: only subclasses named ``Test...`` run.
"""

from typing import Any

from shardproof._base.imports import attached, extra

__all__, _get, __dir__ = attached(__name__)


def __getattr__(name: str) -> Any:
    with extra():
        return _get(name)

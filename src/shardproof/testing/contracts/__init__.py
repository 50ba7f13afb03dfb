"""Contracts: classes of tests that a project subclasses with one fixture.

Needs pytest and hypothesis (``pip install 'shardproof[testing]'``). A class is named so that pytest
doesn't collect it where it is imported: only subclasses named ``Test...`` run.
"""

from typing import Any

from shardproof._base.imports import attached, extra

_HOMES = {
    "FormatContract": "_format",
    "ResumableLoaderContract": "_order",
    "SampleDir": "_contract",
    "SeededLoaderContract": "_order",
    "ShardLoaderContract": "_loader",
    "ValidatorContract": "_validator",
    "WriterContract": "_writer",
    "fingerprint": "_child",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - type checkers read __init__.pyi

_get, __dir__ = attached(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    with extra():
        return _get(name)

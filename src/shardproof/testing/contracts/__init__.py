"""Contracts: classes of tests that a project subclasses with one fixture.

Needs pytest and hypothesis (``pip install 'shardproof[testing]'``). A class is named so that pytest
doesn't collect it where it is imported: only subclasses named ``Test...`` run.
"""

from typing import TYPE_CHECKING, Any

from shardproof._base.lazy import attached
from shardproof.testing._extras import extra

if TYPE_CHECKING:
    from shardproof.testing.contracts._format import FormatContract, FormatUnderTest
    from shardproof.testing.contracts._loader import (
        MakeDir,
        OpenLoader,
        ShardLoaderContract,
        ShardsDir,
    )
    from shardproof.testing.contracts._order import ResumableLoaderContract, SeededLoaderContract
    from shardproof.testing.contracts._samples import fingerprint
    from shardproof.testing.contracts._validator import FindProblems, ValidatorContract
    from shardproof.testing.contracts._writer import Write, WriterContract

__all__ = [
    "FindProblems",
    "FormatContract",
    "FormatUnderTest",
    "MakeDir",
    "OpenLoader",
    "ResumableLoaderContract",
    "SeededLoaderContract",
    "ShardLoaderContract",
    "ShardsDir",
    "ValidatorContract",
    "Write",
    "WriterContract",
    "fingerprint",
]

_get, __dir__ = attached(
    __name__,
    {
        "FindProblems": "_validator",
        "FormatContract": "_format",
        "FormatUnderTest": "_format",
        "MakeDir": "_loader",
        "OpenLoader": "_loader",
        "ResumableLoaderContract": "_order",
        "SeededLoaderContract": "_order",
        "ShardLoaderContract": "_loader",
        "ShardsDir": "_loader",
        "ValidatorContract": "_validator",
        "Write": "_writer",
        "WriterContract": "_writer",
        "fingerprint": "_samples",
    },
)


def __getattr__(name: str) -> Any:
    with extra():
        return _get(name)

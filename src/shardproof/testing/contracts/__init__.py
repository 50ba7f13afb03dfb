"""Contracts: classes of tests that a project subclasses with one fixture.

Needs pytest and hypothesis (``pip install 'shardproof[testing]'``). A class is named so that pytest
doesn't collect it where it is imported: only subclasses named ``Test...`` run.
"""

from typing import TYPE_CHECKING, Any

from shardproof._base.imports import attached
from shardproof.testing._extras import extra

if TYPE_CHECKING:
    from shardproof.testing.contracts._contract import SampleDir
    from shardproof.testing.contracts._format import FormatContract
    from shardproof.testing.contracts._loader import ShardLoaderContract
    from shardproof.testing.contracts._order import ResumableLoaderContract, SeededLoaderContract
    from shardproof.testing.contracts._samples import fingerprint
    from shardproof.testing.contracts._validator import ValidatorContract
    from shardproof.testing.contracts._writer import WriterContract

__all__ = [
    "FormatContract",
    "ResumableLoaderContract",
    "SampleDir",
    "SeededLoaderContract",
    "ShardLoaderContract",
    "ValidatorContract",
    "WriterContract",
    "fingerprint",
]

_get, __dir__ = attached(
    __name__,
    {
        "FormatContract": "_format",
        "ResumableLoaderContract": "_order",
        "SampleDir": "_contract",
        "SeededLoaderContract": "_order",
        "ShardLoaderContract": "_loader",
        "ValidatorContract": "_validator",
        "WriterContract": "_writer",
        "fingerprint": "_samples",
    },
)


def __getattr__(name: str) -> Any:
    with extra():
        return _get(name)

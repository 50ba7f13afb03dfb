"""Contracts: classes of tests that a project subclasses with one fixture.

Needs pytest and hypothesis (``pip install 'shardproof[testing]'``). A class is named so that pytest
doesn't collect it where it is imported: only subclasses named ``Test...`` run.
"""

from shardproof.testing._extras import extra

with extra():
    from shardproof.testing.contracts._format import Format, FormatContract
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
    "Format",
    "FormatContract",
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

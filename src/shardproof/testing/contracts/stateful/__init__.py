"""State machines: a shards directory and a data-prep run, changed step by step, always checked.

Needs hypothesis (``pip install 'shardproof[testing]'``).
"""

from shardproof.testing._extras import extra

with extra():
    from shardproof.testing.contracts.stateful._receipts import ReceiptsMachine
    from shardproof.testing.contracts.stateful._shards_dir import ShardsDirMachine
    from shardproof.testing.contracts.stateful._store_under_test import StoreUnderTest

__all__ = ["ReceiptsMachine", "ShardsDirMachine", "StoreUnderTest"]

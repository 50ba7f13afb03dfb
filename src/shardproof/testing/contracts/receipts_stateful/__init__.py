"""A data-prep run that lives: workers claim shards, die, come too late, and all that is checked.

Needs hypothesis (``pip install 'shardproof[testing]'``).
"""

from shardproof.testing._extras import extra

with extra():
    from shardproof.testing.contracts.receipts_stateful._hooks import StoreUnderTest
    from shardproof.testing.contracts.receipts_stateful._machine import ReceiptsMachine

__all__ = ["ReceiptsMachine", "StoreUnderTest"]

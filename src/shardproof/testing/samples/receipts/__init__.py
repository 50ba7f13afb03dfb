"""Plan directories of data-prep runs, whole and damaged, and what a right reader says of them.

This package imports nothing of shardproof outside the kit: it must not share the code that it helps
to judge.
"""

from shardproof.testing.samples.receipts._content import output_bytes, plan_bytes, receipt_bytes
from shardproof.testing.samples.receipts._directories import (
    MakeReceiptsDir,
    receipts_dir,
    receipts_dir_maker,
)
from shardproof.testing.samples.receipts._layout import (
    ReceiptsKeywords,
    ReceiptsLayout,
    receipts_layout,
)
from shardproof.testing.samples.receipts._oracle import expected_pending
from shardproof.testing.samples.receipts._states import ReceiptState
from shardproof.testing.samples.receipts._writing import write_receipts

__all__ = [
    "MakeReceiptsDir",
    "ReceiptState",
    "ReceiptsKeywords",
    "ReceiptsLayout",
    "expected_pending",
    "output_bytes",
    "plan_bytes",
    "receipt_bytes",
    "receipts_dir",
    "receipts_dir_maker",
    "receipts_layout",
    "write_receipts",
]

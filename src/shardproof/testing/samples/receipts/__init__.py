"""Plan directories of data-prep runs, whole and damaged: what only this format has."""

from shardproof.testing.samples.receipts._content import ReceiptState, output_bytes, receipt_bytes
from shardproof.testing.samples.receipts._format import (
    FORMAT,
    ReceiptsOptions,
    expected_pending,
    receipts_dir_maker,
)

__all__ = [
    "FORMAT",
    "ReceiptState",
    "ReceiptsOptions",
    "expected_pending",
    "output_bytes",
    "receipt_bytes",
    "receipts_dir_maker",
]

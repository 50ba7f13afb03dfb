"""Plan directories for the tests of receipts."""

import json
import os
from pathlib import Path
from typing import Any

from shardproof import ReceiptStore, receipts

__all__ = ["complete", "new_store", "receipt_path", "rewrite_receipt", "source"]


def source(path: str, size: int = 1, **said: Any) -> receipts.InputFile:
    return receipts.InputFile(path=path, size=size, local_path=None, **said)


def new_store(base: Path, n_shards: int = 3, **keywords: Any) -> ReceiptStore:
    plan = receipts.make_plan("corpus", [source("a.txt"), source("b.txt")], n_shards=n_shards)
    return receipts.open_run(base, datasets=["corpus"]).store(plan, **keywords)


def complete(store: ReceiptStore, index: int, content: bytes = b"tokens") -> None:
    with store.claim(index) as work:
        for suffix in ("bin", "idx"):
            work.output_path(f"shard_{index:06d}.{suffix}").write_bytes(content)
        work.stats["num_sequences"] = 4


def receipt_path(store: ReceiptStore, index: int) -> Path:
    return store.path / "receipts" / f"shard_{index:06d}.json"


def rewrite_receipt(store: ReceiptStore, index: int, **changes: Any) -> None:
    """Change fields of a receipt; None takes one away."""
    path = receipt_path(store, index)
    text = json.loads(path.read_bytes()) | changes
    path.write_text(json.dumps({name: value for name, value in text.items() if value is not None}))
    os.utime(path)

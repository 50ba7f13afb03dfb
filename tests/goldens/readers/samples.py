"""Samples, and rows of tables."""

from collections.abc import Iterable
from pathlib import Path

from ._readers import reader


@reader("parquet-plain", "parquet-checksums", "parquet-indexed", "parquet-empty")
def parquet(root: Path) -> Iterable[object]:
    import pyarrow.parquet as pq

    return pq.read_table(root).to_pylist()

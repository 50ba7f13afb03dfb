"""What is still open when the interpreter ends neither hangs nor prints anything."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = """
    from shardproof import hf_load_dataset_sharded

    rows = hf_load_dataset_sharded("org/name", cache_dir="cache", source={source!r})
    held = iter(rows)
    print(next(held))
"""
PREFETCHER = """
    from shardproof import ShardPrefetcher

    names = ["train-0.parquet", "train-1.parquet"]
    prefetcher = ShardPrefetcher({source!r}, names, "cache")
    held = iter(prefetcher)
    print(next(held).name)
"""
BY_A_MODULE = "import json\njson.held = held"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "holder", "said"),
    [
        (ROWS, BY_A_MODULE, "{'n': 0}"),
        pytest.param(PREFETCHER, BY_A_MODULE, "train-0.parquet", marks=pytest.mark.exhaustive),
        (PREFETCHER, "", "train-0.parquet"),
    ],
)
def test_an_open_iteration(tmp_path: Path, script: str, holder: str, said: str) -> None:
    for n in range(3):
        pq.write_table(pa.table({"n": [2 * n, 2 * n + 1]}), tmp_path / f"train-{n}.parquet")
    code = textwrap.dedent(script.format(source=f"file://{tmp_path}")) + holder
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, f"{said}\n", "")
    assert list((tmp_path / "cache").rglob("leases/*")) == []

"""64 processes and one cold cache, some of which are killed: all others read the right bytes."""

import ast
import hashlib
import os
import random
import subprocess
import sys

import pytest

from shardproof.fetching import ShardPrefetcher
from tests.helpers import ROOT

SHARDS = [random.Random(n).randbytes(20_000) for n in range(4)]
NAMES = [f"train/{hashlib.sha256(data).hexdigest()}.bin" for data in SHARDS]


@pytest.mark.slow
@pytest.mark.parametrize("cleanup", ["keep", pytest.param("auto", marks=pytest.mark.exhaustive)])
def test_all_that_live_read_the_right_bytes(cleanup, shard_hub, tmp_path) -> None:
    for name, data in zip(NAMES, SHARDS, strict=True):
        shard_hub.put(name, data)
    script = [sys.executable, "-m", "tests.helpers.many_readers"]
    command = [*script, shard_hub.url, tmp_path, "64", "16", cleanup, *NAMES]

    run = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)

    ends = ast.literal_eval(run.stdout)
    assert set(ends) == {0, -9}, run.stderr
    assert 8 <= ends[-9] <= 16
    assert sum(ends.values()) == 64
    there = {path.name: path.read_bytes() for path in tmp_path.rglob("train/*.bin")}
    assert set(there.values()) <= set(SHARDS)
    assert cleanup == "auto" or len(there) == len(SHARDS)
    if cleanup == "keep":
        n_gets = len(shard_hub.requests_for("train/*", method="GET"))
        assert n_gets <= len(SHARDS) + 16  # once each, and once more for whoever was killed at it
    with ShardPrefetcher(shard_hub.url, NAMES, tmp_path) as prefetcher:
        assert [path.read_bytes() for path in prefetcher] == SHARDS  # and sweeps what was left
    parts = next(tmp_path.rglob(".shardproof/parts"))
    assert os.listdir(parts) == []

"""Writers that were interrupted at each file: what their own readers refuse is not whole.

What the real writers write, in which order, and what the real readers then say was recorded:
writers ran under strace, and directories were made of the files before each one, and half of it.
Readers of arrow and energon refuse each such directory; those of the others were asked about the
last files only. Plain shards (parquet, webdataset, tfrecord, npy) can be read one by one: nobody
can tell how many were to come.
"""

from pathlib import Path

import pytest

from shardproof import ManifestError, validate
from tests.goldens import GOLDENS

LAST = {
    "arrow": ["state.json", "dataset_info.json"],
    "arrow-splits": [
        *("train/data-00000-of-00001.arrow", "train/state.json", "train/dataset_info.json"),
        *("test/data-00000-of-00001.arrow", "test/state.json", "test/dataset_info.json"),
    ],
    "energon": [
        *(".nv-meta/index.sqlite", "train-000000.tar.idx", "train-000001.tar.idx"),
        *(".nv-meta/index.uuid", ".nv-meta/.info.json", ".nv-meta/split.yaml"),
        ".nv-meta/dataset.yaml",
    ],
    "litdata-optimized": ["index.json"],
    "mds-raw": ["shard.00001.mds", "index.json"],
    "safetensors-sharded": ["model.safetensors.index.json"],
}
"""The files that come last, in the order in which they appear."""

READ = {("safetensors-sharded", "model.safetensors.index.json")}
"""Readers that take what is there find all of it; transformers alone wants the index."""


def is_whole(root: Path) -> bool:
    try:
        return validate(root, level="complete").ok
    except ManifestError:
        return False


@pytest.mark.parametrize("golden", LAST)
def test_a_writer_that_was_interrupted(golden: str, tmp_path: Path) -> None:
    root = next(each for each in GOLDENS if each.name == golden).copy(tmp_path)
    assert is_whole(root)
    for name in reversed(LAST[golden]):
        path = root / name
        halves = path.read_bytes()
        if name != ".nv-meta/index.uuid":  # any text is one
            path.write_bytes(halves[: len(halves) // 2])
            assert not is_whole(root), f"half of {name}"
        path.unlink()
        assert is_whole(root) == ((golden, name) in READ), f"without {name}"

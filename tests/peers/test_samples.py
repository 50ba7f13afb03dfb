"""Sample directories of the kit are read by the libraries whose formats they are in."""

from pathlib import Path

import webdataset

from shardproof.testing import Layout, write_layout
from tests.peers.loaders import streaming


def test_streaming_reads_mds(tmp_path: Path) -> None:
    path = write_layout(Layout(3, format="mds"), tmp_path / "x")
    dataset = streaming.StreamingDataset(local=str(path), shuffle=False, batch_size=1)
    rows = [dataset[index] for index in range(len(dataset))]
    assert [row["id"] for row in rows] == [*range(len(rows))]
    assert len(rows) > 3
    assert {len(row["x"]) for row in rows} == {244}


def test_webdataset_reads_tar(tmp_path: Path) -> None:
    layout = Layout(3, format="webdataset")
    path = write_layout(layout, tmp_path / "x")
    shards = [str(path / name) for name in layout.shard_names]
    keys = [row["__key__"] for row in webdataset.WebDataset(shards, shardshuffle=False)]
    assert keys == [f"{number:09}" for number in range(len(keys))]
    assert len(keys) > 3

"""What users write, for mypy and pyright (`tox -e types`)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, assert_type

import numpy.typing as npt
import pytest

import shardproof
from shardproof import (
    Batch,
    Finding,
    IndexedDataset,
    OrderedDataLoader,
    ReceiptStore,
    Report,
    ShuffledDataLoader,
)
from shardproof.testing import (
    Layout,
    MakeCheckpoint,
    MakeShardsDir,
    damaged,
    expected_findings,
    layouts,
    shards_dir,
    write_layout,
)
from shardproof.testing.faults import FileSystemFaults, Hub, MakeShardFaults

if TYPE_CHECKING:
    import torch  # noqa: F401 - for names in text

Arrays = npt.NDArray[Any]


def validates(path: Path) -> Report:
    report = shardproof.validate(path, level="complete")
    for finding in report.findings:
        assert_type(finding, Finding)
        print(finding.kind, finding.path, finding.expected, finding.found)
    assert_type(report.ok, bool)
    return report.raise_for_findings()


def trains_on_arrays(path: str) -> None:
    with ShuffledDataLoader(path, layer=11, seed=17, framework="numpy") as loader:
        for epoch in loader.epochs(3):
            for batch in loader:
                assert_type(batch, Batch[Arrays])
                print(epoch, batch["act"].mean(), len(batch["example_idx"]))
        loader.load_state_dict(loader.state_dict())


def trains_on_tensors(path: Path, framework: Literal["numpy", "torch"]) -> None:
    loader = OrderedDataLoader(path, layer="all", framework="torch", dtype="bfloat16")
    for batch in loader:
        assert_type(batch["act"], "torch.Tensor")
        takes_any(batch)
    either = ShuffledDataLoader(path, layer=6, framework=framework)
    assert_type(next(iter(either)), Batch[Any])


def takes_any(batch: Batch) -> Any:
    return batch["act"]


def takes_loaders(loader: OrderedDataLoader, some: dict[str, Any]) -> None:
    takes_any(next(iter(loader)))
    takes_loaders(OrderedDataLoader("/data", layer=6), some)
    takes_loaders(OrderedDataLoader("/data", layer=6, framework="torch"), some)
    takes_loaders(OrderedDataLoader("/data", **some), some)


def reads_rows(path: Path) -> None:
    dataset = IndexedDataset(path, layer=6, framework="torch")
    takes_any(dataset[[1, 2]])
    takes_any(dataset[-1])


def refuses(path: Path) -> None:
    OrderedDataLoader(path)  # type: ignore[call-arg]
    OrderedDataLoader(path, layer=6, batchsize=1)  # type: ignore[call-arg]
    OrderedDataLoader(path, layer=6, framework="jax")  # type: ignore[type-var]


def makes_shards(plan_dir: Path) -> None:
    store = ReceiptStore(plan_dir)
    with store.claim(0) as work:
        assert_type(work.output_path("shard_000000.bin"), Path)
        work.stats["num_sequences"] = 1


@pytest.mark.needs_shards("/scratch/shards", level="valid")
def test_real_data() -> None:
    assert shardproof.validate("/scratch/shards")


def test_fixtures(
    make_shards_dir: MakeShardsDir,
    shards_dir_factory: MakeShardsDir,
    make_receipts_dir: MakeShardsDir,
    make_fake_shards_dir: MakeShardsDir,
    make_checkpoint: MakeCheckpoint,
    make_shard_faults: MakeShardFaults,
    shard_hub: Hub,
) -> None:
    path = make_shards_dir(n_shards=3, missing=[1])
    assert_type(path, Path)
    assert_type(make_checkpoint(world_size=4, step=2, missing=[1], directory=path), Path)
    faults = make_shard_faults(path)
    assert_type(faults, FileSystemFaults)
    faults.fail("read", errno.EIO, nth=2)
    assert_type(shard_hub.put("a.bin", b"1234"), str)
    makers: list[MakeShardsDir] = [shards_dir_factory, make_receipts_dir, make_fake_shards_dir]
    assert makers


def test_kit(tmp_path: Path, loader: Callable[[Path], Any]) -> None:
    layout = Layout(n_shards=3, missing=[1])
    assert_type(write_layout(layout, tmp_path / "here"), Path)
    with shards_dir(layout) as path, damaged(path / "acts000000.bin", "flipped") as record:
        assert_type(path, Path)
        print(record.what, expected_findings(layout, path, level="complete"))
    assert layouts(min_shards=1)

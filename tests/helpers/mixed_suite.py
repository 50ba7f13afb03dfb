"""Somebody's suite: the fixture fs, fake directories, real ones. test_any_order.py runs it."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyfakefs.fake_filesystem_unittest import Patcher

import shardproof

Make = Callable[..., Path]


def wrong(path: Path) -> list[str]:
    return [finding.kind for finding in shardproof.validate(path, level="valid").findings]


def test_fs_where_nothing_is(fs: Any) -> None:
    fs.create_dir("/d")
    with pytest.raises(shardproof.ManifestNotFoundError, match="'/d'"):
        shardproof.validate("/d")


def test_fs_with_a_directory(fs: Any) -> None:
    from shardproof.testing import Layout, write_layout

    path = write_layout(Layout(4, missing=[1], empty=[2]), "/d")
    assert wrong(path) == ["missing", "empty"]
    assert not os.path.exists(__file__)


def test_fs_and_a_module(fs: Any) -> None:
    import shardproof.receipts

    with pytest.raises(shardproof.ManifestNotFoundError):
        shardproof.receipts.ReceiptStore("/nowhere")


def test_fs_and_numpy(fs: Any) -> None:
    import numpy as np

    np.save("/array.npy", np.arange(9))
    assert np.load("/array.npy").sum() == 36
    assert shardproof.ShardInfo


def test_fs_and_somebodys_module(fs: Any, request: pytest.FixtureRequest) -> None:
    import mine

    import shardproof.fetching
    import shardproof.loaders

    assert mine.validate is shardproof.validate
    assert sys.modules["mine"] is mine
    with pytest.raises(shardproof.ManifestError):
        mine.look("/nowhere")


def test_fs_stays_as_it_was(fs: Any) -> None:
    fs.create_file("/mine", contents="here")
    assert all(getattr(shardproof, name) for name in shardproof.__all__)
    assert Path("/mine").read_text() == "here"
    assert not os.path.exists(__file__)


def test_patched_by_hand() -> None:
    from shardproof import validate  # before: what is first imported inside would hold fakes

    with Patcher() as patcher:
        with pytest.raises(shardproof.ManifestNotFoundError):
            validate("/d")
        assert patcher.fs
        assert not os.path.exists(__file__)
    assert Patcher.PATCHER is None
    assert os.path.exists(__file__)


def test_fake(make_fake_shards_dir: Make) -> None:
    path = make_fake_shards_dir(4, missing_shards=[1], unreadable_shards=[3])
    assert wrong(path) == ["missing", "unreadable"]


def test_fake_and_the_kit(make_fake_shards_dir: Make) -> None:
    path = make_fake_shards_dir(2)
    from shardproof import testing

    with testing.damaged(path / "acts000000.bin", "extended"):
        assert wrong(path) == ["size"]
    with (
        pytest.raises(shardproof.ShardValidationError),
        testing.damaged(path / "acts000000.bin", "missing"),
    ):
        shardproof.validate(path).raise_for_findings()


def test_fake_by_hand() -> None:
    from shardproof.testing import Layout
    from shardproof.testing.faults import fake_shards_dir

    with fake_shards_dir(Layout(2, empty=[0])) as path:
        info = shardproof.ShardInfo.load(path)
        with pytest.raises(FileNotFoundError):
            info.validate(path)


def test_real(make_shards_dir: Make) -> None:
    assert wrong(make_shards_dir(4, missing_shards=[1], fifo=[2])) == ["missing", "not-regular"]


def test_real_rows(make_shards_dir: Make) -> None:
    loader = shardproof.OrderedDataLoader(make_shards_dir(2), layer=6, batch_size=4)
    assert sum(len(batch["act"]) for batch in loader) == 7 * 3
    for name, module in list(sys.modules.items()):
        assert not name.startswith("shardproof") or getattr(module, "os", os) is os, name


def test_real_receipts(make_receipts_dir: Make) -> None:
    assert shardproof.validate(make_receipts_dir(2)).ok


def test_real_checkpoint(make_checkpoint: Make) -> None:
    prefix = make_checkpoint(world_size=2, missing_ranks=[1])
    assert not shardproof.ShardFileVerifier().verify_checkpoint(prefix).is_valid

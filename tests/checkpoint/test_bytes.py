"""One shard to bytes and back: the bytes of the saver, and hostile ones are refused."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from msgspec.structs import replace

import shardproof
from shardproof import (
    CheckpointError,
    MultiShardCheckpointFormat,
    MultiShardLoader,
    MultiShardSaver,
)
from shardproof.checkpoint._format import RankRecord, seal
from tests.helpers.checkpoint_files import header_of, same, shard_path
from tests.helpers.drawing import examples
from tests.helpers.saving import saved

ARRAYS = {
    "w": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.array(7, ">i2"),
    "none": np.empty((0, 2**40), np.int8),
    "half": np.arange(5).astype(ml_dtypes.bfloat16),
    "turned": np.arange(6).reshape(2, 3).T,
}
DIGESTS = ("sha256", "sha256-tree", "blake3")

shards = MultiShardCheckpointFormat()


@examples(30)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
        npst.arrays(
            npst.scalar_dtypes().filter(lambda kind: kind.kind in "biufc" and kind.itemsize < 9),
            npst.array_shapes(min_dims=0, min_side=0),
        ),
        max_size=4,
    ),
    st.integers(0, 2**31 - 1),
)
def test_anything_comes_back(arrays: dict[str, Any], rank: int) -> None:
    assert same(shards.deserialize(shards.serialize(arrays, rank=rank)), arrays)


@pytest.mark.parametrize("digest", DIGESTS)
def test_they_are_the_bytes_of_the_saver(tmp_path: Path, digest: str) -> None:
    saver = MultiShardSaver(algorithm=digest)
    path = saver.save_shard(tmp_path / "bytes", 2, ARRAYS)
    file, record = Path(path).read_bytes(), (tmp_path / "bytes_shard_2.tensors.json").read_bytes()
    data = MultiShardCheckpointFormat(algorithm=digest).serialize(ARRAYS, rank=2)
    assert data[: len(file)] == file
    assert json.loads(data[len(file) :])["shard"] == json.loads(record)["shard"]


def test_a_file_of_a_checkpoint_with_its_entry(tmp_path: Path) -> None:
    prefix = saved(tmp_path / "model", [ARRAYS])
    (entry,) = MultiShardLoader().load_metadata(prefix).shards
    data = shard_path(prefix, 0).read_bytes()
    assert same(shards.deserialize(data, entry=entry), ARRAYS)
    for other in (data[:-1], data + b"\0", b"", b"x" * len(data)):
        with pytest.raises(CheckpointError, match=r"^Checkpoint file '<bytes>': expected"):
            shards.deserialize(other, entry=entry)
    for change in (replace(entry, rank=1), replace(entry, checksum="0" * 64)):
        with pytest.raises(CheckpointError, match="expected"):
            shards.deserialize(data, entry=change)


def test_every_flipped_byte_and_every_cut_is_refused() -> None:
    data = shards.serialize({"w": np.arange(6, dtype=np.int16), "b": np.array(1.5)})
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        for other in (changed, data[:at]):
            with pytest.raises(CheckpointError, match=r"^Checkpoint file '<bytes>': "):
                shards.deserialize(other)
    with pytest.raises(CheckpointError, match="checksum"):
        shards.deserialize(data + b" ")


def test_without_an_entry_the_text_says_where_it_is(tmp_path: Path) -> None:
    path = MultiShardSaver().save_shard(tmp_path / "model", 0, ARRAYS)
    with pytest.raises(CheckpointError, match=r"an entry of metadata behind them.*give entry="):
        shards.deserialize(Path(path).read_bytes())


def lying(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Bytes whose entry says something else, and whose seal is right all the same."""
    data = shards.serialize({"w": np.arange(6, dtype=np.int16)})
    end = header_of(data).size + header_of(data).n_data
    entry = json.loads(data[end:])["shard"]
    change(entry)
    tensors = [shardproof.checkpoint.TensorEntry(**tensor) for tensor in entry.pop("tensors")]
    shard = shardproof.checkpoint.ShardEntry(**entry, tensors=tuple(tensors))
    return data[:end] + seal(RankRecord(step=None, shard=shard, checksum=""))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda e: e.update(rank=1, file="bytes_shard_1.shard"), "expected rank 1 in its header"),
        (lambda e: e.update(file="bytes_shard_1.shard"), "file: expected"),
        (lambda e: e["tensors"][0].update(shape=[0, 2**62, 2**62], size=0), "shape: expected"),
        (lambda e: e.update(checksum="0" * 64), "the checksum 0000"),
        (lambda e: e.update(file_size=2**62), "file_size: expected"),
    ],
)
def test_an_entry_that_lies_is_refused(change: Callable, text: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        shards.deserialize(lying(change))
    assert text in str(caught.value)


def test_a_length_that_lies_makes_no_room() -> None:
    data = bytearray(shards.serialize({"w": np.arange(6, dtype=np.int16)}))
    for length in (-1, -(2**63), 2**62, 2**63 - 1):
        struct.pack_into("<q", data, 12 + 64 + 4, length)
        with pytest.raises(CheckpointError, match=f"expected {length} bytes of data"):
            shards.deserialize(data)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: shards.serialize([]), TypeError, r"serialize\(\): arrays: expected Mapping"),
        (lambda: shards.serialize({}, rank=-1), ValueError, "rank: expected 0 to"),
        (lambda: shards.deserialize("text"), TypeError, r"deserialize\(\): data: expected bytes,"),
        (lambda: shards.deserialize(b"", entry={}), TypeError, "entry: expected ShardEntry or"),
        (lambda: MultiShardCheckpointFormat(algorithm="x"), ValueError, "algorithm: expected"),
        (lambda: MultiShardCheckpointFormat(framework="x"), ValueError, "framework: expected"),
    ],
)
def test_wrong_arguments(call: Callable, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_an_entry_that_is_too_large_is_refused(monkeypatch) -> None:
    monkeypatch.setattr("shardproof._base.json.MAX_BYTES", 100)
    data = shards.serialize(ARRAYS)
    with pytest.raises(CheckpointError, match="expected at most 100 bytes"):
        shards.deserialize(data)

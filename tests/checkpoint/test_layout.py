"""What is written is what docs/checkpoint-format.md says: read with struct, json and hashlib."""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from shardproof.checkpoint import MultiShardLoader, ShardFileVerifier
from tests.helpers import checkpoint_files as files
from tests.helpers.drawing import examples
from tests.helpers.saving import peak_below, saved

MIB = 2**20
DIGESTS = ["sha256", "sha256-tree", "blake3"]


def said_of(prefix: Path, ranks: list[Mapping[str, Any]], **keywords: Any) -> dict[str, Any]:
    return files.metadata_of(saved(prefix, ranks, **keywords))


@pytest.fixture
def prefix(tmp_path) -> Path:
    (tmp_path / "ckpt").mkdir()
    return tmp_path / "ckpt" / "step_7"


class TestShardFile:
    @pytest.mark.parametrize("digest", DIGESTS)
    def test_every_byte(self, prefix: Path, digest: str) -> None:
        arrays = {
            "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
            "bias": np.array([-1, 2, -3], np.int16),
            "none": np.zeros((0, 4), np.float64),
            "step": np.array(7, np.uint8),
        }
        saved(prefix, [{}, arrays], algorithm=digest)
        data = files.shard_path(prefix, 1).read_bytes()
        assert data[:4] == b"RAHS"
        assert data[4:8] == b"\1\0\0\0"
        kind = {"sha256": "", "sha256-tree": "sha256-tree:", "blake3": "blake3:"}[digest]
        length = len(kind) + 64
        assert data[8:12] == length.to_bytes(4, "little")
        checksum = data[12 : 12 + length].decode()
        assert re.fullmatch(f"{kind}[0-9a-f]{{64}}", checksum)
        at = 12 + length
        assert data[at : at + 4] == b"\4\0\0\0"
        at += 4
        assert data[at : at + 8] == (len(data) - at - 8).to_bytes(8, "little")
        at += 8
        assert checksum == files.digest_of(data[at:], checksum)
        first = -(-at // 64) * 64
        expected = arrays["weight"].tobytes() + bytes(64 - 24) + arrays["bias"].tobytes()
        expected += bytes(64 - 6) + b"\7"
        assert data[at:] == bytes(first - at) + expected

    @pytest.mark.parametrize("n", [MIB - 64, MIB - 63, MIB, MIB + 1, 3 * MIB + 17])
    @pytest.mark.parametrize("digest", DIGESTS)
    def test_checksums_about_a_leaf(self, prefix: Path, digest: str, n: int) -> None:
        """The data of a tree begins right after the header, in the middle of a line."""
        arrays = {"a": np.random.default_rng(n).integers(0, 256, n, np.uint8), "b": np.ones(3)}
        saved(prefix, [arrays], algorithm=digest)
        assert files.read(prefix) == [files.tensors_of(arrays)]


class TestMetadataFile:
    def test_every_field(self, prefix: Path) -> None:
        arrays = {"w": np.arange(6, dtype="f4").reshape(2, 3)}
        said = said_of(
            prefix,
            [arrays],
            step=7,
            strategy="fsdp",
            precision="bf16-mixed",
            timestamp="2026-11-21T20:00:00Z",
        )
        data = files.shard_path(prefix, 0).read_bytes()
        (entry,) = said["shards"][0]["tensors"]
        assert re.fullmatch("xxh3-128:[0-9a-f]{32}", entry.pop("digest"))
        tail = files.metadata_path(prefix).read_bytes()[-74:-3].decode()
        tensor = {"name": "w", "dtype": "float32", "shape": [2, 3], "offset": 128, "size": 24}
        assert said == {
            "schema_version": 1,
            "world_size": 1,
            "step": 7,
            "timestamp": "2026-11-21T20:00:00Z",
            "sharding": {"strategy": "fsdp", "shard_count": 1, "precision": "bf16-mixed"},
            "shards": [
                {
                    "rank": 0,
                    "file": "step_7_shard_0.shard",
                    "file_size": 128 + 24,
                    "checksum": files.header_of(data).checksum,
                    "tensors": [tensor],
                },
            ],
            "checksum": tail,
        }
        assert list(said)[-1] == "checksum"


OTHER_DTYPES = [name for name in files.SIZES if name.startswith(("bfloat", "float8"))]
NUMPY_DTYPES = [name for name in files.SIZES if name not in OTHER_DTYPES]


class TestArrays:
    @pytest.mark.parametrize("name", OTHER_DTYPES)
    def test_dtypes_of_ml_dtypes(self, prefix: Path, name: str) -> None:
        raw = np.random.default_rng(0).integers(0, 256, 12, np.uint8)
        array = raw.view(getattr(ml_dtypes, name)).reshape(-1, 2)
        said = said_of(prefix, [{"a": array, "b": array[:, ::-1]}])
        assert said["shards"][0]["tensors"][0]["dtype"] == name
        assert files.read(prefix)[0] == {"a": array.tobytes(), "b": array[:, ::-1].tobytes()}
        loaded = MultiShardLoader().load_shard(str(prefix), 0)
        assert loaded["a"].dtype == array.dtype
        assert loaded["a"].tobytes() == array.tobytes()

    @pytest.mark.parametrize(
        "view",
        [
            lambda a: a.T,
            lambda a: a[::2, ::-1],
            lambda a: a[:, 1],
            lambda a: np.broadcast_to(a[0], (4, *a[0].shape)),
            lambda a: a[1:1],
            lambda a: a[::2, 1][:1],
            lambda a: a[::2, 1:][:1, :1],
            lambda a: a.astype(">f8").T,
            lambda a: a[0, 0],
        ],
    )
    def test_whatever_lies_in_memory(self, prefix: Path, view) -> None:
        array = view(np.arange(20.0).reshape(4, 5))
        saved(prefix, [{"a": array}])
        assert files.read(prefix) == [files.tensors_of({"a": array})]
        assert files.same(MultiShardLoader().load_shard(str(prefix), 0), {"a": array})

    def test_what_is_loaded_can_be_written_to(self, prefix: Path) -> None:
        saved(prefix, [{"a": np.arange(3), "b": np.array(1), "c": np.zeros((0, 2))}])
        for array in MultiShardLoader().load_shard(str(prefix), 0).values():
            array[...] = 1


class TestMemory:
    """What is done piece by piece needs a few MiB, however large a shard is."""

    ARRAY_MIB = 24

    @pytest.fixture
    def arrays(self) -> dict[str, np.ndarray]:
        return {name: np.zeros(self.ARRAY_MIB * MIB, np.uint8) for name in "ab"}

    @pytest.mark.slow
    @pytest.mark.parametrize("digest", DIGESTS[:2])
    def test_saving_and_looking(self, prefix: Path, arrays, digest: str) -> None:
        saved(prefix.with_name("first"), [{}])  # which imports modules
        with peak_below(4 * MIB):
            saved(prefix, [arrays], algorithm=digest)
        with peak_below(20 * MIB):
            ShardFileVerifier().verify_checkpoint(str(prefix))

    @pytest.mark.slow
    def test_what_is_not_in_c_order(self, prefix: Path, arrays, monkeypatch) -> None:
        """Copies of 4 MiB: one is made, and for two threads four are being written, or wait."""
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
        columns = {name: array.reshape(2, -1).T for name, array in arrays.items()}
        with peak_below((6 * 4 + 2) * MIB):
            saved(prefix, [columns])

    def test_one_after_the_other(self, prefix: Path, arrays) -> None:
        saved(prefix, [arrays])
        with peak_below((self.ARRAY_MIB + 2) * MIB):
            for _, array in MultiShardLoader().iter_tensors(str(prefix)):
                assert array.nbytes == self.ARRAY_MIB * MIB
                del array
        with peak_below(12 * MIB):
            MultiShardLoader().load_tensors(str(prefix), mapped=True)
        with peak_below(2 * MIB):
            MultiShardLoader().load_tensors(str(prefix), out=arrays)


@pytest.mark.exhaustive
def test_more_than_2_gib(prefix: Path) -> None:
    """More than one read(2) or write(2) moves, and more than an int32 counts."""
    n_bytes = 2**31 + 4097
    marks = [0, 2**31 - 1, 2**31, n_bytes - 1]
    array = np.zeros(n_bytes, np.uint8)
    array[marks] = 1, 2, 3, 4
    saved(prefix, [{"large": array}])
    with open(files.shard_path(prefix, 0), "rb") as file:
        header = files.header_of(file.read(200))
    assert header.n_data == n_bytes + 128 - header.size
    try:
        large = MultiShardLoader().load_tensors(str(prefix), mapped=True)["large"]
        assert large.shape == (n_bytes,)
        assert large[marks].tolist() == [1, 2, 3, 4]
        assert np.count_nonzero(large) == 4
    finally:
        files.shard_path(prefix, 0).unlink()


TYPES = npst.scalar_dtypes().filter(lambda kind: kind.name in NUMPY_DTYPES)
ARRAYS = npst.arrays(TYPES, npst.array_shapes(min_dims=0, min_side=0))
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
WORLDS = st.lists(st.dictionaries(NAMES, ARRAYS, max_size=4), min_size=1, max_size=4)


@pytest.mark.slow
@examples(20)
@given(WORLDS, st.sampled_from(["sha256", "sha256-tree"]), st.integers(0, 2**63 - 1), st.text())
def test_what_is_saved_is_loaded(
    ranks: list[dict[str, np.ndarray]], digest: str, step: int, strategy: str
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        prefix = Path(directory) / "x"
        said = said_of(prefix, ranks, algorithm=digest, step=step, strategy=strategy)
        assert said["step"] == step
        assert said["sharding"]["strategy"] == strategy
        assert files.read(prefix) == [files.tensors_of(arrays) for arrays in ranks]
        assert ShardFileVerifier().verify_checkpoint(str(prefix)).is_valid
        loader = MultiShardLoader()
        for found, expected in zip(loader.load_all_shards(str(prefix)), ranks, strict=True):
            assert files.same(found, expected)

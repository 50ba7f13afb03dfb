"""Checkpoints to and from safetensors: as the real library reads and writes them, bit for bit."""

import collections
import concurrent.futures
import errno
import itertools
import json
import math
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from shardproof._base import files as _files
from shardproof.checkpoint import (
    MultiShardLoader,
    MultiShardSaver,
    from_safetensors,
    to_safetensors,
)
from shardproof.checkpoint._safetensors import read_header
from shardproof.errors import CheckpointError, CheckpointNotFoundError, UnsyncedError
from shardproof.testing.faults import FileSystemFaults
from tests.helpers.checkpoint_files import flip
from tests.helpers.saving import peak_below, saved

NAMES = {  # of a type: in the format of checkpoints, and in that of safetensors
    **{f"uint{n}": f"U{n}" for n in (8, 16, 32, 64)},
    **{f"int{n}": f"I{n}" for n in (8, 16, 32, 64)},
    **{f"float{n}": f"F{n}" for n in (16, 32, 64)},
    "bool": "BOOL",
    "bfloat16": "BF16",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
SHAPES = [(), (0,), (1,), (3, 5), (2, 0, 4), (7, 1, 1, 3), (1031,)]


def any_bits(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Numbers of all bits that there are: negative zeros, infinities, NaN with whatever in them."""
    dtype, random = np.dtype(getattr(ml_dtypes, name, name)), np.random.default_rng(seed)
    n_bytes = math.prod(shape) * dtype.itemsize
    raw = random.integers(0, 2 if name == "bool" else 256, n_bytes, np.uint8)
    return raw.view(dtype).reshape(shape)


def all_kinds(names: Mapping[str, str] = NAMES) -> dict[str, np.ndarray]:
    return {
        f"{name} {shape}": any_bits(name, shape, seed)
        for seed, (name, shape) in enumerate(itertools.product(names, SHAPES))
    }


def save(prefix: Path | str, *ranks: dict[str, np.ndarray], step: int = 0, **options: Any) -> str:
    return str(saved(prefix, ranks, step=step, **options))


def bits(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[Any, ...]]:
    return {name: (a.dtype.name, a.shape, a.tobytes()) for name, a in arrays.items()}


def as_the_library_reads(path: str | Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    found = safetensors.deserialize(Path(path).read_bytes())
    return {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in found}


def translated(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[Any, ...]]:
    return {n: (NAMES[dtype], *rest) for n, (dtype, *rest) in bits(arrays).items()}


def write_file(path: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    """Write a file of safetensors by nothing but its description."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    n_bytes = len(text) if length is None else length
    path.write_bytes(struct.pack("<Q", n_bytes) + text + data)
    return path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


ONE = {"w": entry("F32", [2], 0, 8)}
TEXT = json.dumps(ONE["w"]).encode()


class TestRoundTrip:
    def test_the_library_reads_what_we_write(self, tmp_path) -> None:
        ranks = [all_kinds(), {"alone": any_bits("float16", (3,))}, {}]
        prefix = save(tmp_path / "model", *ranks)
        paths = to_safetensors(prefix, tmp_path / "out")
        *files, index = map(Path, paths)
        of_set = MultiShardLoader().load_metadata(prefix).checksum
        assert [path.name for path in files] == [
            f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)
        ]
        assert sorted(os.listdir(tmp_path / "out")) == sorted(os.path.basename(p) for p in paths)
        for path, arrays in zip(files, ranks, strict=True):
            assert as_the_library_reads(path) == translated(arrays)
            with safetensors.safe_open(path, framework="numpy") as opened:
                assert opened.metadata() == {"format": "pt", "shardproof_set": of_set}
        said = json.loads(index.read_bytes())
        assert said["metadata"]["total_size"] == sum(a.nbytes for r in ranks for a in r.values())
        assert said["weight_map"] == {
            name: path.name for path, r in zip(files, ranks, strict=True) for name in r
        }

    @pytest.mark.parametrize("name", NAMES)
    def test_we_read_what_the_library_writes(self, tmp_path, name: str) -> None:
        arrays = {str(shape): any_bits(name, shape) for shape in SHAPES}
        path = tmp_path / "one.safetensors"
        safetensors.numpy.save_file(arrays, path, metadata={"by": "the library \u00e9"})
        made = from_safetensors(path, tmp_path / "model", step=7)
        assert made == str(tmp_path / "model.metadata.json")
        loader = MultiShardLoader()
        assert bits(loader.load_shard(tmp_path / "model", 0)) == bits(arrays)
        metadata = loader.load_metadata(tmp_path / "model")
        assert (metadata.step, metadata.world_size) == (7, 1)

    @pytest.mark.parametrize("digest", ["sha256", "sha256-tree"])
    def test_there_and_back_again(self, tmp_path, digest: str) -> None:
        big = {"big": any_bits("bfloat16", (3, 2**20 + 3)), "x": any_bits("bool", (5,))}
        prefix = save(tmp_path / "a", all_kinds(), big, algorithm=digest)
        to_safetensors(prefix, tmp_path / "out")
        from_safetensors(tmp_path / "out", tmp_path / "b", algorithm=digest)
        loader = MultiShardLoader()
        before, after = (loader.load_all_shards(tmp_path / name) for name in "ab")
        assert list(map(bits, before)) == list(map(bits, after))
        begin = "" if digest == "sha256" else f"{digest}:"
        for shard in loader.load_metadata(tmp_path / "b").shards:
            assert re.fullmatch(begin + "[0-9a-f]{64}", shard.checksum)
        assert after[1].keys() == big.keys()

    def test_each_tensor_begins_where_its_elements_can(self, tmp_path) -> None:
        """Or some loaders can't take it."""
        sizes = {"int8": 3, "float64": 2, "int16": 1}
        arrays = {name: any_bits(name, (size,)) for name, size in sizes.items()}
        path, _ = to_safetensors(save(tmp_path / "model", arrays), tmp_path / "out")
        data = Path(path).read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        assert length % 8 == 0
        header = json.loads(data[8 : 8 + length])
        header.pop("__metadata__")
        for name, said in header.items():
            assert (8 + length + said["data_offsets"][0]) % arrays[name].dtype.itemsize == 0

    @pytest.mark.slow
    def test_memory_is_bounded(self, tmp_path) -> None:
        prefix = save(tmp_path / "model", {"w": any_bits("float32", (2**23,))})  # 32 MiB
        with peak_below(2**23):
            path, _ = to_safetensors(prefix, tmp_path / "out")
            from_safetensors(path, tmp_path / "again" / "model")


class TestToSafetensors:
    def test_what_several_ranks_have(self, tmp_path) -> None:
        w, shared = any_bits("int8", (2,)), any_bits("int16", (1,))
        ranks = {"a": w, "b": w}, {"b": shared, "c": w}, {"a": w, "b": shared, "d": w}
        prefix = save(tmp_path / "model", *ranks)
        with pytest.raises(CheckpointError) as error:
            to_safetensors(prefix, tmp_path / "out")
        assert "'a': ranks 0, 2\n  - 'b': ranks 0, 1, 2" in str(error.value)
        assert "'c'" not in str(error.value)
        assert error.value.path == f"{prefix}.metadata.json"
        assert not (tmp_path / "out").exists()

    def test_what_has_no_counterpart(self, tmp_path) -> None:
        arrays = {"z": np.zeros(2, np.complex128), "ok": np.zeros(2), "__metadata__": np.zeros(1)}
        prefix = save(tmp_path / "model", arrays, {"y": np.zeros((), np.complex128)})
        with pytest.raises(CheckpointError, match=r"complex64 \(3\)") as error:
            to_safetensors(prefix, tmp_path / "out")
        found = re.findall(r"(?m)^  - ('\w+'): found the type (.*)$", str(error.value))
        assert found == [("'z'", "complex128"), ("'y'", "complex128")]
        assert "'__metadata__': expected another name" in str(error.value)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("place", ["data", "header", "padding"])
    def test_a_flipped_bit(self, tmp_path, place: str) -> None:
        first = {"w": any_bits("float32", (50,)), "v": any_bits("int8", (50,))}
        prefix = save(tmp_path / "model", first, {"u": any_bits("int8", (3,))})
        shard = tmp_path / "model_shard_1.shard"
        flip(shard, {"data": -1, "header": 5, "padding": 90}[place])
        with pytest.raises(CheckpointError, match=re.escape(str(shard))):
            to_safetensors(prefix, tmp_path / "out")
        assert os.listdir(tmp_path / "out") == []  # neither the first file, which is whole

    def test_more_ranks_than_files_may_be_open(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr("shardproof.checkpoint._to_safetensors._MOST_OPEN", 2)
        ranks = [{f"w{rank}": any_bits("int8", (9,), rank)} for rank in range(5)]
        prefix, out = save(tmp_path / "model", *ranks), tmp_path / "out"
        most = []
        written = _files.being_written

        def being_written(path: str, **options: Any) -> Any:
            most.append(len(list(out.glob(".*.tmp"))) + 1)
            return written(path, **options)

        with monkeypatch.context() as patch:
            patch.setattr("shardproof._base.files.being_written", being_written)
            *_, index = to_safetensors(prefix, out)
        assert most == [1, 2, 1, 2, 1, 1]  # and the index
        from_safetensors(index, tmp_path / "again")
        loaded = MultiShardLoader().load_all_shards(tmp_path / "again")
        assert list(map(bits, loaded)) == list(map(bits, ranks))
        flip(tmp_path / "model_shard_4.shard")
        with pytest.raises(CheckpointError, match="model_shard_4"):
            to_safetensors(prefix, tmp_path / "other")
        assert len(os.listdir(tmp_path / "other")) == 4  # and no index

    def test_what_is_there_stays(self, tmp_path) -> None:
        prefix = save(tmp_path / "model", {"w": np.zeros(1)}, {"v": np.zeros(1)})
        out = tmp_path / "out"
        out.mkdir()
        taken = ["model-00002-of-00002.safetensors", "model.safetensors.index.json"]
        for name in taken:
            (out / name).write_text("mine")
        with pytest.raises(CheckpointError, match="overwrite=True") as error:
            to_safetensors(prefix, out)
        assert all(f"\n  - {out / name}" in str(error.value) for name in taken)
        assert {p.name: p.read_text() for p in out.iterdir()} == dict.fromkeys(taken, "mine")
        *_, index = to_safetensors(prefix, out, overwrite=True)
        assert from_safetensors(index, tmp_path / "again")

    @pytest.mark.parametrize("n_ranks", [2, 3])
    def test_of_two_at_once_one_converts(self, tmp_path, monkeypatch, n_ranks: int) -> None:
        """Who looked before the other began does not replace what the other made."""
        mine = save(tmp_path / "mine", *({f"w{rank}": np.zeros(9)} for rank in range(2)))
        others = save(tmp_path / "others", *({f"w{rank}": np.ones(9)} for rank in range(n_ranks)))
        out, make = tmp_path / "out", _files.make_directories
        out.mkdir()

        def make_directories(path: str) -> None:
            make(path)
            monkeypatch.undo()
            to_safetensors(others, out)

        monkeypatch.setattr(_files, "make_directories", make_directories)
        with pytest.raises(CheckpointError, match="are there already") as error:
            to_safetensors(mine, out)
        assert str(out / "model") in str(error.value)
        from_safetensors(out, tmp_path / "again")
        loaded = MultiShardLoader().load_all_shards(tmp_path / "again")
        assert [next(iter(arrays.values()))[0] for arrays in loaded] == [1.0] * n_ranks
        assert not list(out.glob(".*"))

    def test_two_that_overwrite_at_once_leave_no_set(self, tmp_path, monkeypatch) -> None:
        mine, others = (
            save(tmp_path / f"{value}", *({f"w{rank}": np.full(9, value)} for rank in range(2)))
            for value in (0, 1)
        )
        out, names, real = tmp_path / "out", [], os.replace

        def replace(source: str, target: str, **options: Any) -> None:
            names.append(target)
            if len(names) == 2:
                to_safetensors(others, out, overwrite=True)
            real(source, target, **options)

        monkeypatch.setattr(os, "replace", replace)
        to_safetensors(mine, out, overwrite=True)
        with pytest.raises(CheckpointError, match="files of several sets"):
            from_safetensors(out, tmp_path / "again")

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_what_has_its_name_is_not_told_to_have_failed(self, tmp_path, overwrite: bool) -> None:
        prefix = save(tmp_path / "model", {"w": np.zeros(9)})
        for nth in itertools.count(1):
            out, told = tmp_path / f"{nth}", None
            out.mkdir()
            with FileSystemFaults(out) as fs:
                fault = fs.fail("any", errno.EIO, nth=nth, times=1, optional=True)
                try:
                    to_safetensors(prefix, out, overwrite=overwrite)
                except OSError as error:
                    told = error
            if told is None:
                assert from_safetensors(out, tmp_path / f"again{nth}")
            elif not isinstance(told, UnsyncedError):
                assert not list(out.glob("*.index.json"))
            if not fault.reached:
                break
        assert told is None
        assert nth > 15

    def test_too_many_tensors_for_a_header(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr("shardproof.checkpoint._safetensors.MAX_HEADER_BYTES", 200)
        prefix = save(tmp_path / "model", {f"{n}": np.zeros(1) for n in range(5)})
        with pytest.raises(CheckpointError, match="too many tensors for one file"):
            to_safetensors(prefix, tmp_path / "out")

    def test_the_disk_begins_before_the_end(self, tmp_path, monkeypatch) -> None:
        """Or each file ends by a wait for all of it."""
        begun = []
        monkeypatch.setattr("shardproof.checkpoint._to_safetensors._SYNC_BYTES", 200)
        monkeypatch.setattr("shardproof._base.files.begin_to_sync", begun.append)
        prefix = save(tmp_path / "model", {f"t{n}": np.zeros(10) for n in range(6)})
        begun.clear()
        to_safetensors(prefix, tmp_path / "out")
        assert len(begun) == 2


BAD_HEADERS = {
    "an empty file": (b"", "found a file of 0 bytes"),
    "another file": (b"\x89PNG\r\n\x1a\n" + b"\0" * 99, "no file of safetensors"),
    "the largest length": (struct.pack("<Q", 2**64 - 1) + b"{}", f"found {2**64 - 1}"),
    "a length that lies": (struct.pack("<Q", 100_000_000) + b"{}", "found 2: it is cut short"),
    "a length of 1 too few": (struct.pack("<Q", 1) + b"{}", "not JSON"),
    "a list": (struct.pack("<Q", 2) + b"[]", r"begins with '{', found b'\['"),
}

BAD_JSON = {
    "not JSON": (b'{"w": }', "not JSON"),
    "a tensor that is none": ({"w": 3}, "tensor 'w'.*object"),
    "more than a tensor": ({"w": ONE["w"] | {"strides": [1]}}, "tensor 'w'.*strides"),
    "a negative size": ({"w": entry("F32", [-2], 0, 8)}, r"tensor 'w'.*shape.*>= 0.*found.*-2"),
    "a key twice": (b'{"w": %s, "w": %s}' % (TEXT, TEXT), "'w' stands twice"),
    "metadata that are no texts": ({"__metadata__": {"step": 3}, **ONE}, "__metadata__"),
}

BAD_PLACES = {
    "a hole": ({**ONE, "v": entry("U8", [1], 9, 10)}, 10, "'v': expected it to begin at 8, .* 9"),
    "an overlap": ({**ONE, "v": entry("U8", [2], 7, 9)}, 9, "'v': expected it to begin at 8, .* 7"),
    "a size of 1 too many": ({"w": entry("U8", [2], 0, 1)}, 1, "expected 2 bytes .* found 1"),
    "a product over 64 bits that is right again": (
        {"w": entry("U8", [2**32, 2**32, 1], 0, 0)},
        0,
        f"expected {2**64} bytes",
    ),
    "no byte, and lengths that no array has": (
        {"w": entry("U8", [2**62, 2**62, 0], 0, 0)},
        0,
        "'w': expected lengths that an array can have",
    ),
    "a byte behind the last": (ONE, 9, "expected 8 bytes behind the header, found 9"),
    "bytes of nobody": ({}, 1, "expected 0 bytes behind the header, found 1"),
}


class TestLaws:
    def refuse(self, path: Path, text: str) -> str:
        with pytest.raises(CheckpointError) as error:
            from_safetensors(path, path.parent / "out" / "model")
        assert str(error.value).startswith(f"Checkpoint file '{path}': ")
        assert re.search(text, error.value.problem, re.DOTALL), error.value.problem
        assert not (path.parent / "out").exists()
        return error.value.problem

    @pytest.mark.parametrize("case", BAD_HEADERS)
    def test_a_header_that_is_none(self, tmp_path, case: str) -> None:
        data, text = BAD_HEADERS[case]
        path = tmp_path / "w.safetensors"
        path.write_bytes(data)
        with peak_below(10**6):  # whatever it says of itself
            self.refuse(path, text)

    @pytest.mark.parametrize("case", BAD_JSON)
    def test_what_is_no_description_of_tensors(self, tmp_path, case: str) -> None:
        header, text = BAD_JSON[case]
        self.refuse(write_file(tmp_path / "w.safetensors", header, b"\0" * 8), text)

    @pytest.mark.parametrize("case", BAD_PLACES)
    def test_places_that_contradict_each_other(self, tmp_path, case: str) -> None:
        header, n_bytes, text = BAD_PLACES[case]
        self.refuse(write_file(tmp_path / "w.safetensors", header, b"\0" * n_bytes), text)

    def test_what_has_no_counterpart_is_listed_at_once(self, tmp_path) -> None:
        header = {
            "a": entry("F4", [4], 0, 2),
            "b": entry("F6_E2M3", [4], 2, 5),
            "c": entry("U8", [1], 5, 6),
            "": entry("U8", [1], 6, 7),
            "n" * 4097: entry("U8", [1], 7, 8),
            "deep": entry("U8", [1] * 33, 8, 9),
        }
        problem = self.refuse(
            write_file(tmp_path / "w.safetensors", header, b"\0" * 9),
            r"can't be converted; .* C64 \(5\)",
        )
        assert "'a': found the type 'F4'" in problem
        assert "'b': found the type 'F6_E2M3'" in problem
        assert "'c'" not in problem
        assert "at most 32 dimensions, found 33" in problem
        assert "expected 1 to 4096 characters, found 4097" in problem

    def test_what_old_writers_left_out(self, tmp_path) -> None:
        """They didn't pad; and tensors without elements may stand anywhere between the others."""
        header = {
            "e": entry("F32", [0, 9], 8, 8),
            "w": entry("F32", [2], 0, 8),
            "d": entry("U8", [0], 0, 0),
            "v": entry("U8", [], 8, 9),
        }
        path = write_file(tmp_path / "w.safetensors", header, b"12345678v")
        assert len(json.dumps(header)) % 8
        assert as_the_library_reads(path)["w"][2] == b"12345678"
        from_safetensors(path, tmp_path / "model")
        arrays = MultiShardLoader().load_shard(tmp_path / "model", 0)
        content = {name: array.tobytes() for name, array in arrays.items()}
        # In the order of the file, which is read in one go.
        assert list(content) == ["d", "w", "e", "v"]
        assert content == {"d": b"", "w": b"12345678", "e": b"", "v": b"v"}

    @given(st.data())
    def test_what_we_take_the_library_takes(self, tmp_path_factory, data) -> None:
        tensors = data.draw(
            st.lists(st.sampled_from([("U8", 1), ("F32", 4), ("BF16", 2)]), max_size=3)
        )
        ends = list(itertools.accumulate(2 * size for _, size in tensors))
        header: dict[str, Any] = {
            f"t{n}": entry(dtype, [2], begin, end)
            for n, ((dtype, _), begin, end) in enumerate(
                zip(tensors, [0, *ends], ends, strict=False)
            )
        }
        text = bytearray(json.dumps(header).encode().ljust(128 + 128 * len(tensors)))
        whole = bytearray(struct.pack("<Q", len(text)) + text + b"\1" * (ends or [0])[-1])
        for _ in range(data.draw(st.integers(0, 3))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(
                st.sampled_from(b'0123456789[]{}",: \0\xff') | st.integers(0, 255)
            )
        path = tmp_path_factory.mktemp("any") / "w.safetensors"
        path.write_bytes(
            whole[: data.draw(st.sampled_from([None, None, -1]) | st.integers(0, 900))]
        )
        try:
            ours = read_header(str(path)).tensors
        except CheckpointError:
            return
        theirs = as_the_library_reads(path)
        content = path.read_bytes()
        assert {
            t.name: (NAMES[t.dtype], t.shape, content[t.offset : t.offset + t.size]) for t in ours
        } == theirs


@pytest.fixture
def downloaded(tmp_path) -> Path:
    """As a hub has it: two files and their index."""
    path = tmp_path / "in"
    path.mkdir()
    safetensors.numpy.save_file({"a": np.arange(3.0)}, path / "model-00001-of-00002.safetensors")
    safetensors.numpy.save_file(
        {"b": np.arange(2), "c": np.ones(1)}, path / "model-00002-of-00002.safetensors"
    )
    write_index(path, a=1, b=2, c=2)
    return path


def write_index(path: Path, total_size: object = 48, **numbers: int) -> None:
    weight_map = {n: f"model-0000{number}-of-00002.safetensors" for n, number in numbers.items()}
    index = {"metadata": {"total_size": total_size}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def names_by_rank(prefix: Path) -> list[list[str]]:
    return [list(arrays) for arrays in MultiShardLoader().load_all_shards(prefix)]


class TestSources:
    @pytest.mark.parametrize("what", ["", "model.safetensors.index.json"])
    def test_files_become_ranks(self, downloaded, tmp_path, what: str) -> None:
        from_safetensors(downloaded / what, tmp_path / "model")
        assert names_by_rank(tmp_path / "model") == [["a"], ["b", "c"]]

    def test_links_are_followed(self, downloaded, tmp_path) -> None:
        """A cache of a hub is made of them."""
        blobs = downloaded.rename(tmp_path / "blobs")
        snapshot = tmp_path / "snapshot"
        snapshot.mkdir()
        for blob in blobs.iterdir():
            (snapshot / blob.name).symlink_to(blob)
        from_safetensors(snapshot, tmp_path / "model")
        assert names_by_rank(tmp_path / "model") == [["a"], ["b", "c"]]

    def test_index_and_files_disagree(self, downloaded, tmp_path) -> None:
        write_index(downloaded, 49, a=1, b=1, d=2, x=3)
        with pytest.raises(CheckpointError) as error:
            from_safetensors(downloaded, tmp_path / "out" / "model")
        first, second, third = (f"'model-0000{n}-of-00002.safetensors'" for n in (1, 2, 3))
        assert set(re.findall(r"(?m)^  - (.*)$", str(error.value))) == {
            f"{third}: there is no such file",
            f"{first}: expected the tensor 'b', found none of that name",
            f"{second}: expected the tensor 'd', found none of that name",
            f"{second}: found the tensor 'b', which isn't indexed here",
            f"{second}: found the tensor 'c', which isn't indexed here",
            "total_size: expected 49 bytes of tensors, found 48",
        }
        assert error.value.path == str(downloaded / "model.safetensors.index.json")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        "name", ["../w.safetensors", "/w.safetensors", "a/w.safetensors", "", ".", "a\0b", "a\\b"]
    )
    def test_an_index_names_only_files_beside_it(self, tmp_path, name: str) -> None:
        inside = tmp_path / "in"
        (inside / "a").mkdir(parents=True)
        for path in (tmp_path, inside / "a"):
            write_file(path / "w.safetensors", ONE, b"\0" * 8)
        index = inside / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {"w": name}}))
        with pytest.raises(CheckpointError, match="files that it may not name"):
            from_safetensors(index, tmp_path / "model")

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("{", "not JSON"),
            ("[]", "expected `object`"),
            ("{}", "missing required field `weight_map`"),
            ('{"weight_map": {}}', "expected at least one, found none"),
            ('{"weight_map": {"w": 3}}', "expected `str`"),
            ('{"weight_map": {"w": "a", "w": "a"}}', "'w' stands twice"),
            ('{"weight_map": {"w": "a"}, "metadata": {"total_size": "8"}}', "total_size"),
        ],
    )
    def test_an_index_that_is_none(self, tmp_path, text: str, problem: str) -> None:
        index = tmp_path / "model.safetensors.index.json"
        index.write_text(text)
        with pytest.raises(CheckpointError, match=re.escape(problem)) as error:
            from_safetensors(index, tmp_path / "model")
        assert error.value.path == str(index)

    def test_an_index_that_is_too_large(self, tmp_path) -> None:
        index = tmp_path / "model.safetensors.index.json"
        index.touch()
        os.truncate(index, 2**26 + 1)
        with pytest.raises(CheckpointError, match="expected at most 67108864 bytes"):
            from_safetensors(index, tmp_path / "model")

    def test_numbered_files_that_are_missing(self, tmp_path) -> None:
        for number in (1, 4):
            path = tmp_path / f"model-{number:05d}-of-00004.safetensors"
            write_file(path, {f"t{number}": ONE["w"]}, b"\0" * 8)
        with pytest.raises(CheckpointError, match=r"converted \(2\)") as error:
            from_safetensors(tmp_path, tmp_path / "model")
        assert "\n  - 'model-00002-of-00004.safetensors': expected" in str(error.value)
        assert "\n  - 'model-00003-of-00004.safetensors': expected" in str(error.value)
        (tmp_path / "model-00002-of-00004.safetensors").touch()
        (tmp_path / "model-00003-of-00004.safetensors").touch()
        with pytest.raises(CheckpointError, match=r"converted \(2\)") as error:
            from_safetensors(tmp_path, tmp_path / "model")
        assert str(error.value).count(": expected a header of safetensors, found a file") == 2

    def test_a_file_that_is_replaced_meanwhile(self, tmp_path, monkeypatch) -> None:
        path = write_file(tmp_path / "in.safetensors", ONE, b"\0" * 8)

        def and_replace(*args: Any, **options: Any) -> None:
            write_file(tmp_path / "new", ONE, b"\1" * 8).replace(path)

        monkeypatch.setattr("shardproof.checkpoint._from_safetensors.clear_way", and_replace)
        with pytest.raises(CheckpointError, match="it changed while it was converted"):
            from_safetensors(path, tmp_path / "out" / "model")

    def test_a_shard_that_was_left_is_of_its_step(self, tmp_path, make_shard_faults) -> None:
        """So it is not taken for one of another step's."""
        path = write_file(tmp_path / "in.safetensors", ONE, b"12345678")
        make_shard_faults(tmp_path).fail("link", errno.EIO, match="*.metadata.json")
        prefix = tmp_path / "out" / "model"
        with pytest.raises(OSError, match="Input/output"):
            from_safetensors(path, prefix, step=5)
        with pytest.raises(CheckpointError, match="expected step 6, found step 5"):
            MultiShardSaver().save_metadata(prefix, world_size=1, step=6)

    def test_nothing_to_convert(self, tmp_path) -> None:
        for path in (tmp_path, tmp_path / "none", tmp_path / "none.safetensors.index.json"):
            with pytest.raises(CheckpointNotFoundError):
                from_safetensors(path, tmp_path / "model")

    def test_several_indices(self, downloaded, tmp_path) -> None:
        (downloaded / "other.safetensors.index.json").write_text("{}")
        with pytest.raises(CheckpointError, match=r"(?s)one index.*model\..*other\.") as error:
            from_safetensors(downloaded, tmp_path / "model")
        assert error.value.path == str(downloaded)

    def test_a_file_that_changes_meanwhile(self, tmp_path, make_shard_faults) -> None:
        path = write_file(tmp_path / "in.safetensors", ONE, b"\0" * 8)
        make_shard_faults(tmp_path).short("read", 0, nth=3, match="in.safetensors")
        with pytest.raises(CheckpointError, match="it changed while it was converted"):
            from_safetensors(path, tmp_path / "out" / "model")
        assert not list((tmp_path / "out").iterdir())

    def test_in_a_thread_that_goes_on_while_others_write(self, tmp_path) -> None:
        """Pieces that end where blocks do are not copied: the next one was read over them."""
        arrays = {"a": any_bits("uint8", (2**20 - 128,)), "b": any_bits("uint8", (2**24,), seed=1)}
        safetensors.numpy.save_file(arrays, tmp_path / "x.safetensors")
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            executor.submit(from_safetensors, tmp_path / "x.safetensors", tmp_path / "m").result()
        assert bits(MultiShardLoader().load_shard(tmp_path / "m", 0)) == bits(arrays)

    def test_no_regular_file(self, tmp_path) -> None:
        os.mkfifo(tmp_path / "w.safetensors")
        with pytest.raises(CheckpointError, match="expected a regular file, found a FIFO"):
            from_safetensors(tmp_path, tmp_path / "model")


def test_every_type_of_the_format_is_decided_about() -> None:
    from shardproof.checkpoint._format import ITEM_SIZES

    assert ITEM_SIZES.keys() == NAMES.keys() | {"complex128"}
    assert not [name for name, n in collections.Counter(NAMES.values()).items() if n > 1]

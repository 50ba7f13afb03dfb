"""Arrays of zarr: what metadata say of chunks, in the golden ones and in many others."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof import formats, repair, seal, validate
from tests.formats.looking import found_in, of_golden, said_of


def patched(path: Path, at: int, data: bytes) -> None:
    whole = path.read_bytes()
    at %= len(whole)
    path.write_bytes(whole[:at] + data + whole[at + len(data) :])


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


HARM: dict[tuple[str, str], tuple[Callable[[Path], object], str]] = {
    ("zarr-2", "raw/2"): (cut, "28 bytes"),
    ("zarr-2", "deep/1/0"): (cut, "64 bytes"),
    ("zarr-2", "packed/Blosc/1"): (cut, "60 bytes, as the header of blosc says"),
    ("zarr-2", "packed/Zstd/1"): (cut, "63 bytes of zstd, or more"),
    ("zarr-2", "packed/GZip/1"): (cut, "a packed stream whose checksums hold"),
    ("zarr-2", "packed/Zlib/1"): (cut, "a packed stream whose checksums hold"),
    ("zarr-2", "packed/BZ2/1"): (cut, "the end of bzip2"),
    ("zarr-2", "raw/.zarray"): (cut, "metadata of zarr"),
    ("zarr-2", ".zattrs"): (cut, "metadata of zarr"),
    ("zarr-2", "packed/.zgroup"): (cut, "metadata of zarr"),
    ("zarr-3", "raw/c/2"): (cut, "28 bytes"),
    ("zarr-3", "a/zstd/c/0"): (cut, "63 bytes of zstd, or more"),
    ("zarr-3", "a/shards/c/1"): (cut, "the index of a shard, by its checksum"),
    ("zarr-3", "a/shards/c/0"): (
        lambda path: patched(path, -100, b"x"),
        "the index of a shard, by its checksum",
    ),
    ("zarr-3", "raw/zarr.json"): (cut, "metadata of zarr"),
}


@pytest.mark.parametrize("where", HARM, ids="/".join)
def test_a_file_that_is_damaged_comes_back(tmp_path: Path, where: tuple[str, str]) -> None:
    name, file = where
    harm, expected = HARM[where]
    path, source = of_golden(name, tmp_path / "a"), of_golden(name, tmp_path / "b")
    harm(path / file)
    [finding] = validate(path, level="complete").findings
    assert finding.path == path / file
    assert finding.expected == expected
    assert repair(path, str(source)).repaired == (file,)


@pytest.mark.parametrize("name", ["zarr-2", "zarr-3"])
def test_metadata_that_are_consolidated_and_gone(name: str, tmp_path: Path) -> None:
    """A chunk may be gone, though: it is then one that was never written."""
    path = of_golden(name, tmp_path)
    file = {"zarr-2": "raw/.zarray", "zarr-3": "raw/zarr.json"}[name]
    (path / file).unlink()
    (path / {"zarr-2": "deep/1/0", "zarr-3": "a/zstd/c/0"}[name]).unlink()
    [finding] = validate(path).findings
    assert (finding.kind, finding.path) == ("missing", path / file)


@pytest.mark.parametrize(
    ("name", "root", "array"),
    [
        ("zarr-2", ".zmetadata", "deep/.zarray"),
        ("zarr-2", ".zmetadata", "raw/.zarray"),
        ("zarr-3", "zarr.json", "raw/zarr.json"),
        ("zarr-3", "zarr.json", "a/zstd/zarr.json"),
    ],
)
def test_chunks_whose_array_is_described_nowhere(
    name: str, root: str, array: str, tmp_path: Path
) -> None:
    path = of_golden(name, tmp_path)
    (path / root).unlink()
    group = {".zmetadata": ".zgroup", "zarr.json": "zarr.json"}[root]
    (path / group).write_text('{"zarr_format": 3, "node_type": "group"}')
    assert validate(path, level="valid").ok
    (path / array).unlink()
    (path / array).with_name(".zattrs").write_text("{}")
    [finding] = validate(path).findings
    assert (finding.path, finding.found) == ((path / array).parent, "its chunks alone")


def test_an_array_whose_description_can_not_be_read_is_told_of_once(tmp_path: Path) -> None:
    path = of_golden("zarr-3", tmp_path)
    (path / "a/zstd/zarr.json").write_text("{")
    assert found_in(path) == [("structure", "zarr.json")]
    (path / "a/zarr.json").write_text("{")
    assert len(found_in(path)) == 2
    assert found_in(path / "a/zstd") == [("structure", "zarr.json")]


def test_a_seal_knows_of_each_chunk(tmp_path: Path) -> None:
    path = of_golden("zarr-3", tmp_path)
    seal(path)
    assert formats.detect(str(path)).name == "zarr"
    (path / "a/zstd/c/0").unlink()
    assert found_in(path) == [("missing", "0")]


def node(path: Path, **changes: Any) -> Path:
    text = json.loads((path / "zarr.json").read_text()) | changes
    (path / "zarr.json").write_text(json.dumps(text))
    return path


ODD: dict[str, dict[str, Any]] = {
    "no grid": {"chunk_grid": None},
    "no codecs": {"codecs": []},
    "a codec that is a number": {"codecs": [3, {"name": 4, "configuration": 5}]},
    "a shape of texts": {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": ["x"]}}
    },
    "numbers of more digits than Python writes": {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10**400] * 60}}
    },
    "no chunk": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0]}}},
    "an unknown type": {"data_type": {"name": "mine", "configuration": {"length_bytes": "x"}}},
    "an index of nothing": {
        "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [6]}}]
    },
    "an index that is packed": {
        "codecs": [
            {
                "name": "sharding_indexed",
                "configuration": {"chunk_shape": [6], "index_codecs": ["bytes", "gzip"]},
            }
        ]
    },
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_not_known_has_no_law(tmp_path: Path, what: str) -> None:
    path = of_golden("zarr-3", tmp_path)
    array = path / ("raw" if what == "an unknown type" else "a/shards")
    node(array, **ODD[what])
    os.truncate(array / "c/0", 5)
    assert validate(path, level="complete").ok


@pytest.mark.parametrize("between", ["", "0", "[("])
def test_a_hostile_key_takes_no_time(tmp_path: Path, between: str) -> None:
    """A pattern of 64 numbers with nothing between them would try each way to part a name."""
    path = of_golden("zarr-3", tmp_path)
    encoding = {"name": "v2", "configuration": {"separator": between}}
    node(path / "raw", shape=[2] * 64, chunk_key_encoding=encoding)
    (path / "raw" / ("0" * 200 + "x")).touch()
    assert validate(path, level="complete").ok
    node(path / "raw", shape=[2] * 65)
    assert found_in(path) == [("structure", "zarr.json")]


def test_an_index_that_would_be_larger_than_all_memory_is_not_read(tmp_path: Path) -> None:
    path = of_golden("zarr-3", tmp_path)
    huge = {"name": "regular", "configuration": {"chunk_shape": [6 * 2**34]}}
    node(path / "a/shards", chunk_grid=huge)
    os.truncate(path / "a/shards/c/0", 16 * 2**34 + 4)
    os.truncate(path / "a/shards/c/1", 9)
    assert said_of(path) == [(f"an index of {16 * 2**34 + 4} bytes", "9 bytes in all")]


STREAMS = [("v2", "."), ("v2", "/"), ("default", "."), ("default", "/")]
DATA = {
    "numbers": np.arange(1000, dtype="f4").reshape(10, 100),
    "one": np.array(3.5),
    "bools": np.ones(100, bool),
    "texts": np.array(["a", "bcd"]),
    "bytes": np.array([b"a", b"bcd"]),
    "times": np.array(["2020-01-01"], "M8[ns]"),
    "complex": np.ones(5, "c16"),
    "fields": np.ones(5, [("a", "f4"), ("b", "i2")]),
    "none": np.zeros((0, 5)),
    "fill": np.zeros((20, 5)),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("compressors", ["auto", None])
def test_sound_arrays(tmp_path: Path, version: Any, data: str, compressors: Any) -> None:
    zarr = pytest.importorskip("zarr", "3")
    path, how = tmp_path / "a.zarr", {"zarr_format": version, "compressors": compressors}
    zarr.create_array(path, data=DATA[data], **how)
    assert validate(path, level="valid", strict=True).ok
    for name, between in STREAMS[: 2 * (version == 2) or None]:
        key = {"name": name, "separator": between}
        array = zarr.create_array(
            path,
            data=DATA["numbers"],
            chunks=(3, 30),
            chunk_key_encoding=key,
            overwrite=True,
            **how,
        )
        array.resize((7, 100))
        report = validate(path, level="valid", strict=True)
        assert report.ok, str(report)
        assert report.n_files > 12


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_sound_codecs(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", "3")
    codecs = zarr.codecs
    numcodecs = pytest.importorskip("numcodecs")
    data = DATA["numbers"]
    old = [getattr(numcodecs, each)() for each in ("LZ4", "LZMA", "BZ2", "Zlib")]
    old += [numcodecs.Blosc("zstd", shuffle=2), numcodecs.Zstd(checksum=True)]
    kinds: list[dict[str, Any]] = [{"zarr_format": 2, "compressors": each} for each in old]
    delta = [numcodecs.Delta("f4")]
    kinds += [{"zarr_format": 2, "filters": delta, "compressors": None}]
    new = (codecs.BloscCodec(), codecs.GzipCodec(), codecs.ZstdCodec(checksum=True))
    kinds += [{"compressors": each} for each in (*new, codecs.Crc32cCodec())]
    kinds += [{"compressors": (codecs.ZstdCodec(), codecs.Crc32cCodec())}]
    kinds += [{"filters": codecs.TransposeCodec(order=(1, 0)), "compressors": None}]
    inner = {"chunk_shape": (1, 10)}
    for how in (
        {"index_location": "start"},
        {"index_codecs": [codecs.BytesCodec()]},
        {"codecs": [codecs.ShardingCodec(chunk_shape=(1, 5))]},
    ):
        kinds += [{"serializer": codecs.ShardingCodec(**inner, **how), "compressors": None}]
    for number, kind in enumerate(kinds):
        path = tmp_path / f"{number}.zarr"
        array = zarr.create_array(path, shape=data.shape, dtype="f4", chunks=(4, 50), **kind)
        array[2:9, 7:33] = 5
        report = validate(path, level="valid", strict=True)
        assert report.ok, (kind, str(report))


@pytest.mark.parametrize("version", [2, 3])
def test_groups_with_any_names_and_attributes(tmp_path: Path, version: Any) -> None:
    """Variables T and t are two, as the file system has it; Python writes NaN, which is no JSON."""
    zarr = pytest.importorskip("zarr", "3")
    group = zarr.open_group(tmp_path, mode="w", zarr_format=version)
    for name in ("T", "t", "zarr", "x/y/c", "0/1"):
        group.create_array(name, data=np.arange(5))
    group.attrs.update(metadata="x", bad=[float("nan"), float("-inf")], text=": NaN,")
    report = validate(tmp_path, level="valid", strict=True)
    assert report.ok, str(report)

"""Sets of parquet files: counted by their names, looked at by their footers, proven by pages."""

import gzip
import json
import os
import tracemalloc
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardproof import ManifestError, formats, validate
from tests.formats.looking import found_in, of_golden
from tests.helpers.checkpoint_files import flip

TABLE = pa.table(
    {
        "text": [f"row {n}" * (n % 7) for n in range(500)],
        "n": list(range(500)),
        "list": [[n, None] for n in range(500)],
        "struct": [{"a": n, "b": {"c": "x"}} for n in range(500)],
        "none": pa.nulls(500),
    }
)


def write_set(path: Path, n_files: int = 3, **options) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for number in range(n_files):
        name = f"train-{number:05}-of-{n_files:05}.parquet"
        pq.write_table(TABLE, path / name, row_group_size=150, **options)
    return path


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_what_pyarrow_writes_is_sound(
    tmp_path, compression: str, version: str, dictionary: bool
) -> None:
    how = {"compression": compression, "data_page_version": version, "use_dictionary": dictionary}
    how |= {"write_page_checksum": True, "data_page_size": 500, "write_page_index": dictionary}
    write_set(tmp_path, 2, **how)
    report = validate(tmp_path, level="valid")
    assert (report.format, report.ok, report.n_proven) == ("parquet", True, 0)
    assert len(report.unproven) == 2, "a footer has no checksum"


def is_refused(path: Path) -> bool:
    try:
        pq.read_table(path, page_checksum_verification=True)
    except (OSError, ValueError) as error:
        return "CRC checksum verification failed" in str(error)
    return False


@pytest.mark.slow
def test_any_flipped_bit_that_its_library_finds_is_found(tmp_path) -> None:
    write_set(tmp_path, 1, write_page_checksum=True, compression="none")
    path = tmp_path / "train-00000-of-00001.parquet"
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    refused, missed = 0, []
    for at in range(4, footer, 97):
        data = bytearray(whole)
        data[at] ^= 16
        path.write_bytes(data)
        if is_refused(path):
            refused += 1
            missed += [] if found_in(tmp_path, "valid") else [at]
    assert (missed, refused > 200) == ([], True)


@pytest.mark.parametrize(
    ("names", "dataset_name", "is_told"),
    [
        (["json-train-00000-of-00002", "json-train-00001-of-00002"], "json", True),
        (["train"], None, True),
        (["train-00000-of-00001-0f1e2d3c4b5a6978"], None, True),
        (["json-train"], None, False),  # of another dataset, by what is known
        (["json-train"], "csv", False),
        (["train-extra"], None, False),
    ],
)
def test_whose_rows_a_split_counts(tmp_path, names, dataset_name, is_told) -> None:
    for name in names:
        pq.write_table(pa.table({"x": [1, 2]}), tmp_path / f"{name}.parquet")
    for n_rows, kinds in ((2 * len(names), []), (5, ["structure"] * is_told)):
        info = {"dataset_name": dataset_name, "splits": {"train": {"num_examples": n_rows}}}
        (tmp_path / "dataset_info.json").write_text(json.dumps(info))
        assert [kind for kind, _ in found_in(tmp_path)] == kinds


@pytest.mark.parametrize("text", ["{", "[]", '{"splits": null}', '{"splits": {"a": {}}}', "{}"])
def test_what_dataset_info_may_be_else(tmp_path, text: str) -> None:
    write_set(tmp_path)
    (tmp_path / "dataset_info.json").write_text(text)
    assert found_in(tmp_path) == []


HARM = {
    "cut": lambda data: data[:-1],
    "cut in the middle": lambda data: data[: len(data) // 2],
    "without its begin": lambda data: data[4:],
    "a magic of its own": lambda data: b"PAR2" + data[4:],
    "a footer that is too long": lambda data: data[:-8] + b"\xff\xff\xff\x7f" + data[-4:],
    "no footer": lambda data: data[:-8] + b"\0\0\0\0" + data[-4:],
    "a part is gone": lambda data: data[:200] + data[400:],
    "text": lambda data: b"hello",
}


@pytest.mark.parametrize("harm", HARM)
def test_harm_to_the_structure(tmp_path, harm: str) -> None:
    write_set(tmp_path, 1)
    path = tmp_path / "train-00000-of-00001.parquet"
    path.write_bytes(HARM[harm](path.read_bytes()))
    assert found_in(tmp_path) == [("structure", path.name)]


def test_an_encrypted_footer_is_let_be(tmp_path) -> None:
    data = b"PARE" + bytes(50) + b"x" * 20 + (20).to_bytes(4, "little") + b"PARE"
    (tmp_path / "a.parquet").write_bytes(data)
    assert found_in(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "part"),
    [("parquet-dask", "part.1.parquet"), ("parquet-hive", "year=2023/part.0.parquet")],
)
def test_metadata_of_all_name_each_part_and_count_its_rows(tmp_path, name: str, part: str) -> None:
    path = of_golden(name, tmp_path)
    assert validate(path, level="complete", strict=True).ok
    rows = pq.ParquetFile(path / part).read()
    pq.write_table(rows.slice(1), path / part)
    assert found_in(path) == [("structure", path.joinpath(part).name)]
    (path / part).unlink()
    assert found_in(path, "present") == [("missing", path.joinpath(part).name)]


def test_metadata_of_all_that_name_what_leads_elsewhere_are_refused(tmp_path) -> None:
    path = of_golden("parquet-dask", tmp_path)
    data = (path / "_metadata").read_bytes()
    (path / "_metadata").write_bytes(data.replace(b"part.1.parquet", b"../../.parquet"))
    [found] = [each for each in validate(path).findings if each.is_of_entry]
    assert "'../../.parquet'" in found.found


def spark(to: Path) -> tuple[Path, Path]:
    path = of_golden("parquet-spark", to)
    return path, sorted(path.glob("part-*"))[1]


@pytest.mark.parametrize("kept", [0, 1])
def test_a_checksum_that_is_left_tells_of_a_file_that_is_gone(tmp_path, kept: int) -> None:
    path, part = spark(tmp_path)
    for each in sorted(path.glob("part-*"))[kept:]:
        each.unlink()
    assert ("missing", part.name) in found_in(path, "present")


def test_checksums_of_bytes_in_a_page_are_of_kind_digest(tmp_path) -> None:
    path, part = spark(tmp_path)
    flip(part, 60)
    assert (found_in(path), found_in(path, "valid")) == ([], [("digest", part.name)])


def test_checksums_that_agree_are_reported_and_are_no_proof(tmp_path) -> None:
    path, part = spark(tmp_path)
    crc = path / f".{part.name}.crc"
    n_files = len([*path.glob("*.parquet")])
    report = validate(path, level="valid")
    assert (report.n_proven, report.n_agreed, len(report.unproven)) == (0, n_files, n_files)
    assert f"without a digest ({n_files} agree with checksums beside them)" in str(report)
    assert report.to_dict()["n_agreed"] == n_files
    crc.unlink()
    assert validate(path, level="valid").n_agreed == n_files - 1


@pytest.mark.parametrize("text", [b"", b"crc\0", b"crc\0\0\0\0\0", b"crc\0\0\0\x02\0", b"nonsense"])
def test_torn_checksums_are_a_finding(tmp_path, text: bytes) -> None:
    path, part = spark(tmp_path)
    (path / f".{part.name}.crc").write_bytes(text)
    assert found_in(path, "valid") == [("digest", part.name)]


def test_checksums_are_of_as_many_bytes_as_they_say(tmp_path) -> None:
    path, part = spark(tmp_path)
    data, n_each = part.read_bytes(), 100
    pieces = (data[at : at + n_each] for at in range(0, len(data), n_each))
    sums = [n_each, *map(zlib.crc32, pieces)]
    text = b"crc\0" + b"".join(number.to_bytes(4, "big") for number in sums)
    (path / f".{part.name}.crc").write_bytes(text)
    assert found_in(path, "valid") == []


def test_a_job_that_has_not_committed_is_a_finding(tmp_path) -> None:
    path, _ = spark(tmp_path)
    (path / "_temporary/0/_temporary").mkdir(parents=True)
    (path / "_SUCCESS").unlink()
    assert (found_in(path, "present"), found_in(path)) == ([], [("structure", "_temporary")])


@pytest.mark.slow
def test_metadata_of_all_with_no_end_of_row_groups_take_little_memory(tmp_path) -> None:
    """A row group takes a byte at least; so those of a megabyte are a million."""
    write_set(tmp_path, 1)
    n_groups = 10**6
    footer = b"\x36\x00\x19\xfc" + bytes([n_groups & 127 | 128, n_groups >> 7 & 127 | 128])
    footer += bytes([n_groups >> 14]) + bytes(n_groups) + b"\0"
    footer += len(footer).to_bytes(4, "little")
    (tmp_path / "_metadata").write_bytes(b"PAR1" + footer + b"PAR1")
    tracemalloc.start()
    assert validate(tmp_path, level="complete").n_files == 1
    assert tracemalloc.get_traced_memory()[1] < 2 * 10**7
    tracemalloc.stop()


def test_a_job_over_partitions_that_was_killed_is_told_by_name(tmp_path) -> None:
    (tmp_path / "_temporary/0").mkdir(parents=True)
    with pytest.raises(ManifestError, match=r"_temporary.*has not committed"):
        validate(tmp_path)
    for part in ("y=0", "y=1"):
        write_set(tmp_path / part, 1)
    assert [Path(each) for each in formats.find(tmp_path)] == [tmp_path]
    assert found_in(tmp_path) == [("structure", "_temporary")]


def test_partitions_are_one_data_set_and_what_lies_beside_them_is_none_of_it(tmp_path) -> None:
    for part in ("y=2023/m=1", "y=2023/m=2", "y=__HIVE_DEFAULT_PARTITION__/m=1", "y=2024/m=1"):
        write_set(tmp_path / part, 1)
    for noise in (
        "_SUCCESS",
        ".y=2025/a.parquet",
        "y=2024/.a.parquet.crc~",
        "y=2024/x.parquet.part",
    ):
        (tmp_path / noise).parent.mkdir(exist_ok=True)
        (tmp_path / noise).touch()
    (tmp_path / "y=2026").mkdir()
    report = validate(tmp_path, level="valid")
    assert (report.ok, report.n_files) == (True, 4), str(report)
    [shard] = (tmp_path / "y=2023/m=2").iterdir()
    shard.unlink()  # of which nothing tells
    assert found_in(tmp_path) == []
    [shard] = (tmp_path / "y=2024/m=1").iterdir()
    os.truncate(shard, shard.stat().st_size - 1)
    assert found_in(tmp_path) == [("structure", shard.name)]


def test_a_partition_that_is_a_link_is_told_since_nobody_looks_into_it(tmp_path) -> None:
    for name in ("set/y=1", "elsewhere"):
        write_set(tmp_path / name, 1)
    (tmp_path / "set/y=2").symlink_to("../elsewhere")
    (tmp_path / "set/y=3").symlink_to("../gone")
    found = [("missing", "y=3"), ("not-regular", "y=2")]
    assert sorted(found_in(tmp_path / "set", "present")) == found


def test_names_imply_what_is_missing_in_the_folder_of_each(tmp_path) -> None:
    for part in ("lang=en", "lang=fr"):
        write_set(tmp_path / part, 3)
    gone = sorted((tmp_path / "lang=fr").iterdir())[1]
    gone.unlink()
    (tmp_path / "lang=en/.gone.parquet.crc").write_bytes(b"crc\0\0\0\2\0")
    kinds = [("missing", "gone.parquet"), ("missing", gone.name)]
    assert found_in(tmp_path, "present") == kinds


def test_folders_beside_partitions_are_found_too(tmp_path) -> None:
    for name in ("y=1", "others"):
        write_set(tmp_path / name, 1)
    assert [Path(each).name for each in formats.find(tmp_path)] == ["others", "y=1"]
    (tmp_path / "others").rename(tmp_path / "_delta_log")
    assert [Path(each) for each in formats.find(tmp_path)] == [tmp_path]


def test_a_partition_of_other_files_is_no_parquet(tmp_path) -> None:
    (tmp_path / "y=1").mkdir()
    (tmp_path / "y=1/a.csv").write_text("1,2")
    with pytest.raises(ManifestError, match="of no known format"):
        validate(tmp_path)


@pytest.mark.parametrize("name", ["a.parq", "a.pq", "a.PARQUET", "a.parquet.gzip", "a.Parquet.gz"])
def test_other_names_are_parquet_by_their_magic(tmp_path, name: str) -> None:
    write_set(tmp_path, 2)
    one, other = sorted(tmp_path.iterdir())
    one.rename(tmp_path / name)
    other.rename(tmp_path / f"b-{name}")
    assert found_in(tmp_path) == []
    os.truncate(tmp_path / name, 0)  # without which others tell
    assert found_in(tmp_path, "present") == [("empty", name)]
    (tmp_path / f"b-{name}").write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(ManifestError, match="of no known format"):
        validate(tmp_path)


def test_files_that_are_packed_as_a_whole_are_none_of_the_set(tmp_path) -> None:
    write_set(tmp_path, 2)
    (tmp_path / "old.parquet.gz").write_bytes(gzip.compress(b"PAR1"))
    assert validate(tmp_path, level="complete").n_files == 2


@pytest.mark.parametrize("has_parts", [True, False], ids=["some named", "none named"])
def test_parts_that_metadata_of_all_do_not_name_are_looked_at(tmp_path, has_parts: bool) -> None:
    golden = "parquet-dask" if has_parts else "parquet-plain"
    path = of_golden(golden, tmp_path)
    if not has_parts:
        pq.write_metadata(TABLE.schema, path / "_metadata")
        assert validate(path, level="complete", strict=True).n_files == 3
    write_set(path / "y=new", 1)
    assert found_in(path) == []
    [new] = (path / "y=new").iterdir()
    new.write_bytes(new.read_bytes()[:-9])
    assert found_in(path) == [("structure", new.name)]


def test_missing_ones_are_known_by_the_names_of_the_others(tmp_path) -> None:
    write_set(tmp_path)
    (tmp_path / "train-00001-of-00003.parquet").unlink()
    assert found_in(tmp_path, "present") == [("missing", "train-00001-of-00003.parquet")]

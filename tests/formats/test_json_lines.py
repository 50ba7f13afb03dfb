"""JSON lines, plain or packed, as many writers write them."""

import bz2
import gzip
import json
import lzma
import os
from functools import partial
from pathlib import Path

import pytest

from shardproof import ManifestError, formats, validate
from shardproof.formats.plain import JSON_LINES as FORMAT
from tests.formats.looking import found_in, named, of_golden, said_of

LINES = [json.dumps({"text": f"row {n}", "meta": {}}) for n in range(3000)]
TEXT = ("\n".join(LINES) + "\n").encode()
look = partial(named, FORMAT)

SOUND = {
    "no end of the last line": {"a.jsonl": TEXT[:-1]},
    "ends as of Windows": {"a.jsonl": TEXT.replace(b"\n", b"\r\n")},
    "a byte order mark": {"a.jsonl": b"\xef\xbb\xbf" + TEXT},
    "blank lines": {"a.jsonl": TEXT.replace(b"\n", b"\n\n") + b"\n \n"},
    "not a number": {"a.jsonl": b'{"a": NaN, "b": -Infinity}\n'},
    "no objects": {"a.ndjson": b'1\n"a"\n[1, 2]\nnull\n'},
    "a number of many digits": {"a.jsonl": b"1" * 9999},
    "not UTF-8": {"a.jsonl": b'{"a": "\xe9"}\n'},
    "deep": {"a.jsonl": b"[" * 20_000 + b"]" * 20_000},
    "a line longer than a look": {"a.jsonl": b'"' + b"x" * 200_000 + b'"\n' + TEXT},
    "lines that are all longer": {"a.jsonl": (b'"' + b"x" * 200_000 + b'"\n') * 2},
    "separators of Unicode": {"a.jsonl": '"a\u2028b\x85"\n'.encode()},
    "members of gzip": {"a.jsonl.gz": gzip.compress(TEXT[:999]) + gzip.compress(TEXT[999:])},
    "gzip of nothing": {"a.jsonl.gz": gzip.compress(b""), "b.jsonl.gz": gzip.compress(TEXT)},
    "bzip2 and xz": {"a.jsonl.bz2": bz2.compress(TEXT), "b.json.xz": lzma.compress(TEXT)},
    "one value on many lines": {"a.json.gz": gzip.compress(b"[\n 1,\n 2\n]\n")},
    "what lies beside": {
        "a.jsonl": TEXT,
        "README.md": b"#",
        "LICENSE": b"",
        "x.json": b"{",
        "_SUCCESS": b"",
        ".a.jsonl.swp": b"x",
        "b.jsonl.part": b"x",
        "b.txt": b"",
        ".gitattributes": b"*",
    },
}


@pytest.mark.parametrize("what", SOUND)
def test_what_is_sound(tmp_path: Path, what: str) -> None:
    for name, data in SOUND[what].items():
        (tmp_path / name).write_bytes(data)
    assert formats.detect(str(tmp_path)).name == "json-lines"
    report = validate(tmp_path, level="valid")
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (TEXT[:-9], "JSON in the last line"),
        (TEXT[5:], "JSON in the first line"),
        (bytes(4096), "JSON in the first line"),
        (TEXT + bytes(100), "JSON in the last line"),
        (b"<html>\n</html>\n", "JSON in the first line"),
    ],
)
def test_a_plain_file_that_is_cut_or_another(tmp_path: Path, data: bytes, expected: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(data)
    assert [each[2] for each in look(tmp_path)] == [expected]


def test_a_cut_between_two_lines_is_a_blind_spot(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(TEXT[: TEXT.index(b"\n") + 1])
    assert look(tmp_path) == []


def test_names_of_a_set_imply_those_that_are_missing(tmp_path: Path) -> None:
    path = of_golden("json-lines-gz", tmp_path)
    (path / "c4-train.00001-of-00003.json.gz").unlink()
    assert found_in(path, "present") == [("missing", "c4-train.00001-of-00003.json.gz")]


@pytest.mark.parametrize("name", ["json-lines-gz", "json-lines-zst"])
@pytest.mark.parametrize("n_bytes", [1, 9, 40])
def test_a_packed_file_that_is_cut(tmp_path: Path, name: str, n_bytes: int) -> None:
    path = of_golden(name, tmp_path)
    shard = min(path.iterdir())
    os.truncate(shard, shard.stat().st_size - n_bytes)
    assert found_in(path) == [("structure", shard.name)]


def test_what_is_not_packed_as_its_name_says(tmp_path: Path) -> None:
    path = of_golden("json-lines-gz", tmp_path)
    shard = min(path.iterdir())
    shard.write_bytes(gzip.decompress(shard.read_bytes()))  # a server unpacked it on the way
    assert [each[0] for each in said_of(path)] == ["the beginning of gzip"]


def test_zstd_of_more_blocks_than_a_look_follows_is_walked_at_valid(tmp_path: Path) -> None:
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + (10 << 3).to_bytes(3, "little") + b"x" * 10
    blocks = (10 << 3).to_bytes(3, "little") + b"x" * 10
    last = (10 << 3 | 1).to_bytes(3, "little") + b"x" * 10
    whole = frame + blocks * 5000 + last
    path = tmp_path / "a.jsonl.zst"
    for data, levels in ((whole, []), (whole[:-3], ["valid"])):
        path.write_bytes(data)
        seen = [level for level in ("complete", "valid") if not validate(tmp_path, level=level).ok]
        assert seen == levels


def test_bytes_that_changed_in_gzip_are_proven(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(os.urandom(200_000).hex().encode()))
    data[100_000] ^= 1
    (tmp_path / "a.json.gz").write_bytes(data)
    assert [each[1] for each in look(tmp_path, "valid")] == ["digest"]


def test_lines_that_describe_other_files_are_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "metadata.jsonl").write_bytes(TEXT)
    for name in ("0.png", "1.png"):
        (tmp_path / name).write_bytes(b"PNG")
    with pytest.raises(ManifestError, match="of no known format"):
        validate(tmp_path)


@pytest.mark.parametrize(
    "name", ["safetensors", "parquet-plain", "npy", "torch", "gguf", "mds-raw", "lerobot-2"]
)
def test_lines_beside_another_format_leave_it_as_it_is(tmp_path: Path, name: str) -> None:
    path = of_golden(name, tmp_path)
    before = formats.detect(str(path)).name
    (path / "log.jsonl").write_bytes(TEXT)
    assert formats.detect(str(path)).name == before


def test_a_list_of_other_files_too_is_the_promise_and_a_seal_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(TEXT)
    (tmp_path / "b.csv").write_bytes(b"1,2")
    md5 = "d41d8cd98f00b204e9800998ecf8427e"
    (tmp_path / "md5sum.txt").write_text(f"{md5}  a.jsonl\n{md5}  b.csv\n")
    assert formats.detect(str(tmp_path)).name == "digests"
    (tmp_path / "md5sum.txt").rename(tmp_path / "MD5SUMS")
    assert formats.detect(str(tmp_path)).name == "json-lines"
    assert [each.path.name for each in validate(tmp_path, level="valid").findings] == [
        *("a.jsonl", "b.csv"),
    ]


def test_what_lies_below_is_found_too(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(TEXT)
    below = of_golden("parquet-plain", tmp_path)
    assert [*formats.find(tmp_path)] == [str(tmp_path), str(below)]

"""The commands seal, repair, formats, and what validate has for them."""

import json
import re
import shutil
from pathlib import Path

import pytest

from shardproof import formats
from tests.goldens import GOLDENS
from tests.helpers import commands


def run(*args: object) -> tuple[int, str]:
    done = commands.run(*args)
    return done.exit_code, done.output


def test_formats_are_printed() -> None:
    code, text = run("formats")
    assert code == 0
    for name in formats.names():
        assert re.search(rf"(?m)^{name} +{re.escape(formats.get(name).description)}$", text)
    told = json.loads(run("formats", "--json")[1])
    assert [each["format"] for each in told] == formats.names()
    assert json.loads(run("formats", "mds", "--json")[1]) == told[formats.names().index("mds")]
    assert "blind_spots" in told[0]
    code, text = run("formats", "mds")
    assert (code, "recognized by: index.json" in text) == (0, True)
    code, text = run("formats", "parqet")
    assert (code, "found 'parqet'; did you mean parquet?" in text) == (2, True)


def test_a_format_that_is_named(make_shards_dir) -> None:
    path = make_shards_dir(1)
    assert run("validate", "--format", "saev", path)[0] == 0
    code, text = run("validate", "--format", "mds", path)
    assert (code, "index.json" in text) == (2, True)
    code, text = run("validate", "--format", "nonsense", path)
    assert (code, "expected one of saev" in text) == (2, True)


def test_links_out_of_a_directory(make_shards_dir, tmp_path: Path) -> None:
    path = make_shards_dir(2)
    (path / "acts000001.bin").rename(tmp_path / "x")
    (path / "acts000001.bin").symlink_to(tmp_path / "x")
    assert run("validate", path)[0] == 1
    assert run("validate", "--follow-links", path)[0] == 0


def test_recursive_finds_every_directory_of_a_tree(tmp_path: Path) -> None:
    for golden in GOLDENS[:4]:
        shutil.copytree(golden.path, tmp_path / golden.name, symlinks=True)
    done = commands.run("validate", "-r", "--json", tmp_path)
    assert done.exit_code == 0
    found = {Path(each["path"]).name for each in json.loads(done.stdout)}
    assert {golden.name for golden in GOLDENS[:4] if golden.name != "arrow-splits"} <= found
    (tmp_path / "nothing").mkdir()
    assert run("validate", "--recursive", tmp_path / "nothing")[0] == 2


def test_what_is_broken_is_printed_for_an_array(make_shards_dir) -> None:
    path = make_shards_dir(9, missing=[0, 3, 4, 5, 8])
    assert run("validate", "--broken", "indices", path) == (1, "0,3-5,8\n")
    assert run("validate", "--broken", "names", path)[1].splitlines()[0] == "acts000000.bin"
    assert run("validate", "--broken", "indices", make_shards_dir(2)) == (0, "")


def test_strict_reports_stray_files(make_shards_dir) -> None:
    path = make_shards_dir(2)
    (path / "stray").touch()
    assert run("validate", path)[0] == 0
    code, text = run("validate", "--strict", path)
    assert (code, "Unexpected files (1):" in text) == (1, True)


def test_repair_fetches_what_is_missing(make_shards_dir, tmp_path: Path) -> None:
    path = make_shards_dir(3)
    whole = shutil.copytree(path, tmp_path / "whole")
    (path / "acts000001.bin").unlink()
    size = (whole / "acts000001.bin").stat().st_size
    code, text = run("repair", path, "--from", whole, "--dry-run")
    assert (code, text) == (1, f"acts000001.bin\t{size}\n1 files, {size} bytes\n")
    code, text = run("repair", path, "--from", whole, "--json")
    done = json.loads(text)
    assert (code, done["repaired"], done["report"]["ok"]) == (0, ["acts000001.bin"], True)
    assert run("repair", path, "--from", whole)[1].startswith("0 of 0 files fetched\n")
    assert run("repair", path, "--from", whole, "-q") == (0, "")


def test_what_can_not_be_repaired(make_shards_dir, tmp_path: Path) -> None:
    path = make_shards_dir(3, missing=[1])
    empty = tmp_path / "empty"
    empty.mkdir()
    code, text = run("repair", path, "--from", empty)
    assert code == 1
    assert "'acts000001.bin' is not repaired: " in text
    assert run("repair", path)[0] == 2
    assert run("repair", empty, "--from", path)[0] == 2


def test_nothing_is_repaired_in_a_bucket(tmp_path: Path) -> None:
    code, text = run("repair", "s3://bucket/dir", "--from", tmp_path)
    assert (code, "'s3://bucket/dir' is not repaired in place: upload" in text) == (2, True)


@pytest.mark.slow
def test_a_source_that_can_not_be_asked(make_shards_dir, tmp_path: Path) -> None:
    path = make_shards_dir(3, missing=[1])
    (tmp_path / "x.zip").write_bytes(b"none")
    for address in (f"zip://::file://{tmp_path}/x.zip", "http://127.0.0.1:1/", tmp_path / "typo"):
        assert run("repair", path, "--from", address)[0] == 3, address


@pytest.mark.parametrize("options", [("--dry-run",), ()])
def test_of_many_files_the_first_are_told(
    make_shards_dir, tmp_path: Path, monkeypatch, options: tuple[str, ...]
) -> None:
    for module in ("cli.repair", "repairing"):
        monkeypatch.setattr(f"shardproof.{module}.MOST_KEPT", 3)
    path, empty = make_shards_dir(9, missing=range(8)), tmp_path / "empty"
    empty.mkdir()
    size = (path / "acts000008.bin").stat().st_size
    code, text = run("repair", path, "--from", empty, *options)
    assert code == 1
    if options:
        assert text.splitlines()[-3].startswith("acts000002.bin")
        assert text.splitlines()[-2:] == ["  and 5 more", f"8 files, {8 * size} bytes"]
    else:
        assert text.count(" is not repaired: ") == 3
        assert "\n  and 5 more\n0 of 8 files fetched\n" in text
        report = text.partition(" files fetched\n")[2]
        assert report.count("\n  - ") == 3
        assert "Missing files (8):" in text

"""Where the file system takes two names for one, a listing means what the manifest means."""

import hashlib
import os
import shutil
import unicodedata
from pathlib import Path

import pytest

import shardproof
from shardproof._base.names import spelled
from tests.helpers import ROOT
from tests.helpers.folding import folding

GOLDENS = ROOT / "tests/goldens"
NFC, NFD = (unicodedata.normalize(form, "é.bin") for form in ("NFC", "NFD"))


@pytest.fixture
def mac(tmp_path):
    with folding(tmp_path / "backing", tmp_path / "mac") as place:
        yield place


def test_the_file_system_is_as_that_of_a_mac(mac) -> None:
    (mac / NFC).write_bytes(b"x")
    assert os.listdir(mac) == [NFC]
    assert (mac / NFD.upper()).read_bytes() == b"x"
    respell(mac / NFC, NFD)
    assert os.listdir(mac) == [NFD]
    assert (mac / NFC).read_bytes() == b"x"


def respell(path: Path, name: str) -> None:
    """Give a file another spelling of its name, which Linux takes for nothing to be done."""
    mac = next(above for above in path.parents if above.name == "mac")
    place = mac.with_name("backing") / path.relative_to(mac)
    place.rename(place.with_name(name))


@pytest.mark.parametrize(
    ("golden", "name"),
    [
        ("bagit", "data/a.bin"),
        ("bagit", "data/sub"),
        ("croissant", "a.csv"),
        ("digests", "sub/b c.bin"),
        ("mds-raw", "shard.00000.mds"),
        ("model-signing", "config.json"),
        ("parquet-hive", "year=2023"),
    ],
)
@pytest.mark.slow
def test_a_file_of_another_case_is_the_one_that_is_expected(mac, golden: str, name: str) -> None:
    path = mac / golden
    shutil.copytree(GOLDENS / golden, path)
    before = shardproof.validate(path, level="valid", strict=True)
    assert before.ok, str(before)
    respell(path / name, os.path.basename(name).upper())
    assert shardproof.validate(path, level="valid", strict=True) == before


def sealed(path: Path) -> Path:
    path.mkdir()
    (path / NFD).write_bytes(b"abc")
    digest = hashlib.sha256(b"abc").hexdigest()
    (path / "SHA256SUMS").write_text(f"{digest}  {NFC}\n")
    return path


def test_a_list_names_files_in_another_form(mac) -> None:
    """As one of Linux does files that a Mac has unpacked, and of which it gives the names back."""
    path = sealed(mac / "sealed")
    assert shardproof.validate(path, level="valid", strict=True).n_proven == 1
    (path / "another.bin").write_bytes(b"d")
    found = shardproof.validate(path, strict=True).findings
    assert [os.path.basename(each.path) for each in found] == ["another.bin"]
    assert shardproof.seal(path, update=True).added == ("another.bin",)
    assert shardproof.validate(path, level="valid", strict=True).n_proven == 2


def test_another_directory_has_files_in_another_form(mac) -> None:
    path = sealed(mac / "sealed")
    other = Path(shutil.copytree(path, mac / "other"))
    assert shardproof.validate(other, against=path, level="valid", strict=True).ok


def test_what_a_download_has_left_is_of_the_file_that_is_expected(mac) -> None:
    path = sealed(mac / "sealed")
    (path / f"{NFD}.aria2").write_bytes(b"x")
    (finding,) = shardproof.validate(path, level="complete").findings
    assert (finding.kind, finding.path) == ("structure", path / NFC)


def test_two_files_stay_two_where_names_are_told_apart(tmp_path) -> None:
    path = tmp_path / "sealed"
    sealed(path)
    kinds = [each.kind for each in shardproof.validate(path, strict=True).findings]
    assert sorted(kinds) == ["missing", "stray"]
    os.link(path / NFD, path / NFC)  # even if they are one file: both are listed
    (finding,) = shardproof.validate(path, strict=True).findings
    assert (finding.kind, finding.path) == ("stray", path / NFD)


def test_what_is_not_there_or_leads_nowhere_means_nothing_else(tmp_path) -> None:
    (tmp_path / "a").symlink_to("nothing")
    (tmp_path / "B").write_bytes(b"x")
    wanted = ["A", "b", "x" * 300, "c" * 10_000]
    listed = ["a", "B", "gone", "X" * 300, "C" * 10_000]
    assert spelled(listed, wanted, str(tmp_path)) == listed


def test_a_listing_that_has_no_other_names_costs_nothing(monkeypatch) -> None:
    """Each check has such listings, and a manifest may have a million names."""
    monkeypatch.setattr("shardproof._base.names.folded", None)
    assert spelled(["a"], ["a", "b"], "/nowhere") == ["a"]
    assert spelled([], ["a", "b"], "/nowhere") == []

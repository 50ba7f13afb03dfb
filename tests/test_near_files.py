"""A missing file whose neighbour has nearly its name: which one, whether it is right, the mend."""

import gzip
import os
import shutil
import subprocess
import unicodedata
from pathlib import Path

import pytest

import shardproof
from shardproof import FindingKind

NAME = "données é's.bin"


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    for name in (NAME, "other.bin"):
        (tmp_path / name).write_bytes(name.encode() * 9)
    shardproof.seal(tmp_path)
    return tmp_path


def only(path: Path, **how) -> shardproof.Finding:
    """The finding about the file that is missing."""
    found = shardproof.validate(path, **how).findings
    return next(each for each in found if each.kind is FindingKind.MISSING)


NEARLY = {
    "decomposed": unicodedata.normalize("NFD", NAME),
    "upper": NAME.upper(),
    "copy": "données é's (1).bin",
    "copy at the end": "données é's.bin (12)",
    "part": f"{NAME}.part",
    "copy, part, in another case": "DONNÉES É'S (2).bin.PART",
}


@pytest.mark.parametrize("name", NEARLY.values(), ids=NEARLY)
def test_what_is_there_instead_is_proven_and_the_command_mends_it(sealed: Path, name: str) -> None:
    (sealed / NAME).rename(sealed / name)
    finding = only(sealed, level="valid")
    assert f"'{name}'" in finding.found
    assert finding.found.endswith(": its digest is right")
    assert ("another Unicode form" in finding.found) is (name == NEARLY["decomposed"])
    assert finding.advice == finding.mend == finding.to_dict()["mend"]
    assert "there is" not in str(shardproof.validate(sealed))
    subprocess.run(["bash", "-c", finding.advice], check=True, cwd="/")
    assert shardproof.validate(sealed, level="valid").ok


def test_where_a_link_to_nothing_is_in_the_place_no_command_is_shown(sealed: Path) -> None:
    (sealed / NAME).rename(sealed / f"{NAME}.part")
    (sealed / NAME).symlink_to("gone")
    finding = only(sealed, level="valid")
    assert finding.mend == ""
    assert finding.found.endswith(": its digest is right")


def test_without_a_size_or_digest_nothing_is_said_to_be_right(sealed: Path) -> None:
    (sealed / NAME).rename(sealed / f"{NAME}.part")
    finding = only(sealed)
    assert finding.mend == ""
    assert finding.found.endswith(".part': nothing is recorded of it")


def test_a_size_is_compared_before_bytes_are_read(make_shards_dir) -> None:
    shards_dir = make_shards_dir(2)
    (shards_dir / "acts000000.bin").rename(shards_dir / "ACTS000000.bin")
    shutil.move(shards_dir / "acts000001.bin", shards_dir / "acts000001 (1).bin")
    os.truncate(shards_dir / "acts000001 (1).bin", 7)
    whole, cut = shardproof.validate(shards_dir).findings
    assert whole.found.endswith(": its size is right")
    assert whole.mend
    assert cut.found.endswith("found 7 bytes")
    assert cut.mend == ""


def test_other_bytes_are_no_mend_and_those_that_are_right_come_first(sealed: Path) -> None:
    (sealed / f"{NAME}.part").write_bytes(b"other")
    (sealed / NAME).rename(sealed / NAME.upper())
    assert f"'{NAME.upper()}': its digest is right" in only(sealed, level="valid").found
    (sealed / NAME.upper()).unlink()
    finding = only(sealed, level="valid")
    assert f"'{NAME}.part': expected sha256:" in finding.found
    assert finding.advice == FindingKind.MISSING.advice


def test_a_compressed_one_is_unpacked(sealed: Path) -> None:
    data = (sealed / NAME).read_bytes()
    (sealed / NAME).unlink()
    (sealed / f"{NAME}.gz").write_bytes(gzip.compress(data))
    finding = only(sealed, level="valid")
    assert finding.found == f"nothing, but there is '{NAME}.gz': it is compressed"
    (sealed / f"{NAME}.gz").rename(sealed / "données é's (1).bin.gz")
    other = only(sealed)
    assert other.found.endswith(" (1).bin.gz': it is compressed")
    assert other.mend == ""
    (sealed / "données é's (1).bin.gz").rename(sealed / f"{NAME}.gz")
    subprocess.run(["bash", "-c", finding.advice], check=True, cwd="/")
    assert shardproof.validate(sealed, level="valid").ok


def test_one_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/x.bin").write_bytes(b"x")
    shardproof.seal(tmp_path)
    (tmp_path / "a/x.bin").rename(tmp_path / "a/x.bin.part")
    finding = only(tmp_path, level="valid")
    assert "'x.bin.part'" in finding.found
    assert f"{tmp_path}/a/x.bin.part" in finding.mend


def test_what_is_no_file_or_expected_itself_is_not_meant(sealed: Path, tmp_path_factory) -> None:
    tmp_path = tmp_path_factory.mktemp("other")
    for name in ("x.bin", "x (1).bin", "y.bin", "z.bin"):
        (tmp_path / name).write_bytes(name.encode())
    shardproof.seal(tmp_path)
    for name in ("x.bin", "y.bin", "z.bin"):
        (tmp_path / name).unlink()
    os.mkfifo(tmp_path / "Y.bin")
    (tmp_path / "Z.bin").symlink_to(sealed / NAME)
    missing = shardproof.validate(tmp_path, level="valid").findings
    assert {each.found for each in missing} == {"nothing"}


def test_what_can_not_be_seen_is_not_pasted_into_a_shell(sealed: Path) -> None:
    folder = sealed.rename(sealed.with_name("a\x1b[2J\nrm"))
    (folder / NAME).rename(folder / f"{NAME}.part")
    finding = only(folder, level="valid")
    assert finding.found.endswith(": its digest is right")
    assert finding.mend == ""


def test_of_very_many_only_a_few_are_read(sealed: Path, monkeypatch) -> None:
    from shardproof.checks import _near

    (sealed / NAME).unlink()
    for number in range(50):
        (sealed / f"données é's ({number}).bin").write_bytes(b"other")
    read, compared = [], _near._compared
    monkeypatch.setattr(_near, "_compared", lambda *args: read.append(args) or compared(*args))
    assert "there is" in only(sealed, level="valid").found
    assert len(read) == 3


def test_a_folder_that_is_not_to_be_listed_is_no_error(sealed: Path, monkeypatch) -> None:
    (sealed / NAME).unlink()

    def fail(path):
        raise PermissionError(13, "denied", path)

    monkeypatch.setattr("shardproof.checks._near.names_in", fail)
    assert only(sealed).found == "nothing"

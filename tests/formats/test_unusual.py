"""Directories that are unusual and sound: each was a false alarm, unknown, or passed over."""

import json
import shutil
import struct
import zipfile
from pathlib import Path

import pytest

import shardproof
from shardproof import formats
from shardproof.errors import ManifestNotFoundError
from tests.goldens import golden
from tests.helpers.commands import run

HEADER = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
WEIGHTS = struct.pack("<Q", len(HEADER)) + HEADER + b"abcd"
LINE = b'{"text": "x"}\n'
SPARK = "part-00000-7a1f2b3c-0000-4000-8000-000000000000-c000.json"


def write_archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02N.")


def test_what_torch_saved_as_pth_tar_is_no_archive_of_tar(tmp_path: Path) -> None:
    write_archive(tmp_path / "model_best.pth.tar")
    report = shardproof.validate(tmp_path, level="valid")
    assert (report.ok, report.format) == (True, "torch")
    (tmp_path / "model_best.pth.tar").write_bytes(b"PK\3\4 cut")
    assert not shardproof.validate(tmp_path, level="complete").ok


def test_json_lines_of_spark_are_lines(tmp_path: Path) -> None:
    (tmp_path / SPARK).write_bytes(LINE)
    (tmp_path / "_SUCCESS").write_bytes(b"")
    report = shardproof.validate(tmp_path, level="complete", strict=True)
    assert (report.ok, report.format) == (True, "json-lines")
    (tmp_path / SPARK).write_bytes(LINE + LINE[:5])
    assert not shardproof.validate(tmp_path, level="complete").ok


@pytest.mark.parametrize("name", ["part-1.json", "train.json"])
def test_other_json_is_not_taken_for_lines(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"[]")
    with pytest.raises(ManifestNotFoundError):
        formats.detect(str(tmp_path))


@pytest.mark.parametrize("begin", [b"CDF\1", b"CDF\2", b"CDF\5"])
def test_netcdf_3_has_no_law_and_is_no_finding(tmp_path: Path, begin: bytes) -> None:
    (tmp_path / "air.nc").write_bytes(begin + bytes(60))
    assert shardproof.validate(tmp_path, level="complete").ok
    (tmp_path / "air.nc").write_bytes(b"<html>" + bytes(60))
    assert not shardproof.validate(tmp_path, level="complete").ok


@pytest.mark.parametrize("name", ["optimizer.pt", "rng_state_0.pth", "training_args.bin"])
def test_what_is_saved_beside_a_model_is_checked_too(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS)
    write_archive(tmp_path / name)
    report = shardproof.validate(tmp_path, level="valid")
    assert (report.ok, report.format, report.n_files) == (True, "safetensors", 2)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-30])
    [finding] = shardproof.validate(tmp_path, level="complete").findings
    assert finding.path == tmp_path / name


def test_the_checkpoints_below_a_model_are_found(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "checkpoint-2"):
        folder.mkdir(exist_ok=True)
        (folder / "model.safetensors").write_bytes(WEIGHTS)
    assert [*formats.find(tmp_path)] == [str(tmp_path), str(tmp_path / "checkpoint-2")]


def test_the_modules_of_a_sentence_transformer_are_checked(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "2_Dense").mkdir()
    for name in ("model.safetensors", "2_Dense/model.safetensors"):
        (tmp_path / name).write_bytes(WEIGHTS)
    assert shardproof.validate(tmp_path, level="complete").n_files == 2
    (tmp_path / "2_Dense" / "model.safetensors").write_bytes(WEIGHTS[:-1])
    assert not shardproof.validate(tmp_path, level="complete").ok


def test_records_of_kaggle_are_records(tmp_path: Path) -> None:
    records = min(golden("tfrecord").path.glob("*.tfrecord*"))
    shutil.copyfile(records, tmp_path / "flowers00-16.tfrec")
    assert formats.detect(str(tmp_path)).name == "tfrecord"


def test_what_may_well_be_empty_is_sealed(tmp_path: Path) -> None:
    (tmp_path / "labels").mkdir()
    for name in ("labels/1.txt", "_SUCCESS"):  # an image without objects; a job of Spark
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "1.jpg").write_bytes(b"\xff\xd8")
    shardproof.seal(tmp_path)
    assert shardproof.validate(tmp_path, level="valid").ok
    (tmp_path / "labels" / "1.txt").write_bytes(b"0 0.5")
    assert not shardproof.validate(tmp_path, level="valid").ok


def test_an_empty_shard_is_not_sealed(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"")
    with pytest.raises(shardproof.ShardValidationError):
        shardproof.seal(tmp_path)


def test_a_packed_file_is_near_to_no_format(tmp_path: Path) -> None:
    (tmp_path / "train.csv.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(ManifestNotFoundError) as caught:
        formats.detect(str(tmp_path))
    assert "- near" not in str(caught.value)
    assert "shardproof seal" in str(caught.value)


def test_explain_names_an_option_only_if_it_was_given() -> None:
    path = golden("parquet-folders").path
    about = json.loads(run("explain", path, "--json").stdout)
    assert (path / about["recognized_by"].removesuffix(" and others")).exists()

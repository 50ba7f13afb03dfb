"""What `datasets` keeps in its cache: whole, in part, purged, or beside what is none of it."""

import json
import os
import shutil
from pathlib import Path

import pytest

from shardproof import ManifestError, formats, validate
from tests.formats.looking import found_in, of_golden

INFO = "dataset_info.json"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return of_golden("datasets-cache", tmp_path)


@pytest.fixture
def prepared(cache: Path) -> Path:
    """Of which the train split is in two files."""
    [found] = [path.parent for path in cache.rglob("json-train-00000-of-00002.arrow")]
    return found


def test_each_part_of_it_is_one(cache: Path, prepared: Path, tmp_path: Path) -> None:
    counts = {cache: 5, prepared.parent: 2, prepared: 2}
    for path, n_files in counts.items():
        assert formats.detect(str(path)).name == "datasets-cache"
        assert validate(path, level="valid").n_files == n_files
    shutil.copytree(prepared, tmp_path / "copy")
    assert validate(tmp_path / "copy", level="valid").n_files == 2
    assert [*formats.find(cache)] == [str(cache)]


def test_what_lies_in_it_besides_is_no_matter(cache: Path, prepared: Path) -> None:
    for name in ("downloads/0123abcd", "downloads/0123abcd.json", ".no_exist/x", "CACHEDIR.TAG"):
        (cache / name).parent.mkdir(exist_ok=True)
        (cache / name).write_bytes(b"x")
    for name in ("tmp1a2b", "LICENSE", ".nfs0001", "README.md"):
        (prepared / name).write_bytes(b"x")
    report = validate(cache, level="valid")
    assert (report.ok, report.n_files) == (True, 5), str(report)


def test_files_that_were_purged_are_missing(cache: Path, prepared: Path) -> None:
    for path in prepared.glob("*.arrow"):
        path.unlink()
    names = [f"json-train-0000{n}-of-00002.arrow" for n in range(2)]
    for path in (cache, prepared):
        assert found_in(path, "present") == [("missing", name) for name in names]


def test_a_stream_that_is_cut(cache: Path) -> None:
    for name in ("json-train.arrow", "cache-*.arrow"):
        [path] = cache.rglob(name)
        os.truncate(path, path.stat().st_size - 8)
        assert ("structure", path.name) in found_in(cache)


def test_a_preparation_that_was_killed(cache: Path, prepared: Path) -> None:
    part = prepared.with_name(f"{prepared.name}.incomplete")
    shutil.copytree(prepared, part)
    assert found_in(cache) == []  # what it was to make is there
    shutil.rmtree(prepared)
    assert found_in(cache, "present") == [("structure", part.name)]
    assert found_in(part.parent, "present") == [("structure", part.name)]


def test_a_description_that_is_torn_or_gone(cache: Path, prepared: Path) -> None:
    (prepared / INFO).write_text('{"splits"')
    assert found_in(cache, "present") == [("structure", INFO)]
    with pytest.raises(ManifestError, match=INFO):
        validate(prepared)
    (prepared / INFO).unlink()
    assert found_in(cache, "present") == [("structure", INFO)]


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"splits": None},
        {"splits": {"train": {"name": "train", "num_examples": 320, "dataset_name": None}}},
        {"splits": {"train": {"dataset_name": "json", "shard_lengths": [300, 20]}}},
    ],
)
def test_descriptions_of_other_versions(prepared: Path, info: dict[str, object]) -> None:
    (prepared / INFO).write_text(json.dumps(info))
    assert found_in(prepared) == []


@pytest.mark.parametrize("name", ["../x", "a/b", "\n", "x" * 300])
def test_names_that_lie(cache: Path, prepared: Path, name: str) -> None:
    splits = {"train": {"dataset_name": name}, name: {"dataset_name": "json"}}
    (prepared / INFO).write_text(json.dumps({"splits": splits}))
    for path in (cache, prepared):
        findings = validate(path).findings
        assert findings
        assert all(each.path.is_relative_to(path) for each in findings)
        assert not any(".." in each.path.parts for each in findings)


def test_directories_beside_others_are_no_cache(cache: Path, tmp_path: Path) -> None:
    """So that what is of other formats is found, and this, too."""
    parquet = of_golden("parquet-plain", tmp_path)
    assert [*formats.find(tmp_path)] == [str(cache), str(parquet)]
    parquet.rename(cache / "x")
    assert len([*formats.find(cache)]) == 3


def test_arrow_of_others_in_a_folder_of_a_version_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "1.0.0").mkdir()
    (tmp_path / "1.0.0/train.arrow").write_bytes(b"x")
    (tmp_path / "x.incomplete").mkdir()
    for path in (tmp_path, tmp_path / "1.0.0"):
        assert not formats.get("datasets-cache").recognizes(str(path))


def test_locks_alone_and_data_sets_that_were_saved_are_none(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").touch()
    with pytest.raises(ManifestError, match="of no known format"):
        validate(tmp_path)
    assert formats.detect(str(of_golden("arrow", tmp_path))).name == "arrow"
    assert formats.detect(str(of_golden("parquet-datasets", tmp_path))).name == "parquet"

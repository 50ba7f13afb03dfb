"""The archives of a directory are whole, or it is said which are not."""

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof.checks import check
from shardproof.formats.plain import WEBDATASET as FORMAT
from tests.formats.looking import archive
from tests.helpers.drawing import examples


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for index in range(3):
        (tmp_path / f"train-{index:06d}.tar").write_bytes(archive(4))
    (tmp_path / "val-000000.tar.gz").write_bytes(gzip.compress(archive(4)))
    (tmp_path / "val-000001.tgz").write_bytes(gzip.compress(archive(4)))
    (tmp_path / "train-000000.json").write_text("{}")
    (tmp_path / "._train-000000.tar").write_bytes(b"what macOS leaves")
    return tmp_path


def look(root: Path, level: str = "complete"):
    return check(FORMAT.read_manifest(str(root)), level=level)


def found(root: Path, level: str = "complete") -> list[tuple[str, str, str]]:
    return [(f.path.name, f.kind, f.expected) for f in look(root, level).findings]


def test_a_whole_directory(root: Path) -> None:
    assert FORMAT.recognizes(str(root))
    assert look(root, "present").findings == ()
    assert look(root).findings == ()
    report = look(root, "valid")
    assert (report.n_files, report.findings) == (5, ())
    assert [path.name for path in report.unproven] == [f"train-00000{i}.tar" for i in range(3)]


def test_archives_that_are_cut(root: Path) -> None:
    path = root / "train-000001.tar"
    os.truncate(path, 12_288)
    os.truncate(root / "val-000001.tgz", 1000)  # small enough to be unpacked at once
    (root / "train-000002.tar").write_bytes(b"")
    expected = [
        ("train-000001.tar", "structure", "two blocks of zeros at the end"),
        ("train-000002.tar", "empty", "more than 0 bytes"),
    ]
    cut = ("val-000001.tgz", "structure", "the end of gzip")
    assert found(root) == found(root, "valid") == [*expected, cut]


@examples(50)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4000), st.booleans()), min_size=1))
def test_sound_directories_have_no_findings(tmp_path_factory, shards: list) -> None:
    root = tmp_path_factory.mktemp("shards")
    for index, (n_samples, n_bytes, is_compressed) in enumerate(shards):
        data = archive(n_samples, n_bytes)
        name, data = (".tgz", gzip.compress(data, 1)) if is_compressed else (".tar", data)
        (root / f"{index:05d}{name}").write_bytes(data)
    assert look(root, "valid").findings == ()

"""The archives of a directory are whole, or it is said which are not."""

import gzip
import os
from functools import partial
from pathlib import Path

import pytest

from shardproof.formats.plain import WEBDATASET as FORMAT
from tests.formats import looking
from tests.formats.looking import archive


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for index in range(3):
        (tmp_path / f"train-{index:06d}.tar").write_bytes(archive(4))
    (tmp_path / "val-000000.tar.gz").write_bytes(gzip.compress(archive(4)))
    (tmp_path / "val-000001.tgz").write_bytes(gzip.compress(archive(4)))
    (tmp_path / "train-000000.json").write_text("{}")
    (tmp_path / "._train-000000.tar").write_bytes(b"what macOS leaves")
    return tmp_path


look, found = partial(looking.look, FORMAT), partial(looking.named, FORMAT)


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
    assert found(root) == found(root, "valid")
    assert [each[:3] for each in found(root)] == [
        ("train-000001.tar", "structure", "two blocks of zeros at the end"),
        ("train-000002.tar", "empty", "more than 0 bytes"),
        ("val-000001.tgz", "structure", "the end of gzip"),
    ]

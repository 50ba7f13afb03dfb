"""A directory of checkpoints is a format: validate, the plugin and staging take it."""

import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import shardproof
from shardproof import ManifestNotFoundError, MultiShardSaver, formats
from shardproof.cli import app


def kinds(report: shardproof.Report) -> dict[str, str]:
    return {finding.path.name: finding.kind.value for finding in report.findings}


def test_several_in_one_directory_and_one_whose_metadata_are_torn(tmp_path: Path) -> None:
    for name in ("a", "b"):
        MultiShardSaver().save_shard(tmp_path / name, 0, {"w": np.arange(3)})
        MultiShardSaver().save_metadata(tmp_path / name, world_size=1)
    assert shardproof.validate(tmp_path, level="valid").n_proven == 2
    os.truncate(tmp_path / "b.metadata.json", 99)
    report = shardproof.validate(tmp_path)
    assert report.n_files == 1
    assert kinds(report) == {"b.metadata.json": "structure"}


@pytest.mark.parametrize("text", [b"{}", b'{"schema_version": 1}', b"\xff"])
def test_other_files_of_that_name_are_nobody_s(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "notes.metadata.json").write_bytes(text)
    (tmp_path / "d.metadata.json").mkdir()
    with pytest.raises(ManifestNotFoundError):
        formats.detect(str(tmp_path))


def test_strict_is_of_directories(make_checkpoint, tmp_path) -> None:
    """Beside the files of a prefix lie those of other checkpoints."""
    prefix = make_checkpoint(world_size=2)
    assert shardproof.validate(prefix.parent, strict=True).ok
    with pytest.raises(ValueError, match="strict: expected a directory, found the prefix"):
        shardproof.validate(prefix, strict=True)
    result = CliRunner().invoke(app.app, ["validate", "--strict", str(prefix)])
    assert (result.exit_code, "other checkpoints" in result.stderr) == (2, True)


def test_shards_that_were_never_completed_promise_nothing(tmp_path: Path) -> None:
    MultiShardSaver().save_shard(tmp_path / "model", 0, {"w": np.arange(3)})
    with pytest.raises(ManifestNotFoundError, match="the checkpoint was not completed"):
        shardproof.validate(tmp_path)

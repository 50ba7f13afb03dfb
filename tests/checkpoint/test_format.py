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


def test_the_plugin_finds_one_in_the_test_tree(pytester: pytest.Pytester, make_checkpoint) -> None:
    root = make_checkpoint(world_size=2, truncated_ranks=[1]).parent
    os.rename(root, pytester.path / "step_1")
    (pytester.path / "other").mkdir()
    (pytester.path / "other" / "x.metadata.json").write_text("{}")
    result = pytester.runpytest("--validate-shards", "--shards-level=complete")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*model_shard_1.shard", "complete: 1 shards directory with 2*"])


@pytest.mark.parametrize("level", ["complete", "valid"])
def test_it_is_staged_and_loads_from_there(make_checkpoint, tmp_path: Path, level: str) -> None:
    prefix = make_checkpoint(world_size=2)
    (tmp_path / "local").mkdir()
    copy = shardproof.stage(prefix.parent, tmp_path / "local", level=level)

    assert sorted(os.listdir(prefix.parent)) == sorted(n for n in os.listdir(copy) if n[0] != ".")
    loader = shardproof.MultiShardLoader()
    for ours, theirs in zip(
        loader.load_all_shards(Path(copy) / prefix.name),
        loader.load_all_shards(prefix),
        strict=True,
    ):
        assert [*ours] == [*theirs]
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


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

"""``shardproof checkpoint``: what it prints, and its exit codes."""

import errno
import functools
import json
import os
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shardproof.checkpoint import FsspecStorage, LocalStorage, MultiShardLoader, MultiShardSaver
from tests.helpers import commands


def save(prefix: Path, n_ranks: int = 2, step: int = 0) -> Path:
    saver = MultiShardSaver()
    for rank in range(n_ranks):
        arrays = {f"layer{rank}.weight": np.full((2, 3), rank, np.float32), f"b{rank}": np.ones(())}
        saver.save_shard(prefix, rank, arrays)
    saver.save_metadata(prefix, world_size=n_ranks, step=step)
    return prefix


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def shard(prefix: Path, rank: int = 0) -> Path:
    return prefix.with_name(f"{prefix.name}_shard_{rank}.shard")


def metadata(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.metadata.json")


@pytest.fixture
def run_dir(tmp_path) -> Path:
    """Three steps: each in its own directory, and one beside them."""
    path = tmp_path / "run"
    for step in (1, 20, 3):
        save(path / f"step_{step}" / "model", step=step)
    save(path / "best", step=2)
    return path


run = functools.partial(commands.run, "checkpoint")


def unfinished(prefix: Path, age: float = 0) -> Path:
    """Save the shards of two ranks, so long ago, and no metadata."""
    for rank in range(2):
        MultiShardSaver().save_shard(prefix, rank, {"w": np.arange(3)})
    for path in prefix.parent.iterdir():
        os.utime(path, (time.time() - age,) * 2)
    return prefix


class TestVerify:
    def test_a_whole_checkpoint_has_no_findings(self, tmp_path) -> None:
        prefix = save(tmp_path / "model")
        for path in (prefix, metadata(prefix), tmp_path):
            result = run("verify", path)
            assert (result.exit_code, result.stderr) == (0, "")
            assert result.stdout.startswith("valid: 2 of 2 ")
            assert str(prefix) in result.stdout

    def test_every_one_in_a_directory(self, run_dir) -> None:
        result = run("verify", run_dir, "--json")
        assert result.exit_code == 0
        said = json.loads(result.stdout)
        assert [one["prefix"] for one in said] == [
            f"{run_dir}/{name}"
            for name in ("best", "step_1/model", "step_20/model", "step_3/model")
        ]
        assert all(one["ok"] and one["level"] == "valid" for one in said)

    def test_findings_name_their_shards(self, run_dir) -> None:
        flip(shard(run_dir / "step_3" / "model", 1))
        shard(run_dir / "step_1" / "model").unlink()
        result = run("verify", run_dir)
        assert result.exit_code == 1
        assert f"\n  - {run_dir}/step_3/model_shard_1.shard: expected " in result.stdout
        assert f"\n  - {run_dir}/step_1/model_shard_0.shard: expected " in result.stdout
        assert "step_20/model_shard" not in result.stdout
        said = json.loads(run("verify", run_dir, "--json").stdout)
        assert [len(one["findings"]) for one in said] == [0, 1, 0, 1]

    @pytest.mark.parametrize("level", ["present", "valid"])
    @pytest.mark.parametrize("harm", [None, flip, cut, Path.unlink])
    @pytest.mark.parametrize("file", [shard, metadata])
    def test_validate_gives_the_same_verdict_of_a_prefix(
        self, tmp_path, level: str, harm: Callable[[Path], object] | None, file
    ) -> None:
        prefix = save(tmp_path / "model")
        if harm is not None:
            harm(file(prefix))
        verified = run("verify", prefix, "--level", level)
        validated = commands.run("validate", prefix, "--level", level)
        assert validated.exit_code == verified.exit_code
        said = [
            [re.sub(r": expected .*|[0-9.]+ s\b", "", line) for line in result.stdout.splitlines()]
            for result in (validated, verified)
        ]
        assert said[0] == said[1][: len(said[0])]
        assert (validated.exit_code != 0) or validated.stdout.startswith(f"{level}: 2 of 2 ")

    def test_nothing_there(self, tmp_path) -> None:
        (tmp_path / "empty").mkdir()
        (tmp_path / ".metadata.json").touch()  # of a prefix without a name
        for path in (tmp_path / "none", tmp_path / "none.metadata.json", tmp_path):
            result = run("verify", path)
            assert (result.exit_code, result.stdout) == (2, "")
            assert str(path) in result.stderr
            assert "there is no checkpoint: expected " in result.stderr
            assert ("files in it that end with" in result.stderr) == path.is_dir()

    def test_could_not_list(self, run_dir, make_shard_faults) -> None:
        make_shard_faults(run_dir).fail("scandir", errno.ESTALE, match="step_20")
        result = run("verify", run_dir)
        assert result.exit_code == 3
        assert f"Could not check '{run_dir}'" in result.stderr

    @pytest.mark.parametrize("command", ["verify", "show", "latest"])
    def test_a_server_that_is_gone(self, monkeypatch, command: str) -> None:
        def from_url(url: str) -> FsspecStorage:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

        monkeypatch.setattr(FsspecStorage, "from_url", from_url)
        result = run(command, "sftp://there/model")
        assert (result.exit_code, result.stdout) == (3, "")
        assert "Could not check 'sftp://there/model'" in result.stderr

    def test_a_stray_shard_is_a_warning(self, tmp_path) -> None:
        prefix = save(tmp_path / "model")
        stray = tmp_path / "model_shard_2.shard"
        stray.touch()
        result = run("verify", prefix)
        assert result.exit_code == 0
        assert result.stdout.splitlines()[1].startswith(str(stray))
        (said,) = json.loads(run("verify", prefix, "--json").stdout)
        assert said["ok"]
        assert said["warnings"] == result.stdout.splitlines()[1:]

    def test_an_unfinished_step_is_told(self, run_dir) -> None:
        prefix = unfinished(run_dir / "step_40" / "model", age=3 * 86400 + 60)
        said = f"unfinished step '{prefix}': 2 shard files, last written 3 days ago; its save "
        for options in ([], ["--json"], ["--level", "complete"]):
            result = run("verify", run_dir, *options)
            assert result.exit_code == 0
            assert result.stderr == f"{said}was killed or still runs\n"
        assert len(json.loads(run("verify", run_dir, "--json").stdout)) == 4
        assert run("verify", run_dir, "-q").output == ""
        assert run("verify", run_dir / "step_3", run_dir / "best").stderr == ""

    def test_an_unfinished_step_alone(self, tmp_path) -> None:
        prefix = unfinished(tmp_path / "run" / "model", age=100)
        for path in (prefix, prefix.parent, tmp_path, metadata(prefix)):
            result = run("verify", path)
            assert (result.exit_code, result.stdout) == (2, "")
            problem, warning = result.stderr.splitlines()
            assert "there is no checkpoint: expected " in problem
            assert "2 shard files, last written 100 s ago" in warning

    def test_of_an_unfinished_step_nobody_can_look_at(self, run_dir, monkeypatch) -> None:
        def modified(self, path: str) -> float:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        unfinished(run_dir / "step_40" / "model")
        monkeypatch.setattr(LocalStorage, "modified", modified)
        result = run("verify", run_dir)
        assert result.exit_code == 3
        assert f"Could not check '{run_dir}'" in result.stderr
        assert result.stdout.count("valid: 2 of 2 files") == 4

    def test_a_directory_that_is_a_prefix_too(self, tmp_path) -> None:
        save(tmp_path / "step")
        save(tmp_path / "step" / "model")
        said = json.loads(run("verify", tmp_path / "step", "--json").stdout)
        assert [one["prefix"] for one in said] == [f"{tmp_path}/step", f"{tmp_path}/step/model"]

    def test_checkpoints_behind_fsspec_have_the_same_commands(self, tmp_path) -> None:
        saver, there = MultiShardSaver(), f"memory://{tmp_path}"
        saver.save_shard(f"{there}/model", 0, {"w": np.zeros(1)})
        saver.save_metadata(f"{there}/model", world_size=1)
        for path in (f"{there}/model", f"{there}/model.metadata.json"):
            assert run("verify", path).exit_code == 0
            assert run("show", path).exit_code == 0
            assert run("convert", path, tmp_path, "--overwrite").exit_code == 0
        assert run("convert", tmp_path, f"{there}/again", "--step", 3).exit_code == 0
        assert run("latest", there).stdout == f"{there}/again\n"
        for command in ("verify", "show", "latest"):
            result = run(command, "nonsense://cli/model")
            assert (result.exit_code, result.stdout) == (2, "")
            assert "nonsense" in result.stderr


class TestShow:
    def test_the_tables_list_shards_and_tensors(self, tmp_path) -> None:
        prefix = save(tmp_path / "model", step=7)
        said = MultiShardLoader().load_metadata(prefix)
        result = run("show", prefix)
        assert result.exit_code == 0
        lines = result.stdout.splitlines()
        assert lines[:6] == [
            f"'{prefix}'",
            "step: 7",
            "world size: 2",
            f"written: {said.timestamp}",
            "strategy: unspecified",
            "precision: mixed",
        ]
        size = str(shard(prefix, 1).stat().st_size)
        assert ["1", "model_shard_1.shard", size, "2", said.shards[1].checksum] in [
            line.split() for line in lines
        ]
        assert lines[-4].split() == ["0", "layer0.weight", "float32", "2x3", "24"]
        assert lines[-1].split() == ["1", "b1", "float64", "-", "8"]

    def test_very_many_tensors(self, tmp_path) -> None:
        saver, prefix = MultiShardSaver(), tmp_path / "model"
        saver.save_shard(prefix, 0, {f"t{n:04d}": np.zeros(1, np.int8) for n in range(1000)})
        saver.save_metadata(prefix, world_size=1)
        shown = run("show", prefix).stdout
        assert "t0019" in shown
        assert "t0020" not in shown
        assert shown.splitlines()[-1] == "and 980 more; --tensors lists all"
        everything = run("show", prefix, "--tensors").stdout
        assert "t0999" in everything
        assert "more" not in everything

    def test_json_is_the_metadata_with_its_prefix(self, tmp_path) -> None:
        prefix = save(tmp_path / "model", step=7)
        result = run("show", tmp_path, "--json")
        said = json.loads(result.stdout)
        assert said == {
            "schema_version": 1,
            "ok": True,
            "exit_code": 0,
            "prefix": str(prefix),
            "metadata": json.loads(metadata(prefix).read_bytes()),
        }

    def test_metadata_that_are_not_there_torn_or_unread_have_exit_codes(
        self, tmp_path, make_shard_faults
    ) -> None:
        assert run("show", tmp_path).exit_code == 2
        prefix = save(tmp_path / "model")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            assert run("show", "model").exit_code == 0
        shard(prefix).unlink()
        assert run("show", prefix).exit_code == 0  # it doesn't look
        flip(metadata(prefix))
        result = run("show", prefix)
        assert (result.exit_code, result.stdout) == (2, "")
        assert str(metadata(prefix)) in result.stderr
        make_shard_faults(tmp_path).fail("read", errno.EIO)
        assert run("show", prefix).exit_code == 3


class TestConvert:
    def test_there_and_back_again(self, tmp_path) -> None:
        prefix, out = save(tmp_path / "a" / "model", step=5), tmp_path / "out"
        result = run("convert", prefix, out)
        assert (result.exit_code, result.stderr) == (0, "")
        names = [*(f"model-0000{n}-of-00002.safetensors" for n in (1, 2))]
        assert result.stdout.splitlines() == [
            str(out / name) for name in (*names, "model.safetensors.index.json")
        ]
        for n, source in enumerate((out, out / "model.safetensors.index.json")):
            result = run("convert", source, tmp_path / f"b{n}", "--step", 5)
            assert (result.exit_code, result.stdout) == (0, f"{tmp_path}/b{n}.metadata.json\n")
            assert MultiShardLoader().load_metadata(tmp_path / f"b{n}").step == 5
            assert run("verify", tmp_path / f"b{n}").exit_code == 0
        assert run("convert", out / names[0], tmp_path / "c").exit_code == 0
        assert MultiShardLoader().load_metadata(tmp_path / "c").step == 0

    def test_nothing_is_replaced_without_overwrite(self, tmp_path) -> None:
        prefix, out = save(tmp_path / "model"), tmp_path / "out"
        for source, target in ((prefix, out), (out, tmp_path / "b")):
            assert run("convert", source, target).exit_code == 0
            result = run("convert", source, target)
            assert (result.exit_code, result.stdout) == (1, "")
            assert str(target) in result.stderr
            assert run("convert", source, target, "--overwrite").exit_code == 0

    def test_a_damaged_source(self, tmp_path) -> None:
        prefix = save(tmp_path / "model")
        flip(shard(prefix, 1))
        result = run("convert", prefix, tmp_path / "out")
        assert (result.exit_code, result.stdout) == (1, "")
        assert str(shard(prefix, 1)) in result.stderr
        assert os.listdir(tmp_path / "out") == []
        (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", 9) + b"{}")
        result = run("convert", tmp_path / "w.safetensors", tmp_path / "b")
        assert (result.exit_code, result.stdout) == (1, "")
        assert str(tmp_path / "w.safetensors") in result.stderr

    def test_what_is_ambiguous(self, run_dir, tmp_path) -> None:
        result = run("convert", run_dir, tmp_path / "out")
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"\n  - {run_dir}/best\n" in result.stderr
        assert run("convert", run_dir / "step_3" / "model", run_dir / "step_3").exit_code == 0
        result = run("convert", run_dir / "step_3", tmp_path / "out")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "\n  - " + str(run_dir / "step_3" / "model") + "\n" in result.stderr
        assert "model.safetensors.index.json" in result.stderr
        assert not (tmp_path / "out").exists()

    def test_nothing_to_convert(self, tmp_path) -> None:
        for source in (tmp_path, tmp_path / "none", tmp_path / "none.metadata.json"):
            result = run("convert", source, tmp_path / "out")
            assert (result.exit_code, result.stdout) == (2, "")
            assert f"'{source}'" in result.stderr

    def test_a_step_of_what_has_one(self, tmp_path) -> None:
        result = run("convert", save(tmp_path / "model"), tmp_path / "out", "--step", 3)
        assert result.exit_code == 2
        assert "--step" in result.stderr
        assert not (tmp_path / "out").exists()


class TestLatest:
    def test_the_newest_that_is_whole(self, run_dir) -> None:
        result = run("latest", run_dir)
        assert (result.exit_code, result.stdout) == (0, f"{run_dir}/step_20/model\n")
        flip(shard(run_dir / "step_20" / "model"))
        assert run("latest", run_dir).stdout == f"{run_dir}/step_3/model\n"
        assert run("latest", run_dir, "--level", "complete").stdout.endswith("step_20/model\n")

    def test_without_a_whole_one_the_exit_code_is_1(self, tmp_path) -> None:
        result = run("latest", tmp_path)
        assert (result.exit_code, result.stdout) == (1, "")
        assert str(tmp_path) in result.stderr
        flip(shard(save(tmp_path / "model")))
        assert run("latest", tmp_path).exit_code == 1

    def test_no_such_directory(self, tmp_path) -> None:
        result = run("latest", tmp_path / "none")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "no such directory" in result.stderr

    def test_an_unfinished_step_is_told(self, run_dir) -> None:
        prefix = unfinished(run_dir / "step_40" / "model", age=7200)
        said = f"unfinished step '{prefix}': 2 shard files, last written 2 h ago; its save was "
        result = run("latest", run_dir)
        assert (result.exit_code, result.stdout) == (0, f"{run_dir}/step_20/model\n")
        assert result.stderr == f"{said}killed or still runs\n"
        result = run("latest", prefix.parent)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.splitlines()[0] == f"{said}killed or still runs"

"""The commands explain, formats NAME and doctor."""

import json
import os
import shutil
from importlib import metadata
from pathlib import Path

import pytest

from shardproof import formats, seal
from shardproof._base import mounts
from shardproof.cli import doctor
from tests.goldens import GOLDENS, golden
from tests.helpers.commands import run


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_each_golden_is_explained(golden) -> None:
    done = run("explain", golden.path, "--json")
    assert done.exit_code == 0, done.stderr
    about = json.loads(done.stdout)
    form = formats.detect(str(golden.path))
    manifest = form.read_manifest(str(golden.path))
    assert (about["format"], about["n_files"]) == (form.name, len(manifest.files))
    assert about["blind_spots"] == (form.blind_spots or "none")
    seen = about["recognized_by"].removesuffix(" and others").split(", ")[0]
    assert seen != "--format"
    assert os.path.lexists(golden.path / seen.removesuffix(" and others")), seen
    assert " " not in "".join(about)


def test_it_says_what_each_level_would_verify_here(tmp_path: Path) -> None:
    path = golden("mds-raw").copy(tmp_path)
    lines = run("explain", path).stdout.splitlines()
    assert f"path:          {path}" in lines
    assert "recognized by: index.json" in lines
    assert any(line.startswith("complete:      2 of 2 sizes are known; ") for line in lines)
    assert any(line.startswith("valid:         0 of 2 digests are known; ") for line in lines)
    seal(path)
    assert "valid:         2 of 2 digests are known (sha256); " in run("explain", path).stdout


def test_of_a_checkpoint_a_prefix_is_explained(make_checkpoint) -> None:
    about = json.loads(run("explain", make_checkpoint(), "--json").stdout)
    assert about["format"] == "checkpoint"
    assert about["manifest"].endswith(".metadata.json")


def test_what_is_none_has_the_exit_code_of_validate(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"x")
    for path in (tmp_path, tmp_path / "gone"):
        done, validated = run("explain", path), run("validate", path)
        assert (done.exit_code, done.stderr) == (2, validated.stderr)
    done = run("explain", tmp_path, "--format", "parqet")
    assert (done.exit_code, "did you mean parquet?" in done.stderr) == (2, True)


def test_no_shard_is_opened(tmp_path: Path) -> None:
    """A FIFO in the place of one would block."""
    path = shutil.copytree(golden("mds-raw").path, tmp_path / "mds")
    (path / "shard.00000.mds").unlink()
    os.mkfifo(path / "shard.00000.mds")
    assert run("explain", path).exit_code == 0


class TestDoctor:
    def test_it_says_what_a_bug_report_needs(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        done = run("doctor", tmp_path, "--json")
        assert (done.exit_code, done.stderr) == (0, "")
        assert "hf_secret" not in done.stdout
        about = json.loads(done.stdout)
        assert about["packages"]["click"] == metadata.version("click")
        assert about["file_system"]["kind"] == mounts.mount_of(str(tmp_path))[0]
        assert about["file_system"]["free_bytes"] > 0
        assert about["limits"]["open_files"] > 0
        text = run("doctor", tmp_path).stdout
        assert f"packages click: {metadata.version('click')}\n" in text

    def test_what_is_missing_says_what_installs_it(self, monkeypatch) -> None:
        real = metadata.version

        def version(name: str) -> str:
            if name in {"pyarrow", "click"}:
                raise metadata.PackageNotFoundError(name)
            return real(name)

        monkeypatch.setattr(metadata, "version", version)
        text = run("doctor").stdout
        assert "packages pyarrow: missing: pip install 'shardproof[hf]'\n" in text
        assert "packages click: missing: pip install 'shardproof'\n" in text

    def test_it_never_fails(self, tmp_path: Path, monkeypatch) -> None:
        def fails(*_: object) -> None:
            raise RuntimeError("a\x1b[2J")

        for module, name in ((metadata, "requires"), (os, "statvfs"), (os, "geteuid")):
            monkeypatch.setattr(module, name, fails)
        done = run("doctor", tmp_path)
        assert done.exit_code == 0
        for name in ("packages", "file_system", "limits"):
            assert rf"{name}: unknown: RuntimeError: 'a\x1b[2J'" in done.stdout

    def test_of_a_path_that_is_not_there_it_tells_the_rest(self, tmp_path: Path) -> None:
        done = run("doctor", tmp_path / "gone")
        assert (done.exit_code, "file_system: unknown: FileNotFoundError" in done.stdout) == (
            0,
            True,
        )
        assert "limits processors: " in done.stdout

    @pytest.mark.parametrize(("kind", "is_network"), [("ext4", False), ("nfs4", True)])
    def test_a_network_file_system_has_more_that_it_can_not_tell(
        self, monkeypatch, kind: str, is_network: bool
    ) -> None:
        monkeypatch.setattr(doctor, "mount_of", lambda _: (kind, "/", "rw"))
        said = json.loads(run("doctor", "--json").stdout)["file_system"]["can_not_tell"]
        assert ("flock" in said) == is_network
        assert "purge" in said

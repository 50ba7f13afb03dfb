"""On which file system a path is, and with which options it is mounted there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shardproof._base import mounts
from tests.helpers.descriptors import needs_proc


@needs_proc
def test_of_two_mounts_of_one_device_the_nearer_one_counts(tmp_path) -> None:
    (tmp_path / "in side").mkdir()
    (tmp_path / "by the side").mkdir()
    code = "import sys; from shardproof._base import mounts; print(*mounts.mount_of(sys.argv[1]))"
    script = (
        'mount -t tmpfs -o noatime,lazytime x "$1" && mount --bind "$1" "$2" && '
        'mount -o remount,bind,strictatime,noexec "$2" && exec "$3" -c "$4" "$5"'
    )
    for place, told in (("in side", "noatime"), ("by the side", "noexec")):
        args = [tmp_path / "in side", tmp_path / "by the side", sys.executable, code]
        command = ["unshare", "-m", "sh", "-c", script, "sh", *args, tmp_path / place]
        if shutil.which("unshare") is None:
            pytest.skip("there is no unshare(1) here")
        done = subprocess.run(command, capture_output=True, text=True)
        if "denied" in done.stderr or "not permitted" in done.stderr:
            pytest.skip(f"no mounts here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("tmpfs ")
        assert told in done.stdout
        assert "lazytime" in done.stdout


def test_where_no_mounts_are_told(monkeypatch) -> None:
    monkeypatch.setattr(mounts, "open", lambda *_, **__: os.stat("/nowhere"), raising=False)
    assert mounts.mount_of("/") == ("unknown", "unknown", "unknown")


@pytest.mark.parametrize(
    ("kind", "options", "is_own"),
    [
        ("xfs", "rw,relatime", True),
        ("xfs", "ro,relatime", False),  # many machines read one disk of a cloud so
        ("nfs4", "rw", False),
        ("unknown", "unknown", False),
    ],
)
def test_a_disk_of_the_machine_s_own(monkeypatch, kind: str, options: str, is_own: bool) -> None:
    monkeypatch.setattr(mounts, "mount_of", lambda _: (kind, "/data", options))
    has_boot = Path("/proc/sys/kernel/random/boot_id").exists()
    assert bool(mounts.machine_of("/data/shards")) == (is_own and has_boot)

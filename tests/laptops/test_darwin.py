"""On macOS: what README says first, and what is called there in place of what Linux has.

This is no Mac, but lacks what it lacks (darwin.sh, darwin/sitecustomize.py).
"""

import ctypes
import errno
import fcntl
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from shardproof._base import files
from shardproof._base.files import _naming, _syncing
from shardproof.errors import UnsyncedError
from tests.helpers import ROOT

DARWIN = ROOT / "tests/laptops/darwin.sh"


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without /proc, where that may be taken away, and else with it."""
    python = [sys.executable, "-m", *command]
    return subprocess.run(["sh", DARWIN, *python], capture_output=True, text=True, cwd=cwd)


@pytest.mark.slow
def test_the_commands_that_people_begin_with(tmp_path) -> None:
    demo = run("shardproof", "demo", "--to", "demo", cwd=tmp_path)
    assert (demo.returncode, demo.stderr.replace("darwin.sh: NOT", "")) == (0, ""), demo.stderr
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.bin").write_bytes(b"a")
    for level, said in (("valid", 2), ("seal", 0), ("valid", 0)):
        how = ["seal"] if level == "seal" else ["validate", "--level", level]
        done = run("shardproof", *how, "plain", cwd=tmp_path)
        assert done.returncode == said, done.stderr
    (tmp_path / "test_it.py").write_text(
        "import errno, os, sys, pytest\n"
        "def test_it(make_shards_dir, make_shard_faults):\n"
        "    assert sys.platform == 'darwin' and not hasattr(os, 'sched_getaffinity')\n"
        "    path = make_shards_dir(3, unreadable_shards=[1])\n"
        "    make_shard_faults(path).fail('read', errno.EIO)\n"
        "    fd = os.open(path / 'acts000000.bin', os.O_RDONLY)\n"
        "    with pytest.raises(OSError): os.read(fd, 1)\n"
        "    with pytest.raises(PermissionError): os.open(path / 'acts000001.bin', os.O_RDONLY)\n"
    )
    done = run("pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def medium(monkeypatch):
    """What F_FULLFSYNC is asked of, and what it answers."""
    asked = types.SimpleNamespace(inodes=[], answer=0)

    def control(fd, command, *_):
        assert command == 51
        asked.inodes.append(os.fstat(fd).st_ino)
        if asked.answer:
            raise OSError(asked.answer, os.strerror(asked.answer))

    monkeypatch.setattr(_syncing, "_FULLSYNC", 51)
    monkeypatch.setattr(_syncing, "fcntl", types.SimpleNamespace(fcntl=control))
    return asked


def test_what_is_durable_is_on_the_medium(medium, tmp_path) -> None:
    files.write_whole(tmp_path / "x", b"x")
    assert medium.inodes == [(tmp_path / "x").stat().st_ino, tmp_path.stat().st_ino]


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOTTY, errno.EINVAL])
def test_where_there_is_no_such_call_fsync_is_what_there_is(medium, tmp_path, number) -> None:
    medium.answer = number
    files.write_whole(tmp_path / "x", b"x")
    assert (tmp_path / "x").read_bytes() == b"x"


def test_a_medium_that_fails_is_told(medium, tmp_path) -> None:
    medium.answer = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        files.write_whole(tmp_path / "x", b"x")
    assert os.listdir(tmp_path) == []
    (tmp_path / "x").touch()
    with pytest.raises(UnsyncedError):
        _syncing.sync_name(tmp_path / "x")


def test_the_path_of_a_directory_is_asked_of_its_descriptor(monkeypatch, tmp_path) -> None:
    path = os.fsencode(tmp_path)
    monkeypatch.setattr(fcntl, "F_GETPATH", 50, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda *_: path + bytes(1024 - len(path)))
    assert _naming._path_in(0, "x") == os.fspath(tmp_path / "x")


def test_a_rename_replaces_nothing_there_either(monkeypatch, tmp_path) -> None:
    """By renameatx_np, with a flag of its own; here, Linux's is behind it."""
    real = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if real is None:
        pytest.skip("this system has no renameat2 to stand in")
    flags = []

    def renameatx_np(*arguments):
        flags.append(arguments[-1])
        return real(*arguments[:-1], 1)

    library = types.SimpleNamespace(renameatx_np=renameatx_np)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    rename = _naming._renaming.__wrapped__()
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    fd = os.open(tmp_path, os.O_RDONLY)
    assert rename(str(tmp_path / "a"), "b", fd) == errno.EEXIST
    assert rename(str(tmp_path / "a"), "c", fd) == 0
    os.close(fd)
    assert sorted(os.listdir(tmp_path)) == ["b", "c"]
    assert flags == [4, 4]

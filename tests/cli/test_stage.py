"""``shardproof stage``: the path on standard output and nothing else, and its exit codes."""

import errno
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import shardproof
from shardproof import testing
from shardproof.testing.faults import FileSystemFaults
from tests.helpers import commands


@pytest.fixture
def to(tmp_path) -> Path:
    path = tmp_path / "local"
    path.mkdir()
    return path


run = functools.partial(commands.run, "stage")


def test_it_prints_where_the_copy_is(make_shards_dir, to) -> None:
    shards_dir = make_shards_dir(3)
    result = run(shards_dir, "--to", to)
    assert (result.exit_code, result.stderr) == (0, "")
    (path,) = result.stdout.splitlines()
    assert Path(path).parent == to / f"shardproof-{os.geteuid()}"
    assert shardproof.validate(path, level="valid").ok
    assert run(shards_dir, "--to", to).stdout == f"{path}\n"
    quiet = run(shards_dir, "--to", to, "--quiet")
    assert (quiet.stdout, quiet.stderr) == (f"{path}\n", "")


def test_a_script_gets_a_path_that_is_no_text(make_shards_dir, to) -> None:
    """A path need not be text."""
    odd = to / os.fsdecode(b"disk \xff")
    odd.mkdir()
    command = [sys.executable, "-m", "shardproof", "stage", make_shards_dir(2)]
    environment = {**os.environ, "TMPDIR": str(odd)}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert shardproof.validate(os.fsdecode(done.stdout.removesuffix(b"\n"))).ok


def test_findings_in_the_source(tmp_path, to) -> None:
    shards_dir = testing.write_layout(testing.Layout(n_shards=3, missing=[1]), tmp_path / "from")
    result = run(shards_dir, "--to", to)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"Missing files (1):\n  - {shards_dir / 'acts000001.bin'}" in result.stderr


def test_no_readable_promise_or_no_directory_to_copy_to(make_shards_dir, to) -> None:
    result = run(to, "--to", to)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "expected a shards directory" in result.stderr
    assert run(to / "nowhere", "--to", to).exit_code == 2
    assert run(make_shards_dir(1), "--to", "/nowhere").exit_code == 2


def test_a_source_that_can_not_be_looked_at(make_shards_dir, to) -> None:
    shards_dir = make_shards_dir(3)
    with FileSystemFaults(shards_dir) as fs:
        fs.fail("open", errno.EIO, match="acts000001.bin")
        result = run(shards_dir, "--to", to)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "acts000001.bin" in result.stderr


def test_a_target_that_can_not_be_looked_at(make_shards_dir, to) -> None:
    with FileSystemFaults(to) as fs:
        fs.fail("stat", errno.EIO, times=1)
        result = run(make_shards_dir(1), "--to", to)
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"Could not check '{to}': [Errno 5]" in result.stderr

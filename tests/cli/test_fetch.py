"""``shardproof fetch``: 0 only when the right bytes are under the final name."""

import contextlib
import errno
import functools
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shardproof.testing.faults import FileSystemFaults, Hub
from tests.helpers import commands
from tests.helpers.kept_parts import beside_parts

DATA = bytes(range(256)) * 400
HIDE_CURSOR = b"\x1b[?25l"
SHA256 = hashlib.sha256(DATA).hexdigest()


run = functools.partial(commands.run, "fetch")


@pytest.fixture
def url(shard_hub: Hub) -> str:
    return shard_hub.put("a/train-0.bin", DATA)


def test_the_right_bytes_are_there(url: str, tmp_path: Path) -> None:
    result = run(url, tmp_path, "--digest", f"sha256:{SHA256}")

    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path / 'train-0.bin'}\n"
    assert result.stderr == ""
    assert (tmp_path / "train-0.bin").read_bytes() == DATA


def test_what_may_not_survive_a_power_cut_is_there_and_told(url: str, tmp_path: Path) -> None:
    with FileSystemFaults(tmp_path) as fs:
        fs.fail("fsync", errno.EIO, match=tmp_path.name)
        result = run(url, tmp_path, "--digest", f"sha256:{SHA256}")

    assert result.exit_code == 3
    assert "may not survive a power cut" in result.stderr
    assert (tmp_path / "train-0.bin").read_bytes() == DATA


def test_what_nobody_has_stated_the_digest_of_is_not_called_proven(
    url: str, tmp_path: Path
) -> None:
    result = run(url, tmp_path)

    assert result.exit_code == 0
    assert f"only its size is right; it is sha256:{SHA256}" in result.stderr


def test_wrong_bytes_are_not_there(url: str, tmp_path: Path) -> None:
    result = run(url, tmp_path, "--digest", f"sha256:{'0' * 64}", "--attempts", "1")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert f"expected the digest sha256:{'0' * 64}, found sha256:{SHA256}" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["", "--timeout=0.1", "--deadline=0.1", "--stall-timeout=0.1"])
def test_what_fails_or_takes_too_long_ends(
    option: str, url: str, shard_hub: Hub, tmp_path: Path
) -> None:
    shard_hub.fault("a/*", "stall-in-body" if option else "status-503")

    result = run(url, tmp_path, "--attempts=1", *filter(None, [option]))

    assert (result.exit_code, result.stdout) == (1, "")
    assert "failed to download 'train-0.bin' after 1 attempt" in result.stderr
    assert beside_parts(tmp_path) == set()


def test_attempts_are_told_where_that_is_wanted(url: str, shard_hub: Hub, tmp_path: Path) -> None:
    shard_hub.fault("a/*", "status-503", times=1)

    result = run(url, tmp_path, "--verbose")

    assert result.exit_code == 0
    assert "(attempt 1/3): " in result.stderr
    assert "Retrying in " in result.stderr


@pytest.mark.parametrize(
    ("url", "exit_code", "text"),
    [
        ("s3://bucket/0.bin", 2, "a package that is missing: Install s3fs to access S3"),
        ("ftp://no.such.host.invalid/x", 3, "gaierror"),
        ("reference://x/y", 2, "missing 1 required positional argument"),
        *(("http://127.0.0.1:1/", 2, ""), ("http://127.0.0.1:1/%2Fetc", 2, "")),
        *(("a/b", 2, ""), ("nonsense://a/b", 2, ""), ("hf://a", 2, "")),
    ],
)
def test_addresses_of_no_file_and_what_a_file_system_refuses_are_told_in_a_line_or_two(
    url: str, exit_code: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)

    result = run(url, tmp_path, "--attempts", "2")

    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert text in result.stderr
    assert 0 < len(result.stderr.splitlines()) <= 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("digest", "problem"), [("sha256:12", "expected 64 hexadecimal digits"), ("12", "expected")]
)
def test_a_wrong_digest_is_wrong_usage(digest: str, problem: str, url: str, tmp_path: Path) -> None:
    result = run(url, tmp_path, "--digest", digest)

    assert result.exit_code == 2
    assert problem in result.stderr


CUT_SHORT = """
import rich.progress
def stop(self):
    raise KeyboardInterrupt
rich.progress.Progress.stop = stop
"""
NOT_YET_DRAWN = """
import rich.console
def push_render_hook(self, hook):
    raise KeyboardInterrupt
rich.console.Console.push_render_hook = push_render_hook
"""
BEHIND_A_WRITE = """
import io
from shardproof.cli import output
class Struck(io.FileIO):
    def write(self, data):
        n_bytes = super().write(data)
        if b"/102.4" in bytes(data) and self.fileno() == 2:
            Struck.write = io.FileIO.write
            raise KeyboardInterrupt
        return n_bytes
class Patient(output._Patient, Struck):
    pass
output._Patient = Patient
"""


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", CUT_SHORT, NOT_YET_DRAWN, BEHIND_A_WRITE])
def test_an_interrupt_leaves_the_terminal_as_it_was(
    url: str, shard_hub: Hub, tmp_path: Path, before: str
) -> None:
    """The bar never hides the cursor: an interrupt might cut short what shows it again."""
    shard_hub.fault("a/*", "drip")
    master, slave = os.openpty()
    code = f"{before}\nfrom shardproof.cli import app as cli; cli.main()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "fetch", url, tmp_path],
        stderr=slave,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(slave)
    drawn = b""
    if before not in {NOT_YET_DRAWN, BEHIND_A_WRITE}:
        drawn += os.read(master, 1000)
        child.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
        while more := os.read(master, 1000):
            drawn += more
    os.close(master)

    assert child.wait(60) == 130, drawn
    assert HIDE_CURSOR not in drawn
    assert before or not beside_parts(tmp_path)

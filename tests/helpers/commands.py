"""The command: in this process, as if in a wide pipe, and in a process of its own."""

import re
import subprocess
import sys
from collections.abc import Sequence

from click.testing import CliRunner, Result

from shardproof.cli.app import app

__all__ = ["MODULE", "run", "said", "started", "untimed"]

MODULE = (sys.executable, "-m", "shardproof")


def run(*args: object) -> Result:
    env = {"COLUMNS": "200"}
    result = CliRunner().invoke(app, [*map(str, args)], prog_name="shardproof", env=env)
    assert isinstance(result.exception, SystemExit | None), result.exception  # has a code of 1 too
    return result


def started(args: Sequence[object], **keywords: object) -> subprocess.Popen[str]:
    """A process of which everything that it says is kept."""
    pipe = subprocess.PIPE
    return subprocess.Popen([*map(str, args)], stdout=pipe, stderr=pipe, text=True, **keywords)


def said(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit code, and what it said on both streams."""
    out, error = child.communicate(timeout=60)
    return child.returncode, out, error


def untimed(text: str) -> str:
    """What was printed, with N for each number of seconds."""
    return re.sub(r"[0-9.]+ s\b", "N s", text)

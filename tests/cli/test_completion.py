"""Completion, typed in the real shells on a real terminal."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.commands import run

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(shardproof completion bash)"),
    "zsh": (
        ["zsh", "-f", "-i"],
        "autoload -Uz compinit; compinit -u -D; source <(shardproof completion zsh)",
    ),
    "fish": (["fish", "--no-config", "-i"], "shardproof completion fish | source"),
}
TYPED = {
    "shardproof exp": "shardproof explain",
    "shardproof checkpoint ver": "shardproof checkpoint verify",
    "shardproof validate --rec": "shardproof validate --recursive",
    "shardproof validate --level comp": "shardproof validate --level complete",
    "shardproof validate --format tfr": "shardproof validate --format tfrecord",
    "shardproof formats tfr": "shardproof formats tfrecord",
    "shardproof validate my-sh": "shardproof validate my-shards",
    "shardproof fetch hf://x my-sh": "shardproof fetch hf://x my-shards",
}


ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


class Typist:
    """A shell on a terminal, and what it has shown so far."""

    def __init__(self, command: list[str], cwd: Path) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {"PATH": path, "HOME": str(cwd), "TERM": "dumb", "PS1": "> ", "LANG": "C.UTF-8"}
        self.main, side = pty.openpty()
        command = [sys.executable, "-c", ON_TERMINAL, *command]
        self.child = subprocess.Popen(
            command, stdin=side, stdout=side, stderr=side, cwd=cwd, env=env, start_new_session=True
        )
        os.close(side)
        self.shown = ""

    def type(self, text: str) -> None:
        self.shown = ""
        os.write(self.main, text.encode())

    def wait_for(self, text: str, seconds: float = 60.0) -> bool:
        end = time.monotonic() + seconds
        while text not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r|\x07", "", self.shown):
            if time.monotonic() > end:
                return False
            if select.select([self.main], [], [], 1)[0]:
                self.shown += os.read(self.main, 4096).decode(errors="replace")
        return True

    def close(self) -> None:
        os.close(self.main)
        self.child.kill()
        self.child.wait()


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_typed_is_completed(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command, line = SHELLS[shell]
    (tmp_path / "my-shards").mkdir()
    typist = Typist(command, tmp_path)
    try:
        typist.type(f"{line}; echo rea''dy\n")
        assert typist.wait_for("ready"), typist.shown
        for text, completed in TYPED.items():
            typist.type(f"{text}\t")
            assert typist.wait_for(completed), (text, typist.shown)
            typist.type("\x15")  # the line is deleted
    finally:
        typist.close()


def completions(words: str, at: int, shell: str = "bash") -> list[str]:
    """What the command answers to a shell."""
    env = {**os.environ, "COMP_WORDS": words, "COMP_CWORD": str(at)}
    env["_SHARDPROOF_COMPLETE"] = f"{shell}_complete"
    command = [sys.executable, "-m", "shardproof"]
    return subprocess.run(command, env=env, capture_output=True, text=True).stdout.splitlines()


def test_a_completion_imports_no_more_than_the_help_does() -> None:
    code = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    code += "; from shardproof.__main__ import main; main()"
    env = {**os.environ, "COMP_WORDS": "shardproof ", "COMP_CWORD": "1"}
    env["_SHARDPROOF_COMPLETE"] = "bash_complete"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert "plain,validate" in done.stdout.splitlines()
    heavy = {"numpy", "httpx", "beartype", "rich", "asyncio", "pyarrow", "shardproof.formats.plain"}
    assert not heavy.intersection(done.stderr.split())


def test_zsh_and_fish_get_a_line_of_help_with_each_command() -> None:
    said = completions("shardproof ", 1, "zsh")
    assert "Check every expected file of shards..." in said


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed_and_the_help_says_where_it_goes(shell: str) -> None:
    done = run("completion", shell)
    assert (done.exit_code, "_SHARDPROOF_COMPLETE" in done.stdout) == (0, True)
    line = SHELLS[shell][1].rpartition("; ")[2]
    assert line in run("completion", "-h").stdout


def test_another_shell_is_wrong_usage() -> None:
    assert run("completion", "tcsh").exit_code == 2

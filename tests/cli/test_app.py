"""The command: what it prints, where, and its exit codes."""

import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import secrets
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import shardproof
from shardproof import testing
from shardproof._base.messages import shown
from shardproof.cli import app, exits
from tests.helpers.commands import MODULE, run, untimed


def in_process(*args: object, **keywords) -> subprocess.CompletedProcess:
    command = [*MODULE, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **keywords)


def on_terminal(*args: object, **environment: str) -> str:
    """What the command prints on a terminal, a real one."""
    main, side = pty.openpty()
    command = [*MODULE, *map(str, args)]
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", **environment}
    if "NO_COLOR" not in environment:
        env.pop("NO_COLOR", None)
    child = subprocess.Popen(command, stdout=side, stderr=side, env=env)
    os.close(side)
    output = b""
    try:
        while chunk := os.read(main, 4096):
            output += chunk
    except OSError as error:
        if error.errno != errno.EIO:  # how a terminal ends (pty(7))
            raise
    finally:
        os.close(main)
    child.wait()
    return output.decode()


class TestValidate:
    def test_it_prints_what_the_report_says(self, make_shards_dir) -> None:
        whole, damaged = make_shards_dir(3), make_shards_dir(3, missing_shards=[1])
        result = run("validate", whole)
        assert (result.exit_code, result.stderr) == (0, "")
        assert untimed(result.stdout) == f"present: 3 of 3 files of '{whole}' (saev, N s)\n"
        result = run("validate", damaged)
        assert result.exit_code == 1
        assert untimed(result.stdout) == (
            f"present: 2 of 3 files of '{damaged}' (saev, N s)\n\n"
            "Missing files (1):\n"
            f"  - {damaged}/acts000001.bin: expected a regular file, found nothing\n\n"
            "1 finding: 1 missing\n"
        )

    def test_a_higher_level_finds_what_a_lower_one_does_not(self, make_shards_dir) -> None:
        shards_dir = make_shards_dir(2)
        os.truncate(shards_dir / "acts000000.bin", 1)
        assert run("validate", shards_dir).exit_code == 0
        result = run("validate", "--level", "complete", shards_dir)
        assert result.exit_code == 1
        assert "Files of another size (1):" in result.stdout
        assert "1 without a digest" in run("validate", "--level=valid", make_shards_dir(1)).stdout

    def test_verbose_adds_to_each_finding_what_to_do(self, make_shards_dir) -> None:
        shards_dir = make_shards_dir(3, missing_shards=[1], directory_shards=[2])
        told, more = (
            [
                line
                for line in run("validate", *words, shards_dir).stdout.splitlines()
                if "- /" in line
            ]
            for words in ([], ["-v"])
        )
        assert more == [
            f"{told[0]} (ENOENT); make it again, or restore it",
            f"{told[1]}; move it away, and restore the shard",
        ]
        assert told[1].endswith("acts000002.bin: expected a regular file, found directory")

    @pytest.mark.parametrize("damage", [{}, {"missing_shards": [0]}])
    def test_quiet_prints_no_report(self, make_shards_dir, damage) -> None:
        result = run("validate", "-q", make_shards_dir(1, **damage))
        assert (result.output, result.exit_code) == ("", len(damage))

    @pytest.mark.parametrize("command", [["validate"], ["checkpoint", "verify"]])
    @pytest.mark.parametrize("option", ["-q", "--json", "--level=valid"])
    def test_why_there_is_no_report_is_always_said(self, tmp_path, command, option) -> None:
        result = run(*command, option, tmp_path / "gone")
        assert result.exit_code == 2
        assert f"{tmp_path / 'gone'}': there is no" in result.stderr

    def test_json_has_reports_and_reasons_why_there_are_none(
        self, make_shards_dir, tmp_path
    ) -> None:
        shards_dir = make_shards_dir(2, missing_shards=[1])
        result = run("validate", "--json", shards_dir, tmp_path / "gone")
        assert result.exit_code == 2
        report, failure = json.loads(result.stdout)
        assert report == {"schema_version": 1} | shardproof.validate(shards_dir).to_dict()
        assert failure["path"] == str(tmp_path / "gone")
        assert (failure["ok"], failure["exit_code"]) == (False, 2)
        assert "there is no such directory" in failure["error"]

    @pytest.mark.parametrize("command", ["validate", "stage", "receipts"])
    def test_a_directory_that_may_not_be_read_is_no_promise(self, make_shards_dir, command) -> None:
        shards_dir = make_shards_dir(1)
        shards_dir.chmod(0)
        try:
            with testing.without_root_override():
                result = run(command, shards_dir)
        finally:
            shards_dir.chmod(0o755)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "permission denied" in result.stderr

    @pytest.mark.parametrize("name", ["shards.json", "acts000001.bin"])
    @pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
    def test_what_could_not_be_looked_at_is_3(
        self, make_shards_dir, make_shard_faults, name, number
    ) -> None:
        shards_dir = make_shards_dir(2, missing_shards=[0])
        make_shard_faults(shards_dir).fail("open", number, match=name)
        result = run("validate", "-v", shards_dir)
        assert result.exit_code == 3
        assert os.strerror(number) in result.output
        if name != "shards.json":
            assert "could not be checked and may be intact" in result.stdout
            assert "Missing files (1)" in result.stdout


class TestStreams:
    def test_a_long_path_is_not_broken_into_lines(self, tmp_path) -> None:
        base = tmp_path / ("x" * 200)
        shards_dir = testing.write_layout(testing.Layout(n_shards=1, missing=[0]), base)
        result = in_process("validate", shards_dir, env={**os.environ, "COLUMNS": "40"})
        assert f"  - {shards_dir}/acts000000.bin: expected a regular file, found" in result.stdout

    def test_a_terminal_gets_the_text_of_a_pipe_with_colours(self, make_shards_dir) -> None:
        args = "validate", make_shards_dir(2), make_shards_dir(2, missing_shards=[0])
        text = on_terminal(*args)
        assert "\x1b[32mpresent: 2 of 2 files" in text
        assert "\x1b[31m\x1b[1mMissing files (1):" in text
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r\n", "\n")
        assert untimed(plain) == untimed(in_process(*args).stdout)

    @pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
    def test_who_wants_no_colours_gets_none(self, make_shards_dir, environment) -> None:
        text = on_terminal("validate", make_shards_dir(2, missing_shards=[0]), **environment)
        assert "Missing files (1):" in text
        assert "\x1b" not in text


COMMANDS = {
    "validate": (["validate", "{damaged}"], 1),
    "validate-json": (["validate", "--json", "{gone}"], 2),
    "stage": (["stage", "{whole}", "--to", "{to}"], 0),
    "checkpoint-verify": (["checkpoint", "verify", "{checkpoint}"], 0),
    "demo": (["demo"], 0),
}
"""A command of each kind that prints, and its exit code where it can."""

SOME = ("validate", "stage")


class TestStreamsThatAreGone:
    """Real descriptors, as a shell gives them."""

    @pytest.fixture(params=COMMANDS)
    def command(self, request, tmp_path, make_shards_dir, make_checkpoint) -> tuple[list[str], int]:
        (tmp_path / "to").mkdir()
        places = {
            "whole": make_shards_dir(2),
            "damaged": make_shards_dir(2, missing_shards=[1]),
            "gone": tmp_path / "gone",
            "to": tmp_path / "to",
            "checkpoint": make_checkpoint(),
        }
        args, code = COMMANDS[request.param]
        return [arg.format(**places) for arg in args], code

    @pytest.mark.slow
    def test_standard_output(self, command) -> None:
        args, _ = command
        end = nobody_reads()
        children = [started(args, ">&-"), started(args, ">/dev/full"), started(args, stdout=end)]
        os.close(end)
        closed, full, unread = map(outcome, children)
        cause = "shardproof: could not write to standard output: [Errno "
        assert (closed[0], closed[2][-1:]) == (3, [f"{cause}9] Bad file descriptor"])
        assert (full[0], full[2][-1:]) == (3, [f"{cause}28] No space left on device"])
        assert unread[0] == 141
        for _, _, said in (closed, full, unread):
            assert not [line for line in said if "Traceback" in line or "ignored" in line]
            assert sum(cause in line for line in said) == (said is not unread[2])

    @pytest.mark.slow
    @pytest.mark.parametrize("command", SOME, indirect=True)
    def test_standard_error(self, command) -> None:
        args, code = command
        children = [started(args, redirection) for redirection in ("2>&-", "2>/dev/full", "<&-")]
        outcomes = [outcome(child) for child in children]
        assert [(ended, bool(printed)) for ended, printed, _ in outcomes] == 3 * [(code, True)]

    @pytest.mark.slow
    @pytest.mark.parametrize("command", SOME, indirect=True)
    def test_both_streams_at_once(self, command) -> None:
        args, _ = command
        children = [started(args, ">&- 2>&- <&-"), started(args, ">/dev/full 2>/dev/full")]
        assert [outcome(child) for child in children] == [(3, "", []), (3, "", [])]


def started(args: list[str], redirection: str = "", **keywords: int) -> subprocess.Popen:
    """The command in a process of its own, with descriptors as a shell redirects them."""
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", *MODULE]
    numbered = [arg.format(new=f"new-{secrets.token_hex(4)}") for arg in args]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **keywords}
    return subprocess.Popen([*command, *numbered], text=True, **streams)


def outcome(child: subprocess.Popen) -> tuple[int, str, list[str]]:
    """Exit code, what was printed, and the lines of standard error."""
    with child:
        output, error = child.communicate(timeout=60)
    return child.returncode, output or "", error.splitlines()


def nobody_reads() -> int:
    """The end of a pipe to write to, of which the other one is closed."""
    read, write = os.pipe()
    os.close(read)
    return write


def bytes_in(pipe: int) -> int:
    """How many bytes wait to be read (ioctl_pipe(2))."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


class TestOutputThatFailsLate:
    """What nobody has flushed before is written when the command ends."""

    PRINTS = (
        "import sys; from shardproof.cli import app as cli\n"
        "def app(**_):\n"
        "    sys.stdout.write('x')\n"
        "    sys.exit(int(sys.argv[1]))\n"
        "cli.app = app; cli.main()"
    )

    @pytest.mark.slow
    @pytest.mark.parametrize("code", [0, 1])
    def test_it_ends_by_its_own_code(self, code: int) -> None:
        end = nobody_reads()
        command = [sys.executable, "-c", self.PRINTS, str(code)]
        with open("/dev/full", "wb") as full:
            for stdout, expected in ((full, 3), (end, 141)):
                done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
                assert done.returncode == expected
                assert done.stderr.count("\n") == (expected == 3)
        os.close(end)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("stream", "name"), [("stdout", "SIGINT"), ("stderr", "SIGTERM"), ("stderr", "SIGHUP")]
    )
    def test_a_signal_ends_it_where_nobody_reads_yet(self, stream: str, name: str) -> None:
        """What is left to write is not waited for: its reader may never come."""
        code = (
            "import click; from shardproof.cli import app as cli\n"
            "def app(**_):\n"
            f"    while True: click.echo(1000 * 'x', err={stream == 'stderr'})\n"
            "cli.app = app; cli.main()"
        )
        read, write = os.pipe()
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: write}
        with subprocess.Popen([sys.executable, "-c", code], text=True, **streams) as child:
            os.close(write)
            before = -1
            while before != (there := bytes_in(read)) or not there:
                before = there
                time.sleep(0.05)
            child.send_signal(signal.Signals[name])
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=20)
            child.kill()
            said = (child.stderr if stream == "stdout" else child.stdout).read()
            assert (child.wait(), said) == (128 + signal.Signals[name], "")
        os.close(read)

    def test_a_pipe_that_does_not_block_is_waited_for(self, make_shards_dir) -> None:
        """As where node, or ssh, has the other end."""
        many = make_shards_dir(900, missing_shards=range(900))
        read, write = os.pipe()
        os.set_blocking(write, False)
        with started(["validate", "--all", str(many)], stdout=write) as child:
            os.close(write)
            with open(read) as pipe:
                text = pipe.read()
        assert child.returncode == 1, child.stderr.read()
        assert text.count("  - ") == 900


HOSTILE = "a\x1b]0;b\x07\nForged line\x9b2J\u202e"


def clean_lines(text: str) -> list[str]:
    """The lines of what a terminal was told, of which none is forged and none paints."""
    lines = text.replace("\r\n", "\n").split("\n")
    assert all(map(str.isprintable, lines)), ascii(text)
    assert not any(line.strip().startswith("Forged") for line in lines), text
    return lines


class TestHostileNames:
    def test_a_directory_has_one_line_on_a_terminal(self, tmp_path) -> None:
        path = testing.write_layout(testing.Layout(n_shards=1), tmp_path / f"ok{HOSTILE}")
        text = on_terminal("validate", path, path, TERM="dumb")
        assert len(clean_lines(text)) == 4

    @pytest.mark.slow
    @pytest.mark.parametrize("command", ["stage", "latest"])
    def test_a_path_that_is_printed_is_shown_on_a_terminal_and_raw_in_a_script(
        self, tmp_path, command
    ) -> None:
        there, odd = tmp_path / "there", tmp_path / f"b{HOSTILE}"
        odd.mkdir()
        there = testing.write_layout(testing.Layout(n_shards=1), there)
        testing.write_layout(testing.Layout(format="checkpoint"), odd / "model")
        words = ["stage", there, "--to", odd]
        words = words if command == "stage" else ["checkpoint", "latest", odd]
        script = [*MODULE, *words]
        done = subprocess.run(script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert (done.returncode, os.fsencode(odd) in done.stdout) == (0, True)
        text = on_terminal(*words, TERM="dumb", COLUMNS="1000")
        assert shown(odd) in "".join(clean_lines(text))

    @pytest.mark.parametrize(
        "words", [["{}"], ["validate", "--level={}", "x"], ["checkpoint", "{}"]]
    )
    @pytest.mark.parametrize("text", [HOSTILE, "x" * 10_000])
    def test_wrong_usage_is_told_in_a_few_clean_lines(self, words, text: str) -> None:
        result = run(*(word.format(text) for word in words))
        assert (result.exit_code, result.stdout) == (2, "")
        assert len(clean_lines(result.stderr)) < 20
        assert len(result.stderr) < 10_000


def test_an_interrupt_that_a_lock_hides_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(**_: object) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            threading.Lock().release()

    monkeypatch.setattr(app, "app", hidden)
    for name in ("stdout", "stderr"):  # which it replaces
        monkeypatch.setattr(sys, name, getattr(sys, name))

    with pytest.raises(SystemExit) as ended:
        app.main()

    assert ended.value.code == 130


class TestDemo:
    def test_it_shows_a_healthy_and_a_damaged_directory(self, tmp_path) -> None:
        result = in_process("demo", env={**os.environ, "TMPDIR": str(tmp_path)})
        assert result.returncode == 0, result.stderr
        assert re.search(r"present: 6 of 6 files of '.*/healthy/saev/shards/", result.stdout)
        for title in ("Missing files (2)", "Empty files (1)", "Unreadable files (1)", "Not reg"):
            assert title in result.stdout
        assert "$ pytest --validate-shards --shards-dir=" in result.stdout
        assert "--to DIR keeps them" in result.stdout
        assert os.listdir(tmp_path) == []

    def test_it_keeps_what_it_is_told_to_keep_and_overwrites_nothing(self, tmp_path) -> None:
        result = run("demo", "--to", tmp_path / "kept")
        assert result.exit_code == 0
        command = result.stdout.split("$ ")[-1].splitlines()[0]
        assert run("validate", command.split("--shards-dir=")[1]).exit_code == 1
        assert f"kept in '{tmp_path}/kept'" in result.stdout
        (tmp_path / "mine").touch()
        for path in (tmp_path, tmp_path / "mine"):
            result = run("demo", "--to", path)
            assert (result.exit_code, "new or empty directory" in result.output) == (2, True)


TOLD_TO_END = """
import os, signal, sys, tempfile
name, real = sys.argv.pop(1), {}
def call(*args, **keywords):
    try:
        return real[name](*args, **keywords)
    finally:
        if "shardproof-demo-" in str(args[0]) or "dir_fd" in keywords:
            setattr(os, name, real[name])
            signal.raise_signal(signal.SIGTERM)
from shardproof.cli import app as cli
real[name] = getattr(os, name)
setattr(os, name, call)
cli.main()
"""
"""The demo, and one signal, just when the first such call has been made for its directory."""


@pytest.mark.slow
@pytest.mark.parametrize("call", ["mkdir", "unlink", "rmdir"])
def test_a_demo_that_is_told_to_end_leaves_nothing(call: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", TOLD_TO_END, call, "demo"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (143, "")
    assert os.listdir(tmp_path) == []


def test_a_demo_where_no_directory_can_be_made(tmp_path, monkeypatch) -> None:
    """As where all places for temporary files are read-only."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "gone")])
    result = run("demo")
    assert (result.exit_code, result.stdout) == (3, "")
    assert str(tmp_path / "gone") in result.stderr
    assert "--to DIR" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words", ["validate {}", "receipts {}", "stage . --to {}", "checkpoint latest {}"]
)
def test_a_name_that_nothing_can_have_is_wrong_usage(tmp_path, words: str) -> None:
    """Nobody need look again: no file system keeps it."""
    result = run(*words.format(tmp_path / ("x" * 300)).split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert "File name too long" in result.stderr


def test_in_a_path_that_is_too_long_as_a_whole_somebody_else_may_look() -> None:
    """From below some of its folders: there is what it leads to, perhaps."""
    for path, code in (("/a" * 3000, 3), (f"/a/{'x' * 256}", 2), (None, 3)):
        assert exits.code_of(OSError(errno.ENAMETOOLONG, "too long", path)) == code
    assert exits.code_of(OSError(errno.EIO, "bad", "x" * 300)) == 3


class TestLongCells:
    """One long text in a table, of a small file, makes no other line of the output longer."""

    def shown(self, prefix: Path, *names: str) -> list[str]:
        saver = shardproof.MultiShardSaver()
        saver.save_shard(prefix, 0, {name: np.zeros(1) for name in names})
        saver.save_metadata(prefix, world_size=1)
        return run("checkpoint", "show", prefix).stdout.splitlines()[-1 - len(names) :]

    def test_a_long_name_of_a_tensor(self, tmp_path) -> None:
        _, one, long, other = self.shown(tmp_path / "model", "a", "\x01" * 4000, "b")
        assert long.split() == ["0", r"\x01" * 4000, "float64", "1", "8"]
        assert one.index("float64") == other.index("float64") < 500

    def test_columns_stand_below_each_other(self, tmp_path) -> None:
        """Some characters take two places."""
        assert self.shown(tmp_path / "model", "日本", "abcdefgh") == [
            "Rank  Tensor    Type     Shape  Bytes",
            "0     日本      float64  1      8",
            "0     abcdefgh  float64  1      8",
        ]


def test_version_and_help() -> None:
    assert run("--version").stdout == f"shardproof {shardproof.__version__}\n"
    assert "validate" in run("--help").stdout
    assert "--level" in run("validate", "--help").stdout
    assert run().exit_code == 2

"""How commands end: one mapping from what went wrong to an exit code, and to words."""

import errno
import os
import socket
from pathlib import Path

import pytest

from shardproof import errors
from shardproof.cli import exits
from shardproof.report import Finding, FindingKind, Report, ShardValidationError
from tests.helpers.commands import run

EIO = OSError(errno.EIO, "bad")
FINDING = Finding(FindingKind.MISSING, Path("/x/a"), "a regular file", "nothing", errno.ENOENT)
COMMANDS = ("validate", "seal", "repair", "fetch", "adopt", "receipts", "stage")
COMMANDS += tuple(f"checkpoint {verb}" for verb in ("verify", "show", "convert", "latest"))


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ShardValidationError(Report(Path("/x"), "saev", "present", 1, (FINDING,))), 1),
        (errors.ManifestError("torn", path="/x"), 2),
        (errors.ManifestPermissionError("denied", path="/x"), 2),
        (errors.CheckpointNotFoundError("gone", path="/x"), 2),
        (errors.CheckpointError("torn", path="/x"), 2),
        (errors.ReceiptError("torn"), 2),
        (ImportError("s3fs"), 2),
        (ValueError("12"), 2),
        (OSError(errno.ENAMETOOLONG, "too long", "x" * 300), 2),
        (errors.ShardReadError("it changed", path="/x"), 3),
        (errors.UnsyncedError("/x", errno.EIO), 3),
        (caused(errors.CheckpointError("bad", path="/x"), EIO), 3),
        (caused(errors.CheckpointError("no", path="/x"), OSError(errno.EACCES, "no")), 3),
        (EIO, 3),
        (OSError("no number"), 3),
    ],
)
def test_each_error_has_one_exit_code(error: BaseException, code: int) -> None:
    assert exits.code_of(error) == code


def test_what_is_refused_may_be_a_finding() -> None:
    error = errors.CheckpointError("a shape that the other form can't hold", path="/x")
    assert exits.code_of(error, refused=1) == 1
    assert exits.code_of(caused(error, EIO), refused=1) == 3
    assert exits.code_of(errors.ManifestError("torn", path="/x"), refused=1) == 2


def test_what_the_system_says_gets_the_words_that_it_lacks() -> None:
    assert exits.words_of(EIO, "stage", "/x/a\n") == r"Could not stage '/x/a\n': [Errno 5] bad"
    assert exits.words_of(EIO, "check", "s3://x") == "Could not check 's3://x': [Errno 5] bad"
    assert exits.words_of(EIO, "check", "a").startswith(f"Could not check '{os.getcwd()}/a'")
    error = errors.ManifestNotFoundError("gone", path="/x")
    assert exits.words_of(error, "check", "/x") == str(error)


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_codes_are_in_every_help(option: str) -> None:
    for command in COMMANDS:
        codes = " ".join(run(*command.split(), option).output.split()).partition("Exit codes: ")[2]
        assert codes.startswith("0 "), command
        assert "; 2 " in codes, command
        assert "; 3 " in codes, command
    words = run(option).output.split()
    assert not {"0", "1", "2", "3", "129", "130", "141", "143"}.difference(words)


def test_a_host_that_can_not_be_reached_was_not_looked_at(tmp_path: Path) -> None:
    with socket.socket() as holder:  # of a port that nobody listens at
        holder.bind(("127.0.0.1", 0))
        refusing = f"127.0.0.1:{holder.getsockname()[1]}"
        for url in (f"http://{refusing}", f"ftp://{refusing}", "http://no.such.host.invalid"):
            result = run("fetch", f"{url}/a.bin", tmp_path, "--attempts", "1")
            assert (result.exit_code, result.stdout, os.listdir(tmp_path)) == (3, "", [])
            assert "refused" in result.stderr or refusing not in url

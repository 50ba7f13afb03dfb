"""The command takes the signals that end it before anything else, and ends in order by them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardproof.testing.faults import Hub
from tests.helpers.commands import MODULE, said, started
from tests.helpers.kept_parts import beside_parts
from tests.helpers.waiting import files_below, until

CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}
SENT = [("SIGINT", 1), ("SIGTERM", 2), ("SIGHUP", 1)]  # a second interrupt waits for nothing


FIRST_IMPORT = """
import signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == 'click': {}
sys.meta_path.insert(0, Finder())
from shardproof.__main__ import main
main()
"""


@pytest.mark.parametrize("name", CODES)
def test_one_that_comes_with_the_first_import_ends_it_at_once(name: str) -> None:
    """The slowest of imports: one that raises the signal itself, and would print a traceback."""
    code = FIRST_IMPORT.format(f"signal.raise_signal(signal.{name})")
    assert said(started([sys.executable, "-c", code, "--help"])) == (CODES[name], "", "")


def test_what_it_imports_may_be_where_nobody_can_look() -> None:
    code = FIRST_IMPORT.format(r"raise OSError(5, 'Input/output error', '/a\n\x1b[2J')")
    problem = "Could not import the command: OSError(5, 'Input/output error')\n"
    assert said(started([sys.executable, "-c", code, "--help"])) == (3, "", problem)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        ("MemoryError()", "no memory is left"),
        ("OSError(5, 'Input/output error')", "OSError: [Errno 5] Input/output error"),
    ],
)
def test_what_no_command_expects_is_no_finding(error: str, problem: str) -> None:
    """Where no memory is left, or a room can't be imported, nobody could look."""
    code = (
        "from shardproof.cli import app as cli\n"
        "def app(**_):\n"
        f"    raise {error}\n"
        "cli.app = app\n"
        "from shardproof.__main__ import main\n"
        "main()\n"
    )
    expected = (3, "", f"Could not go on: {problem}\n")
    assert said(started([sys.executable, "-c", code])) == expected


def test_next_to_nothing_is_imported_before_it_takes_them() -> None:
    """One that comes meanwhile is a traceback; what is imported then should take no time."""
    code = (
        "import sys\n"
        "had = set(sys.modules)\n"
        "import shardproof.__main__\n"
        "print(*set(sys.modules) - had)\n"
    )
    _, out, _ = said(started([sys.executable, "-c", code]))
    ours = ("__main__", "_base", "_base.imports", "cli")
    assert set(out.split()) == {"shardproof", *(f"shardproof.{name}" for name in ours)}


HEAVY = {"asyncio", "beartype", "filelock", "numpy", "pydantic", "rich", "subprocess", "typer"}
HEAVY |= {"shutil", "socket", "tempfile"}
SHOWS_MODULES = (
    "import atexit, sys; before = {*sys.modules}; "
    "atexit.register(lambda: print(*{*sys.modules} - before, file=sys.stderr))"
)
"""But those that a sitecustomize has loaded."""


def loaded_by(*words: object) -> set[str]:
    """Which packages the command has loaded when it ends, in a process of its own."""
    code = f"{SHOWS_MODULES}; from shardproof.__main__ import main; main()"
    status, out, error = said(started([sys.executable, "-c", code, *words]))
    assert (status, out != "") == (0, True)
    return {name.partition(".")[0] for name in error.split()}


def test_the_version_takes_no_library() -> None:
    others = {"click", "concurrent", "dataclasses", "logging", "msgspec", "typing"}
    assert not loaded_by("--version") & (HEAVY | others)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["present", "complete", "valid"])
def test_a_look_takes_what_it_needs_and_no_more(make_shards_dir, level: str) -> None:
    loaded = loaded_by("validate", make_shards_dir(), "--level", level)
    assert "click" in loaded
    assert not loaded & HEAVY


def test_a_command_takes_no_other_command() -> None:
    code = "import sys; from shardproof.cli.app import app; app.get_command(None, 'receipts')"
    code += "; print(*(name for name in sys.modules if name.startswith('shardproof.cli.')))"
    _, out, _ = said(started([sys.executable, "-c", code]))
    commands = {"validate", "repair", "fetch", "receipts", "demo", "checkpoint"}
    loaded = {name.rpartition(".")[2] for name in out.split()}
    assert loaded & commands == {"receipts"}


@pytest.mark.parametrize("words", [["--version"], ["--version", "validate"]])
def test_the_version_that_nobody_takes_has_an_exit_code(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [*MODULE, *words]
    with open("/dev/full", "wb") as full:
        for stdout, expected in ((full, 3), (write, 141)):
            done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
            assert done.returncode == expected
            assert done.stderr.count("\n") == (expected == 3)
    os.close(write)


def test_ignored_ones_stay_ignored() -> None:
    """As under nohup(1), and in the background of a shell."""
    code = (
        "import signal, sys\n"
        "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "from shardproof.cli import app as cli\n"
        "def app(**_):\n"
        "    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\n"
        "        signal.raise_signal(number)\n"
        "    print('went on')\n"
        "cli.app = app\n"
        "from shardproof.__main__ import main\n"
        "main()\n"
    )
    assert said(started([sys.executable, "-c", code])) == (0, "went on\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n_times"), SENT)
def test_a_fetch_ends_in_order(shard_hub: Hub, tmp_path: Path, name: str, n_times: int) -> None:
    url = shard_hub.put("a/0.bin", b"x" * 2**20)
    shard_hub.fault("a/0.bin", "stall-in-body")
    child = started([*MODULE, "fetch", url, tmp_path / "to"])
    until(lambda: list(tmp_path.rglob(".shardproof-*")) or child.poll() is not None)

    for _ in range(n_times):
        child.send_signal(signal.Signals[name])
        time.sleep(0.01)

    assert said(child) == (CODES[name], "", "")
    assert not beside_parts(tmp_path / "to")


SLOW_STAGE = """
from shardproof.__main__ import main
from shardproof.testing.faults import FileSystemFaults
import sys
with FileSystemFaults(sys.argv[-1]) as fs:
    fs.slow("write", 0.1, match="*.tmp")
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n_times"), SENT)
def test_a_stage_ends_in_order(make_shards_dir, tmp_path: Path, name: str, n_times: int) -> None:
    (to := tmp_path / "to").mkdir()
    child = started([sys.executable, "-c", SLOW_STAGE, "stage", make_shards_dir(40), "--to", to])
    until(lambda: files_below(to, "*.bin") or child.poll() is not None)

    for _ in range(n_times):
        child.send_signal(signal.Signals[name])
        time.sleep(0.01)

    assert said(child) == (CODES[name], "", "")
    assert list(to.rglob("*.tmp")) == list(to.rglob("shards.json")) == []


RAISES_WHILE_TEXT_RUNS = """
import builtins, os, signal, sys
real, came = builtins.exec, []
def run(code, *names):
    ours = getattr(sys.modules.get("shardproof.cli.signals"), "signals", None)
    taken = ours and signal.getsignal(signal.SIGTERM) == ours.came
    if isinstance(code, str) and taken and not came:
        came.append(code)
        code = f"import signal; signal.raise_signal({os.environ['NUMBER']})"
    return real(code, *names)
builtins.exec = run
"""


@pytest.mark.parametrize("name", CODES)
def test_one_that_comes_while_text_is_executed(tmp_path: Path, name: str) -> None:
    """As in an import of dataclasses: Python would end itself by SIGINT, whatever the code is."""
    (tmp_path / "sitecustomize.py").write_text(RAISES_WHILE_TEXT_RUNS)
    (tmp_path / "shards").mkdir()
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": path, "NUMBER": str(int(signal.Signals[name]))}
    child = started([*MODULE, "validate", tmp_path / "shards"], env=env)
    assert said(child) == (CODES[name], "", "")

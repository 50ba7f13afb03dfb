"""Two containers of one host name: neither takes the other's live temporary file for a leftover."""

import os
import shutil
import subprocess
import sys

import pytest

from shardproof._base import files

N_ROUNDS = 30
N_IN_THE_GATE = 4

WRITER = """
import os, signal, sys
from shardproof._base import files as _files
with _files.being_written(sys.argv[1], sync=False) as fd:
    os.write(fd, b"whole")
    print(os.getpid(), flush=True)
    sys.stdin.readline()
"""

SWEEPER = """
import sys
from shardproof._base import files as _files
if sys.argv[2] == "old":
    exec(sys.argv[3])
print(_files.sweep_leftovers(sys.argv[1]))
"""

OLD = r"""
import os, re, socket, zlib
from shardproof._base import liveness as _processes
from shardproof._base.files import _naming, _writing
_LEFTOVER = re.compile(r"\.shardproof-(?P<host>[0-9a-f]{8})-(?P<pid>[0-9]+)-[0-9a-f]{16}\.tmp")
def _host():
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"
def _dead(names):
    for name in names:
        found = _LEFTOVER.fullmatch(name)
        if found and found["host"] == _host() and not _processes.is_alive(int(found["pid"])):
            yield name
_naming._dead_leftovers = _dead
_naming.temporary_name = _writing.temporary_name = lambda: (
    f".shardproof-{_host()}-{os.getpid()}-{os.urandom(8).hex()}.tmp"
)
"""
"""How it was: by the host's name and a number of whatever namespace."""

KINDS = (
    ["--pid", "--fork", "--mount-proc"],
    ["--pid", "--fork"],
    ["--pid", "--fork", "--uts"],
    ["--time", "--boottime", "{}", "--fork"],
)
"""What a container has of its own; without a /proc of its own it sees the numbers of its host."""


@pytest.fixture(scope="module")
def unshare() -> list[str]:
    command = ["unshare"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare(1) here")
    done = subprocess.run([*command, "--pid", "--fork", "true"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    return command


def round_of(tally, writer_in, sweeper_in, path, how="new") -> None:
    tally.count()
    path.mkdir()
    target = path / "x"
    code = (OLD if how == "old" else "") + WRITER
    writer = [*writer_in, sys.executable, "-c", code, target]
    sweeper = [*sweeper_in, sys.executable, "-c", SWEEPER, path, how, OLD]
    with subprocess.Popen(
        writer, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        swept = subprocess.run(sweeper, capture_output=True, text=True)
        _, errors = process.communicate("\n")
    if swept.stdout.strip() != "[]":
        tally.harm("lost", f"{sweeper_in}: {swept.stdout}{swept.stderr[-300:]}")
    if process.returncode or not target.is_file() or target.read_bytes() != b"whole":
        tally.harm("lost", f"{writer_in}: it ended with {process.returncode}: {errors[-300:]}")
    left = [name for name in os.listdir(path) if name != "x"]
    if left:
        tally.harm("leftover", f"{writer_in}: {left}")


@pytest.mark.attack("two containers of one host name")
def test_a_live_writer_and_a_sweeper(unshare, tmp_path, tally) -> None:
    cases = [(n, KINDS[n % len(KINDS)]) for n in range(N_ROUNDS)]
    for number, kind in tally.each(cases, N_IN_THE_GATE):
        own, another = ([part.format(offset) for part in kind] for offset in (0, 100_000))
        round_of(tally, [*unshare, *own], [*unshare, *another], tmp_path / str(number))


def test_in_doubt_whose_a_name_is_nothing_is_swept(tmp_path) -> None:
    name = f".shardproof-{'0' * 8}-4000-{'0' * 16}.tmp"
    assert files.sweep_leftovers(tmp_path, [name]) == []


@pytest.mark.control("lost")
def test_who_sweeps_by_host_and_number_is_caught(unshare, tmp_path, tally) -> None:
    """The writer is on the host, under a number that the container has nobody for."""
    round_of(tally, [], [*unshare, *KINDS[0]], tmp_path / "c", "old")

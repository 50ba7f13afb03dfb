"""Whatever moment a repair is killed at, and whatever call of it fails: nothing is worse, or left.

The same is asked of who reads meanwhile: a name always leads to the old bytes or the new ones.
"""

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof import ShardproofError
from shardproof._base import files
from shardproof.repairing import _exchange
from shardproof.testing.faults import FileSystemFaults
from tests.attacks.repairs import KINDS, Broken, Tree, bytes_in, parts, put_back, tree_of
from tests.attacks.tally import Tally
from tests.helpers.killing import Begin, skip_where_not_permitted, stop_at_every_change

N_KILLS, N_FAILURES = 8, 12
"""In the gate, of each kind of directory."""

ERRNOS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.ESTALE, errno.EMFILE, errno.EROFS)


@pytest.fixture(params=KINDS)
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> Broken:
    made = KINDS[request.param](tmp_path)
    assert made.repair().ok  # and what it imports is imported
    assert bytes_in(made.base) == made.right
    put_back(made.base, made.before)
    return made


def ends_well(broken: Broken, end: Tree, tally: Tally, what: object) -> None:
    """One more repair does the rest, and leaves nothing over."""
    with tally.harmless("lost", what):
        done = broken.repair()
        assert done.ok, done.failed
    with tally.harmless("leftover", what):
        assert tree_of(broken.base) == end


def end_of(broken: Broken) -> Tree:
    """What an undisturbed repair leaves."""
    broken.repair()
    end = tree_of(broken.base)
    put_back(broken.base, broken.before)
    return end


def states_of(broken: Broken) -> list[Tree]:
    """Return each state in which a directory is left by who is killed at one of its calls."""
    states = [broken.before]

    def act(begin: Begin) -> None:
        begin()
        broken.repair()

    def look() -> None:
        if (tree := tree_of(broken.base)) != states[-1]:
            states.append(tree)

    stop_at_every_change(act, look)
    return states


def is_killed_at_each_call(broken: Broken, tally: Tally, n: int) -> None:
    end = end_of(broken)
    states = states_of(broken)
    for number, state in tally.sample([*enumerate(states)], n):
        put_back(broken.base, state)
        tally.count()
        for kind, what in broken.judged(is_ok=False):
            tally.harm(kind, f"state {number}: {what}")
        ends_well(broken, end, tally, f"state {number}: {sorted(state.keys() - end.keys())}")


@pytest.mark.attack("repair: killed at a system call")
@pytest.mark.usefixtures("no_waiting_for_disks")
def test_killed_at_each_call(broken: Broken, tally: Tally) -> None:
    skip_where_not_permitted()
    is_killed_at_each_call(broken, tally, N_KILLS)


WHOLE, BROKEN, WRONG_CLASS = range(3)
"""How a child ends."""


def ended(broken: Broken, nth: int, number: int, times: int | None) -> int:
    """Repair in a child, to which its parts belong, while a call fails, or it and all after it."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        with FileSystemFaults(broken.base) as fs:
            fs.fail("any", number, nth=nth, times=times, optional=True)
            os._exit(WHOLE if broken.repair().ok else BROKEN)
    except (OSError, ShardproofError):
        os._exit(BROKEN)
    finally:
        os._exit(WRONG_CLASS)


def fails(broken: Broken, nth: int, number: int, times: int | None, tally: Tally) -> None:
    what = f"{errno.errorcode[number]} at call {nth}, times {times}"
    code = ended(broken, nth, number, times)
    tally.count()
    if code not in {WHOLE, BROKEN}:
        tally.harm("wrong class", what)
    for kind, harm in broken.judged(is_ok=code == WHOLE):
        tally.harm(kind, f"{what}: {harm}")
    names = {name for name in tree_of(broken.base) if parts() not in name}
    if stray := names - broken.before.keys() - broken.right.keys() - tops(broken):
        tally.harm("leftover", f"{what}: {stray}")


def tops(broken: Broken) -> set[str]:
    """The folders of what is promised."""
    return {str(each) for name in broken.right for each in Path(name).parents}


@pytest.mark.attack("repair: a call fails")
@pytest.mark.usefixtures("no_waiting_for_disks")
def test_each_call_fails(broken: Broken, tally: Tally) -> None:
    end = end_of(broken)
    with FileSystemFaults(broken.base) as fs:
        broken.repair()
        n_calls = len(fs.calls)
    assert n_calls > 100
    how = [*((number, 1) for number in ERRNOS), (errno.EIO, None)]
    cases = [(nth, number, times) for nth in range(1, n_calls + 10) for number, times in how]
    for nth, number, times in tally.sample(cases, N_FAILURES):
        put_back(broken.base, broken.before)
        fails(broken, nth, number, times, tally)
        ends_well(broken, end, tally, (errno.errorcode[number], nth, times))


READER = """
import os, sys
stop, *paths = sys.argv[1:]
n_reads = n_missed = 0
print(flush=True)
while not os.path.exists(stop):
    for path in paths:
        try:
            with open(path, "rb") as file:
                file.read()
            n_reads += 1
        except OSError:
            n_missed += 1
print(n_reads, n_missed)
"""


def break_again(path: Path, content: bytes | str) -> None:
    """Break a file as it was broken, by a rename."""
    new = path.with_name("new")
    if isinstance(content, bytes):
        new.write_bytes(content)
    else:
        new.symlink_to(content.removeprefix("-> "))
    new.rename(path)


@pytest.mark.attack("repair: somebody reads meanwhile")
@pytest.mark.usefixtures("no_waiting_for_disks")
def test_who_reads_never_finds_nothing(broken: Broken, tally: Tally) -> None:
    names = [name for name, data in broken.was.items() if broken.right.get(name) != data]
    again = {n: broken.before[n] for n in names if "blobs/" not in str(broken.before[n])}
    stop = broken.base.parent / "stop"
    arguments = [sys.executable, "-c", READER, stop, *(broken.base / name for name in names)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        for _ in range(200 if tally.is_exhaustive else 3):
            assert broken.repair().ok
            for name, content in again.items():
                break_again(broken.base / name, content)
        stop.touch()
        n_reads, n_missed = map(int, reader.stdout.readline().split())
    tally.count(n_reads)
    for _ in range(n_missed):
        tally.harm("lost", f"{names}: a reader found nothing")


def unlinks_first(part: str, _part_fd: int, path: str, base_fd: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=base_fd)
    files.move(part, path, target_fd=base_fd)


def writes_in_place(part: str, _part_fd: int, path: str, base_fd: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666, dir_fd=base_fd)
    os.write(fd, Path(part).read_bytes()[:10])
    os.write(fd, Path(part).read_bytes()[10:])
    os.ftruncate(fd, os.stat(part).st_size)
    os.close(fd)


def leaves_it(part: str, part_fd: int, path: str, base_fd: int) -> None:
    os.link(part, f"{path}.new", dst_dir_fd=base_fd)
    _exchange_as_it_is(part, part_fd, path, base_fd)


_exchange_as_it_is = _exchange.exchange

BUGS: dict[Callable[..., None], str] = {
    unlinks_first: "lost",
    writes_in_place: "torn",
    leaves_it: "leftover",
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_what_must_not_be_done_is_seen(bug, tmp_path: Path, monkeypatch) -> None:
    skip_where_not_permitted()
    broken = KINDS["sealed"](tmp_path)
    end = end_of(broken)
    monkeypatch.setattr("shardproof.repairing._fetch.exchange", bug)
    tally = Tally("control", is_exhaustive=True)
    states = states_of(broken)
    monkeypatch.undo()
    for number, state in enumerate(states):
        put_back(broken.base, state)
        for kind, what in broken.judged(is_ok=False):
            tally.harm(kind, f"{number}: {what}")
        ends_well(broken, end, tally, number)
    assert BUGS[bug] in tally.harms, tally.harms

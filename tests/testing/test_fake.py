"""Shards directories in a fake file system: like real ones, and whoever leaves it is told."""

import concurrent.futures
import contextlib
import errno
import fcntl
import io
import mmap
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from fcntl import flock
from io import FileIO
from mmap import mmap as bound_mmap
from os import dup, pread, sendfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyfakefs.fake_filesystem_unittest import Patcher

import shardproof
from shardproof.testing import DamageKind, Layout, ShardState, damaged, shards_dir
from shardproof.testing.faults import NotFakedError, fake_shards_dir
from tests.helpers.descriptors import needs_call

REAL_ONLY = {ShardState.FIFO, ShardState.SOCKET, ShardState.SPARSE}
STATES = [state for state in ShardState if state not in REAL_ONLY]
NAME = "acts000000.bin"

# Values in a dict are no names of a module, and so nobody replaces them.
EARLY: dict[str, Any] = {
    "open": open,
    "lockf": fcntl.lockf,
    **{name: getattr(os, name) for name in ("fchdir", "pread", "pwrite", "rename", "unlink")},
}


@contextlib.contextmanager
def descriptor(path: Path, flags: int = os.O_RDWR) -> Iterator[int]:
    fd = os.open(path / NAME, flags)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.fixture(autouse=True)
def all_is_real_afterwards() -> Iterator[None]:
    functions = os.pread, os.open, os.getuid, mmap.mmap, fcntl.flock, io.FileIO, open
    yield
    assert (os.pread, os.open, os.getuid, mmap.mmap, fcntl.flock, io.FileIO, open) == functions
    assert Patcher.PATCHER is None
    assert os.path.exists(__file__)


def attempt(function: Callable[[], object]) -> object:
    try:
        return function()
    except OSError as error:
        return errno.errorcode[error.errno]


def read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(fd, 10_000)
    finally:
        os.close(fd)


def seen(path: Path) -> dict[str, list[object]]:
    """What a plain reader learns of each file, by all its ways."""
    found = {}
    for file in [*path.iterdir(), path / "acts000099.bin"]:
        looks: list[Callable[[], object]] = [
            lambda file=file: stat.filemode(os.lstat(file).st_mode),
            lambda file=file: stat.filemode(os.stat(file).st_mode),
            lambda file=file: os.readlink(file),
            lambda file=file: file.read_bytes(),
        ]
        if file.is_file():
            looks += [lambda file=file: os.stat(file).st_size, lambda file=file: read(file)]
        found[file.name] = [attempt(look) for look in looks]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_what_is_seen_and_found_is_what_is_on_disk(state: ShardState) -> None:
    value = Layout.of([ShardState.OK, state, state])
    both = []
    for directory in (shards_dir, fake_shards_dir):
        with directory(value) as path:
            looks = seen(path)  # first: pyfakefs's os.open changes the mode
            reports = [
                str(shardproof.validate(path, level=level)).replace(str(path.parents[2]), "")
                for level in ("present", "complete", "valid")
            ]
            both.append((looks, reports))
    assert both[0] == both[1]


def test_chmod_0_keeps_out_root_too() -> None:
    with fake_shards_dir(Layout(2, unreadable=[0])) as path:
        for function in (open, Path.read_bytes, lambda file: os.open(file, os.O_RDONLY)):
            with pytest.raises(PermissionError):
                function(path / NAME)
        assert not os.access(path / NAME, os.R_OK)
        path.chmod(0)
        with pytest.raises(PermissionError):
            os.listdir(path)


@pytest.mark.parametrize("state", sorted(REAL_ONLY))
def test_states_that_it_has_not_are_refused(state: ShardState) -> None:
    value = Layout(3, **{state.value: [0, 2]})
    text = rf"{state}: expected none, .* shards \[0, 2\]. Use a real directory: shards_dir"
    with pytest.raises(ValueError, match=text):
        fake_shards_dir(value).__enter__()


def test_damage_is_done_and_taken_back_inside() -> None:
    with fake_shards_dir(Layout()) as path:
        before = {name: (path / name).read_bytes() for name in os.listdir(path)}
        for kind in DamageKind:
            with damaged(path / NAME, kind):
                assert {name: (path / name).read_bytes() for name in os.listdir(path)} != before
            assert {name: (path / name).read_bytes() for name in os.listdir(path)} == before


Call = Callable[[Path, int], object]  # of a fake file, by its path and a descriptor

BY_DESCRIPTOR: dict[str, Call] = {
    "os.pread": lambda _, fd: os.pread(fd, 1, 0),
    "os.preadv": lambda _, fd: os.preadv(fd, [bytearray(1)], 0),
    "os.pwrite": lambda _, fd: os.pwrite(fd, b"1", 0),
    "os.posix_fadvise": lambda _, fd: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED),
    "os.lockf": lambda _, fd: os.lockf(fd, os.F_LOCK, 0),
    "os.fchown": lambda _, fd: os.fchown(fd, -1, -1),
    "os.fchdir": lambda _, fd: os.fchdir(fd),
    "os.statvfs": lambda _, fd: os.statvfs(fd),
    "os.dup": lambda _, fd: os.dup(fd),
    "os.dup2": lambda _, fd: os.dup2(fd, 99),
    "os.copy_file_range": lambda _, fd: os.copy_file_range(fd, 1, 1),
    "os.copy_file_range 2": lambda _, fd: os.copy_file_range(0, fd, 1),
    "os.sendfile 2": lambda _, fd: os.sendfile(1, fd, 0, 1),
    "os.splice": lambda _, fd: os.splice(0, fd, 1),
    "fcntl.flock": lambda _, fd: fcntl.flock(fd, fcntl.LOCK_SH),
    "fcntl.lockf": lambda _, fd: fcntl.lockf(fd, fcntl.LOCK_SH),
    "fcntl.fcntl": lambda _, fd: fcntl.fcntl(fd, fcntl.F_GETFL),
    "fcntl.ioctl": lambda _, fd: fcntl.ioctl(fd, 0),
    "mmap.mmap": lambda _, fd: mmap.mmap(fd, 1),
    "io.FileIO": lambda _, fd: io.FileIO(fd),
}
BY_AN_EARLIER_NAME: dict[str, Call] = {
    "os.dup": lambda _, fd: dup(fd),
    "os.sendfile": lambda _, fd: sendfile(out_fd=1, in_fd=fd, offset=0, count=1),
    "fcntl.flock": lambda _, fd: flock(fd, fcntl.LOCK_SH),
    "mmap.mmap": lambda _, fd: bound_mmap(fd, 1),
    "io.FileIO": lambda _, fd: FileIO(fd),
    "os.chdir": lambda _, fd: EARLY["fchdir"](fd),
    "fcntl.lockf": lambda _, fd: EARLY["lockf"](fd, fcntl.LOCK_SH),
}
BY_PATH: dict[str, Call] = {
    "os.statvfs": lambda path, _: os.statvfs(path),
    "os.mkfifo": lambda path, _: os.mkfifo(path.parent / "fifo"),
    "os.lchown": lambda path, _: os.lchown(path, -1, -1),
    "io.FileIO": lambda path, _: FileIO(os.fsencode(path)),
    "io.FileIO 2": lambda path, _: EARLY["open"](path),
    "os.remove or os.unlink": lambda path, _: EARLY["unlink"](path),
    "os.rename": lambda path, _: EARLY["rename"]("/tmp/none", path),
    "mmap.mmap": lambda path, _: np.memmap(path),
    "mmap.mmap 2": lambda path, _: np.memmap(path.open("r+b")),
    "os.dup": lambda path, _: np.fromfile(path.open("rb")),
    "os.dup 2": lambda path, _: np.arange(3).tofile(path),
    "fcntl.flock": lambda path, _: fcntl.flock(path.open(), fcntl.LOCK_SH),
}


@pytest.mark.parametrize(
    ("name", "call"),
    [
        pytest.param(*pair, marks=needs_call(pair[0].removeprefix("os.").removesuffix(" 2")))
        for table in (BY_DESCRIPTOR, BY_AN_EARLIER_NAME, BY_PATH)
        for pair in table.items()
    ],
)
def test_calls_that_would_act_on_another_file_or_miss_it_are_refused(name: str, call: Call) -> None:
    text = (
        f"^{name.removesuffix(' 2')}.* was called for the fake '/scratch/saev/shards/.*shards_dir"
    )
    with (
        pytest.raises(NotFakedError, match=text),
        fake_shards_dir(Layout()) as path,
        descriptor(path) as fd,
    ):
        call(path / NAME, fd)


def test_what_gets_through_hits_no_real_file(tmp_path: Path) -> None:
    """With the numbers that pyfakefs gives, the first of these would read and write real files."""
    with contextlib.ExitStack() as stack:
        for number in range(20):
            path = tmp_path / str(number)
            path.write_bytes(b"real")
            stack.enter_context(path.open("r+b"))
        with fake_shards_dir(Layout()) as path, descriptor(path) as fd:
            assert attempt(lambda: EARLY["pread"](fd, 4, 0)) == "EBADF"
            assert attempt(lambda: EARLY["pwrite"](fd, b"gone", 0)) == "EBADF"
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"real"}


REAL: dict[str, tuple[Callable[[int], object], object]] = {
    "os.pread": (lambda fd: os.pread(fd, 4, 0), b"real"),
    "pread": (lambda fd: pread(fd, 4, 0), b"real"),
    "os.pwrite": (lambda fd: os.pwrite(fd, b"real", 0), 4),
    "os.read": (lambda fd: os.read(fd, 4), b"real"),
    "os.fstat": (lambda fd: os.fstat(fd).st_size, 4),
    "os.dup": (lambda fd: os.close(os.dup(fd)), None),
    "open": (lambda fd: open(fd, "rb", closefd=False).read(), b"real"),  # noqa: SIM115
    "mmap": (lambda fd: mmap.mmap(fd, 4)[:], b"real"),
    "mmap of no file": (lambda _: mmap.mmap(-1, 4)[:], bytes(4)),
    "flock": (lambda fd: fcntl.flock(fd, fcntl.LOCK_EX), None),
    "pipe": (lambda _: [os.close(end) for end in os.pipe()], [None, None]),
    "process": (lambda _: subprocess.run(["echo", "hi"], capture_output=True).stdout, b"hi\n"),
}


@pytest.mark.parametrize("name", REAL)
def test_real_descriptors_work_as_ever(name: str, tmp_path: Path) -> None:
    function, expected = REAL[name]
    (tmp_path / "real").write_bytes(b"real")
    with (
        open(tmp_path / "real", "r+b", buffering=0) as real,
        fake_shards_dir(Layout()) as path,
        descriptor(path),
    ):
        assert function(real.fileno()) == expected


def in_a_thread(path: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(np.memmap, path / NAME)


def hide_everything(path: Path) -> None:
    with contextlib.suppress(BaseException):
        np.memmap(path / NAME)


def raise_another(path: Path) -> None:
    hide_everything(path)
    raise ZeroDivisionError


@pytest.mark.parametrize("loader", [in_a_thread, hide_everything])
def test_a_loader_that_holds_it_back_is_reported(loader: Callable[[Path], None]) -> None:
    text = r"mmap.mmap .* '/scratch"
    with pytest.raises(NotFakedError, match=text), fake_shards_dir(Layout()) as path:
        loader(path)


def test_another_error_gets_a_note() -> None:
    with pytest.raises(ZeroDivisionError) as caught, fake_shards_dir(Layout()) as path:
        raise_another(path)
    (note,) = caught.value.__notes__
    assert note.startswith("Before that, NotFakedError was held back: mmap.mmap")


def test_contexts_nest_and_two_that_fake_are_refused() -> None:
    with fake_shards_dir(Layout(1)) as one:
        with fake_shards_dir(Layout(2)) as other:
            assert one.parent == other.parent
        assert os.listdir(one)
        with pytest.raises(FileExistsError), fake_shards_dir(Layout(2)):
            pass
    assert not os.path.exists("/scratch/saev")
    with Patcher(), pytest.raises(RuntimeError, match="that pyfakefs fakes already"):
        fake_shards_dir(Layout()).__enter__()


def test_a_function_that_outlives_it_is_the_real_one() -> None:
    with fake_shards_dir(Layout()):
        outlived = os.pread
    with open(__file__, "rb") as file:
        assert outlived(file.fileno(), 3, 0) == b'"""'

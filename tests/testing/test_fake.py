"""Shards directories in a fake file system: like real ones, and whoever leaves it is told."""

# ruff: noqa: PLW0108 - a lambda looks the function up when it is called, the file system being fake

import concurrent.futures
import contextlib
import errno
import fcntl
import io
import mmap
import os
import socket
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
from hypothesis import given
from hypothesis import strategies as st
from pyfakefs.fake_filesystem_unittest import Patcher

import shardproof
from shardproof.testing import DamageKind, Layout, ShardState, damaged, shards_dir
from shardproof.testing.faults import NotFakedError, fake_shards_dir
from shardproof.testing.faults.fake import fake_shards_dir_maker
from tests.helpers.drawing import examples

REAL_ONLY = {ShardState.FIFO, ShardState.SOCKET, ShardState.SPARSE}
STATES = [state for state in ShardState if state not in REAL_ONLY]
NAME = "acts000000.bin"

# Values in a dict are no names of a module, and so nobody replaces them.
EARLY: dict[str, Any] = {
    "open": open,
    "lockf": fcntl.lockf,
    **{
        name: getattr(os, name)
        for name in ("fchdir", "listdir", "pread", "pwrite", "rename", "unlink")
    },
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


def read_below(path: Path) -> bytes:
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fd = os.open(path.name, os.O_RDONLY, dir_fd=directory)
        with open(fd, "rb") as file:
            return file.read()
    finally:
        os.close(directory)


def seen(file: Path) -> list[object]:
    """What a plain reader learns of a file, by all its ways."""
    looks: list[Callable[[], object]] = [
        lambda: stat.filemode(os.lstat(file).st_mode),
        lambda: stat.filemode(os.stat(file).st_mode),
        lambda: os.readlink(file),
        lambda: read_below(file),
        lambda: file.read_bytes(),
    ]
    if file.is_file():
        looks += [lambda: os.stat(file).st_size, lambda: read(file)]
    return [attempt(look) for look in looks]


def everything_seen(path: Path) -> dict[str, list[object]]:
    return {name: seen(path / name) for name in [*os.listdir(path), "acts000099.bin"]}


def of_states(states: list[ShardState]) -> Layout:
    lists: dict[str, Any] = {
        state.value: [index for index, found in enumerate(states) if found is state]
        for state in STATES
        if state is not ShardState.OK
    }
    return Layout(len(states), **lists)


@pytest.mark.parametrize("state", STATES)
def test_a_plain_reader_sees_what_it_sees_on_disk(state: ShardState) -> None:
    value = of_states([ShardState.OK, state, state])
    with shards_dir(value) as path:
        real = everything_seen(path)
    with fake_shards_dir(value) as path:
        fake = everything_seen(path)
    assert fake == real


@examples(20)
@given(
    st.lists(st.sampled_from(STATES), max_size=5).filter(
        lambda states: states.count(ShardState.SWAPPED) != 1
    )
)
def test_validate_finds_what_it_finds_on_disk(states: list[ShardState]) -> None:
    found = []
    for directory in (shards_dir, fake_shards_dir):
        with directory(of_states(states)) as path:
            reports = [
                str(shardproof.validate(path, level=level)).replace(str(path.parents[2]), "")
                for level in ("present", "complete", "valid")
            ]
            found.append(reports)
    assert found[0] == found[1]


def test_chmod_0_keeps_out_root_too() -> None:
    with fake_shards_dir(Layout(2, unreadable=[0])) as path:
        for function in (open, Path.read_bytes, lambda file: os.open(file, os.O_RDONLY)):
            with pytest.raises(PermissionError):
                function(path / NAME)
        assert not os.access(path / NAME, os.R_OK)
        path.chmod(0)
        with pytest.raises(PermissionError):
            os.listdir(path)


def test_the_path() -> None:
    with fake_shards_dir(Layout(), "/work/data") as path:
        assert isinstance(path, Path)
        assert path.parent == Path("/work/data/saev/shards")
        assert path.is_dir()
    assert not os.path.exists(path)


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


FD = object()

REFUSED: dict[str, tuple[object, ...]] = {
    "os.pread": (FD, 1, 0),
    "os.preadv": (FD, [bytearray(1)], 0),
    "os.readv": (FD, [bytearray(1)]),
    "os.pwrite": (FD, b"1", 0),
    "os.pwritev": (FD, [b"1"], 0),
    "os.writev": (FD, [b"1"]),
    "os.posix_fadvise": (FD, 0, 0, os.POSIX_FADV_DONTNEED),
    "os.posix_fallocate": (FD, 0, 9),
    "os.lockf": (FD, os.F_LOCK, 0),
    "os.fchown": (FD, -1, -1),
    "os.fchdir": (FD,),
    "os.fstatvfs": (FD,),
    "os.fpathconf": (FD, "PC_NAME_MAX"),
    "os.statvfs": (FD,),
    "os.pathconf": (FD, "PC_NAME_MAX"),
    "os.dup": (FD,),
    "os.dup2": (FD, 99),
    "os.copy_file_range": (FD, 1, 1),
    "os.copy_file_range 2": (0, FD, 1),
    "os.sendfile": (FD, 0, 0, 1),
    "os.sendfile 2": (1, FD, 0, 1),
    "os.splice": (0, FD, 1),
    "fcntl.flock": (FD, fcntl.LOCK_SH),
    "fcntl.lockf": (FD, fcntl.LOCK_SH),
    "fcntl.fcntl": (FD, fcntl.F_GETFL),
    "fcntl.ioctl": (FD, 0),
    "mmap.mmap": (FD, 1),
    "io.FileIO": (FD,),
}


@pytest.mark.parametrize("name", REFUSED)
def test_calls_with_a_descriptor_that_would_act_on_another_file(name: str) -> None:
    call = name.split(" ", maxsplit=1)[0]
    module, _, function = call.partition(".")
    text = f"{call}.* was called for the fake '/scratch/saev/shards/.*/{NAME}'.*shards_dir"
    with (
        pytest.raises(NotFakedError, match=text),
        fake_shards_dir(Layout()) as path,
        descriptor(path) as fd,
    ):
        getattr(globals()[module], function)(*(fd if a is FD else a for a in REFUSED[name]))


IMPORTED: dict[str, Callable[[int], object]] = {
    "os.pread": lambda fd: pread(fd, 1, 0),
    "os.dup": lambda fd: dup(fd),
    "os.sendfile": lambda fd: sendfile(out_fd=1, in_fd=fd, offset=0, count=1),
    "fcntl.flock": lambda fd: flock(fd, fcntl.LOCK_SH),
    "mmap.mmap": lambda fd: bound_mmap(fd, 1),
    "io.FileIO": lambda fd: FileIO(fd),
    "os.chdir": lambda fd: EARLY["fchdir"](fd),
    "fcntl.lockf": lambda fd: EARLY["lockf"](fd, fcntl.LOCK_SH),
}


@pytest.mark.parametrize("name", IMPORTED)
def test_calls_by_a_name_bound_before(name: str) -> None:
    with (
        pytest.raises(NotFakedError, match=f"^{name}"),
        fake_shards_dir(Layout()) as path,
        descriptor(path) as fd,
    ):
        IMPORTED[name](fd)


WITH_PATHS: list[tuple[str, Callable[[Path], object]]] = [
    ("os.statvfs", lambda path: os.statvfs(path)),
    ("os.pathconf", lambda path: os.pathconf(path, "PC_NAME_MAX")),
    ("os.mkfifo", lambda path: os.mkfifo(path.parent / "fifo")),
    ("os.lchown", lambda path: os.lchown(path, -1, -1)),
    ("io.FileIO", lambda path: io.FileIO(path)),
    ("io.FileIO", lambda path: FileIO(os.fsencode(path))),
    ("io.FileIO", lambda path: EARLY["open"](path)),
    ("os.listdir", lambda path: EARLY["listdir"](path.parent)),
    ("os.remove or os.unlink", lambda path: EARLY["unlink"](path)),
    ("os.rename", lambda path: EARLY["rename"]("/tmp/none", path)),
    ("mmap.mmap", lambda path: np.memmap(path)),
    ("mmap.mmap", lambda path: np.memmap(path.open("r+b"))),
    ("os.dup", lambda path: np.fromfile(path)),
    ("os.dup", lambda path: np.fromfile(path.open("rb"))),
    ("os.dup", lambda path: np.arange(3).tofile(path)),
    ("fcntl.flock", lambda path: fcntl.flock(path.open(), fcntl.LOCK_SH)),
]


@pytest.mark.parametrize(("name", "call"), WITH_PATHS)
def test_calls_with_a_path_that_would_miss_the_file(
    name: str, call: Callable[[Path], object]
) -> None:
    text = f"^{name}.* the fake '/scratch/saev/shards/"
    with pytest.raises(NotFakedError, match=text), fake_shards_dir(Layout()) as path:
        call(path / NAME)


def test_numpy_load_reads_and_does_not_map() -> None:
    with fake_shards_dir(Layout()) as path:
        np.save(path / "array.npy", np.arange(9))
        assert np.load(path / "array.npy").sum() == 36
    with pytest.raises(NotFakedError, match="mmap"), fake_shards_dir(Layout()) as path:
        save_and_map(path / "array.npy")


def save_and_map(path: Path) -> None:
    np.save(path, np.arange(9))
    np.load(path, mmap_mode="r")


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


def pipe() -> bytes:
    receiver, sender = os.pipe()
    with open(receiver, "rb") as output, os.fdopen(sender, "wb") as source:
        source.write(b"sent")
        source.flush()
        return os.read(output.fileno(), 4)


def read_again(real: int) -> bytes:
    with open(real, "rb", closefd=False) as file:
        return file.read()


def through_a_socket(real: int) -> bytes:
    sender, receiver = socket.socketpair()
    with sender, receiver:
        os.sendfile(sender.fileno(), real, 0, 4)
        return receiver.recv(4)


REAL: dict[str, tuple[Callable[[int], object], object]] = {
    "os.pread": (lambda fd: os.pread(fd, 4, 0), b"real"),
    "pread": (lambda fd: pread(fd, 4, 0), b"real"),
    "os.pwrite": (lambda fd: os.pwrite(fd, b"real", 0), 4),
    "os.read": (lambda fd: os.read(fd, 4), b"real"),
    "os.lseek": (lambda fd: os.lseek(fd, 0, os.SEEK_END), 4),
    "os.fstat": (lambda fd: os.fstat(fd).st_size, 4),
    "os.dup": (lambda fd: os.close(os.dup(fd)), None),
    "open": (read_again, b"real"),
    "mmap": (lambda fd: mmap.mmap(fd, 4)[:], b"real"),
    "mmap of no file": (lambda _: mmap.mmap(-1, 4)[:], bytes(4)),
    "flock": (lambda fd: fcntl.flock(fd, fcntl.LOCK_EX), None),
    "pipe": (lambda _: pipe(), b"sent"),
    "socket": (through_a_socket, b"real"),
    "process": (lambda _: subprocess.run(["echo", "hi"], capture_output=True).stdout, b"hi\n"),
    "output": (lambda _: os.write(2, b""), 0),
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


def test_a_lock_of_a_real_file_is_one(tmp_path: Path) -> None:
    with (
        open(tmp_path / "lock", "w") as one,
        open(tmp_path / "lock", "w") as other,
        fake_shards_dir(Layout()),
    ):
        fcntl.flock(one, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def skip_bad_samples(path: Path) -> None:
    with contextlib.suppress(Exception):
        np.memmap(path / NAME)


def hide_everything(path: Path) -> None:
    with contextlib.suppress(BaseException):
        np.memmap(path / NAME)


def ignore_a_future(path: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(np.memmap, path / NAME)


@pytest.mark.parametrize("loader", [skip_bad_samples, hide_everything, ignore_a_future])
def test_a_loader_that_holds_it_back_is_told_on(loader: Callable[[Path], None]) -> None:
    with (
        pytest.raises(NotFakedError, match=r"mmap.mmap .* '/scratch"),
        fake_shards_dir(Layout()) as path,
    ):
        loader(path)


def test_one_that_gets_through_is_told_once() -> None:
    with pytest.raises(NotFakedError) as caught, fake_shards_dir(Layout()) as path:
        np.memmap(path / NAME)
    assert not hasattr(caught.value, "__notes__")


def test_another_error_gets_a_note() -> None:
    with pytest.raises(ZeroDivisionError) as caught, fake_shards_dir(Layout()) as path:
        divide_after(hide_everything(path))
    (note,) = caught.value.__notes__
    assert note.startswith("Before that, NotFakedError was held back: mmap.mmap")


def divide_after(_: None) -> None:
    raise ZeroDivisionError


def test_it_is_neither_a_bad_file_nor_a_bad_sample() -> None:
    assert not issubclass(NotFakedError, Exception)


def test_contexts_nest() -> None:
    with fake_shards_dir(Layout(1)) as one:
        with fake_shards_dir(Layout(2)) as other:
            assert one.parent == other.parent
        assert os.listdir(one)
        with pytest.raises(FileExistsError), fake_shards_dir(Layout(2)):
            pass
    assert not os.path.exists("/scratch/saev")


def test_two_that_fake_are_refused() -> None:
    with Patcher() as patcher, pytest.raises(RuntimeError, match="that pyfakefs fakes already"):
        fake_shards_dir(Layout()).__enter__()
    assert patcher.fs


def test_a_function_that_outlives_it_is_the_real_one() -> None:
    with fake_shards_dir(Layout()):
        outlived = os.pread
    with open(__file__, "rb") as file:
        assert outlived(file.fileno(), 3, 0) == b'"""'


def test_threads_see_it() -> None:
    with fake_shards_dir(Layout()) as path, concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(read, path / NAME).result()


def test_maker_gives_each_call_its_own() -> None:
    with fake_shards_dir_maker("/data") as make:
        assert os.path.exists(__file__)
        one = make(2, missing_shards=[0], dangling=[1])
        other = make(n_shards=2, unreadable_shards=[0], examples_per_shard=2)
        assert one.parts[:3] == ("/", "data", "0")
        assert other.parts[:3] == ("/", "data", "1")
        assert "acts000000.bin" not in os.listdir(one)
        assert attempt((other / NAME).read_bytes) == "EACCES"
    assert not os.path.exists("/data")


def test_as_a_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        import pytest
        import numpy as np

        def test_kept(make_fake_shards_dir, tmp_path, capfd):
            assert tmp_path.is_dir()
            path = make_fake_shards_dir(3, unreadable_shards=[1])
            assert not tmp_path.exists()
            with pytest.raises(PermissionError):
                (path / "acts000001.bin").read_bytes()
            print("printed")
            os.write(1, b"written")
            assert capfd.readouterr().out == "printed\\nwritten"

        def test_failed(make_fake_shards_dir):
            path = make_fake_shards_dir()
            assert os.listdir(path) == [], "shown"

        def test_refused(make_fake_shards_dir):
            np.memmap(make_fake_shards_dir() / "acts000000.bin")

        def test_held_back(make_fake_shards_dir):
            try:
                np.memmap(make_fake_shards_dir() / "acts000000.bin")
            except BaseException:
                pass

        def test_real(make_fake_shards_dir, tmp_path):
            assert tmp_path.is_dir()
    """)
    run = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    run.assert_outcomes(passed=2, failed=3)
    run.stdout.fnmatch_lines(["E*AssertionError: shown*", "E*NotFakedError: mmap.mmap*"])

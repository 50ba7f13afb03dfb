"""Each intercepted call is counted, fails as the real one, and is let alone elsewhere."""

# ruff: noqa: PLW0108 - functions of os are looked up late, when they are intercepted
# ruff: noqa: SIM115 - files that are not opened in the end

import bz2
import contextlib
import errno
import glob
import io
import mmap
import os
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardproof.testing.faults import OPERATIONS, FileSystemFaults, Outcome
from shardproof.testing.faults.file_system import _os
from tests.helpers.descriptors import needs_call

Action = Callable[[Path], object]


@contextlib.contextmanager
def descriptor(path: Path, flags: int = os.O_RDWR) -> Iterator[int]:
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def on_descriptor(function: Callable[[int], object], name: str = "a") -> Action:
    def action(d: Path) -> object:
        with descriptor(d / name, os.O_RDWR if name else os.O_RDONLY) as fd:
            return function(fd)

    return action


def in_directory(function: Callable[[int], object]) -> Action:
    return on_descriptor(function, "")


def between(function: Callable[[int, int], object]) -> Action:
    return lambda d: on_descriptor(lambda b: on_descriptor(lambda a: function(a, b))(d), "b")(d)


def through_pipe(function: Callable[[int, int, int], object]) -> Action:
    def action(d: Path) -> object:
        with descriptor(d / "a") as fd, pipe() as (outlet, inlet):
            os.write(inlet, b"12345")
            return function(fd, outlet, inlet)

    return action


def listed(d: Path) -> object:
    with os.scandir(d) as entries:
        return [entry.name for entry in entries]


def of_entry(method: str) -> Action:
    def action(d: Path) -> object:
        with os.scandir(d) as entries:
            entry = next(entry for entry in entries if entry.name == "a")
        return getattr(entry, method)()

    return action


def of_file(mode: str, function: Callable[..., object], buffering: int = -1) -> Action:
    def action(d: Path) -> object:
        with open(d / "a", mode, buffering) as file:
            return function(file)

    return action


def of_map(function: Callable[[mmap.mmap], object]) -> Action:
    def action(d: Path) -> object:
        with descriptor(d / "a") as fd, mmap.mmap(fd, 0) as mapped:
            return function(mapped)

    return action


# What is called -> its operation, a call about the files a and b or the directory c of a directory.
ACTIONS: dict[str, tuple[str, Action]] = {
    "open": ("open", lambda d: os.close(os.open(d / "a", os.O_RDONLY))),
    "open-keyword": ("open", lambda d: os.close(os.open(path=str(d / "a"), flags=os.O_RDONLY))),
    "open-bytes": ("open", lambda d: os.close(os.open(os.fsencode(d / "a"), os.O_RDONLY))),
    "open-dir_fd": ("open", in_directory(lambda fd: os.close(os.open("a", 0, dir_fd=fd)))),
    "open-builtin": ("open", lambda d: open(d / "a").close()),
    "open-FileIO": ("open", lambda d: io.FileIO(d / "a").close()),
    "open-opener": ("open", lambda d: open(d / "a", opener=os.open).close()),
    "open-tarfile": ("open", lambda d: tarfile.open(d / "c.tar").close()),
    "open-bz2": ("open", lambda d: bz2.open(d / "a").close()),
    "stat": ("stat", lambda d: os.stat(d / "a")),
    "stat-descriptor": ("stat", on_descriptor(lambda fd: os.stat(fd))),
    "lstat": ("stat", lambda d: os.lstat(d / "a")),
    "fstat": ("stat", on_descriptor(lambda fd: os.fstat(fd))),
    "entry-stat": ("stat", of_entry("stat")),
    "entry-is_file": ("stat", of_entry("is_file")),
    "entry-is_dir": ("stat", of_entry("is_dir")),
    "scandir": ("scandir", lambda d: os.scandir(d).close()),
    "scandir-descriptor": ("scandir", in_directory(lambda fd: os.scandir(fd).close())),
    "listdir": ("scandir", lambda d: os.listdir(d)),
    "readdir": ("readdir", lambda d: listed(d)),
    "read": ("read", on_descriptor(lambda fd: os.read(fd, 9))),
    "pread": ("read", on_descriptor(lambda fd: os.pread(fd, 9, 1))),
    "readv": ("read", on_descriptor(lambda fd: os.readv(fd, [bytearray(9)]))),
    "preadv": ("read", on_descriptor(lambda fd: os.preadv(fd, [bytearray(9)], 1))),
    "file-read": ("read", of_file("rb", lambda file: file.read(9))),
    "raw-read": ("read", of_file("rb", lambda file: file.read(9), 0)),
    "raw-readinto": ("read", of_file("rb", lambda file: file.readinto(bytearray(9)), 0)),
    "sendfile-in": ("read", through_pipe(lambda fd, _, inlet: os.sendfile(inlet, fd, 0, 9))),
    "sendfile-out": ("write", between(lambda a, b: os.sendfile(b, a, 0, 9))),
    "copy_file_range-in": ("read", between(lambda a, b: os.copy_file_range(a, b, 9))),
    "copy_file_range-out": ("write", between(lambda a, b: os.copy_file_range(a, b, 9))),
    "splice-in": ("read", through_pipe(lambda fd, _, inlet: os.splice(fd, inlet, 9))),
    "splice-out": ("write", through_pipe(lambda fd, outlet, _: os.splice(outlet, fd, 5))),
    "write": ("write", on_descriptor(lambda fd: os.write(fd, b"123"))),
    "pwrite": ("write", on_descriptor(lambda fd: os.pwrite(fd, b"123", 1))),
    "writev": ("write", on_descriptor(lambda fd: os.writev(fd, [b"123"]))),
    "pwritev": ("write", on_descriptor(lambda fd: os.pwritev(fd, [b"123"], 1))),
    "raw-write": ("write", of_file("wb", lambda file: file.write(b"123"), 0)),
    "fsync": ("fsync", on_descriptor(lambda fd: os.fsync(fd))),
    "fdatasync": ("fsync", on_descriptor(lambda fd: os.fdatasync(fd))),
    "mmap-flush": ("fsync", of_map(lambda mapped: mapped.flush())),
    "mmap": ("mmap", of_map(len)),
    "truncate": ("truncate", lambda d: os.truncate(d / "a", 1)),
    "ftruncate": ("truncate", on_descriptor(lambda fd: os.ftruncate(fd, 1))),
    "posix_fallocate": ("truncate", on_descriptor(lambda fd: os.posix_fallocate(fd, 0, 9))),
    "file-truncate": ("truncate", of_file("r+b", lambda file: file.truncate(1))),
    "rename": ("rename", lambda d: os.rename(d / "a", d / "new")),
    "rename-dir_fd": (
        "rename",
        in_directory(lambda fd: os.rename("a", "n", src_dir_fd=fd, dst_dir_fd=fd)),
    ),
    "replace": ("rename", lambda d: os.replace(d / "a", d / "b")),
    "link": ("link", lambda d: os.link(d / "a", d / "new")),
    "symlink": ("link", lambda d: os.symlink("a", d / "new")),
    "unlink": ("unlink", lambda d: os.unlink(d / "a")),
    "remove": ("unlink", lambda d: os.remove(d / "a")),
    "mkdir": ("mkdir", lambda d: os.mkdir(d / "new")),
    "rmdir": ("rmdir", lambda d: os.rmdir(d / "c")),
    "chmod": ("chmod", lambda d: os.chmod(d / "a", 0o600)),
    "fchmod": ("chmod", on_descriptor(lambda fd: os.fchmod(fd, 0o600))),
    "chown": ("chmod", lambda d: os.chown(d / "a", os.getuid(), -1)),
    "lchown": ("chmod", lambda d: os.lchown(d / "a", os.getuid(), -1)),
    "fchown": ("chmod", on_descriptor(lambda fd: os.fchown(fd, os.getuid(), -1))),
    "utime": ("chmod", lambda d: os.utime(d / "a")),
}

every_action = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_call(name.partition("-")[0])) for name in ACTIONS]
)


def directory(path: Path) -> Path:
    path.mkdir()
    (path / "a").write_bytes(bytes(range(100)))
    (path / "b").write_bytes(b"b")
    (path / "c").mkdir()
    with tarfile.open(path / "c.tar", "w"):
        pass
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return directory(tmp_path / "root")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    return directory(tmp_path / "root-elsewhere")  # begins with the same letters


def test_every_function_has_an_action() -> None:
    functions = {name for _, _, names in _os._TABLE for name in names.split()}
    missing = functions - {name.split("-")[0] for name in ACTIONS}
    assert missing <= {"readinto"}  # os.readinto is new in Python 3.14
    assert {operation for operation, _ in ACTIONS.values()} == set(OPERATIONS)


@every_action
def test_a_call_is_recorded_and_fails_as_planned_but_not_elsewhere(name, root, elsewhere) -> None:
    operation, action = ACTIONS[name]
    with FileSystemFaults(root) as fs:
        action(root)
        n_calls = len(fs.calls)
        fs.fail("any", errno.EIO, optional=True)
        action(elsewhere)
    assert {call.outcome for call in fs.calls if call.operation == operation} == {Outcome.OK}
    assert all(call.path.is_relative_to(root) for call in fs.calls)
    assert len(fs.calls) == n_calls
    with FileSystemFaults(fresh := directory(root.with_name("fresh"))) as fs:
        fs.fail(operation, errno.EPERM)
        with pytest.raises(PermissionError):
            action(fresh)
    assert (operation, Outcome.FAILED) in {(call.operation, call.outcome) for call in fs.calls}


def test_a_call_that_fails_does_nothing(root: Path) -> None:
    with FileSystemFaults(root) as fs:
        fs.fail("any", errno.EIO)
        for name in ("replace", "unlink", "mkdir", "truncate"):
            with pytest.raises(OSError, match="Input/output error"):
                ACTIONS[name][1](root)
    assert sorted(os.listdir(root)) == ["a", "b", "c", "c.tar"]
    assert (root / "a").stat().st_size == 100


def names(error: OSError) -> tuple[object, object]:
    return error.filename, error.filename2


ABSENT: dict[str, Action] = {
    "open-bytes": lambda d: os.open(os.fsencode(d / "x"), os.O_RDONLY),
    "open-builtin": lambda d: open(d / "x"),
    "scandir": lambda d: os.scandir(d / "x"),
    "rename": lambda d: os.rename(d / "x", d / "y"),
    "symlink": lambda d: os.symlink("text", d / "x" / "y"),
    "mkdir": lambda d: os.mkdir(d / "x" / "y"),
}


@pytest.mark.parametrize("name", ABSENT)
def test_a_planned_error_looks_as_the_real_one_which_is_recorded_as_such(
    name: str, root: Path
) -> None:
    fs = FileSystemFaults(root)
    with fs:
        with pytest.raises(FileNotFoundError) as real:
            ABSENT[name](root)
        fs.fail("any", errno.ENOENT)
        with pytest.raises(FileNotFoundError) as planned:
            ABSENT[name](root)
    assert planned.value.args == real.value.args
    assert (names(planned.value), str(planned.value)) == (names(real.value), str(real.value))
    assert [call.outcome for call in fs.calls] == [Outcome.RAISED, Outcome.FAILED]


@pytest.mark.parametrize("function", [os.stat, os.scandir, os.fsync])
def test_an_error_about_a_descriptor_looks_as_the_real_one(function, root) -> None:
    with descriptor(root, os.O_RDONLY) as fd:
        fs = FileSystemFaults(root)
        fs.fail("any", errno.EBADF)
        with fs, pytest.raises(OSError, match="Bad file") as planned:
            getattr(os, function.__name__)(fd)
    with pytest.raises(OSError, match="Bad file") as real:
        function(fd)
    assert names(planned.value) == names(real.value)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda _: os.open(None, 0),
        lambda _: os.read("a", 1),
        lambda _: os.write(1),
        lambda _: os.fsync(987654),
        lambda _: os.stat("a", dir_fd="b"),
        lambda d: os.rename(d / "a"),
        lambda d: os.stat(f"{d}/nul\0"),
        lambda d: open(d / "a", 1),
        lambda d: io.FileIO(d / "a", "q"),
    ],
)
def test_a_wrong_argument_is_for_the_real_function_to_refuse(wrong: Action, root: Path) -> None:
    with pytest.raises((TypeError, ValueError, OSError)) as real:
        wrong(root)
    with FileSystemFaults(root) as fs, pytest.raises(type(real.value)) as found:
        wrong(root)
    assert str(found.value) == str(real.value)
    assert {call.outcome for call in fs.calls} <= {Outcome.RAISED}


def test_descriptors_without_a_name_and_relative_paths(root, monkeypatch) -> None:
    with FileSystemFaults(root) as fs, pipe() as (_, inlet):
        os.write(inlet, b"1")
        assert fs.calls == ()
        with descriptor(root / "a") as fd:
            os.unlink(root / "a")
            os.read(fd, 1)
        assert [call.path for call in fs.calls] == [root / "a"] * 3
    monkeypatch.chdir(root)
    with FileSystemFaults("../root") as fs:
        assert "b" in os.listdir()
        with os.scandir() as entries:
            assert next(entries).path.startswith("./")
        os.stat("../root/c/../b")
        assert [call.path for call in fs.calls] == [*[root] * 3, root / "b"]
        monkeypatch.undo()


def test_a_root_that_is_a_symbolic_link_and_one_that_leads_out_of_it(
    root: Path, elsewhere: Path, tmp_path: Path
) -> None:
    """The latter as in a download cache, whose snapshots are links to blobs."""
    link = tmp_path / "link"
    link.symlink_to(root)
    (root / "out").symlink_to(elsewhere / "a")
    with FileSystemFaults(link) as fs:
        os.stat(root / "a")
        for name in ("a", "out"):
            with descriptor(link / name) as fd:
                os.read(fd, 1)
        with open(link / "out", "rb") as file:
            file.read(1)
    assert [call.path for call in fs.calls] == [link / "a"] * 3 + [link / "out"] * 4


def test_entries_are_as_the_real_ones_and_ask_once(root: Path) -> None:
    def looks(entry: os.DirEntry) -> list[object]:
        return [
            (entry.name, entry.path, os.fspath(entry), repr(entry), entry.inode()),
            [(entry.is_dir(), entry.is_file(), entry.is_symlink()) for _ in range(2)],
            entry.is_file(follow_symlinks=False),
            [entry.stat(follow_symlinks=follow) for follow in (True, False)],
            isinstance(entry, os.DirEntry),
        ]

    (root / "link").symlink_to("a")
    (root / "dangling").symlink_to("x")
    with descriptor(root, os.O_RDONLY) as fd:
        for place in (root, os.fsencode(root), fd):
            with os.scandir(place) as entries:
                real = [looks(entry) for entry in entries if "dang" not in str(entry.name)]
            with FileSystemFaults(root) as fs, os.scandir(place) as entries:
                assert [looks(entry) for entry in entries if "dang" not in str(entry.name)] == real
            asked = Counter(call.path for call in fs.calls if call.operation == "stat")
            assert asked == dict.fromkeys([root / str(os.fsdecode(r[0][0])) for r in real], 2)
    with FileSystemFaults(root), os.scandir(root) as entries:
        assert {entry.name for entry in entries if entry.is_file()} == {"a", "b", "c.tar", "link"}


def test_a_listing_fails_midway(root: Path) -> None:
    names = []
    with FileSystemFaults(root) as fs, os.scandir(root) as entries:
        fs.fail("readdir", errno.EIO, nth=3)
        with pytest.raises(OSError, match="Input/output") as caught:
            names += [entry.name for entry in entries]
    assert caught.value.filename == str(root)
    outcomes = [call.outcome for call in fs.calls if call.operation == "readdir"]
    assert outcomes == [Outcome.OK, Outcome.OK, Outcome.FAILED]


def everything_patched() -> list[object]:
    modules = [os, io, mmap, glob, tarfile, bz2, sys.modules["builtins"]]
    found = [value for module in modules for value in vars(module).values()]
    classes = [value for value in vars(glob).values() if isinstance(value, type)]
    return [*found, *(value for kind in classes for value in vars(kind).values())]


def test_all_is_as_it_was_afterwards_and_support_is_told_meanwhile(root: Path) -> None:
    sets = (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks)
    before, supported = everything_patched(), [set(each) for each in sets]
    with contextlib.suppress(ZeroDivisionError), FileSystemFaults(root):
        inside = everything_patched()
        for known, each in zip(sets, supported, strict=True):
            names = {function.__name__ for function in each} - {"copystat"}
            assert {getattr(os, name) for name in names} <= known
        raise ZeroDivisionError
    after = everything_patched()
    least = 40 if hasattr(os, "posix_fallocate") else 30  # macOS lacks some ten of them
    assert sum(one is not other for one, other in zip(before, inside, strict=True)) > least
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert [*sets] == supported

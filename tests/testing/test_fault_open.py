"""Files opened below a root of `FileSystemFaults` are as the real ones, but for what is planned."""

import io
import mmap
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof.testing.faults import FileSystemFaults, Outcome

BYTES = bytes(range(256)) * 40  # more than one buffer of any size


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Twice the same, at equal lengths of path."""
    for name in ("inside", "beside"):
        path = tmp_path / name
        path.mkdir()
        (path / "bytes").write_bytes(BYTES)
        (path / "text").write_bytes("a\r\nb\rc\nä".encode())
    return tmp_path / "inside"


def outcome_of(function: Callable[[Path], Any], path: Path) -> object:
    """What it returns or raises, and what is in the directory afterwards; without its path."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = function(path)
        except Exception as error:
            found = (type(error), str(error))
    kinds = [warning.category for warning in caught]
    contents = [(p.name, p.read_bytes()) for p in sorted(path.iterdir())]
    return repr((found, kinds, contents)).replace(str(path), "")


def assert_the_same(function: Callable[[Path], Any], root: Path) -> None:
    real = outcome_of(function, root.with_name("beside"))
    with FileSystemFaults(root) as fs:
        assert outcome_of(function, root) == real
    assert fs.calls


def described(file: Any) -> list[object]:
    names = ("mode", "closed", "encoding", "errors", "line_buffering", "newlines", "closefd")
    kinds, found = (io.FileIO, io.BufferedIOBase, io.TextIOBase), []
    while file is not None:
        found += [[isinstance(file, kind) for kind in kinds], os.fspath(file.name)]
        found += [getattr(file, name, None) for name in names]
        found += [file.readable(), file.writable(), file.seekable(), file.isatty()]
        file = getattr(file, "buffer", getattr(file, "raw", None))
    return found


MODES = ["r", "rt", "rb", "r+", "b+r", "w", "wb+", "a", "a+b", "x", "xb"]
WRONG_MODES = ["", "b", "q", "rw", "rr", "tb", "r++"]


@pytest.mark.slow
@pytest.mark.parametrize("buffering", [-1, 0, 1, 4096])
@pytest.mark.parametrize("mode", MODES + WRONG_MODES)
@pytest.mark.parametrize("name", ["bytes", "new"])
def test_modes_and_buffers(mode: str, buffering: int, name: str, root: Path) -> None:
    def use(path: Path) -> Any:
        with open(path / name, mode, buffering, errors=None if "b" in mode else "replace") as file:
            before = described(file)
            data: Any = b"12\n3" if "b" in mode else "12\n3"
            written = file.write(data) if file.writable() else None
            seen = (path / name).stat().st_size if mode != "r+" else None
            file.seek(0)
            read = file.read() if file.readable() else None
            return before, written, seen, read, file.tell()

    assert_the_same(use, root)


REFUSED = [
    ("text", {"encoding": "ascii"}),
    ("text", {"encoding": "ascii", "errors": "replace"}),
    *(("text", {"encoding": "utf-8", "newline": end}) for end in (None, "", "\r\n", "x")),
    ("bytes", {"mode": "rb", "newline": "\n"}),
    ("bytes", {"closefd": False}),
    ("x", {}),
    (".", {}),
    ("nul\0", {}),
]


@pytest.mark.parametrize(("name", "arguments"), REFUSED)
def test_what_is_refused_and_how_text_is_read(name, arguments, root) -> None:
    def use(path: Path) -> Any:
        os.stat(path)
        with open(path / name, **arguments) as file:
            return file.read(), file.encoding, file.errors, file.newlines

    assert_the_same(use, root)


@pytest.mark.parametrize("closefd", [True, False])
def test_descriptors_and_openers(closefd: bool, root: Path) -> None:
    def use(path: Path) -> Any:
        fd = os.open(path / "bytes", os.O_RDWR)
        with open(fd, "r+b", closefd=closefd) as file:
            assert file.fileno() == fd == file.name
            file.write(b"new")
        with open("bytes", "rb", opener=lambda name, flags: os.open(path / name, flags)) as file:
            found = described(file), file.read()
        return found, closefd or os.close(fd)

    assert_the_same(use, root)


@pytest.mark.parametrize("mode", ["rb", "wb", "r+b"])
@pytest.mark.parametrize("buffering", [-1, 0])
def test_the_methods_of_binary_files(mode: str, buffering: int, root: Path) -> None:
    calls: list[tuple[str, Any]] = [
        *(("read", 5), ("read", 0), ("readinto", buffer := bytearray(7))),
        *(("readinto", memoryview(buffer)[2:]), ("readinto", b"not writable"), ("readline", -1)),
        *(("seek", 100), ("write", memoryview(b"12345")[::2]), ("write", b"12345")),
        *(("write", "text"), ("writelines", [b"1", bytearray(b"2")]), ("truncate", 2000)),
        *(("seek", 1990), ("read", -1), ("read", None), ("readlines", -1)),
    ]

    def attempt(file: Any, name: str, argument: Any) -> Any:
        try:
            return getattr(file, name)(argument)
        except (OSError, ValueError, TypeError) as error:
            return type(error), str(error)

    def use(path: Path) -> Any:
        buffer[:] = bytes(7)
        with open(path / "bytes", mode, buffering) as file:
            found = [(attempt(file, *call), file.tell()) for call in calls]
        closed = [attempt(file, "read", 1), attempt(file, "write", b"")]
        return found, bytes(buffer), closed

    assert_the_same(use, root)


def test_short_reads(root: Path) -> None:
    buffer = bytearray(100)
    with FileSystemFaults(root) as fs, open(root / "bytes", "rb", 0) as file:
        fs.short("read", 1000)
        assert file.read() == BYTES
        reads = [call.outcome for call in fs.calls if call.operation == "read"]
        assert reads == [Outcome.SHORT] * 10 + [Outcome.OK] * 2
        file.seek(0)
        fs.short("read", 10)
        assert (len(file.read(100)), file.tell()) == (10, 10)
        assert file.readinto(memoryview(buffer).cast("B", (10, 10))) == 10
        assert buffer == BYTES[10:20].ljust(100, b"\0")
        fs.short("read", 0)
        assert (root / "bytes").read_bytes() == b""


def test_short_functions_of_os(root: Path) -> None:
    buffers = [bytearray(4), bytearray(0), bytearray(4), bytearray(4), bytearray(4)]
    with FileSystemFaults(root) as fs, open(root / "new", "w+b") as file:
        fs.short("read", 10)
        fs.short("write", 5)
        fd = file.fileno()
        assert [os.write(fd, b"12345678"), os.writev(fd, [b"1234", b"5678"])] == [5, 5]
        assert [os.pwrite(fd, b"abcdefgh", 0), os.pwritev(fd, [b"abcd", b"efgh"], 5)] == [5, 5]
        os.pwrite(fd, b"xy", 10)
        assert os.preadv(fd, buffers, 0) == 10
        assert b"".join(buffers) == b"abcdeabcde".ljust(16, b"\0")
        assert os.pread(fd, np.int64(100), 1) == b"bcdeabcdex"
        os.lseek(fd, 0, os.SEEK_SET)
        assert [os.read(fd, 100), os.readv(fd, buffers)] == [b"abcdeabcde", 2]


@pytest.mark.parametrize("buffering", [-1, 0, 100])
def test_short_writes_through_a_buffer_make_a_whole_file(buffering: int, root: Path) -> None:
    with FileSystemFaults(root) as fs:
        fs.short("write", 1000)
        with open(root / "new", "wb", buffering) as file:
            n_written = file.write(BYTES)
    whole = BYTES if buffering else BYTES[:1000]
    assert (n_written, (root / "new").read_bytes()) == (len(whole), whole)


def test_classes_of_files_stay_classes(root: Path) -> None:
    kind = io.FileIO
    with open(root / "bytes", "rb", 0) as before, FileSystemFaults(root) as fs:

        class Mine(io.FileIO):
            pass

        assert isinstance(before, io.FileIO)
        assert issubclass(kind, io.FileIO)
        assert not isinstance(io.BytesIO(), io.FileIO)
        assert not isinstance(before, Mine)
        with Mine(root / "bytes") as file:
            assert isinstance(file, Mine)
            assert file.read(3) == BYTES[:3]
        with open(root.with_name("beside") / "bytes", "rb") as outside:
            assert type(outside.raw) is kind
    assert [call.operation for call in fs.calls] == ["open", "read"]


def test_the_shortest_wins_and_what_is_small_enough_is_not_short(root: Path) -> None:
    outer = FileSystemFaults(root.parent)
    with FileSystemFaults(root) as fs, outer, open(root / "bytes", "rb", 0) as file:
        fs.short("read", 30)
        outer.short("read", 20)
        longest = fs.short("read", 40, optional=True)
        assert len(file.read(50)) == 20
        assert fs.calls[-1].outcome is outer.calls[-1].outcome is Outcome.SHORT
        assert longest.reached
        small = fs.short("read", 9, optional=True, match="text")
        with open(root / "text", "rb", 0) as text:
            assert len(text.read(9)) == 9
    assert not small.reached
    assert fs.calls[-1].outcome is Outcome.OK


def test_maps(root: Path) -> None:
    before = mmap.mmap(-1, 10)
    with before, FileSystemFaults(root) as fs, open(root / "bytes", "r+b") as file:
        with mmap.mmap(file.fileno(), length=0) as mapped, mmap.mmap(-1, 10) as anonymous:
            assert all(isinstance(one, mmap.mmap) for one in (before, mapped, anonymous))
            mapped[:3] = b"new"
            mapped.flush(0, mmap.PAGESIZE)
            anonymous.flush()
        with mmap.mmap(fileno=file.fileno(), length=0, access=mmap.ACCESS_READ) as mapped:
            assert mapped[:4] == b"new" + BYTES[3:4]
    assert [call.operation for call in fs.calls] == ["open", "mmap", "fsync", "mmap"]

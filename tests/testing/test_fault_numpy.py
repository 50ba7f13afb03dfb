"""What numpy reads and writes in C suffers too, as it does in reality."""

import errno
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof.testing.faults import FileSystemFaults, Outcome

VALUES = np.arange(3000, dtype="<f4")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    VALUES.tofile(tmp_path / "shard.bin")
    np.save(tmp_path / "array.npy", VALUES)
    (tmp_path / "text").write_text("1 2 3")
    return tmp_path


READS: dict[str, Callable[[Path], Any]] = {
    "path": lambda path: np.fromfile(path, "<f4"),
    "count": lambda path: np.fromfile(path, "<f4", 4000),
    "offset": lambda path: np.fromfile(path, "<f4", offset=40),
    "keywords": lambda path: np.fromfile(file=path, dtype="<f4", count=7, offset=4),
    "records": lambda path: np.fromfile(path, [("a", "<f4"), ("b", "<i2", 2)]),
    "like": lambda path: np.fromfile(path, "<f4", like=VALUES),
}


@pytest.mark.parametrize("name", READS)
def test_fromfile_reads_the_same_and_at_the_end_no_items_or_whatever_was_there(name, root) -> None:
    expected = READS[name](root / "shard.bin")
    with FileSystemFaults(root) as fs:
        fault = fs.short("read", 27, optional=True)  # after which it asks again
        found = READS[name](root / "shard.bin")
        assert not fault.reached
        calls = [(call.operation, call.outcome) for call in fs.calls]
        assert calls == [("open", "ok"), ("read", "ok")]
        fs.short("read", 0)
        nothing = READS[name](root / "shard.bin")
    assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())
    assert fs.calls[-1].outcome is Outcome.SHORT
    assert nothing.dtype == expected.dtype
    if name in {"count", "keywords"}:
        assert len(nothing) == 0
    else:
        assert nothing.shape == expected.shape
        assert set(nothing.tobytes()) == {0xAA}


def test_fromfile_tells_nobody_of_an_error(root: Path) -> None:
    """As it does with a real one; that is why shards are better read otherwise."""
    with FileSystemFaults(root) as fs:
        fs.fail("read", errno.EIO)
        assert np.fromfile(root / "shard.bin", "<f4", count=100).size == 0
        damaged = np.fromfile(root / "shard.bin", "<f4")
    assert damaged.size == VALUES.size
    assert set(damaged.tobytes()) == {0xAA}
    assert [call.outcome for call in fs.calls] == [Outcome.OK, Outcome.FAILED] * 2


def test_fromfile_of_an_open_file_goes_on_where_that_is(root: Path) -> None:
    with FileSystemFaults(root), open(root / "shard.bin", "rb") as file:
        assert np.frombuffer(file.read(8), "<f4").tolist() == [0, 1]
        assert np.fromfile(file, "<f4", count=2).tolist() == [2, 3]
        assert np.fromfile(file, "<f4", count=2, offset=4).tolist() == [5, 6]
        assert file.tell() == 28
        assert np.fromfile(file, "<f4")[0] == 7


def test_fromfile_of_text_is_let_alone(root: Path) -> None:
    with FileSystemFaults(root) as fs:
        assert np.fromfile(root / "text", sep=" ").tolist() == [1, 2, 3]
    assert [call.operation for call in fs.calls] == ["open"]


@pytest.mark.parametrize("wrong", [3, io.BytesIO(b"12345678")])
def test_fromfile_of_what_it_does_not_take(wrong: Any, root: Path) -> None:
    with pytest.raises(Exception) as real:  # noqa: PT011 - whatever it is
        np.fromfile(wrong)
    with FileSystemFaults(root), pytest.raises(type(real.value)):
        np.fromfile(wrong)


def test_load_and_save_also_on_a_full_disk(root: Path) -> None:
    fs = FileSystemFaults(root)
    with fs:
        np.save(root / "new.npy", VALUES)
        assert np.array_equal(np.load(root / "new.npy"), VALUES)
        assert (root / "new.npy").read_bytes() == (root / "array.npy").read_bytes()
        fs.fail("write", errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            np.save(root / "new.npy", VALUES)


def test_memmap(root: Path) -> None:
    with FileSystemFaults(root) as fs:
        mapped = np.memmap(root / "shard.bin", "<f4", mode="r+")
        mapped[0] = 7
        mapped.flush()
        fs.fail("mmap", errno.ENOMEM)
        with pytest.raises(OSError, match="Cannot allocate memory"):
            np.load(root / "array.npy", mmap_mode="r")
        fs.fail("fsync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            mapped.flush()
    operations = [call.operation for call in fs.calls if call.operation in {"mmap", "fsync"}]
    assert operations == ["mmap", "fsync", "mmap", "fsync"]
    assert (root / "shard.bin").read_bytes()[:4] == np.float32(7).tobytes()


def test_fromfile_and_tofile_suffer_where_the_file_is_opened(root: Path) -> None:
    for call in (lambda: np.fromfile(root / "shard.bin"), lambda: VALUES.tofile(root / "new.bin")):
        with FileSystemFaults(root) as fs:
            fs.fail("open", errno.EACCES)
            with pytest.raises(PermissionError):
                call()

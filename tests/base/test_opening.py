"""What is at a path, and where it leads: an answer, or the error of a look that failed."""

import errno
import functools
import os
import random
import subprocess
from pathlib import Path

import pytest

import shardproof
from shardproof import testing
from shardproof._base.opening import Descriptor, file_of, read_at, read_into, real_path, tree
from shardproof.checkpoint import from_safetensors, to_safetensors
from shardproof.testing.faults import FileSystemFaults

NAMES = ["a", "b", "c", "d", "..", ".", "no"]


def somewhere(base: Path, chosen: random.Random) -> str:
    path = "/".join(chosen.choices(NAMES, k=chosen.randint(1, 4)))
    return str(base / path) if chosen.random() < 0.3 else path


def grow(base: Path, chosen: random.Random) -> None:
    folders = [base]
    for _ in range(12):
        path = chosen.choice(folders) / chosen.choice("abcd")
        if os.path.lexists(path):
            continue
        kind = chosen.choice(["folder", "link", "file"])
        if kind == "folder":
            path.mkdir()
            folders.append(path)
        elif kind == "link":
            path.symlink_to(somewhere(base, chosen))
        else:
            path.touch()


@pytest.mark.parametrize("seed", range(20))
def test_paths_lead_where_the_standard_library_says(tmp_path, monkeypatch, seed: int) -> None:
    chosen = random.Random(seed)
    grow(tmp_path, chosen)
    monkeypatch.chdir(tmp_path)
    for _ in range(120):
        path = somewhere(tmp_path, chosen)
        found = real_path(path)
        if found != os.path.realpath(path):  # it leads round in a circle, and nowhere
            assert found == os.path.join(tmp_path, path)
            with pytest.raises(OSError, match=r"^\[Errno"):
                os.stat(path)


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_what_nobody_could_look_at_is_an_error(tmp_path, number: int) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "way").symlink_to("real")
    with FileSystemFaults(tmp_path) as fs:
        fs.fail("stat", number, times=1, match="way")
        with pytest.raises(OSError, match=os.strerror(number)):
            real_path(tmp_path / "way" / "deep")


def test_a_link_that_could_not_be_read_is_an_error(tmp_path, monkeypatch) -> None:
    def broken(path: str, **_: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    (tmp_path / "way").symlink_to("real")
    monkeypatch.setattr(os, "readlink", broken)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        real_path(tmp_path / "way" / "x")


def test_a_link_inside_is_never_told_as_outside(tmp_path) -> None:
    """Where the root's own link could not be looked at, all that is absolute would be outside."""
    root = testing.write_layout(testing.Layout(n_shards=3), tmp_path / "real" / "d")
    (root / "acts000001.bin").rename(root / "moved")
    (root / "acts000001.bin").symlink_to(root / "moved")
    (tmp_path / "way").symlink_to("real")
    for look in (shardproof.validate, functools.partial(shardproof.ShuffledDataLoader, layer=13)):
        with FileSystemFaults(tmp_path) as fs:
            fault = fs.fail("stat", errno.EIO, times=1, match="way")
            with pytest.raises(OSError, match=os.strerror(errno.EIO)) as error:
                look(tmp_path / "way" / "d")
        assert fault.reached
        assert "outside" not in str(error.value)


@pytest.fixture
def short_reads(monkeypatch) -> None:
    """Each call gives a few bytes, as one may that was interrupted (read(2))."""
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, offset: real(fd, min(n, 7), offset))


def test_a_read_that_is_short_is_gone_on_with(tmp_path: Path, short_reads) -> None:
    (tmp_path / "x").write_bytes(bytes(range(100)))
    with open(tmp_path / "x", "rb") as file:
        assert read_at(file.fileno(), 90, 3) == bytes(range(3, 93))
        assert read_at(file.fileno(), 200, 3) == bytes(range(3, 100))


def test_what_is_open_reads_and_knows_its_size(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abcdef")
    with open(tmp_path / "x", "rb") as file:
        fd = Descriptor(file.fileno())
        assert (fd(2), fd(9, 4), fd.status.st_size, os.pread(fd, 1, 5)) == (b"ab", b"ef", 6, b"f")


def test_bytes_from_anywhere_are_read_as_a_file_is() -> None:
    data = bytes(range(256))

    def read(n_bytes: int, offset: int = 0) -> bytes:
        return data[offset : offset + n_bytes]

    with file_of(read, 200, 16) as file:
        assert (file.read(3), file.seek(-4, os.SEEK_END), file.read()) == (
            data[:3],
            196,
            data[196:200],
        )
        assert (file.seek(250), file.read(1), file.seek(0), file.read()) == (
            250,
            b"",
            0,
            data[:200],
        )
        with pytest.raises(OSError, match="invalid position"):
            file.seek(-201, os.SEEK_END)
    buffer = memoryview(bytearray(9))
    assert (read_into(read, buffer, 250), bytes(buffer)) == (6, data[250:] + bytes(3))


def test_short_reads_accuse_no_checkpoint(tmp_path: Path, short_reads) -> None:
    prefix = testing.write_layout(testing.Layout(format="checkpoint"), tmp_path / "ours/model")
    files = to_safetensors(prefix, tmp_path / "theirs")
    assert shardproof.validate(prefix.parent, level="complete").ok
    from_safetensors(tmp_path / "theirs", tmp_path / "again/m", step=1)
    assert files


def test_a_tree_may_be_deep(tmp_path: Path) -> None:
    depth = 1100
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        assert len(list(tree(tmp_path))) == depth + 1
    finally:
        subprocess.run(["rm", "-r", tmp_path / "d"], check=True)  # too deep for shutil

"""Damage that a seed decides: it changes something, always the same, and can be taken back."""

import contextlib
import errno
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof.testing import without_root_override
from shardproof.testing.faults import Damage, DamageKind, damage, damaged

KINDS = list(DamageKind)
NAME = "acts000001.bin"

# Few different bytes, many zeros: what is all zero, equal or short is where damages fail to change.
CONTENTS = st.one_of(
    st.binary(max_size=20),
    st.text(alphabet="\0\1", max_size=40).map(str.encode),
    st.integers(0, 1500).map(lambda size: bytes(size - 1) + b"\1" if size else b""),
)
DAMAGES = st.builds(Damage, st.sampled_from(DamageKind), st.integers())
BOUNDARIES = st.sampled_from([1, 2, 3, 512])


class Entry(NamedTuple):
    mode: int
    mtime_ns: int
    content: bytes


def look(directory: Path) -> dict[str, Entry]:
    """All that `damaged` promises to put back."""
    entries = {}
    for path in (directory, *directory.iterdir()):
        status, name = path.stat(), os.path.relpath(path, directory)
        content = b"" if path == directory else path.read_bytes()
        entries[name] = Entry(status.st_mode, status.st_mtime_ns, content)
    return entries


def write(directory: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = directory / name
        path.write_bytes(content)
        path.chmod(0o640)
        os.utime(path, ns=(10**18 + 1, 10**18 + 2))
    os.utime(directory, ns=(10**18 + 3, 10**18 + 4))
    return directory / NAME


@contextlib.contextmanager
def directory_of(*files: bytes) -> Iterator[Path]:
    """The second is the one to damage, where there are two or more."""
    with tempfile.TemporaryDirectory() as base:
        names = [NAME, "acts000000.bin", "acts000002.bin", "notes.txt"]
        yield write(Path(base), dict(zip(names, files, strict=False)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with neighbours that every kind can damage."""
    directory = tmp_path / "shards"
    directory.mkdir()
    files = {
        NAME: hashlib.shake_128(b"1").digest(2000),
        "acts000000.bin": hashlib.shake_128(b"0").digest(2000),
        "acts000002.bin": hashlib.shake_128(b"2").digest(1000),
        "shards.json": b"[]",
    }
    return write(directory, files)


@given(st.lists(CONTENTS, min_size=1, max_size=4), DAMAGES, BOUNDARIES, st.booleans())
def test_it_is_taken_back_exactly(files, drawn, boundary, keep_times) -> None:
    with directory_of(*files) as path:
        before = look(path.parent)
        with (
            contextlib.suppress(ValueError),
            damaged(path, *drawn, boundary=boundary, keep_times=keep_times),
        ):
            pass
        assert look(path.parent) == before


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("flipped", "bit 0 of byte 1481 of {1}"),
        ("truncated-at-boundary", "from 2000 to 1024 bytes: {1}"),
        ("truncated-inside", "from 2000 to 1772 bytes: {1}"),
        ("truncated-at-end", "from 2000 to 1994 bytes: {1}"),
        ("extended", "57 bytes after the 2000 of {1}"),
        ("swapped", "contents of {1} and {0}"),
        ("missing", "gone: {1}"),
        ("stray", "{3}, a copy of {1}"),
        ("renamed", "{1} to {1old}"),
        ("zero-tail", "a hole from byte 128 to 2000 of {1}"),
        ("sparse", "a hole from byte 0 to 2000 of {1}"),
    ],
)
def test_it_is_the_same_on_every_machine(path: Path, kind: str, said: str) -> None:
    """What these say was found on one machine; whoever changes it breaks others' saved seeds."""
    done = damage(path, kind, 1)
    names = {"{1old}": f"'{path}.old'"}
    names |= {f"{{{n}}}": f"'{path.with_name(f'acts00000{n}.bin')}'" for n in (0, 1, 3)}
    for name, shown in names.items():
        said = said.replace(name, shown)
    assert str(done) == f"{kind}: {said}"
    if kind == "extended":
        assert path.read_bytes()[2000:].hex() == (
            "f69559d80084a1f23a5e769ea83e925bf23d6a4a5a2abe7db30faf9860a8"
            "a5899a91ac60d9e8a4dfeb3c74a71102024a33abf6e7be6127fdad"
        )


@given(st.integers(2, 3000), st.integers(2, 600), st.integers())
def test_cuts(size: int, boundary: int, seed: int) -> None:
    with directory_of(os.urandom(size)) as path:
        whole = path.read_bytes()
        for kind in (
            DamageKind.TRUNCATED_AT_BOUNDARY,
            DamageKind.TRUNCATED_INSIDE,
            DamageKind.TRUNCATED_AT_END,
        ):
            with damaged(path, kind, seed, boundary=boundary):
                left = path.read_bytes()
            assert whole.startswith(left)
            assert bool(left) or (kind is DamageKind.TRUNCATED_AT_BOUNDARY and size <= boundary)
            if kind is DamageKind.TRUNCATED_AT_END:
                assert size - len(left) <= 8
            else:
                assert (len(left) % boundary == 0) == (kind is DamageKind.TRUNCATED_AT_BOUNDARY)


def test_sparse_is_one_hole(path: Path) -> None:
    damage(path, DamageKind.SPARSE)
    assert path.read_bytes() == bytes(2000)
    assert path.stat().st_blocks == 0


def test_swap_reaches_each_file_of_the_same_suffix_and_keeps_modes(path: Path) -> None:
    path.with_name("acts000000.bin").chmod(0o600)
    (path.parent / "dir.bin").mkdir()
    (path.parent / "link.bin").symlink_to("acts000000.bin")
    (path.parent / "two.bin").write_bytes(b"two")
    os.link(path.parent / "two.bin", path.parent / "names")
    before, others = path.read_bytes(), set()
    for seed in range(20):
        with damaged(path, DamageKind.SWAPPED, seed) as done:
            assert done.other is not None
            assert done.other.read_bytes() == before
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
            others.add(done.other.name)
    assert others == {"acts000000.bin", "acts000002.bin"}


@pytest.mark.parametrize(
    ("name", "following"),
    [
        ("acts000001.bin", "acts000003.bin"),  # because 2 is there
        ("acts999999.bin", "acts1000000.bin"),
        ("model-00001-of-00002.mp4", "model-00001-of-00003.mp4"),
        ("labels.bin", "labels1.bin"),
        ("line\n9\n", "line\n10\n"),
    ],
)
@pytest.mark.parametrize("kind", [DamageKind.STRAY, DamageKind.RENAMED])
def test_names_that_nobody_promised(path, kind, name, following) -> None:
    path = path.rename(path.with_name(name))
    path.with_name(name + ".old").touch()
    found = set()
    for seed in range(100):
        with damaged(path, kind, seed) as done:
            assert done.other is not None
            assert done.other.read_bytes()
            assert path.exists() == (kind is DamageKind.STRAY)
            found.add(done.other.name)
    assert found == {following, *(name + ending for ending in (".bak", ".part", ".tmp", "~"))}


@pytest.mark.parametrize(
    ("kind", "content", "boundary", "text"),
    [
        ("flipped", b"", 512, "flipped: expected a file of 1 or more bytes, found one of 0: '"),
        ("truncated-at-boundary", b"", 512, "expected a file of 1 or more bytes, found one of 0"),
        ("truncated-inside", b"12", 1, "inside: expected a boundary of 2 or more, found 1"),
        ("truncated-at-end", b"1", 512, "expected a file of 2 or more bytes, found one of 1"),
        ("zero-tail", bytes(9), 512, "zero-tail: expected a byte other than zero, found none"),
        ("sparse", b"", 512, "sparse: expected a byte other than zero, found none in '"),
        ("swapped", b"same", 512, "found 1 with the same suffix, and none with other contents"),
    ],
)
def test_what_would_change_nothing_is_refused(tmp_path, kind, content, boundary, text) -> None:
    path = write(tmp_path, {NAME: content, "acts000000.bin": b"same", "other.json": b"other"})
    before = look(tmp_path)
    for seed in range(5):
        with pytest.raises(ValueError, match=text):
            damage(path, kind, seed, boundary=boundary)
    assert look(tmp_path) == before


def test_links_and_other_sorts_of_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to("file")
    os.link(tmp_path / "file", tmp_path / "second")
    os.mkfifo(tmp_path / "fifo")
    for name, text in [
        ("link", "expected a regular file, found lrwxrwxrwx: '/"),
        ("fifo", "expected a regular file, found p"),
        (".", "expected a regular file, found d"),
        ("file", "expected a file with one name, found 2 hard links: '/"),
    ]:
        with pytest.raises(ValueError, match=text):
            damage(tmp_path / name, DamageKind.FLIPPED)
    with pytest.raises(FileNotFoundError):
        damage(tmp_path / "gone", DamageKind.FLIPPED)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"path": 3}, TypeError, "path: expected str or PathLike, found 3"),
        ({"kind": None}, TypeError, "kind: expected str, found None"),
        ({"kind": "melt"}, ValueError, "kind: expected one of flipped, .*, found 'melt'"),
        ({"seed": 1.0}, TypeError, "seed: expected int, found 1.0"),
        ({"boundary": 0}, ValueError, "boundary: expected 1 or more, found 0"),
        ({"keep_times": 1}, TypeError, "keep_times: expected bool, found 1"),
    ],
)
@pytest.mark.parametrize("verb", [damage, damaged])
def test_wrong_arguments(path, verb, arguments, error, text) -> None:
    with pytest.raises(error, match=text):
        contextlib.ExitStack().enter_context(verb(**{"path": path, "kind": "flipped", **arguments}))


@pytest.mark.parametrize("kind", KINDS)
def test_keep_times(path: Path, kind: DamageKind) -> None:
    n_changed = {"swapped": 2, "missing": 0, "renamed": 0}.get(kind, 1)
    for keep_times in (True, False):
        with damaged(path, kind, keep_times=keep_times):
            found = look(path.parent)
            folder = found.pop(".")
            n_new = sum(file.mtime_ns != 10**18 + 2 for file in found.values())
            assert n_new == (0 if keep_times else n_changed)
            assert not keep_times or folder.mtime_ns == 10**18 + 4


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_taken_back_after_an_error_though_it_was_locked_or_a_stray_file_removed(
    path: Path, kind: DamageKind
) -> None:
    before = look(path.parent)
    stack = contextlib.ExitStack()
    done = stack.enter_context(damaged(path, kind))
    with without_root_override():
        for each in filter(None, (done.path, done.other)):
            if each.exists():
                each.chmod(0)
        if done.other and kind == "stray":
            done.other.unlink()
        error = ZeroDivisionError()
        assert not stack.__exit__(ZeroDivisionError, error, None)
    assert not getattr(error, "__notes__", [])
    assert look(path.parent) == before


def overwrite(path: Path) -> None:
    path.write_bytes(b"other" if not path.exists() else path.read_bytes()[::-1])


def replace(path: Path) -> None:
    path.with_name("new").write_bytes(path.read_bytes() if path.exists() else b"new")
    path.with_name("new").replace(path)


def link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("shards.json")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [overwrite, replace, link])
def test_what_the_body_changed_stays_and_its_error_is_not_hidden(path, kind, change) -> None:
    text = f"Nothing was put back, .*: '{path}'.*use damage()"
    for error in (None, ZeroDivisionError()):
        stack = contextlib.ExitStack()
        stack.enter_context(damaged(path, kind))
        change(path)
        left = [(each.name, each.read_bytes()) for each in path.parent.iterdir()]
        if error is None:
            with pytest.raises(RuntimeError, match=text):
                stack.close()
        else:
            assert not stack.__exit__(ZeroDivisionError, error, None)
            assert re.match(text, *error.__notes__)
        assert [(each.name, each.read_bytes()) for each in path.parent.iterdir()] == left
        path.unlink()
        path.write_bytes(hashlib.shake_128(b"1").digest(2000))


def test_the_times_of_a_foreign_directory_are_let_be(path, monkeypatch) -> None:
    def utime(name: Path, **keywords: Any) -> None:
        if name == path.parent:
            raise PermissionError(errno.EPERM, "not the owner")

    monkeypatch.setattr(os, "utime", utime)
    with damaged(path, DamageKind.MISSING):
        pass
    assert path.exists()

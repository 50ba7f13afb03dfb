"""Where a name leads inside a directory: as the kernel says, but never out of it."""

import errno
import gc
import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardproof._base import names
from shardproof.testing import without_root_override
from shardproof.testing.faults import FileSystemFaults


@pytest.fixture
def root(tmp_path) -> Path:
    root = tmp_path / "root"
    (root / "sub" / "deep").mkdir(parents=True)
    for folder in ("", "sub", "sub/deep"):
        (root / folder / "a.bin").write_text(f"{folder}/a.bin")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.bin").write_text("secret")
    return root


@pytest.fixture(autouse=True)
def _no_garbage() -> Iterator[None]:
    """What other tests have left closes no descriptor while these are counted."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def read(root: Path, name: str) -> str:
    dir_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    n_open = len(os.listdir("/dev/fd"))
    try:
        with open(names.open_inside(name, root=str(root), dir_fd=dir_fd)) as file:
            return file.read()
    finally:
        assert len(os.listdir("/dev/fd")) == n_open
        os.close(dir_fd)


def outcome(root: Path, name: str) -> object:
    try:
        return read(root, name)
    except names.NotRegularError as error:
        return error.found
    except OSError as error:
        return error.errno


def by_path(root: Path, name: str) -> object:
    """What the kernel says of the path, for trees that nobody changes."""
    try:
        os.stat(root / name)
        real = os.path.realpath(root / name, strict=True)
        if os.path.commonpath([root, real]) != str(root):
            return f"symbolic link to '{real}', outside the root"
        return Path(real).read_text() if not os.path.isdir(real) else "directory"
    except OSError as error:
        return error.errno


TARGETS = [
    "a.bin",
    "sub",
    "sub/",
    ".",
    "..",
    "../outside",
    "../outside/a.bin",
    "../outside/gone",
    "/",
    "{root}",
    "{root}/sub/deep",
    "sub/../a.bin",
    "sub/deep/../../sub/a.bin",
    "sub/deep/../../../outside",
    "l0",
    "l1/a.bin",
    "../root/l2",
    "{root}/l0/deep",
    "gone",
    "a.bin/x",
    "sub//deep/./a.bin",
]
LINKS = ("l0", "l1", "l2", "sub/l3")
NAMES = [
    f"{link}{rest}"
    for link in (*LINKS, "sub", "sub/deep", "a.bin", "gone")
    for rest in ("", "/a.bin", "/deep/a.bin", "/l3", "/l0/a.bin")
]


@pytest.mark.parametrize("seed", range(10))
def test_trees_of_links_lead_where_the_kernel_says(root, seed: int) -> None:
    choice = random.Random(seed)
    for link in LINKS:
        (root / link).symlink_to(choice.choice(TARGETS).format(root=root))
    for name in NAMES:
        assert outcome(root, name) == by_path(root, name), name


@pytest.mark.parametrize("target", TARGETS)
def test_each_link_leads_where_the_kernel_says(root, target: str) -> None:
    for link in LINKS:
        (root / link).symlink_to(target.format(root=root))
    for name in NAMES:
        assert outcome(root, name) == by_path(root, name), name


@pytest.mark.parametrize("prefix", ["", "{root}/"])
def test_so_many_links_and_no_more(root, prefix: str) -> None:
    (root / "0").symlink_to("sub/a.bin")
    for n in range(1, 41):
        (root / f"{n}").symlink_to(f"{prefix}{n - 1}".format(root=root))
    assert outcome(root, "39") == "sub/a.bin"
    if not prefix:  # absolute ones are resolved at once, by whatever resolves paths
        assert outcome(root, "40") == errno.ELOOP


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="this system has no O_PATH")
def test_folders_need_no_permission_to_be_listed(root) -> None:
    (root / "sub").chmod(0o300)
    try:
        with without_root_override():
            assert read(root, "sub/a.bin") == "sub/a.bin"
    finally:
        (root / "sub").chmod(0o700)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE])
@pytest.mark.parametrize("call", ["open", "stat"])
def test_what_could_not_be_looked_at_is_an_error(root, call: str, number: int) -> None:
    (root / "way").symlink_to("sub/l")
    (root / "sub" / "l").symlink_to("deep/a.bin")
    with FileSystemFaults(root) as fs:
        read(root, "way")
        n_calls = len([made for made in fs.calls if made.operation == call])
    assert n_calls
    for nth in range(1, n_calls + 1):
        with FileSystemFaults(root) as fs:
            fs.fail(call, number, nth=nth, match="*")
            assert outcome(root, "way") in {number, "sub/deep/a.bin"}


@pytest.mark.parametrize("target", ["deep/a.bin", "{root}/sub/deep/a.bin", "../../root/a.bin"])
def test_a_link_that_could_not_be_read_is_an_error(root, monkeypatch, target: str) -> None:
    (root / "sub" / "l").symlink_to(target.format(root=root))

    def broken(path, **_):
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "readlink", broken)
    assert outcome(root, "sub/l") == errno.EIO


@pytest.mark.parametrize(
    ("first", "second"), [*itertools.permutations(["file", "link", "fifo"], 2)]
)
def test_a_name_that_changes_between_the_look_and_the_call(
    root, monkeypatch, first: str, second: str
) -> None:
    def put(kind: str) -> None:
        (root / "x").unlink(missing_ok=True)
        if kind == "file":
            (root / "x").write_text("x")
        elif kind == "link":
            (root / "x").symlink_to("../outside/a.bin")
        else:
            os.mkfifo(root / "x")

    real = os.stat

    def changing(path, **keywords):
        status = real(path, **keywords)
        if path == "x" and put_later:
            put(put_later.pop())
        return status

    put(first)
    put_later = [second]
    monkeypatch.setattr(os, "stat", changing)
    refused = {"FIFO", f"symbolic link to '{root.parent}/outside/a.bin', outside the root"}
    assert outcome(root, "x") in refused | ({"x"} if second == "file" else set())

"""Cut the power at each system call of a process, and look at what a disk would have kept.

What is written and not synced is in the kernel's memory; a copy of the file that is mounted as ext4
has what the disk would have, and is mounted as after a reboot. Somebody else's fsync commits what
others did to names, and not what they wrote: so a file of somebody else is synced at each call.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.killing import Begin, Tree, stop_at_every_change, tree_of
from tests.helpers.killing import skip_where_not_permitted as skip_where_not_traced

IMAGE_BYTES = 6 * 2**20
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


def at_every_cut(act, workspace, *, prepare, check, choose) -> None:
    """Look at the disk as a power cut leaves it, at each system call of ``act`` that may change it.

    What ``prepare`` makes is on the disk for good. ``check`` is told whether ``act`` had ended
    before. Somebody else syncs a file of the same disk at each call.
    """
    image, place = workspace / "image", workspace / "mounted"
    _make(image)
    with mounted(image, place) as path:
        prepare(path)
    with mounted(image, place) as path:
        copies = _copies(lambda begin: act(path, begin), image, path, place / "others")
    copy = workspace / "copy"
    for number, data in choose([*enumerate(copies, 1)]):
        copy.write_bytes(data)
        with mounted(copy, place) as path:
            try:
                check(path, number == len(copies))
            except BaseException as error:
                error.add_note(f"after power cut {number} of {len(copies)}")
                raise


def _copies(act: Callable[[Begin], object], image: Path, path: Path, others: Path) -> list[bytes]:
    """Return what is on the disk at each such call, where it differs from the one before."""
    copies: list[bytes] = []
    seen: tuple[bytes, Tree] | None = None

    def look() -> None:
        nonlocal seen
        found = image.read_bytes(), tree_of(path)
        if found != seen:
            _write_and_sync(others)
        seen = image.read_bytes(), found[1]
        for data in (found[0], seen[0]):
            if not copies or data != copies[-1]:
                copies.append(data)

    stop_at_every_change(act, look)
    return copies


def _write_and_sync(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"x")
        file.flush()
        os.fsync(file.fileno())


def _make(image: Path) -> None:
    """Make a file system with small blocks and a small journal, so that a copy costs little."""
    with open(image, "wb") as file:
        file.truncate(IMAGE_BYTES)
    options = ["-q", "-F", "-b", "1024", "-J", "size=1", "-m", "0", "-E", "lazy_itable_init=0"]
    _run("mkfs.ext4", *options, os.fspath(image))


@contextlib.contextmanager
def mounted(image: Path, place: Path) -> Iterator[Path]:
    """Mount a file, and yield a directory on it; it is unmounted whatever happens."""
    place.mkdir(exist_ok=True)
    # It takes back what ext4 does for programs that forget to sync, and commits not by itself.
    options = "loop,noauto_da_alloc,commit=300,noatime"
    _run("mount", "-t", "ext4", "-o", options, os.fspath(image), os.fspath(place))
    with _unmounted_if_killed(place):
        try:
            path = place / "d"
            path.mkdir(exist_ok=True)
            yield path
        finally:
            _unmount(place)


@contextlib.contextmanager
def _unmounted_if_killed(place: Path) -> Iterator[None]:
    """Let somebody wait for the end of this process, however that comes, to unmount."""
    script = f"read -r _; PATH={_PATH} umount --lazy {shlex.quote(os.fspath(place))}"
    with subprocess.Popen(
        ["sh", "-c", script],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # in the usual case there is nothing left to do
        start_new_session=True,
    ):
        yield


def _unmount(place: Path) -> None:
    """Detach a mount; its loop device goes with it."""
    try:
        _run("umount", os.fspath(place))
    except subprocess.CalledProcessError:  # somebody has a file open
        _run("umount", "--lazy", os.fspath(place))
        raise


def _run(*argv: str) -> None:
    found = shutil.which(argv[0], path=_PATH)
    assert found, argv[0]
    try:
        subprocess.run([found, *argv[1:]], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr)
        raise


def skip_where_not_permitted() -> None:
    """Skip the test where a process may not be traced, or a file not be mounted."""
    skip_where_not_traced()
    if not sys.platform.startswith("linux") or os.geteuid():
        pytest.skip("only root on Linux mounts a file")
    with tempfile.TemporaryDirectory() as name:
        image = Path(name, "image")
        try:
            _make(image)
            with mounted(image, Path(name, "mounted")):
                pass
        except (AssertionError, subprocess.CalledProcessError) as refused:
            reason = getattr(refused, "stderr", "") or f"there is no {refused}"
            pytest.skip(f"a file can't be mounted here: {reason.splitlines()[0]}")

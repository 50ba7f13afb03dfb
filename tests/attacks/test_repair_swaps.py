"""A folder, a file or the directory itself is swapped while it is repaired, before each call."""

import contextlib
import itertools
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import shardproof
from shardproof import ShardproofError, formats
from shardproof.formats import locate
from tests.attacks.repairs import LIMITS, bytes_in, parts, tree_of
from tests.attacks.swapping import Steps
from tests.attacks.tally import Tally
from tests.helpers.forking import ended, forked

N = 8

CALLS = ("chmod", "chown", "close", "fstat", "fsync", "listdir", "lstat", "mkdir", "open", "pwrite")
CALLS += ("pwritev", "readlink", "rename", "replace", "rmdir", "scandir", "stat", "unlink")

RIGHT, WRONG, SECRET = b"right" * 20, b"wrong" * 20, b"of somebody else" * 9


def linked_to(name: str) -> Callable[[Path, Path], None]:
    return lambda path, base: path.symlink_to(base / name)


def device(path: Path, _base: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 7))  # /dev/full
    except PermissionError:
        path.symlink_to("/dev/full")


link_out, link_to_file = linked_to("outside"), linked_to("outside/a.bin")
SWAPS: dict[str, tuple[str, Callable[[Path, Path], None]]] = {
    "a folder for a link": ("sub", link_out),
    "a folder above for a link": ("x", link_out),
    "a folder that is gone for a link": ("new", link_out),
    "the directory for a link": (".", link_out),
    "the file for a link": ("sub/a.bin", link_to_file),
    "the file for a FIFO": ("sub/a.bin", lambda path, _: os.mkfifo(path)),
    "the file for a device": ("sub/a.bin", device),
    "the file for a folder": ("sub/a.bin", lambda path, _: path.mkdir()),
    "a file that is gone for a link": ("new/a.bin", link_to_file),
}

FOLDERS = ("sub", "x/sub", "new")


class Swapped:
    def __init__(self, base: Path, swap: str) -> None:
        self.base, self.root = base, base / "root"
        place, self._make = SWAPS[swap]
        self.place = self.root / place
        self.is_swapped = False

    def prepare(self) -> None:
        shutil.rmtree(self.base, ignore_errors=True)
        self.is_swapped = False
        for where, data in ((self.root, WRONG), (self.base / "source", RIGHT)):
            for name in FOLDERS:
                (where / name).mkdir(parents=True)
                (where / name / "a.bin").write_bytes(data)
        shutil.rmtree(self.root / "new")
        outside = self.base / "outside"
        for name in ("", *FOLDERS, "nothing"):
            (outside / name).mkdir(parents=True, exist_ok=True)
            (outside / name / "a.bin").write_bytes(SECRET)

    def swap(self) -> None:
        kept = self.base / "kept"
        try:
            if self.is_swapped:
                self._take_away()
                if kept.is_symlink() or kept.exists():
                    os.rename(kept, self.place)
            else:
                if self.place.exists():
                    os.rename(self.place, kept)
                self._make(self.place, self.base)
            self.is_swapped = not self.is_swapped
        except FileNotFoundError:
            return  # a folder is not made yet, into which it could be put

    def _take_away(self) -> None:
        if self.place.is_dir() and not self.place.is_symlink():
            shutil.rmtree(self.place)  # a folder, or what was made since
        else:
            self.place.unlink(missing_ok=True)

    def repair(self) -> bool:
        source = self.base / "source"
        return shardproof.repair(
            self.root, str(source), against=source, workers=1, limits=LIMITS
        ).ok

    def judge(self, outside: object, tally: Tally, what: object) -> None:
        if self.outside() != outside:
            tally.harm("torn", f"{what}: outside is {self.outside()}"[:500])
        if self.is_swapped:
            self.swap()
        for name in FOLDERS:
            path = self.root / name / "a.bin"
            data = path.read_bytes() if path.exists() else None
            if data not in {WRONG, RIGHT, None} or (data is None and name != "new"):
                tally.harm("lost" if data is None else "torn", f"{what}: {name}: {data!r}")
        with tally.harmless("leftover", what):
            assert self.repair()
            assert bytes_in(self.root) == bytes_in(self.base / "source")
            assert not [name for name in tree_of(self.root) if parts() in name]

    def outside(self) -> object:
        outside = self.base / "outside"
        times = {str(path): path.stat().st_mtime_ns for path in outside.rglob("*")}
        return tree_of(outside), times


def orders_of(swapped: Swapped, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Before which calls it is swapped, there or there and back: all of one, a few of two."""
    swapped.prepare()
    first = []
    with monkeypatch.context() as patch:
        steps = Steps(patch, CALLS, {})

        def located(path: str) -> object:
            found = locate(path)
            first.append(steps.n)
            return found

        patch.setattr(formats, "locate", located)
        assert swapped.repair()
    calls = range(first[0] if swapped.place == swapped.root else 0, steps.n + 1)
    pairs = [*itertools.combinations(calls, 2)]
    return [(n,) for n in calls] + pairs[:: max(1, len(pairs) // 100)]


@pytest.mark.attack("repair: something swapped meanwhile")
@pytest.mark.usefixtures("no_waiting_for_disks")
@pytest.mark.parametrize("swap", SWAPS)
def test_nothing_outside_is_touched(swap: str, tmp_path: Path, tally: Tally, monkeypatch) -> None:
    swapped = Swapped(tmp_path / "x", swap)
    for order in tally.each(orders_of(swapped, monkeypatch), N):
        is_swapped_in_order(swapped, order, tally, monkeypatch)


def is_swapped_in_order(swapped: Swapped, order, tally: Tally, monkeypatch) -> None:
    swapped.prepare()
    before = swapped.outside()
    # In a child: its parts are those of a process that is gone then.
    code = ended(forked(lambda: repair_in_order(swapped, order, monkeypatch)))
    tally.count()
    if code not in {0, IS_SWAPPED}:
        tally.harm("wrong class" if code > 0 else "hang", f"{order}: {code}")
    swapped.is_swapped = code == IS_SWAPPED
    swapped.judge(before, tally, order)


IS_SWAPPED = 3


def repair_in_order(swapped: Swapped, order, monkeypatch) -> None:
    """A FIFO that is opened and waited for ends by the child's alarm."""
    Steps(monkeypatch, CALLS, dict.fromkeys(order, swapped.swap))
    with contextlib.suppress(OSError, ShardproofError):
        swapped.repair()
    if swapped.is_swapped:
        os._exit(IS_SWAPPED)


def by_path(part: str, _part_fd: int, path: str, base_fd: int) -> None:
    """As it was: by a path, whatever it leads through."""
    path = os.path.join(os.readlink(f"/proc/self/fd/{base_fd}"), path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.replace(part, path)


@pytest.mark.control("torn")
def test_what_goes_by_a_path_is_seen(tmp_path: Path, tally: Tally, monkeypatch) -> None:
    monkeypatch.setattr("shardproof.repairing._fetch.exchange", by_path)
    swapped = Swapped(tmp_path / "x", "a folder for a link")
    once = [order for order in orders_of(swapped, monkeypatch) if len(order) == 1]
    for order in tally.each(once[::-4], 1):  # a few calls in a row do harm
        is_swapped_in_order(swapped, order, tally, monkeypatch)

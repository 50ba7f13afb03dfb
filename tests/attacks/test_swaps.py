"""A folder is swapped for a link out of the root, again and again, while files of it are opened."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import shardproof
from shardproof import Finding, FindingKind, ShardproofError, checks, testing, validation
from shardproof._base import names
from shardproof.checks import _look
from shardproof.formats import _registry
from shardproof.manifest import ExpectedFile, Manifest
from tests.attacks.swapping import Steps, n_steps, swapping
from tests.attacks.tally import Tally
from tests.helpers import token_files
from tests.helpers.checkpoint_files import flip
from tests.helpers.saving import saved

ROW = "a folder swapped for a link"

INSIDE = b"inside, as expected"
SECRET = b"SECRET" * 77
SECRETS = (SECRET[:6].decode(), str(len(SECRET)), hashlib.sha256(SECRET).hexdigest())
DIGEST = f"sha256:{hashlib.sha256(INSIDE).hexdigest()}"

FOLDERS = (".", "sub", "b", "x/sub")


@dataclasses.dataclass(frozen=True)
class Swap:
    asked: str
    place: str
    link: str
    ways: dict[str, str] = dataclasses.field(default_factory=dict)
    """Links that are there all the time."""
    folders: Sequence[str] = FOLDERS


ABSOLUTE, UP_AND_DOWN = {"way": "{base}/root/sub/a.bin"}, {"way": "sub/../b/a.bin"}
SWAPS = {
    "a folder": Swap("sub/a.bin", "sub", "../outside"),
    "a folder, absolute": Swap("sub/a.bin", "sub", "{base}/outside"),
    "a folder in a folder": Swap("x/sub/a.bin", "x/sub", "../../outside"),
    "a folder above a folder": Swap("x/sub/a.bin", "x", "../outside"),
    "a file of a folder": Swap("sub/a.bin", "sub/a.bin", "../../outside/a.bin"),
    "a file": Swap("a.bin", "a.bin", "{base}/outside/a.bin"),
    "a folder behind a link": Swap("way", "sub", "../outside", {"way": "sub/a.bin"}),
    "a folder behind an absolute link": Swap("way", "sub", "../outside", ABSOLUTE),
    "a folder behind a link to a folder": Swap("way/a.bin", "sub", "../outside", {"way": "./sub/"}),
    "a folder that a link leaves by ..": Swap("way", "sub", "../outside/sub", UP_AND_DOWN),
    "a link that comes back": Swap("way", "sub", "../outside", {"way": "../root/sub/a.bin"}),
    "a link inside": Swap("sub/a.bin", "sub", "b"),
    "nothing": Swap("new/a.bin", "new", "../outside", folders=(".",)),
}


def build(base: Path, swap: Swap) -> Path:
    root = base / "root"
    for where, content in ((root, INSIDE), (base / "outside", SECRET)):
        for folder in swap.folders:
            (where / folder).mkdir(parents=True, exist_ok=True)
            (where / folder / "a.bin").write_bytes(content)
    for way, text in swap.ways.items():
        (root / way).symlink_to(text.format(base=base))
    (base / "stand-in").symlink_to(swap.link.format(base=base))
    return root


def exchange(place: Path, base: Path, *, back: bool) -> None:
    kept, stand_in = base / "kept", base / "stand-in"
    source, target = (stand_in, kept) if back else (kept, stand_in)
    with contextlib.suppress(FileNotFoundError):  # nothing is swapped
        os.rename(place, source)
    with contextlib.suppress(FileNotFoundError):
        os.rename(target, place)


def expected(root: Path, asked: str) -> Manifest:
    files = [ExpectedFile(name=asked, digest=DIGEST)]
    return Manifest(root=root, path=root / "list.json", format="test", files=files)


LOOKS: tuple[tuple[str, bool], ...] = (("valid", False), ("valid", True), ("present", True))
"""How hard is looked, and whether the root is listed first, so that most files are opened once."""


def look(manifest: Manifest, how: tuple[str, bool], tally: Tally) -> None:
    level, list_first = how
    report = checks.check(manifest, level=level, workers=1, list_first=list_first)
    tally.count()
    if report.ok and manifest.files[0].name.startswith("new/"):
        tally.harm("lie", f"{manifest.files[0].name} is nowhere, and called {level}")
    for finding in report.findings:
        judge(finding, tally)


def judge(finding: Finding, tally: Tally) -> None:
    what = f"{finding.path}: {finding.kind.value}, expected {finding.expected}, {finding.found}"
    if any(secret in what for secret in SECRETS):
        tally.harm("lie", what)
    elif finding.kind not in {FindingKind.MISSING, FindingKind.NOT_REGULAR}:
        tally.harm("wrong class", what)


def old_open_inside(name: str, *, root: str, dir_fd: int, links: bool = True) -> int:
    status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode) or "/" in name:
        name = old_path(name, root)
        status = os.stat(name, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise names.NotRegularError(names.file_type(status.st_mode))
    return os.open(name, names.OPEN_FLAGS, dir_fd=dir_fd)


def old_open_folder(name: str, *, root: str, dir_fd: int, links: bool = True) -> int:
    return os.open(old_path(name, root), os.O_RDONLY | os.O_DIRECTORY)


def old_path(name: str, root: str) -> str:
    path = os.path.realpath(os.path.join(root, name), strict=True)
    if os.path.commonpath([root, path]) != root:
        raise names.NotRegularError(f"symbolic link to '{path}', outside the root")
    return path


CALLS = ("stat", "open", "readlink", "lstat", "fstat", "scandir")


def in_every_order(subject, place, base, tally, monkeypatch) -> None:
    """Swap before one call of a subject, and back before a later one; begin with either."""
    n = n_steps(subject, CALLS, monkeypatch) + 6  # a look that is disturbed takes more
    orders = itertools.product(itertools.combinations(range(n + 1), 2), (False, True))
    for (first, second), begins_swapped in tally.each([*orders], 30):
        if begins_swapped:
            exchange(place, base, back=False)
        before = {
            first: partial(exchange, place, base, back=begins_swapped),
            second: partial(exchange, place, base, back=not begins_swapped),
        }
        with monkeypatch.context() as patch:
            Steps(patch, CALLS, before)
            subject()
        if place.is_symlink():
            exchange(place, base, back=True)


def old_quick_look(question, dir_fd, regular, files) -> list[ExpectedFile]:
    """As it was: where nothing but files is listed, each name is opened as if it were one's."""
    odd = []
    for file in files:
        try:
            os.close(os.open(file.name, names.OPEN_FLAGS, dir_fd=dir_fd))
        except OSError:
            odd.append(file)
    return odd


def receipts_root(base: Path) -> Path:
    root = testing.write_layout(testing.Layout(n_shards=1, format="receipts"), base / "plan")
    outside = base / "outside"
    shutil.copytree(root / "receipts", outside)
    for path in outside.iterdir():
        text = json.loads(path.read_bytes()) | {"status": "failed", "error_type": "E"}
        path.write_text(json.dumps(text | {"error_message": "SECRET"}))
    (base / "stand-in").symlink_to(outside)
    return root


def shows(read: Callable[[Path], object], root: Path, tally: Tally) -> None:
    tally.count()
    try:
        shown = repr(read(root))
    except (ShardproofError, OSError) as error:
        shown = f"{error!r} {error.__cause__!r}"
    if "SECRET" in shown:
        tally.harm("lie", shown)


ASKED: dict[str, Callable[[Path], object]] = {
    "read": lambda root: shardproof.ReceiptStore(root).receipt(0),
    "verdict": lambda root: shardproof.ReceiptStore(root).verdict(0),
    "pending": lambda root: shardproof.ReceiptStore(root).verdicts(pending=True, workers=1),
}


def checkpoint_root(base: Path) -> Path:
    root, outside = base / "root", base / "outside"
    saved(root / "ckpt", [{"a": np.zeros(64)}], step=1)
    shutil.copytree(root, outside)
    flip(next(outside.glob("*.shard")))
    (base / "stand-in").symlink_to("outside")
    return root


def look_at_root(root: Path, tally: Tally) -> None:
    """What is said of a root that is sound, and not of the one that a link led to at first."""
    tally.count()
    try:
        report = shardproof.validate(root, level="valid", workers=1)
    except (ShardproofError, OSError):
        return
    if report.path == root:
        for finding in report.findings:
            tally.harm("lie", f"{finding.path}: {finding.found}")


HIDDEN = np.frombuffer(b"SECRET__" * 8, "<u4")


def write_all(where: Path, tokens: np.ndarray) -> None:
    testing.write_layout(testing.Layout(n_shards=2), where)
    token_files.write_shard(where, 3, tokens)
    saved(where / "ckpt", [{"a": tokens}], step=1)


def linked(base: Path) -> Path:
    """A root with links into a folder of it; the same names, with a secret, are outside."""
    root, outside = base / "root", base / "outside"
    write_all(root / "data", np.arange(16, dtype="<u4"))
    write_all(outside, HIDDEN)
    for path in (outside / "shards.json", *outside.glob("acts*.bin")):
        path.write_bytes((b"SECRET" * path.stat().st_size)[: path.stat().st_size])
    for path in filter(Path.is_file, outside.iterdir()):
        (root / path.name).symlink_to(f"data/{path.name}")
    (base / "stand-in").symlink_to("../outside")
    return root


def rows(root: Path) -> object:
    with shardproof.OrderedDataLoader(root, layer="all", tokens="all", batch_size=64) as loader:
        return [batch["act"].tobytes() for batch in loader]


def row(root: Path) -> object:
    with shardproof.IndexedDataset(root, layer="all", tokens="all") as dataset:
        return dataset[0]["act"].tobytes()


def sequences(root: Path) -> object:
    with shardproof.SharedShardedDataset(3, 4, 0, 1, shards_path=root) as dataset:
        return [row.tobytes() for row in dataset]


def tensors(root: Path) -> object:
    loader = shardproof.MultiShardLoader(level="complete")
    return [array.tobytes() for array in loader.load_tensors(root / "ckpt").values()]


READERS = {
    "ShardInfo.load": shardproof.ShardInfo.load,
    "Metadata.load": shardproof.Metadata.load,
    "validate": lambda root: str(shardproof.validate(root, level="complete")),
    "OrderedDataLoader": rows,
    "IndexedDataset": row,
    "SharedShardedDataset": sequences,
    "MultiShardLoader": tensors,
}


class Scene(NamedTuple):
    subject: Callable[[Tally], object]
    place: Path
    base: Path


Make = Callable[[Path], Scene]


def of_swap(name: str, how: tuple[str, bool], base: Path) -> Scene:
    root, swap = build(base, SWAPS[name]), SWAPS[name]
    return Scene(partial(look, expected(root, swap.asked), how), root / swap.place, base)


def of_receipts(ask: str, base: Path) -> Scene:
    root = receipts_root(base)
    return Scene(partial(shows, ASKED[ask], root), root / "receipts", base)


def of_the_root(base: Path) -> Scene:
    root = checkpoint_root(base)
    return Scene(partial(look_at_root, root), root, base)


def of_reader(name: str, base: Path) -> Scene:
    root = linked(base)
    assert "SECRET" not in repr(READERS[name](root))
    return Scene(partial(shows, READERS[name], root), root / "data", base)


SCENES: dict[str, Make] = {
    **{
        f"{name}, {how[0]} {how[1]}": partial(of_swap, name, how) for name in SWAPS for how in LOOKS
    },
    **{f"receipts, {ask}": partial(of_receipts, ask) for ask in ASKED},
    "the directory itself": of_the_root,
}
OF_READERS = {name: partial(of_reader, name) for name in READERS}
FAST = {
    **{name: partial(of_swap, name, how) for name, how in zip(SWAPS, itertools.cycle(LOOKS))},
    **{name: make for name, make in SCENES.items() if ", " not in name or "receipts" in name},
    **OF_READERS,
}


@pytest.mark.attack(ROW)
@pytest.mark.parametrize("name", SCENES)
def test_nothing_outside_shows_in_any_order_of_two_swaps_and_the_calls_of_a_look(
    name, tmp_path, tally, monkeypatch
) -> None:
    scene = SCENES[name](tmp_path)
    subject = partial(scene.subject, tally)
    in_every_order(subject, scene.place, scene.base, tally, monkeypatch)


@pytest.mark.attack(ROW)
@pytest.mark.parametrize("name", FAST)
def test_nothing_outside_shows_however_fast_it_is_swapped(name, tmp_path, tally) -> None:
    scene = FAST[name](tmp_path)
    with swapping(scene.place, scene.base):
        for _ in tally.each(range(200 if name in OF_READERS else 2_000), 50):
            scene.subject(tally)


HELD_BEFORE = {
    *("a file", "a file of a folder", "a folder that a link leaves by ..", "a link inside"),
    "nothing",
}
"""What was opened by its last name alone, or by a path without what was swapped."""

Patch = tuple[Any, str, Any]
OLD_OPEN: Patch = (_look, "open_inside", old_open_inside)
OLD_FOLDER: Patch = (_look, "open_folder", old_open_folder)
OLD_JSON: Patch = (names, "open_inside", old_open_inside)
open_as_it_was = partial(os.open, flags=os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
OLD_ROOT: list[Patch] = [(m, "open_root", open_as_it_was) for m in (checks, _registry, validation)]
BEHIND = "a folder behind a link, valid False"
AS_IT_WAS: dict[str, list[Patch]] = {
    **{
        f"{name}, valid False": [OLD_OPEN, OLD_FOLDER]
        for name in sorted(SWAPS.keys() - HELD_BEFORE)
    },
    "nothing, present True": [(_look, "_not_plainly_kept", old_quick_look)],
    "receipts, verdict": [OLD_JSON],
    "the directory itself": [*OLD_ROOT, (validation, "_has_moved", lambda *_: False)],
}


@pytest.mark.control("lie")
@pytest.mark.parametrize("name", AS_IT_WAS)
def test_a_look_as_it_was_is_caught_in_some_order(name, tmp_path, tally, monkeypatch) -> None:
    for room, what, old in AS_IT_WAS[name]:
        monkeypatch.setattr(room, what, old)
    scene = SCENES[name](tmp_path)
    subject = partial(scene.subject, tally)
    in_every_order(subject, scene.place, scene.base, tally, monkeypatch)


@pytest.mark.control("lie")
@pytest.mark.parametrize(
    ("make", "old"),
    [(SCENES[BEHIND], OLD_OPEN), (OF_READERS["ShardInfo.load"], OLD_JSON)],
    ids=["a look", "a reader"],
)
def test_a_look_as_it_was_is_caught_by_luck_too(make, old, tmp_path, tally, monkeypatch) -> None:
    monkeypatch.setattr(*old)
    scene = make(tmp_path)
    with swapping(scene.place, scene.base):
        for _ in tally.each(range(100_000), 1):
            scene.subject(tally)

"""Directories to be repaired, and the one question that is asked of each repair."""

import functools
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

import shardproof
from shardproof.cli import app
from shardproof.fetching import Limits
from shardproof.testing import Layout, write_layout
from tests.attacks.tally import Harm
from tests.goldens import golden

LIMITS = Limits(attempts=1, max_backoff=0.01)

Tree = dict[str, bytes | str]


def tree_of(path: Path) -> Tree:
    """All that is below a directory: bytes of files, where links lead, what else there is."""
    found: Tree = {}
    for here, folders, names in os.walk(path):
        for name in [*folders, *names]:
            each = Path(here, name)
            mode = each.lstat().st_mode
            if stat.S_ISREG(mode):
                found[str(each.relative_to(path))] = each.read_bytes()
            else:
                kind = f"-> {os.readlink(each)}" if stat.S_ISLNK(mode) else oct(stat.S_IFMT(mode))
                found[str(each.relative_to(path))] = kind
    return found


def put_back(path: Path, tree: Tree) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    for name, content in sorted(tree.items()):
        if isinstance(content, bytes):
            (path / name).write_bytes(content)
        elif content.startswith("-> "):
            (path / name).symlink_to(content[3:])
        else:
            (path / name).mkdir()


def bytes_in(path: Path) -> dict[str, bytes]:
    found = {}
    for name in tree_of(path):
        try:
            found[name] = (path / name).read_bytes()
        except OSError:
            continue  # a folder, or a link to nowhere
    return found


@dataclass(frozen=True)
class Place:
    path: Path
    source: Path
    against: Path | None

    def repair(self) -> shardproof.Repair:
        return shardproof.repair(
            self.path, str(self.source), against=self.against, workers=1, limits=LIMITS
        )


@dataclass(frozen=True)
class Broken(Place):
    before: Tree
    was: dict[str, bytes]
    right: dict[str, bytes]

    def judged(self, *, is_ok, is_lawful=lambda *_: False) -> Iterator[tuple[Harm, str]]:
        now, before = bytes_in(self.path), self.was
        for name, right in self.right.items():
            found = now.get(name)
            if found == right or (found is not None and is_lawful(name, found)):
                continue
            if found != before.get(name):
                yield "lost" if found is None else "torn", f"{name} is {found and found[:20]!r}"
            if is_ok:
                yield "lie", f"told to be whole, and {name} is not"
        for name in now.keys() - self.right.keys() - before.keys():
            if not name.startswith(parts()) and f"/{parts()}" not in name:
                yield "leftover", name


def parts() -> str:
    return f".shardproof-{os.geteuid()}.parts"


def command(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> int:
    against = ["--against", str(broken.against)] if broken.against else []
    with monkeypatch.context() as patch:
        patch.setattr(shardproof, "repair", functools.partial(shardproof.repair, limits=LIMITS))
        arguments = ["repair", str(broken.path), "--from", str(broken.source), "-q", *against]
        done = CliRunner().invoke(app.app, arguments, prog_name="shardproof")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return done.exit_code


class Kind(NamedTuple):
    make: Callable[[Path], dict[str, bytes]]  # below an empty directory; returns what is right
    path: str
    source: str | Path
    against: str = ""  # if not what it states itself

    def at(self, root: Path) -> "Place":
        against = root / self.against if self.against else None
        return Place(root / self.path, root / self.source, against)

    def broken(self, root: Path) -> "Broken":
        right = self.make(root)
        place = self.at(root)
        before, was = tree_of(place.path), bytes_in(place.path)
        return Broken(place.path, place.source, place.against, before, was, right)


def _sealed(to: Path) -> dict[str, bytes]:
    path = write_layout(Layout(n_shards=4), to / "x")
    shardproof.seal(path)
    shutil.copytree(path, to / "source")
    right = bytes_in(path)
    (path / "acts000000.bin").unlink()
    os.truncate(path / "acts000001.bin", 5)
    (path / "acts000002.bin").write_bytes((path / "acts000002.bin").read_bytes()[::-1])
    return right


def _listed(to: Path) -> dict[str, bytes]:
    path = golden("webdataset-tar").copy(to)
    right = bytes_in(path)
    for shard in path.glob("*.tar"):
        os.truncate(shard, 1024)
    return right


def _stored(to: Path) -> dict[str, bytes]:
    """Its files are links to blobs."""
    path = golden("hf-cache").copy(to)
    right = bytes_in(path)
    blobs = sorted((path / "blobs").iterdir())
    blobs[0].write_bytes(b"wrong")
    blobs[1].unlink()
    return right


def _linked(to: Path) -> dict[str, bytes]:
    """A link, and a folder that is gone; nothing else states them."""
    source, path = to / "source", to / "x"
    (source / "sub/sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c", "sub/sub/d"):
        (source / name).write_bytes(name.encode() * 99)
    shutil.copytree(source, path)
    (path / "a").unlink()
    (path / "a").symlink_to("b")
    shutil.rmtree(path / "sub")
    return bytes_in(source)


def _nested(to: Path) -> dict[str, bytes]:
    """What lists the others is fetched itself."""
    path = golden("bagit").copy(to)
    right = bytes_in(path)
    (path / "manifest-sha256.txt").unlink()
    names = sorted(each for each in (path / "data").rglob("*") if each.is_file())
    names[0].unlink()
    names[-1].write_bytes(b"wrong")
    return right


KINDS: dict[str, Kind] = {
    "sealed": Kind(_sealed, "x", "source"),
    "listed": Kind(_listed, "webdataset-tar", golden("webdataset-tar").path),
    "stored": Kind(
        _stored,
        "hf-cache/models--org--tiny",
        next((golden("hf-cache").path / "snapshots").iterdir()),
    ),
    "linked": Kind(_linked, "x", "source", "source"),
    "nested": Kind(_nested, "bagit", golden("bagit").path),
}

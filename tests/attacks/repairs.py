"""Directories to be repaired, and the one question that is asked of each repair.

Is any promised file worse than before, and did the exit code tell? What is there is compared byte
by byte with what was there and with what is right; nothing of ours is asked.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

import shardproof
from shardproof.cli import app
from shardproof.fetching import Limits
from shardproof.testing import Layout, write_layout
from tests.attacks.tally import Harm
from tests.goldens import GOLDENS, Golden

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
    """Make a directory what it was."""
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
    """What each name below a directory leads to."""
    found = {}
    for name in tree_of(path):
        try:
            found[name] = (path / name).read_bytes()
        except OSError:
            continue  # a folder, or a link to nowhere
    return found


class Broken(NamedTuple):
    """A directory that is to be repaired.

    Attributes:
        path: Where it is.
        source: Where its files are.
        against: What promises them, if not it itself.
        base: What is compared: it, or what it is a part of.
        before: The tree of that.
        was: What each name led to.
        right: What each name is to lead to.
    """

    path: Path
    source: Path
    against: Path | None
    base: Path
    before: Tree
    was: dict[str, bytes]
    right: dict[str, bytes]

    def repair(self) -> "shardproof.Repair":
        return shardproof.repair(
            self.path, str(self.source), against=self.against, workers=1, limits=LIMITS
        )

    def judged(
        self, *, is_ok: bool, is_lawful: Callable[[str, bytes], bool] = lambda *_: False
    ) -> Iterator[tuple[Harm, str]]:
        """Yield the harm that a repair did."""
        now, before = bytes_in(self.base), self.was
        for name, right in self.right.items():
            found = now.get(name)
            if found == right:
                continue
            if found is not None and is_lawful(name, found):
                continue
            if found != before.get(name):
                yield "lost" if found is None else "torn", f"{name} is {found and found[:20]!r}"
            if is_ok:
                yield "lie", f"told to be whole, and {name} is not"
        for name in now.keys() - self.right.keys() - before.keys():
            if not name.startswith(parts()) and f"/{parts()}" not in name:
                yield "leftover", name


def parts() -> str:
    """What the directory for parts of fetches is called."""
    return f".shardproof-{os.geteuid()}.parts"


def command(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> int:
    """Repair by the command, which tries once; return its exit code."""

    def repair(*args: object, **keywords: object) -> "shardproof.Repair":
        return real(*args, **keywords, limits=LIMITS)  # type: ignore[arg-type]

    real = shardproof.repair
    against = ["--against", str(broken.against)] if broken.against else []
    with monkeypatch.context() as patch:
        patch.setattr(shardproof, "repair", repair)
        arguments = ["repair", str(broken.path), "--from", str(broken.source), "-q", *against]
        done = CliRunner().invoke(app.app, arguments, prog_name="shardproof")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return done.exit_code


def golden_named(name: str) -> Golden:
    return next(golden for golden in GOLDENS if golden.name == name)


def made(
    path: Path, source: Path, damage: Callable[[Path], object], against: Path | None = None
) -> Broken:
    """Damage a directory that is whole."""
    base = path
    right = bytes_in(base)
    damage(path)
    return Broken(path, source, against, base, tree_of(base), bytes_in(base), right)


def _sealed(to: Path) -> Broken:
    path = write_layout(Layout(n_shards=4), to / "x")
    shardproof.seal(path)
    source = shutil.copytree(path, to / "source")

    def damage(path: Path) -> None:
        (path / "acts000000.bin").unlink()
        os.truncate(path / "acts000001.bin", 5)
        (path / "acts000002.bin").write_bytes((path / "acts000002.bin").read_bytes()[::-1])

    return made(path, source, damage)


def _listed(to: Path) -> Broken:
    """Its promise is what is listed."""
    golden = golden_named("webdataset-tar")

    def damage(path: Path) -> None:
        for shard in path.glob("*.tar"):
            os.truncate(shard, 1024)

    return made(golden.copy(to), golden.path, damage)


def _stored(to: Path) -> Broken:
    """Its files are links to blobs."""
    golden = golden_named("hf-cache")

    def damage(path: Path) -> None:
        blobs = sorted((path / "blobs").iterdir())
        blobs[0].write_bytes(b"wrong")
        blobs[1].unlink()

    return made(golden.copy(to), next((golden.path / "snapshots").iterdir()), damage)


def _linked(to: Path) -> Broken:
    """A link, and a folder that is gone; nothing else promises them."""
    source, path = to / "source", to / "x"
    (source / "sub/sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c", "sub/sub/d"):
        (source / name).write_bytes(name.encode() * 99)
    shutil.copytree(source, path)

    def damage(path: Path) -> None:
        (path / "a").unlink()
        (path / "a").symlink_to("b")
        shutil.rmtree(path / "sub")

    return made(path, source, damage, against=source)


def _nested(to: Path) -> Broken:
    """What promises the others is fetched itself."""
    golden = golden_named("bagit")

    def damage(path: Path) -> None:
        (path / "manifest-sha256.txt").unlink()
        names = sorted(each for each in (path / "data").rglob("*") if each.is_file())
        names[0].unlink()
        names[-1].write_bytes(b"wrong")

    return made(golden.copy(to), golden.path, damage)


KINDS: dict[str, Callable[[Path], Broken]] = {
    "sealed": _sealed,
    "listed": _listed,
    "stored": _stored,
    "linked": _linked,
    "nested": _nested,
}

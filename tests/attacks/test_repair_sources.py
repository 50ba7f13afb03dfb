"""Whatever a source has, and however it fails: no repair makes a directory worse, or lies."""

import contextlib
import functools
import itertools
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import shardproof
from shardproof import formats
from shardproof.fetching import Limits
from shardproof.repairing import _exchange, _fetch
from shardproof.testing.faults import HubFault, serve_hub
from tests.attacks.repairs import KINDS, Broken, bytes_in, command, tree_of
from tests.attacks.tally import Tally
from tests.goldens import GOLDENS, Golden

N = 20
"""In the gate."""

SOON = Limits(attempts=1, timeout=5, stall_timeout=0.2, min_speed=1000, max_backoff=0.01)
"""For servers that stall."""

PAGE = b"<!DOCTYPE html><html><body>log in</body></html>"


def _gone(path: Path, _other: Path) -> None:
    path.unlink()


def _empty(path: Path, _other: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path, _other: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flipped(path: Path, _other: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(bytes(byte ^ 0xFF for byte in data[:24]) + data[24:])


def _noise(path: Path, _other: Path) -> None:
    path.write_bytes(random.Random(path.name).randbytes(path.stat().st_size))


def _page(path: Path, _other: Path) -> None:
    path.write_bytes(PAGE.ljust(path.stat().st_size))


def _linked(path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to(os.path.relpath(other, path.parent))


DAMAGES = (_gone, _empty, _cut, _flipped, _page, _linked)
SOURCES: dict[str, Callable[[Path, Path], None] | None] = {
    "right": None,
    "typo": None,
    "empty": None,
    "without it": _gone,
    "of no bytes": _empty,
    "cut": _cut,
    "of the same size": _noise,
    "a page": _page,
}


def promised_in(golden: Golden, path: Path) -> list[str]:
    """The first, the last and one between of what is promised."""
    form = formats.detect(str(path))
    names = [file.name for file in formats.read_manifest(form, str(path)).files]
    return sorted({names[0], names[len(names) // 2], names[-1]})


def cases() -> list[tuple[Golden, int, Callable[[Path, Path], None], str]]:
    return [*itertools.product(GOLDENS, range(3), DAMAGES, SOURCES)]


def broken_by(
    golden: Golden, number: int, damage: Callable[[Path, Path], None], source: str, to: Path
) -> Broken | None:
    """A copy with one damage, and a source for it; None where there are fewer files."""
    path = golden.copy(to)
    names = promised_in(golden, path)
    if number >= len(names):
        return None
    name, other = names[number], names[number - 1]
    given = to / "source"
    if source == "empty":
        given.mkdir()
    elif source != "typo":
        whole = golden.path
        if golden.name.startswith("hf-cache"):
            whole = golden.path / "/".join(name.split("/")[:2])
            shutil.copytree(whole, given)  # the bytes of links
        else:
            shutil.copytree(whole, given)
        if (change := SOURCES[source]) is not None:
            asked = formats.detect(str(path)).name_at_source(name)
            change(given / asked, given / asked)
    right = bytes_in(path)
    # Of some formats an only shard is all that promises it.
    against = golden.path if golden.name.startswith(("llmc", "megatron")) else None
    file = path / name
    place = file if damage is _linked else file.resolve()
    damage(place, path / other)
    return Broken(path, given, against, path, tree_of(path), bytes_in(path), right)


def try_(broken: Broken, what: object, tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    is_seen = True
    with contextlib.suppress(shardproof.ManifestError):  # an only shard was all that promised it
        is_seen = not shardproof.validate(broken.path, against=broken.against, level="valid").ok
    code = command(broken, monkeypatch)
    tally.count()
    if not is_seen:  # nobody states what is damaged: where the promise is what is listed, say
        if tree_of(broken.base) != broken.before:
            tally.harm("torn", f"{what}: nothing is wrong, and something was changed")
        return

    @functools.cache
    def is_lawful(name: str, found: bytes) -> bool:
        """Whether nobody states what tells these bytes from the right ones."""
        kept = tree_of(broken.path)
        for other, right in broken.right.items():
            if other != name and (broken.path / other).read_bytes() != right:
                return False
        report = shardproof.validate(broken.path, against=broken.against, level="valid")
        assert tree_of(broken.path) == kept
        return report.ok

    for kind, harm in broken.judged(is_ok=code == 0, is_lawful=is_lawful):
        tally.harm(kind, f"{what}: exit {code}: {harm}")
    left = [name for name in tree_of(broken.base) if ".shardproof-" in name]
    if left:
        tally.harm("leftover", f"{what}: {left[:3]}")


@pytest.mark.attack("repair: what the source has")
@pytest.mark.parametrize("part", range(4))
def test_each_damage_from_each_source(part: int, tmp_path: Path, tally: Tally, monkeypatch) -> None:
    for case_ in tally.sample(cases()[part::4], N):
        golden, number, damage, source = case_
        broken = broken_by(golden, number, damage, source, tmp_path / "case")
        if broken is not None:
            what = (golden.name, number, damage.__name__, source)
            try_(broken, what, tally, monkeypatch)
        shutil.rmtree(tmp_path / "case")


@pytest.mark.attack("repair: a source that fails")
@pytest.mark.parametrize("kind", ["sealed", "listed", "linked", "nested"])
def test_each_fault_of_a_server(kind: str, tmp_path: Path, tally: Tally, monkeypatch) -> None:
    for fault in tally.sample([*HubFault], 4):
        broken = KINDS[kind](tmp_path / "case")
        with serve_hub(bytes_in(broken.source)) as hub:
            hub.fault("*", fault, times=99, method=None)
            done = shardproof.repair(
                broken.path, hub.url, against=broken.against, workers=1, limits=SOON
            )
            tally.count()
            for harm, what in broken.judged(is_ok=done.ok):
                tally.harm(harm, f"{kind}, {fault}: {what}")
            hub.heal()
            done = shardproof.repair(broken.path, hub.url, against=broken.against)
        if not done.ok or bytes_in(broken.base) != broken.right:
            tally.harm("leftover", f"{kind}, {fault}: {done.failed} {sorted(tree_of(broken.base))}")
        shutil.rmtree(tmp_path / "case")


@pytest.mark.parametrize("bug", ["not looked at", "moved aside first"])
def test_what_must_not_be_done_is_seen(bug: str, tmp_path: Path, monkeypatch) -> None:
    """Controls: what comes is not looked at; what is there goes first."""
    if bug == "not looked at":
        monkeypatch.setattr(_fetch, "flaw_of", lambda *_: None)
    else:
        place_of = _exchange.place_of

        def and_move_aside(file, manifest):
            path = manifest.root / file.name
            path.rename(f"{path}.bad-12345678")
            return place_of(file, manifest)

        monkeypatch.setattr(_fetch, "place_of", and_move_aside)
    tally = Tally("control", is_exhaustive=True)
    golden = next(each for each in GOLDENS if each.name == "webdataset-tar")
    for source in ("cut", "a page", "typo"):
        broken = broken_by(golden, 1, _cut, source, tmp_path / source)
        assert broken is not None
        try_(broken, source, tally, monkeypatch)
    assert tally.harms["torn" if bug == "not looked at" else "lost"]

"""Whatever a source has, and however it fails: no repair makes a directory worse, or lies."""

import contextlib
import functools
import itertools
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import shardproof
from shardproof import formats
from shardproof.fetching import Limits
from shardproof.repairing import _exchange, _fetch
from shardproof.testing.faults import HubFault, serve_hub
from tests import goldens
from tests.attacks.repairs import KINDS, Broken, bytes_in, command, tree_of
from tests.attacks.tally import Tally
from tests.goldens import GOLDENS, Golden

N = 20

SOON = Limits(attempts=1, timeout=5, stall_timeout=0.2, min_speed=1000, max_backoff=0.01)

PAGE = b"<!DOCTYPE html><html><body>log in</body></html>"


Damage = Callable[[Path, Path], object]
"""What is done to a file; it may be put in the place of another one."""


def _flipped(path: Path, _other: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(bytes(byte ^ 0xFF for byte in data[:24]) + data[24:])


def _noise(path: Path, _other: Path) -> None:
    path.write_bytes(random.Random(path.name).randbytes(path.stat().st_size))


def _linked(path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to(os.path.relpath(other, path.parent))


DAMAGES: dict[str, Damage] = {
    "gone": lambda path, _: path.unlink(),
    "empty": lambda path, _: path.write_bytes(b""),
    "cut": lambda path, _: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": _flipped,
    "page": lambda path, _: path.write_bytes(PAGE.ljust(path.stat().st_size)),
    "linked": _linked,
}
SOURCES: dict[str, Damage | None] = {
    **dict.fromkeys(["right", "typo", "empty"]),
    "without it": DAMAGES["gone"],
    "of no bytes": DAMAGES["empty"],
    "cut": DAMAGES["cut"],
    "of the same size": _noise,
    "a page": DAMAGES["page"],
}


def promised_in(path: Path) -> list[str]:
    form = formats.detect(str(path))
    names = [file.name for file in formats.read_manifest(form, str(path)).files]
    return sorted({names[0], names[len(names) // 2], names[-1]})


def cases() -> list[tuple[Golden, int, str, str]]:
    return [*itertools.product(GOLDENS, range(3), DAMAGES, SOURCES)]


def broken_by(golden: Golden, number: int, damage: str, source: str, to: Path) -> Broken | None:
    path = golden.copy(to)
    names = promised_in(path)
    if number >= len(names):
        return None
    name, other = names[number], names[number - 1]
    given = to / "source"
    if source == "empty":
        given.mkdir()
    elif source != "typo":
        is_cache = golden.name.startswith("hf-cache")  # of which the bytes of links are copied
        inside = "/".join(name.split("/")[:2]) if is_cache else ""
        shutil.copytree(golden.path / inside, given)
        if (change := SOURCES[source]) is not None:
            asked = formats.detect(str(path)).name_at_source(name)
            change(given / asked, given / asked)
    right = bytes_in(path)
    # Of some formats an only shard is all that promises it.
    against = golden.path if golden.name.startswith(("llmc", "megatron")) else None
    file = path / name
    place = file if damage == "linked" else file.resolve()
    DAMAGES[damage](place, path / other)
    return Broken(path, given, against, tree_of(path), bytes_in(path), right)


def try_(broken: Broken, what: object, tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    is_seen = True
    with contextlib.suppress(shardproof.ManifestError):  # an only shard was all that promised it
        is_seen = not shardproof.validate(broken.path, against=broken.against, level="valid").ok
    code = command(broken, monkeypatch)
    tally.count()
    if not is_seen:  # nobody states what is damaged: where the promise is what is listed, say
        if tree_of(broken.path) != broken.before:
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
    left = [name for name in tree_of(broken.path) if ".shardproof-" in name]
    if left:
        tally.harm("leftover", f"{what}: {left[:3]}")


@pytest.mark.attack("repair: what the source has")
@pytest.mark.parametrize("part", range(4))
def test_each_damage_from_each_source(part: int, tmp_path: Path, tally: Tally, monkeypatch) -> None:
    for case_ in tally.each(cases()[part::4], N):
        whole, number, damage, source = case_
        broken = broken_by(whole, number, damage, source, tmp_path / "case")
        if broken is not None:
            what = (whole.name, number, damage, source)
            try_(broken, what, tally, monkeypatch)
        shutil.rmtree(tmp_path / "case")


@pytest.mark.attack("repair: a source that fails")
@pytest.mark.parametrize("kind", ["sealed", "listed", "linked", "nested"])
def test_each_fault_of_a_server(kind: str, tmp_path: Path, tally: Tally, monkeypatch) -> None:
    for fault in tally.each([*HubFault], 4):
        (tmp_path / "case").mkdir()
        broken = KINDS[kind].broken(tmp_path / "case")
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
        if not done.ok or bytes_in(broken.path) != broken.right:
            tally.harm("leftover", f"{kind}, {fault}: {done.failed} {sorted(tree_of(broken.path))}")
        shutil.rmtree(tmp_path / "case")


READER = """
import os, sys
stop, *paths = sys.argv[1:]
n_reads = n_missed = 0
print(flush=True)
while not os.path.exists(stop):
    for path in paths:
        try:
            with open(path, "rb") as file:
                file.read()
            n_reads += 1
        except OSError:
            n_missed += 1
print(n_reads, n_missed)
"""


def break_again(path: Path, content: bytes | str) -> None:
    new = path.with_name("new")
    if isinstance(content, bytes):
        new.write_bytes(content)
    else:
        new.symlink_to(content.removeprefix("-> "))
    new.rename(path)


@pytest.mark.attack("repair: somebody reads meanwhile")
@pytest.mark.usefixtures("no_waiting_for_disks")
@pytest.mark.parametrize("kind", KINDS)
def test_who_reads_never_finds_nothing(kind: str, tmp_path: Path, tally: Tally) -> None:
    broken = KINDS[kind].broken(tmp_path)
    names = [name for name, data in broken.was.items() if broken.right.get(name) != data]
    again = {n: broken.before[n] for n in names if "blobs/" not in str(broken.before[n])}
    stop = broken.path.parent / "stop"
    arguments = [sys.executable, "-c", READER, stop, *(broken.path / name for name in names)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        for _ in tally.each(range(200), 3):
            assert broken.repair().ok
            for name, content in again.items():
                break_again(broken.path / name, content)
        stop.touch()
        n_reads, n_missed = map(int, reader.stdout.readline().split())
    tally.count(n_reads)
    for _ in range(n_missed):
        tally.harm("lost", f"{names}: a reader found nothing")


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param("not looked at", marks=pytest.mark.control("torn")),
        pytest.param("moved aside first", marks=pytest.mark.control("lost")),
    ],
)
def test_what_must_not_be_done_is_seen(bug: str, tmp_path: Path, tally: Tally, monkeypatch) -> None:
    if bug == "not looked at":
        monkeypatch.setattr(_fetch, "flaw_of", lambda *_: None)
    else:
        place_of = _exchange.place_of

        def and_move_aside(file, manifest):
            path = manifest.root / file.name
            path.rename(f"{path}.bad-12345678")
            return place_of(file, manifest)

        monkeypatch.setattr(_fetch, "place_of", and_move_aside)
    for source in tally.each(["cut", "a page", "typo"], 1):
        broken = broken_by(goldens.golden("webdataset-tar"), 1, "cut", source, tmp_path / source)
        assert broken is not None
        try_(broken, source, tally, monkeypatch)

"""The sidecar of a staged copy says something else, while a file of the copy is cut."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from shardproof import ShardproofError
from shardproof._base.liveness import mark_of, stamp_of
from shardproof.staging import _proofs, stage
from tests.attacks.directories import within
from tests.attacks.tally import Tally
from tests.attacks.writers import STAGED, copies

SIDECAR = ".shardproof-stage.jsonl"
Stat = os.stat_result


class Disk:
    def __init__(self, kind: str, root: Path, level: str) -> None:
        within("shards", STAGED[kind])(root)
        self.root, self.level = root, level
        self.stage()
        self.expected = copies(root)

    def stage(self) -> Path:
        return stage(self.root / "shards", self.root / "to", level=self.level, workers=1)

    def empty(self) -> None:
        for path in (self.root / "to").iterdir():
            shutil.rmtree(path)


Line = dict[str, object]
NUMBERS = [0, -1, 1, 2**31, 2**63, 2**64, 10**400, True, None, 1.5, "1", [], {}]
TEXTS = ["", "sha256:", "sha256:" + "0" * 64, "md5:00", "\x00", "../x", "x" * 10**5, 7, None, []]
NESTED = [b"[" * 10**5, b'{"a":' * 10**5, b'{"name":' + b"[" * 5000 + b"]" * 5000 + b"}"]


def lied(line: Line, stale: os.stat_result, luck: random.Random) -> Line:
    field = luck.choice(["name", "source", "copy", "digest", "boot", "sizes"])
    if field == "sizes":
        return line | {"copy": [stale.st_size, stale.st_mtime_ns, stale.st_ino]}
    if field in {"source", "copy"}:
        stamp = list(line[field])
        stamp[luck.randrange(len(stamp))] = luck.choice(NUMBERS)
        return line | {field: luck.choice([stamp, stamp[:-1], [*stamp, 1], stamp[::-1]])}
    return line | {field: luck.choice(TEXTS)}


def mutated(data: bytes, stale: os.stat_result, luck: random.Random) -> bytes:
    lines = [line for line in data.split(b"\n") if line]
    how = luck.choice(["lie", "lie", "lie", "nest", "cut", "flip", "twice", "join"])
    place = luck.randrange(len(lines))
    if how == "lie":
        for number, line in enumerate(lines):
            lines[number] = json.dumps(lied(json.loads(line), stale, luck)).encode()
    elif how == "nest":
        lines.insert(place, luck.choice(NESTED))
    elif how == "cut":
        lines[place] = lines[place][: luck.randrange(len(lines[place]))]
    elif how == "flip":
        flipped = bytearray(lines[place])
        flipped[luck.randrange(len(flipped))] ^= 1 << luck.randrange(8)
        lines[place] = bytes(flipped)
    elif how == "twice":
        lines[place] = lines[place][:-1] + b"," + lines[place][1:]
    return (b" " if how == "join" else b"\n").join(lines) + luck.choice([b"", b"\n"])


def lie(disk: Disk, seed: int, tally: Tally) -> None:
    luck = random.Random(seed)
    tally.count()
    disk.empty()
    copy = disk.stage()
    file = copy / luck.choice(sorted(disk.expected))
    os.truncate(file, luck.randrange(file.stat().st_size))
    sidecar = copy / SIDECAR
    sidecar.write_bytes(mutated(sidecar.read_bytes(), file.stat(), luck))
    try:
        disk.stage()
    except (OSError, ShardproofError) as error:
        tally.harm("lost", f"seed {seed}: {error!r}")
    except Exception as error:
        tally.harm("wrong class", f"seed {seed}: {error!r}")
    else:
        if copies(disk.root) != disk.expected:
            tally.harm("lie", f"seed {seed}: a stale copy was taken for the source's")


@pytest.mark.attack("hostile files: the sidecar of a copy")
@pytest.mark.parametrize("level", ["present", "complete", "valid"])
@pytest.mark.parametrize("kind", STAGED)
def test_sidecars_that_lie(kind: str, level: str, tmp_path: Path, tally: Tally) -> None:
    disk = Disk(kind, tmp_path, level)
    for seed in tally.each(range(500), 12):
        lie(disk, seed, tally)


def believing(self: _proofs.Proofs, name: str, source: Stat, copy: Stat, *, hashed: bool) -> bool:
    proof = self.get(name)
    there = stamp_of(source), mark_of(copy)
    return proof is not None and (proof.source, proof.copy) == there


@pytest.mark.control("lie")
def test_a_sidecar_that_is_believed_whatever_the_sizes_is_seen(
    tmp_path, tally, monkeypatch
) -> None:
    monkeypatch.setattr(_proofs.Proofs, "fit", believing)
    disk = Disk("saev", tmp_path, "present")
    for seed in tally.each(range(200), 1):
        lie(disk, seed, tally)

"""`stage` under attack: calls that fail, kills, power cuts, a sidecar that lies.

The oracle knows what is to be in a copy, file by file: it looks at bytes, and asks nothing of ours.
What has the name of a finished copy is to be the source, whole; what is not, has another name.
"""

import contextlib
import dataclasses
import errno
import itertools
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shardproof import MultiShardSaver, ShardproofError, ShardValidationError, testing
from shardproof._base.liveness import mark_of, stamp_of
from shardproof.checks import check
from shardproof.report import Report
from shardproof.staging import _copy, _proofs, _source, _stage, stage
from shardproof.testing.faults import FileSystemFaults
from tests.attacks.tally import Tally
from tests.helpers import power
from tests.helpers.killing import (
    Begin,
    ends_by_itself,
    skip_where_not_permitted,
    stop_at_every_call,
)
from tests.helpers.planning import complete, new_store

ERRNOS = [errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE]
N_CUTS = 6
"""In the gate."""

SIDECAR = ".shardproof-stage.jsonl"
OURS = {SIDECAR, ".shardproof-stage.lock"}
Content = dict[str, bytes]
Stat = os.stat_result


def saev(path: Path) -> Path:
    return testing.write_layout(testing.Layout(n_shards=2, labels=True), path)


def plan(path: Path) -> Path:
    store = new_store(path, 3)
    for index in (0, 2):
        complete(store, index, b"%d" % index * 50)
    shutil.rmtree(store.path / "claims")
    return store.path


def checkpoints(path: Path) -> Path:
    for name in ("a", "b"):
        for rank in range(2):
            MultiShardSaver().save_shard(path / name, rank, {"w": np.arange(9) + rank})
        MultiShardSaver().save_metadata(path / name, world_size=2)
    return path


KINDS = {"saev": saev, "receipts": plan, "checkpoint": checkpoints}


def content(path: Path) -> Content:
    """Every file below a directory, less what staging itself puts there."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.name not in OURS and file.suffix != ".tmp" and file.is_file()
    }


def finished(to: Path) -> list[Path]:
    return [path for path in to.glob("shardproof-*/*") if path.suffix != ".unfinished"]


def leftovers(to: Path) -> list[Path]:
    return [path for path in to.rglob("*") if path.suffix in {".tmp", ".unfinished"}]


class Disk:
    """A source, and the disk that it is staged to.

    Attributes:
        source, to: Where they are.
        expected: What is to be in a copy.
        level: How hard `stage` looks.
    """

    def __init__(self, kind: str, base: Path, level: str = "complete") -> None:
        self.to, where = base / "local", base / "source"
        self.to.mkdir(parents=True)
        where.mkdir()
        self.source = KINDS[kind](where)
        self.expected, self.level = content(self.source), level
        self.stage()  # what is imported late is by now
        self.empty()

    def stage(self) -> Path:
        return stage(self.source, self.to, level=self.level, workers=1)

    def empty(self) -> None:
        for path in self.to.iterdir():
            shutil.rmtree(path)

    def purge(self) -> None:
        """Let there be a copy of which a file is gone, of the data and of the promise each."""
        self.empty()
        copy = self.stage()
        names = sorted(self.expected)
        for name in (names[0], names[-1]):
            (copy / name).unlink()

    def look(self, tally: Tally, what: str) -> None:
        """Note a finished copy that is not whole, then stage again, and note what is wrong."""
        for copy in finished(self.to):
            there = content(copy)
            if any(there[name] != self.expected.get(name) for name in there):
                tally.harm("torn", f"{what}: another file's bytes in '{copy.name}'")
        self.look_again(tally, what)

    def look_again(self, tally: Tally, what: str) -> None:
        try:
            copy = self.stage()
        except Exception as error:
            tally.harm("lost", f"{what}: then not staged: {error!r}")
            return
        if content(copy) != self.expected:
            tally.harm("torn", f"{what}: then staged, and not whole")
        if found := leftovers(self.to):
            tally.harm("leftover", f"{what}: {found}")

    def look_for_half_copies(self, tally: Tally, what: str) -> None:
        for copy in finished(self.to):
            if content(copy) != self.expected:
                tally.harm("torn", f"{what}: '{copy.name}' is finished, and not whole")


# ------------------------------------------------------------------------------- calls that fail


def fail_once(disk: Disk, side: str, nth: int, number: int, begin: str, tally: Tally) -> None:
    """Let one call fail, and judge the outcome: a whole copy, or 'could not look'."""
    what = f"{begin}, call {nth} of the {side}: {errno.errorcode[number]}"
    disk.empty() if begin == "fresh" else disk.purge()
    root = disk.source if side == "source" else disk.to
    with FileSystemFaults(root) as fs:
        fault = fs.fail("any", number, nth=nth, times=1, optional=True)
        try:
            copy = disk.stage()
        except ShardValidationError as error:
            if not could_not_look(error, number):
                tally.harm("wrong class", f"{what}: {error}")
        except OSError as error:
            if error.errno != number and not says(error, number):
                tally.harm("wrong class", f"{what}: {error!r}")
        except Exception as error:
            tally.harm("wrong class", f"{what}: {error!r}")
        else:
            if content(copy) != disk.expected:
                tally.harm("torn", f"{what}: staged, and not whole")
    tally.count(fault.reached)  # as many calls are not made in each run
    if begin == "fresh":
        disk.look_for_half_copies(tally, what)
    disk.look(tally, what)


def could_not_look(error: ShardValidationError, number: int) -> bool:
    """Whether it says that nobody could look; of EACCES, that a file may not be read."""
    report = error.report
    kinds = {finding.kind.value for finding in report.findings}
    return report.exit_code == 3 or (number == errno.EACCES and kinds == {"unreadable"})


def says(error: BaseException, number: int) -> bool:
    """Whether an error came of one with this number."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    return any(getattr(one, "errno", None) == number for one in chain)


def n_calls(disk: Disk, side: str, begin: str) -> int:
    disk.empty() if begin == "fresh" else disk.purge()
    with FileSystemFaults(disk.source if side == "source" else disk.to) as fs:
        disk.stage()
        return len(fs.calls)


def failing_calls(disk: Disk) -> list[tuple[str, int, int, str]]:
    """Each call with one of the errnos, the next call with the next one.

    All of them for each call are the attack `test_failing_calls`, for whom `stage` is one of many.
    """
    sides = itertools.product(("source", "target"), ("fresh", "purged"))
    return [
        (side, nth, ERRNOS[nth % len(ERRNOS)], begin)
        for side, begin in sides
        for nth in range(1, n_calls(disk, side, begin) + 1)
    ]


@pytest.mark.attack("a call fails once: staging")
@pytest.mark.parametrize("level", ["complete", "valid"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_fails(kind: str, level: str, tmp_path: Path, tally: Tally) -> None:
    disk = Disk(kind, tmp_path, level)
    for side, nth, number, begin in tally.sample(failing_calls(disk), 12):
        fail_once(disk, side, nth, number, begin, tally)


def swallowing(directory: str) -> list[str]:
    """List as `glob.glob` does, for which a directory that can't be read has nothing in it."""
    found: list[str] = []
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        found.extend(entry.name for entry in entries)
    return sorted(found)


def unlike_its_source(
    source: _source.StageSource, root: str, files: object, _strange: object, level: str
) -> Report:
    """A check that does not ask whether the copy lists what its source does."""
    copy = source.form.read_manifest(source.at(root))
    return check(dataclasses.replace(copy, files=files), level=level)


def test_control_a_listing_that_ends_early(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(_source, "names_in", swallowing)
    monkeypatch.setattr(_source.StageSource, "check_copy", unlike_its_source)
    disk = Disk("receipts", tmp_path)
    control = Tally("control", is_exhaustive=True)
    for nth in range(1, n_calls(disk, "source", "fresh") + 1):
        fail_once(disk, "source", nth, errno.EIO, "fresh", control)
    assert control.harms["torn"]


# ------------------------------------------------------------------------------- kills


def kill(disk: Disk, begin: str, tally: Tally, n: int, *, look_twice: bool = True) -> None:
    """Kill `stage` at some system calls, the same ones in each run; look at what is left."""

    def act(start: Begin) -> None:
        start()
        disk.stage()

    prepare = disk.empty if begin == "fresh" else disk.purge
    prepare()
    calls: list[int] = []
    stop_at_every_call(act, lambda: calls.append(1))
    for number in tally.sample(range(len(calls)), n):
        prepare()
        ends_by_itself(act, number)
        tally.count()
        what = f"{begin}, killed at system call {number + 1} of {len(calls)}"
        if begin == "fresh":
            disk.look_for_half_copies(tally, what)
        if look_twice:
            disk.look(tally, what)


@pytest.mark.attack("kill at a system call: staging")
@pytest.mark.parametrize("begin", ["fresh", "purged"])
@pytest.mark.parametrize("kind", KINDS)
def test_kills(kind: str, begin: str, tmp_path: Path, tally: Tally) -> None:
    skip_where_not_permitted()
    kill(Disk(kind, tmp_path), begin, tally, 6)


def at_once_in_place(home: _stage.CopyDirectory) -> None:
    home.place = home.final
    _stage._make_own(home.final)


def test_control_a_copy_that_is_made_under_its_name(tmp_path: Path, monkeypatch) -> None:
    skip_where_not_permitted()
    disk = Disk("checkpoint", tmp_path)
    monkeypatch.setattr(_stage.CopyDirectory, "_choose_place", at_once_in_place)
    control = Tally("control", is_exhaustive=False)
    kill(disk, "fresh", control, 12, look_twice=False)
    assert control.harms["torn"]


# ------------------------------------------------------------------------------- power cuts


def cut_the_power(
    disk: Disk, workspace: Path, tally: Tally, boots: Iterator[str], monkeypatch
) -> None:
    """Cut the power at each call; after each start the machine has another boot id."""
    workspace.mkdir()

    def act(path: Path, start: Begin) -> None:
        start()
        stage(disk.source, path, workers=1)

    def check(path: Path, _: bool) -> None:
        tally.count()
        monkeypatch.setattr(_proofs, "this_process", lambda: f"{next(boots)}/1/1")
        disk.to = path
        disk.look_again(tally, f"power cut {tally.n_cases}")

    power.at_every_cut(
        act,
        workspace,
        prepare=lambda _: None,
        check=check,
        beside_others=True,
        choose=lambda cuts: tally.sample(cuts, N_CUTS),
    )


@pytest.mark.attack("power cut: staging")
def test_power_cuts(tmp_path: Path, tally: Tally, monkeypatch) -> None:
    power.skip_where_not_permitted()
    boots = map(str, itertools.count())
    for kind in KINDS if tally.is_exhaustive else ["saev"]:
        cut_the_power(
            Disk(kind, tmp_path / kind), tmp_path / f"{kind} disk", tally, boots, monkeypatch
        )


def test_control_what_is_there_is_believed_after_a_power_cut(tmp_path: Path, monkeypatch) -> None:
    power.skip_where_not_permitted()
    disk = Disk("saev", tmp_path / "disk")
    monkeypatch.setattr(_proofs.Proofs, "fit", lambda *_, hashed: True)
    monkeypatch.setattr(_copy.StagedCopy, "_doubted", lambda _: [])
    monkeypatch.setattr(_copy.StagedCopy, "_write_listing", write_listing_if_there_is_none)
    control = Tally("control", is_exhaustive=True)
    cut_the_power(disk, tmp_path / "work", control, itertools.repeat("0"), monkeypatch)
    assert control.harms["torn"]


def write_listing_if_there_is_none(copy: _copy.StagedCopy) -> None:
    path = Path(copy._place, copy._source.listing)
    if not path.exists():
        path.write_bytes(copy._source.stated[copy._source.listing])


# ------------------------------------------------------------------------------- sidecars that lie

Line = dict[str, object]
NUMBERS = [0, -1, 1, 2**31, 2**63, 2**64, 10**400, True, None, 1.5, "1", [], {}]
TEXTS = ["", "sha256:", "sha256:" + "0" * 64, "md5:00", "\x00", "../x", "x" * 10**5, 7, None, []]
NESTED = [b"[" * 10**5, b'{"a":' * 10**5, b'{"name":' + b"[" * 5000 + b"]" * 5000 + b"}"]


def lied(line: Line, stale: os.stat_result, luck: random.Random) -> Line:
    """A line that says something else, such as what a stale copy is like."""
    field = luck.choice(["name", "source", "copy", "digest", "boot", "sizes"])
    if field == "sizes":
        return line | {"copy": [stale.st_size, stale.st_mtime_ns, stale.st_ino]}
    if field in {"source", "copy"}:
        stamp = list(line[field])  # type: ignore[call-overload]
        stamp[luck.randrange(len(stamp))] = luck.choice(NUMBERS)
        return line | {field: luck.choice([stamp, stamp[:-1], [*stamp, 1], stamp[::-1]])}
    return line | {field: luck.choice(TEXTS)}


def mutated(data: bytes, stale: os.stat_result, luck: random.Random) -> bytes:
    """The sidecar with some lines that nobody here has written."""
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
    """Cut a file of a copy, and let the sidecar say something else; nothing stale is staged."""
    luck = random.Random(seed)
    tally.count()
    disk.empty()
    copy = disk.stage()
    file = copy / luck.choice(sorted(disk.expected))
    os.truncate(file, luck.randrange(file.stat().st_size))
    sidecar = copy / SIDECAR
    sidecar.write_bytes(mutated(sidecar.read_bytes(), file.stat(), luck))
    try:
        there = content(disk.stage())
    except (OSError, ShardproofError) as error:
        tally.harm("lost", f"seed {seed}: {error!r}")
    except Exception as error:
        tally.harm("wrong class", f"seed {seed}: {error!r}")
    else:
        if there != disk.expected:
            tally.harm("lie", f"seed {seed}: a stale copy was taken for the source's")


@pytest.mark.attack("hostile files: the sidecar of a copy")
@pytest.mark.parametrize("level", ["present", "complete", "valid"])
@pytest.mark.parametrize("kind", KINDS)
def test_sidecars_that_lie(kind: str, level: str, tmp_path: Path, tally: Tally) -> None:
    disk = Disk(kind, tmp_path, level)
    for seed in tally.sample(range(500), 12):
        lie(disk, seed, tally)


def believing(self: _proofs.Proofs, name: str, source: Stat, copy: Stat, *, hashed: bool) -> bool:
    """What a line says of a copy that is there is what it is like, whatever the sizes."""
    proof = self.get(name)
    there = stamp_of(source), mark_of(copy)
    return proof is not None and (proof.source, proof.copy) == there


def test_control_sizes_are_believed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(_proofs.Proofs, "fit", believing)
    disk = Disk("saev", tmp_path, "present")
    control = Tally("control", is_exhaustive=True)
    for seed in range(30):
        lie(disk, seed, control)
    assert control.harms["lie"]

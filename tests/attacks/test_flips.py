"""Bits of each byte flipped and each cut of each file; and sound directories: nobody is accused."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import strategies as st

from shardproof import Report, ShardproofError, validate
from shardproof.checkpoint import MultiShardSaver
from shardproof.testing import Layout, expected_findings, shards_dir
from shardproof.testing.strategies import layouts
from tests.attacks.tally import Tally
from tests.helpers.drawing import drawn

Proof = Literal["proven", "unproven", "promise"]
"""What is said of a file: its digest, only its size, or nothing, since it is what says so."""


class Kind(NamedTuple):
    make: Callable[[], contextlib.AbstractContextManager[Path]]
    proof: Callable[[str], Proof]


@contextlib.contextmanager
def kit_checkpoint() -> Iterator[Path]:
    with shards_dir(Layout(2, format="checkpoint")) as prefix:
        yield prefix.parent


@contextlib.contextmanager
def saved_checkpoint(digest: str) -> Iterator[Path]:
    import numpy as np

    with shards_dir(Layout(0)) as base:
        saver = MultiShardSaver(algorithm=digest, sync=False)
        for rank in range(2):
            arrays = {f"w{rank}": np.arange(9, dtype=np.int16), f"b{rank}": np.uint8(7 + rank)}
            saver.save_shard(str(base / "step" / "x"), rank, arrays)
        saver.save_metadata(
            str(base / "step" / "x"), world_size=2, timestamp="2026-11-21T20:00:00Z"
        )
        yield base / "step"


KINDS = {
    "checkpoint": Kind(kit_checkpoint, lambda name: "proven"),
    "checkpoint of ours": Kind(lambda: saved_checkpoint("sha256"), lambda name: "proven"),
    "checkpoint of trees": Kind(lambda: saved_checkpoint("sha256-tree"), lambda name: "proven"),
    "receipts": Kind(
        lambda: shards_dir(Layout(2, format="receipts")),
        lambda name: "promise" if name.endswith(".json") else "proven",
    ),
    "saev": Kind(
        lambda: shards_dir(Layout(2, n_examples=2, examples_per_shard=1, layers=[1], d_model=2)),
        lambda name: "promise" if name.endswith(".json") else "unproven",
    ),
}


class Case(NamedTuple):
    kind: str
    name: str
    at: int
    bit: int | None

    def harmed(self, data: bytes) -> bytes:
        if self.bit is None:
            return data[: self.at]
        return data[: self.at] + bytes([data[self.at] ^ 1 << self.bit]) + data[self.at + 1 :]


def files_of(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def cases_of(kind: str, *, cuts: bool) -> list[Case]:
    """Two bits of each byte that is proven, in turns; one of each other byte."""
    cases = []
    with KINDS[kind].make() as root:
        for name in files_of(root):
            size, proof = (root / name).stat().st_size, KINDS[kind].proof(name)
            for at in range(size):
                bits = [None] if cuts else range(at % 4, 8, 4) if proof == "proven" else [at % 8]
                cases += [Case(kind, name, at, bit) for bit in bits]
    return cases


Look = Callable[[Path, str], Report]


def looking(at: str | None = None) -> Look:
    """A look at the level that is asked for; of a control, at one that sees less."""
    return lambda root, level: validate(root, level=at or level, workers=1)


our_look, look_at_sizes, look_at_names = map(looking, (None, "complete", "present"))


def problem_of(case: Case, root: Path, look: Look) -> tuple[Any, str] | None:
    path, proof = root / case.name, KINDS[case.kind].proof(case.name)
    level = "valid" if case.bit is not None else "complete"
    try:
        report = look(root, level)
    except ShardproofError as error:
        is_named = str(path) in str(error) or proof == "promise"
        return None if is_named and proof != "unproven" else ("wrong class", f"{case}: {error}")
    except Exception as error:  # which is what is looked for
        return "wrong class", f"{case}: {type(error).__name__}: {error}"
    accused = {found.path for found in report.findings}
    if proof == "promise":
        return None
    if proof == "unproven" and case.bit is not None:
        return None if report.ok and path in report.unproven else ("lie", f"{case}: {report}")
    return None if accused == {path} else ("lie", f"{case}: {sorted(accused)}")


def attack(tally: Tally, cases: Iterable[Case], look: Look) -> None:
    with contextlib.ExitStack() as stack:
        roots = {kind: stack.enter_context(KINDS[kind].make()) for kind in KINDS}
        for case in cases:
            path = roots[case.kind] / case.name
            data = path.read_bytes()
            path.write_bytes(case.harmed(data))
            if found := problem_of(case, roots[case.kind], look):
                tally.harm(*found)
            path.write_bytes(data)
            tally.count()
        for root in roots.values():
            assert validate(root, level="valid").ok


def all_cases(*, cuts: bool) -> list[Case]:
    return [case for kind in KINDS for case in cases_of(kind, cuts=cuts)]


@pytest.mark.attack("a bit flipped")
def test_a_flipped_bit_accuses_its_file_alone(tally: Tally) -> None:
    attack(tally, tally.each(all_cases(cuts=False), 150), our_look)


@pytest.mark.attack("a file cut")
def test_a_cut_accuses_its_file_alone(tally: Tally) -> None:
    attack(tally, tally.each(all_cases(cuts=True), 80), our_look)


@pytest.mark.control("lie")
@pytest.mark.parametrize(("cuts", "look"), [(False, look_at_sizes), (True, look_at_names)])
def test_a_look_that_is_too_short_is_caught(cuts: bool, look: Look, tally: Tally) -> None:
    cases = [case for case in cases_of("receipts", cuts=cuts) if not case.name.endswith(".json")]
    attack(tally, tally.each(cases, 1), look)


FOREIGN = ("mds", "webdataset", "parquet", "safetensors", "hf-cache", "digests")
SOUND = {
    "saev": layouts(states=["ok", "linked", "leftover"]),
    "checkpoint": layouts(["checkpoint"], states=["ok"], metadata=st.just("ok")),
    **{name: layouts([name], max_shards=20, states=["ok"]) for name in ("receipts", *FOREIGN)},
}
STATES_DIGESTS = {"receipts", "checkpoint", "hf-cache", "digests"}


def judge_sound(kind: str, value: Layout, tally: Tally, look: Look = our_look) -> None:
    tally.count()
    with shards_dir(value) as path:
        if kind == "saev" and any(expected_findings(value, str(path), level="valid")):
            return
        for level in ("present", "complete", "valid"):
            try:
                report = look(path.parent if kind == "checkpoint" else path, level)
            except ShardproofError as error:
                tally.harm("lie", f"{value!r} at {level}: {error}")
                continue
            if not report.ok:
                tally.harm("lie", f"{value!r} at {level}: {report}")
            if level == "valid" and kind in STATES_DIGESTS and report.unproven:
                tally.harm("lie", f"{value!r}: {report.unproven} unproven")


@pytest.mark.attack("a sound directory")
@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_directory_is_not_accused(tally: Tally, kind: str) -> None:
    for value in drawn(SOUND[kind], 1200 if tally.is_exhaustive else 10, start=0):
        judge_sound(kind, value, tally)


def look_for_every_digest(root: Path, level: str) -> Report:
    """The control: a checker that calls broken what nobody has stated a digest of."""
    report = validate(root, level="valid", workers=1)
    if report.unproven:
        raise ShardproofError(f"{len(report.unproven)} files without a digest")
    return report


@pytest.mark.control("lie")
def test_who_accuses_a_sound_directory_is_caught(tally: Tally) -> None:
    judge_sound("saev", Layout(2), tally, look_for_every_digest)

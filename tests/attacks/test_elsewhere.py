"""What is expected of a directory stands elsewhere, and lies: refused, or judged by its bytes."""

import os
import random
import shutil
import subprocess
import unicodedata
from pathlib import Path
from typing import NamedTuple

import pytest

import shardproof
from shardproof import Level, Report
from tests.attacks.mutations import mutated
from tests.attacks.tally import Tally
from tests.attacks.test_hostile_manifests import files_of, one_of_each_format

ROW = "what is expected stands elsewhere"

NAMES = ("a.bin", "b/c.bin", "data-00000-of-00002.bin", "with space.bin")
OF_LISTS = ("SHA256SUMS", "MD5SUMS", "B2SUMS", "all.sha256", "list.txt")
EXPECTED = (shardproof.ShardproofError, OSError, ValueError)


class Case(NamedTuple):
    list_name: str
    seed: int


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for number, name in enumerate(NAMES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(random.Random(number).randbytes(100))
    return root


def program_of(list_name: str) -> str:
    return {"MD5SUMS": "md5sum", "B2SUMS": "b2sum"}.get(list_name, "sha256sum")


def list_of(root: Path, list_name: str) -> bytes:
    arguments = [program_of(list_name), *NAMES]
    return subprocess.run(arguments, cwd=root, check=True, capture_output=True).stdout


def is_denied(root: Path, list_path: Path) -> bool:
    arguments = [program_of(list_path.name), "--check", "--quiet", os.fspath(list_path)]
    done = subprocess.run(arguments, cwd=root, capture_output=True, env={"LC_ALL": "C"})
    return b": FAILED" in done.stdout


def compared(root: Path, against: Path, level: Level, tally: Tally, case: object) -> Report | None:
    """Look, and judge what is said; of an error of ours only that it is told in one piece."""
    tally.count()
    try:
        report = shardproof.validate(root, against=against, level=level, workers=1)
        said = str(report)
    except EXPECTED as error:
        report, said = None, str(error)
    except Exception as error:
        tally.harm("wrong class", f"{case}: {error!r}")
        return None
    if any(unicodedata.category(each) in {"Cc", "Cs", "Zl"} for each in said.replace("\n", "")):
        tally.harm("wrong class", f"{case}: {said[:200]!r}")
    if report is not None and report.ok and not report.n_files:
        tally.harm("lie", f"{case}: ok, and nothing was expected")
    return report


@pytest.mark.attack(ROW)
@pytest.mark.parametrize("list_name", OF_LISTS)
def test_a_list_that_was_spoiled_accuses_whom_its_program_accuses(list_name, root, tally) -> None:
    judge_spoiled_lists(list_name, root, tally)


def judge_spoiled_lists(list_name: str, root: Path, tally: Tally) -> None:
    sound, path = list_of(root, list_name), root.parent / list_name
    for case in tally.each([Case(list_name, seed) for seed in range(3_000)], 120):
        path.write_bytes(mutated(sound, case.seed))
        report = compared(root, path, "valid", tally, case)
        if report is not None and report.ok and is_denied(root, path):
            tally.harm("lie", f"{case}: {path.read_bytes()!r}")


@pytest.mark.attack(ROW)
@pytest.mark.parametrize("name", one_of_each_format())
def test_a_directory_whose_other_was_spoiled_is_not_called_the_same(name, tmp_path, tally) -> None:
    golden = one_of_each_format()[name]
    root, other = golden.copy(tmp_path / "one"), golden.copy(tmp_path / "other")
    files = files_of(golden)
    cases = [(file, seed) for seed in range(60) for file in files]
    for file, seed in tally.each(cases, 20):
        data = (golden.path / file).read_bytes()
        spoiled = mutated(data, seed)
        (other / file).write_bytes(spoiled)
        report = compared(root, other, "valid", tally, (name, file, seed))
        if report is not None and report.ok and spoiled != data and counts(file):
            tally.harm("lie", f"{name}: {file}, seed {seed}: other bytes, and ok")
        (other / file).write_bytes(data)


def counts(file: str) -> bool:
    """Hidden files count where they are a part of the format; whether, the spoiled one may hide."""
    return not any(part.startswith(".") for part in file.split("/"))


@pytest.mark.attack(ROW)
@pytest.mark.parametrize("harm", ["folder", "fifo", "link out", "loop", "nothing", "socket"])
def test_odd_things_in_the_other_directory_end_in_words(harm, root, tmp_path, tally) -> None:
    other = tmp_path / "other"
    levels: tuple[Level, ...] = ("present", "complete", "valid")
    for name, level in ((name, level) for name in NAMES for level in levels):
        shutil.copytree(root, other)
        (other / name).unlink()
        make_odd(harm, other / name)
        report = compared(root, other, level, tally, (harm, name, level))
        if report is not None and report.ok and harm in {"fifo", "loop", "socket"}:
            tally.harm("lie", f"{harm} as {name}: ok")
        shutil.rmtree(other)


def make_odd(harm: str, path: Path) -> None:
    if harm == "folder":
        path.mkdir()
    elif harm == "fifo":
        os.mkfifo(path)
    elif harm == "socket":
        os.mknod(path, 0o140644)
    elif harm != "nothing":
        path.symlink_to(path if harm == "loop" else "/etc")


@pytest.mark.control("lie")
def test_who_believes_names_and_no_digests_is_caught(root, tally, monkeypatch) -> None:
    def naive(root: Path, *, against: Path, **_: object) -> object:
        names = [line[66:] for line in against.read_text(errors="replace").splitlines()]
        there = [name for name in names if "\0" not in name and (root / name).exists()]
        return Report(root, "lists", "valid", len(there), (), (), 1)

    monkeypatch.setattr(shardproof, "validate", naive)
    judge_spoiled_lists("SHA256SUMS", root, tally)

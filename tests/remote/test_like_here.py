"""Of a directory in a bucket a check says what it says of the same one here, format by format."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof import Level, ManifestError, ShardValidationError, formats, seal, validate
from shardproof.report import Report
from tests.formats.looking import format_of, sampled
from tests.goldens import GOLDENS, Golden
from tests.helpers.in_memory import in_memory

ONLY_HERE = {"dvc", "hf-cache"}
THERE = [each for each in GOLDENS if format_of(each) not in ONLY_HERE]


def cut_to(share: float) -> Callable[[Path], object]:
    return lambda path: os.truncate(path, int(path.stat().st_size * share))


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


FAULTS: dict[str, Callable[[Path], object]] = {
    "whole": lambda _: None,
    "missing": os.unlink,
    "empty": cut_to(0),
    "cut": cut_to(0.6),
    "changed": changed,
    "under another name": lambda path: path.rename(f"{path}.part"),
}


def said(look: Callable[[], Report], root: str) -> object:
    try:
        report = look()
    except ManifestError as error:
        return type(error).__name__  # an empty directory is no directory there
    found = [
        (each.kind, os.fspath(each.path).removeprefix(root), each.expected, each.found, each.errno)
        for each in report.findings
    ]
    counts = report.format, report.level, report.n_files, report.n_proven, report.n_agreed
    return counts, found, [os.fspath(path).removeprefix(root) for path in report.unproven]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["present", "complete", "valid"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("golden", sampled(THERE))
def test_it_is_judged_as_here(golden: Golden, fault: str, level: Level, tmp_path: Path) -> None:
    path = golden.copy(tmp_path)
    names = [file.name for file in formats.detect(str(path)).read_manifest(str(path)).files]
    for name in dict.fromkeys([names[0], names[-1]]):
        if (path / name).stat().st_size:
            FAULTS[fault](path / name)

    with in_memory(path) as address:
        there = said(lambda: validate(address, level=level, strict=True), address)

    here = said(lambda: validate(path, level=level, strict=True), os.fspath(path))
    assert there == here


@pytest.mark.parametrize("name", ["dvc", "dvc-pipeline", "hf-cache"])
def test_what_can_not_be_read_there_is_refused_by_name(name: str, tmp_path: Path) -> None:
    [golden] = [each for each in GOLDENS if each.name == name]
    form = format_of(golden)
    with (
        in_memory(golden.copy(tmp_path)) as address,
        pytest.raises(ManifestError, match=f"format {form} can't be checked in a bucket: ."),
    ):
        validate(address, format=form)


def test_twins_are_told_of_the_directory(tmp_path: Path) -> None:
    for name in ("\u00e9.bin", "e\u0301.bin", "x.bin", "y.bin"):
        (tmp_path / name).write_bytes(b"a")

    def refused(path: str) -> Report:
        with pytest.raises(ShardValidationError) as caught:
            seal(path)
        return caught.value.report

    here = said(lambda: refused(str(tmp_path)), str(tmp_path))
    with in_memory(tmp_path) as address:
        assert said(lambda: refused(address), address) == here


def test_a_wrong_line_of_a_list_is_told_of_that_list(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"a")
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  a.bin\nextra\n")
    here = said(lambda: validate(tmp_path), str(tmp_path))
    with in_memory(tmp_path) as address:
        assert said(lambda: validate(address), address) == here

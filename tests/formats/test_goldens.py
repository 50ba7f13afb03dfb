"""What the real libraries wrote has no finding; docs/formats.md says what damage to it shows."""

import os
from pathlib import Path

import pytest

from shardproof import formats, repair, seal, validate
from tests.formats import damage_table
from tests.goldens import GOLDENS, Golden, goldens
from tests.helpers import ROOT

FRESH = os.environ.get("FRESH_GOLDENS")
"""Where `tox -e goldens` has written them anew."""

ALL = goldens(Path(FRESH)) if FRESH else GOLDENS


@pytest.fixture(params=ALL, ids=[golden.name for golden in ALL])
def golden(request) -> Golden:
    return request.param


@pytest.mark.parametrize("level", ["present", "complete", "valid"])
def test_it_has_no_finding(golden: Golden, level: str) -> None:
    report = validate(golden.path, level=level, strict=True)
    assert report.ok, str(report)
    assert report.n_files


def test_there_is_one_that_a_library_wrote_of_each_format_that_can_be_written() -> None:
    written = {formats.detect(str(golden.path)).name for golden in GOLDENS}
    ours = {"saev", "receipts", "checkpoint"}
    assert written == {*formats.names()} - ours


LISTS = ("digests", "model-signing")  # which know of every file that is there
UNLISTED = [each for each in ALL if not each.name.startswith(LISTS)]


@pytest.mark.parametrize("golden", UNLISTED, ids=lambda golden: golden.name)
def test_it_is_sealed_and_then_every_byte_is_proven(golden: Golden, tmp_path: Path) -> None:
    path = golden.copy(tmp_path)
    sealed = seal(path)
    report = validate(path, level="valid")
    assert (report.ok, report.unproven) == (True, ())
    assert report.n_proven >= sealed.n_files


def test_what_is_gone_or_changed_is_repaired(golden: Golden, tmp_path: Path) -> None:
    path = golden.copy(tmp_path)
    form = formats.detect(str(path)).name
    promise = formats.get(form).read_manifest(str(path))
    name = promise.files[-1].name
    source, target = golden.path, (promise.root / name).resolve()
    whole = target.read_bytes()
    if form == "hf-cache":
        source = next((golden.path / "snapshots").iterdir())
    target.write_bytes(b"")
    # An only shard that is a format's whole promise promises nothing any more.
    against = source if form in {"llmc", "megatron"} else None
    done = repair(path, str(source), against=against)
    assert (done.ok, done.repaired) == (True, (name,)), done.failed
    assert target.read_bytes() == whole
    assert validate(path, level="valid", strict=True).ok


def test_it_is_as_it_is_against_itself(golden: Golden, tmp_path: Path) -> None:
    path = golden.copy(tmp_path)
    against = golden.path
    if formats.detect(str(path)).name == "hf-cache":
        path, against = (next((each / "snapshots").iterdir()) for each in (path, against))
    report = validate(path, level="valid", against=against)
    assert report.ok, str(report)
    assert report.n_proven == report.n_files


@pytest.mark.once
def test_the_page_is_of_this_state() -> None:
    """`python -m tests.formats.damage_table docs/formats.md` writes it anew."""
    assert (ROOT / "docs/formats.md").read_text() == damage_table.page()

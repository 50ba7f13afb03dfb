"""What the real libraries wrote has no finding; docs/formats.md says what damage to it shows."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from shardproof import FindingKind, ManifestError, formats, repair, seal, validate
from shardproof.testing import without_root_override
from tests.formats import damage_table
from tests.formats.looking import of_golden, sampled
from tests.goldens import GOLDENS, Golden, goldens
from tests.helpers import ROOT, commands

FRESH = os.environ.get("FRESH_GOLDENS")
"""Where `tox -e goldens` has written them anew."""

ALL = goldens(Path(FRESH)) if FRESH else GOLDENS
SAMPLE = {"hf-cache", "llmc", "mds-hashed", "model-signing", "safetensors"}
"""Of these every way is tried by the gate, too: of copies, of lists, with a source and without."""


@pytest.fixture(params=sampled(ALL, [golden.name for golden in ALL] if FRESH else SAMPLE))
def golden(request) -> Golden:
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize("golden", ALL, ids=lambda golden: golden.name)
def test_it_has_no_finding(golden: Golden) -> None:
    report = validate(golden.path, level="valid", strict=True)  # which asks what others ask, too
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


class Broken(NamedTuple):
    path: Path
    name: str
    source: Path
    against: Path | None
    files: Path


@pytest.fixture
def whole(golden: Golden, tmp_path: Path) -> Broken:
    path = files = golden.copy(tmp_path)
    form = formats.detect(str(path)).name
    promise = formats.get(form).read_manifest(str(path))
    name, source = promise.files[-1].name, golden.path
    if form == "hf-cache":
        files, source = (next((each / "snapshots").iterdir()) for each in (path, source))
    return Broken(path, name, source, source if form in {"llmc", "megatron"} else None, files)


@pytest.fixture
def broken(whole: Broken) -> Broken:
    (whole.path / whole.name).resolve().write_bytes(b"")
    return whole


@pytest.mark.slow
def test_each_file_that_is_missing_comes_back(golden: Golden, tmp_path: Path) -> None:
    """Whatever it is to its format: an index or a list is none of the shards."""
    right = {each for each in golden.path.rglob("*") if each.is_file()}
    for place, file in enumerate(sorted(right)):
        path = golden.copy(tmp_path / str(place))
        gone = path / file.relative_to(golden.path)
        gone.unlink()
        with contextlib.suppress(ManifestError):  # it was the promise
            found = {each.path: each.kind for each in validate(path, level="valid").findings}
            if found.get(gone) is FindingKind.MISSING:
                done = repair(path, str(golden.path))
                assert (done.ok, done.failed) == (True, {}), (gone, str(done.report))
                assert gone.read_bytes() == file.read_bytes()


@pytest.mark.parametrize("name", ["arrow-splits", "safetensors-model"])
def test_a_list_that_comes_cut_is_not_taken(name: str, tmp_path: Path) -> None:
    path, source = of_golden(name, tmp_path / "path"), of_golden(name, tmp_path / "source")
    index = "test/state.json" if name == "arrow-splits" else "model.safetensors.index.json"
    (path / index).unlink()
    os.truncate(source / index, (source / index).stat().st_size // 2)
    done = repair(path, str(source))
    assert (done.ok, done.repaired, [*done.failed]) == (False, (), [index])
    assert not (path / index).exists()


@pytest.mark.slow
@pytest.mark.parametrize("n_bytes", [24, 1])
def test_bytes_that_changed_are_repaired_where_they_are_seen(whole: Broken, n_bytes: int) -> None:
    """The size is as it was, and mostly nothing but the structure of the file tells."""
    file = (whole.path / whole.name).resolve()
    data = file.read_bytes()
    changed = bytes(byte ^ 0xFF for byte in data[:n_bytes]) + data[n_bytes:]
    file.write_bytes(changed)
    is_seen = not validate(whole.path, level="valid", against=whole.against).ok
    done = repair(whole.path, str(whole.source), against=whole.against)
    assert (done.ok, done.failed) == (True, {})
    assert file.read_bytes() == (data if is_seen else changed)
    assert not list(whole.path.rglob("*.bad-*"))


@pytest.mark.slow
def test_all_verbs_in_the_shell(golden: Golden, broken: Broken) -> None:
    told: list[str] = []

    def run(command: str, path: Path, *options: object) -> int:
        done = commands.run(command, path, *options)
        told.append(done.output)
        return done.exit_code

    path, source = broken.path, broken.source
    promised = ["--against", broken.against] if broken.against else []
    assert run("validate", path, "--level", "valid", *promised) == 1, told
    assert run("repair", path, "--from", source, "--dry-run", *promised) == 1, told
    assert told[-1].startswith(f"{broken.name}\t")
    assert run("repair", path, "--from", source, *promised) == 0, told
    assert run("validate", path, "--level", "valid", "--strict") == 0, told
    assert run("validate", broken.files, "--level", "valid", "--against", source) == 0, told
    if not golden.name.startswith(LISTS):
        assert run("seal", path) == 0, told
    assert run("validate", path, "--level", "valid", "--require-digests") == 0, told


@pytest.mark.slow
def test_all_verbs_in_pytest(golden: Golden, broken: Broken, pytester: pytest.Pytester) -> None:
    """Tests may repair a directory, and seal it, before the run looks at it."""
    pytester.makeini("[pytest]")
    args = ["-p", "no:cacheprovider", "--validate-shards", "--shards-level=valid"]
    named, other = (f"--shards-dir={path}" for path in (broken.path, broken.files))
    promised = [f"--shards-against={broken.against}"] if broken.against else []
    pytester.runpytest_inprocess(*args, named, *promised).assert_outcomes(failed=1)
    against = broken.against and str(broken.against)
    seals = "" if golden.name.startswith(LISTS) else f"shardproof.seal({str(broken.path)!r})"
    pytester.makepyfile(f"""
        import shardproof

        def test_it_is_mended():
            path, source = {str(broken.path)!r}, {str(broken.source)!r}
            assert shardproof.repair(path, source, against={against!r}).ok
            {seals}
            assert not shardproof.validate(path, level="valid").unproven
    """)
    pytester.runpytest_inprocess(*args, named).assert_outcomes(passed=2)
    compared = f"--shards-against={broken.source}"
    pytester.runpytest_inprocess(*args, other, compared, "-m", "shards").assert_outcomes(
        passed=1, deselected=1
    )


PAGE = (ROOT / "docs/formats.md").read_text()


@pytest.mark.exhaustive
def test_the_page_is_of_this_state() -> None:
    """`python -m tests.formats.damage_table docs/formats.md` writes it anew."""
    assert damage_table.page() == PAGE


@pytest.mark.slow
def test_rows_of_the_page_are_of_this_state(golden: Golden, tmp_path: Path) -> None:
    with without_root_override():
        cells = damage_table.row(golden, tmp_path)
    assert f"| {' | '.join(cells)} |" in PAGE.splitlines()


def test_the_page_says_of_each_format_what_the_format_does() -> None:
    assert PAGE.startswith(damage_table.page_of([]).partition("detected all cases.")[0])


_NOTES = [".cache/huggingface/trees/*.json", ".cache/huggingface/download/**/*.metadata"]
HIDDEN = {
    "energon": [".nv-meta/*"],
    "hf-local-dir": _NOTES,
    "hf-local-dir-dataset": _NOTES,
    "dvc": [".dvc/config", ".dvcignore"],
    "dvc-pipeline": [".dvc/config", ".dvcignore"],
    "torch-dcp": [".metadata"],
}
"""Of hidden files, those that are part of their format."""

NEVER = [
    *(".cache/huggingface/.gitignore", ".cache/huggingface/trees/._x.json"),
    *(f".cache/huggingface/download/{name}" for name in ("a.lock", "b.incomplete")),
    *(".dvc/config.local", ".dvc/tmp/lock", ".dvc/cache/files/md5/00/11"),
    *(".nv-meta/.DS_Store", ".git/config", ".env"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", HIDDEN)
def test_another_directory_promises_the_hidden_parts_of_its_format(name, tmp_path: Path) -> None:
    other, path = of_golden(name, tmp_path / "other"), of_golden(name, tmp_path)
    parts = sorted(part for pattern in HIDDEN[name] for part in other.glob(pattern))
    hidden = [part.relative_to(other).as_posix() for part in parts]
    assert len(hidden) >= len(HIDDEN[name])
    for noise in NEVER:
        folder = noise.partition("/")[0]
        if (other / folder).is_dir() or folder in {".env", ".git"}:
            (other / noise).parent.mkdir(parents=True, exist_ok=True)
            (other / noise).write_bytes(b"noise")
    assert validate(path, level="valid", against=other).ok
    for each in hidden:
        (path / each).unlink()
    found = validate(path, against=other).findings
    assert [finding.path.relative_to(path).as_posix() for finding in found] == hidden
    (tmp_path / "empty").mkdir()
    done = repair(tmp_path / "empty", str(other), against=str(other))
    assert done.ok, done.failed
    made = [file for file in (tmp_path / "empty").rglob("*") if file.is_file()]
    names = [file.relative_to(tmp_path / "empty").as_posix() for file in made]
    assert sorted(name for name in names if name.startswith(".")) == sorted(hidden)

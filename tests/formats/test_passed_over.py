"""What is never a shard, whatever the format; and what a download leaves beside one."""

import shutil
from pathlib import Path

import pytest

from shardproof import formats, seal, validate
from tests.formats.looking import of_golden, sampled
from tests.goldens import GOLDENS, Golden, golden

ALL_THERE_IS = ("model-signing", "bagit")  # by their own laws, whatever lies there is told
SOME = [golden for golden in GOLDENS if not golden.name.startswith(ALL_THERE_IS)]

APPLE_DOUBLE = b"\0\x05\x16\x07\0\x02\0\0Mac OS X"
OF_DESKTOPS = ["._{}", "._again-{}", "Thumbs.db", "desktop.ini", ".DS_Store", "@eaDir/{}"]
OTHERS = [".{}.Xy12aB", ".nfs000000000001", "again-{}.part", "again-{}.crdownload", "{}.x.aria2"]
OTHERS += ["again-{}.incomplete", "again-{}.PART", "lost+found/{}"]


def promised_in(path: Path) -> list[Path]:
    manifest = formats.detect(str(path)).read_manifest(str(path))
    return [path / file.name for file in manifest.files]


@pytest.mark.slow
@pytest.mark.parametrize("golden", sampled(SOME))
def test_nothing_is_expected_for_the_sake_of_such_names(golden: Golden, tmp_path: Path) -> None:
    path = golden.copy(tmp_path)
    files, before = promised_in(path), validate(path, level="valid")
    for file in [each for each in path.rglob("*") if each.is_file() and not each.is_symlink()]:
        file.with_name(f"._{file.name}").write_bytes(APPLE_DOUBLE)  # a manifest's and a list's, too
    names = OF_DESKTOPS if golden.name.startswith("hf-") else OF_DESKTOPS + OTHERS
    for junk in [file.parent / name.format(file.name) for file in files for name in names]:
        junk.parent.mkdir(exist_ok=True)
        junk.write_bytes(APPLE_DOUBLE)
    after = validate(path, level="valid")
    assert promised_in(path) == files
    assert after == before, str(after)


def test_a_list_that_names_them_is_believed(tmp_path: Path) -> None:
    names = ["a.part", "Thumbs.db", "x.aria2", "x"]
    for name in names:
        (tmp_path / name).write_bytes(b"text")
    digest = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"
    (tmp_path / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name in names))
    report = validate(tmp_path, level="valid")
    assert (report.ok, report.n_proven) == (True, 4), str(report)
    (tmp_path / "a.part").unlink()
    assert [each.path.name for each in validate(tmp_path).findings] == ["a.part"]


def test_a_seal_of_any_files_leaves_them_out(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "a.csv").write_bytes(b"1,2")
    for name in ("Thumbs.db", "c.bin.part", "d.bin.aria2", "lost+found/x", "._a.csv"):
        (tmp_path / name).write_bytes(b"x")
    assert seal(tmp_path).added == ("a.csv",)


def test_no_directory_is_looked_for_in_what_a_job_has_not_committed(tmp_path: Path) -> None:
    for name in ("ours", "_temporary/0/task_1", "@eaDir/x", "lost+found"):
        shutil.copytree(golden("parquet-plain").path, tmp_path / name)
    found = [Path(found).name for found in formats.find(tmp_path)]
    assert found == [tmp_path.name, "ours"]  # that the job has not ended is told of the first


@pytest.mark.parametrize("mark", [".part", ".crdownload", ".aria2", ".incomplete"])
@pytest.mark.parametrize("name", ["parquet-plain", "mds-raw", "digests"])
def test_the_mark_of_a_download_is_a_finding_beside_its_file(
    name: str, mark: str, tmp_path: Path
) -> None:
    path = of_golden(name, tmp_path)
    first = promised_in(path)[0]
    first.with_name(first.name + mark).write_bytes(b"\0\1")
    assert validate(path).ok
    [found] = validate(path, level="complete").findings
    assert (found.path, found.kind) == (first, "structure")
    assert first.name + mark in found.found


def test_the_folder_of_a_file_may_lead_nowhere(tmp_path: Path) -> None:
    """Whether a mark lies there is then not asked: that the file is not there is the finding."""
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "SHA256SUMS").write_text("00" * 32 + "  round/x\n")
    report = validate(tmp_path, level="complete")
    assert [each.path.name for each in report.findings] == ["x"]


@pytest.mark.parametrize("name", ["._SHA256SUMS", "._MD5SUMS", ".SHA256SUMS", "._x.md5"])
def test_a_seal_passes_over_what_only_has_the_name_of_a_list(name: str, tmp_path: Path) -> None:
    path = of_golden("parquet-plain", tmp_path)
    (path / name).write_bytes(APPLE_DOUBLE)
    n_files = len(promised_in(path))
    assert len(seal(path).added) == n_files
    seal(path, update=True)
    assert validate(path, level="valid").ok

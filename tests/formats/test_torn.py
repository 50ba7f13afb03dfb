"""A directory whose manifest is torn, or gone, is never passed over in a tree."""

import contextlib
import errno
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from shardproof import formats, seal, validate
from shardproof.errors import ManifestError
from shardproof.testing import without_root_override
from shardproof.testing.faults import FileSystemFaults
from tests.formats.looking import of_golden, sampled
from tests.goldens import GOLDENS, Golden
from tests.helpers import commands


def replaced_by(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def become(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


def make_socket(path: Path) -> None:
    """Bind one; its path may be longer than a socket's address, so by its name alone."""
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


NOT_REGULAR: dict[str, Callable[[Path], object]] = {
    "a directory": become(Path.mkdir),
    "a FIFO": become(os.mkfifo),
    "a socket": become(make_socket),
    "a dangling link": become(lambda path: path.symlink_to("nowhere")),
}
HARMS: dict[str, Callable[[Path], object]] = {
    "empty": replaced_by(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "garbage": replaced_by(b"garbage, and no manifest"),
    "binary": replaced_by(bytes(range(256)) * 4),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a page": replaced_by(b"<!DOCTYPE html>\n<html><title>layouts: 404</title></html>\n"),
    **NOT_REGULAR,
}

SAMPLE = {"empty", "a FIFO"}


def some_of(harms: Iterable[str]) -> list[object]:
    """A parameter each, all but a sample for `tox -e exhaustive`."""
    rest = pytest.mark.exhaustive
    return [pytest.param(harm, marks=() if harm in SAMPLE else rest) for harm in harms]


def run(*args: object) -> tuple[int, str]:
    done = commands.run("validate", *args)
    return done.exit_code, done.output


def listed_in(golden: Golden) -> tuple[str, list[str]]:
    manifest = formats.detect(str(golden.path)).read_manifest(str(golden.path))
    names = [file.name for file in manifest.files]
    name = os.path.relpath(manifest.path, golden.path)
    is_one = manifest.path.is_file() and name not in names
    return (name if is_one else ""), names


LISTED = [golden for golden in GOLDENS if listed_in(golden)[0]]

MAY_BE_FOREIGN = {
    ".metadata": {*HARMS},
    "_metadata": {"garbage", "binary", "zeros", "a page", "a directory"},
}
"""What may be any program's, if no shards lie beside it."""


@pytest.fixture
def tree(make_shards_dir, tmp_path: Path) -> Path:
    shutil.copytree(make_shards_dir(2), tmp_path / "tree/sound")
    return tmp_path / "tree"


@pytest.mark.slow
@pytest.mark.parametrize("golden", sampled(LISTED))
@pytest.mark.parametrize("are_shards_there", [True, False])
def test_a_torn_manifest_is_never_passed_over(golden, tree: Path, are_shards_there: bool) -> None:
    name, shards = listed_in(golden)
    passed_over = []
    for harm, do in HARMS.items():
        path = golden.copy(tree)
        do(path / name)
        for shard in () if are_shards_there else shards:
            (path / shard).unlink()
        codes = run("-r", tree)[0], run(path)[0]
        is_foreign = harm in MAY_BE_FOREIGN.get(name, ()) and not are_shards_there
        # Of half a list, and beside parquet files without theirs, the others are told.
        is_partly = (name == "_metadata" and harm not in NOT_REGULAR) or harm == "half"
        if codes != (2, 2) and not is_foreign and not (is_partly and codes == (1, 1)):
            passed_over.append((harm, codes))
        shutil.rmtree(path)
    assert passed_over == []


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["half", "a FIFO"])
def test_a_run_of_pytest_passes_over_no_torn_manifest(harm: str, tmp_path, pytester) -> None:
    for golden in LISTED:
        HARMS[harm](golden.copy(tmp_path) / listed_in(golden)[0])
    asked = ("--validate-shards", "--shards-recursive", f"--shards-dir={tmp_path}")
    pytester.makeini("[pytest]")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *asked)
    # A list of LeRobot that can't be read tells not that the four folders of parquet below are its.
    result.assert_outcomes(failed=len(LISTED), passed=0 if harm == "half" else 4)


DVC_FILES = ["a.bin.dvc", "data.dvc", "dvc.lock", "dvc.yaml"]


@pytest.mark.slow
@pytest.mark.parametrize("name", DVC_FILES)
@pytest.mark.parametrize("harm", some_of(harm for harm in HARMS if harm != "half"))
def test_a_torn_file_of_dvc_beside_another_is_never_passed_over(name, harm, tree: Path) -> None:
    path = of_golden("dvc", tree)
    shutil.copytree(of_golden("dvc-pipeline", tree.parent), path, dirs_exist_ok=True)
    assert run(path)[0] == 1  # one file of two promises
    HARMS[harm](path / name)
    assert (run("-r", tree)[0], run(path)[0]) == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shards.json", "metadata.json", "plan.json"])
@pytest.mark.parametrize("harm", some_of(NOT_REGULAR))
def test_of_our_own_formats_no_manifest_that_is_no_file_is_passed_over(
    name: str, harm: str, tree: Path, make_receipts_dir, pytester
) -> None:
    path = make_receipts_dir(2) if name == "plan.json" else tree / "sound"
    path = shutil.copytree(path, pytester.path / "tests/data")
    NOT_REGULAR[harm](path / name)
    assert (run("-r", path.parent)[0], run(path)[0]) == (2, 2)
    pytester.makeini("[pytest]")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--validate-shards", "tests")
    result.assert_outcomes(failed=1)


def test_a_folder_of_energon_that_is_none_can_not_be_read(tree: Path) -> None:
    path = of_golden("energon", tree)
    place = path / ".nv-meta"
    for harm in HARMS.values():
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        place.touch()
        harm(place)
        assert (run("-r", tree)[0], run(path)[0]) == (2, 2)


@pytest.mark.parametrize(
    ("name", "lost", "found"),
    [
        ("mds-zstd", "index.json", "2 files shard.*.mds.zstd"),
        ("mds-jsonl", "index.json", "4 files shard.*.json"),
        ("litdata-classic", "index.json", "files chunk-*-*.bin"),
        ("arrow", "state.json", "3 files data-*-of-*.arrow"),
    ],
)
def test_what_is_there_is_said_where_the_manifest_is_not(name, lost, found, tree: Path) -> None:
    path = of_golden(name, tree)
    states = {
        "is missing": Path.unlink,
        "says nothing of them": replaced_by(b'{"title": "a page"}'),
        "has 0 bytes": replaced_by(b""),
    }
    if name == "arrow":  # of whose state another file tells, and which is not needed
        (path / "dataset_info.json").unlink()
        del states["is missing"]
    for state, harm in states.items():
        harm(path / lost)
        code, text = run("-r", tree)
        assert code == 2
        assert f"'{path / lost}': found " in text
        assert f"{found}, but {lost} {state}: restore it" in text
        with pytest.raises(ManifestError):  # nobody blesses it as any files
            seal(path)


def test_digests_of_shards_do_not_hide_that_their_manifest_is_gone(tree: Path) -> None:
    path = of_golden("mds-raw", tree)
    seal(path)
    (path / "index.json").unlink()
    assert run("--level", "valid", path)[0] == 2
    assert validate(path, level="valid", format="digests").ok


@pytest.mark.parametrize("name", ["index.json", "state.json", "croissant.json", "plan.json"])
@pytest.mark.parametrize("text", ['{"title": "a page"}', "[]", '{"loss": NaN}', '"a", "a"'])
def test_sound_json_of_another_program_is_passed_over(tree: Path, name: str, text: str) -> None:
    (tree / "page").mkdir()
    (tree / "page" / name).write_text(text)
    assert run("-r", tree)[0] == (0 if text != '"a", "a"' else 2)


def test_a_plan_whose_receipts_are_gone_is_one(tree: Path, make_receipts_dir) -> None:
    path = shutil.copytree(make_receipts_dir(2), tree / "plan")
    shutil.rmtree(path / "receipts")
    assert (run("-r", tree)[0], run(path)[0]) == (2, 2)


def test_a_folder_that_can_not_be_looked_at_hides_no_other(tree: Path, make_shards_dir) -> None:
    broken = shutil.copytree(make_shards_dir(2), tree / "z-broken")
    (broken / "acts000001.bin").unlink()
    locked = tree / "a-locked"
    locked.mkdir(mode=0)
    with without_root_override():
        code, text = run("-r", tree)
    assert (code, str(locked) in text, "acts000001.bin" in text) == (2, True, True)
    locked.rmdir()
    (tree / "a-failing").mkdir()
    with FileSystemFaults(tree) as fs:
        fs.fail("scandir", errno.EIO, match="a-failing", times=None)
        code, text = run("-r", tree)
    assert (code, str(tree / "a-failing") in text, "acts000001.bin" in text) == (3, True, True)


def test_a_torn_manifest_above_hides_nothing_below(tree: Path) -> None:
    (tree / "index.json").write_text("")
    (tree / "sound/acts000001.bin").unlink()
    code, text = run("-r", tree)
    assert (code, "acts000001.bin" in text) == (2, True)


def test_the_end_of_a_tree_says_how_many_there_were(tree: Path, make_shards_dir) -> None:
    for name in ("broken", "torn", "torn-too"):
        shutil.copytree(make_shards_dir(2), tree / name)
    (tree / "broken/acts000001.bin").unlink()
    (tree / "torn/shards.json").write_text("[")
    (tree / "torn-too/metadata.json").write_text("[")
    counts = "4 directories: 1 whole, 1 damaged, 2 unreadable; 4 files, "
    found = " s; 1 finding: 1 missing\n"
    assert f"\n{counts}" in run("-r", tree)[1]
    assert run("-r", tree)[1].endswith(found)
    assert counts not in run("-r", "-q", tree)[1]
    done = commands.run("validate", "-r", "--json", tree)
    assert (len(json.loads(done.stdout)), done.stderr.endswith(found)) == (4, True)
    text = run("-r", tree / "sound")[1]
    assert "\n1 directory: 1 whole, 0 damaged, 0 unreadable; 2 files, " in text
    assert text.endswith("; no findings\n")

"""A directory whose manifest is torn, or gone, is never passed over in a tree."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardproof import formats, seal, validate
from shardproof.cli import app
from shardproof.errors import ManifestError
from shardproof.testing import without_root_override
from shardproof.testing.faults import FileSystemFaults
from tests.goldens import GOLDENS, Golden


def replaced_by(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def become_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


HARMS: dict[str, Callable[[Path], object]] = {
    "empty": replaced_by(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "garbage": replaced_by(b"garbage, and no manifest"),
    "binary": replaced_by(bytes(range(256)) * 4),
    "a directory": become_a_directory,
}


def run(*args: object) -> tuple[int, str]:
    done = CliRunner().invoke(app.app, ["validate", *map(str, args)], prog_name="shardproof")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def listed_in(golden: Golden) -> tuple[str, list[str]]:
    """Return the manifest file of a golden, if no shard is one, and what it promises."""
    manifest = formats.detect(str(golden.path)).read_manifest(str(golden.path))
    names = [file.name for file in manifest.files]
    name = os.path.relpath(manifest.path, golden.path)
    is_one = manifest.path.is_file() and name not in names
    return (name if is_one else ""), names


LISTED = [golden for golden in GOLDENS if listed_in(golden)[0] and golden.name[:3] != "dvc"]
"""Not DVC's: each file has one of its own, and others may lie beside one that tracks nothing."""

MAY_BE_FOREIGN = {
    ".metadata": {*HARMS},
    "_metadata": {"garbage", "binary", "a directory"},
}
"""What may be any program's, if no shards lie beside it; as a folder, `_metadata` always is."""


@pytest.fixture
def tree(make_shards_dir, tmp_path: Path) -> Path:
    """A tree with a directory that is sound."""
    shutil.copytree(make_shards_dir(2), tmp_path / "tree/sound")
    return tmp_path / "tree"


@pytest.mark.parametrize("golden", LISTED, ids=lambda golden: golden.name)
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
        is_foreign |= (name, harm) == ("_metadata", "a directory")
        # Of half a list, and beside parquet files without theirs, the others are told.
        is_partly = name == "_metadata" or harm == "half"
        if codes != (2, 2) and not is_foreign and not (is_partly and codes == (1, 1)):
            passed_over.append((harm, codes))
        shutil.rmtree(path)
    assert passed_over == []


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
    golden = next(golden for golden in GOLDENS if golden.name == name)
    path = golden.copy(tree)
    states = {
        "is missing": (path / lost).unlink,
        "says nothing of them": lambda: (path / lost).write_text('{"title": "a page"}'),
        "has 0 bytes": (path / lost).write_bytes,
    }
    for state, harm in states.items():
        harm(*([b""] if state == "has 0 bytes" else []))
        if name == "arrow":  # of whose state another file tells
            (path / "dataset_info.json").unlink(missing_ok=True)
        code, text = run("-r", tree)
        assert code == 2
        assert f"'{path / lost}': found " in text
        assert f"{found}, but {lost} {state}: restore it" in text
        with pytest.raises(ManifestError):  # nobody blesses it as any files
            seal(path)


def test_digests_of_shards_do_not_hide_that_their_manifest_is_gone(tree: Path) -> None:
    path = next(golden for golden in GOLDENS if golden.name == "mds-raw").copy(tree)
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
    assert "2 directories: 0 whole, 1 damaged, 1 unreadable" in text


def test_the_end_of_a_tree_says_how_many_there_were(tree: Path, make_shards_dir) -> None:
    for name in ("broken", "torn", "torn-too"):
        shutil.copytree(make_shards_dir(2), tree / name)
    (tree / "broken/acts000001.bin").unlink()
    (tree / "torn/shards.json").write_text("[")
    (tree / "torn-too/metadata.json").write_text("[")
    counts = "4 directories: 1 whole, 1 damaged, 2 unreadable\n"
    assert run("-r", tree)[1].endswith(f"\n{counts}")
    assert counts not in run("-r", "-q", tree)[1]
    done = CliRunner().invoke(app.app, ["validate", "-r", "--json", str(tree)])
    assert (len(json.loads(done.stdout)), done.stderr.endswith(counts)) == (4, True)
    assert run("-r", tree / "sound")[1].endswith(
        "\n1 directory: 1 whole, 0 damaged, 0 unreadable\n"
    )

"""What is said of a directory that no format recognizes: what it is near to, and what is below."""

import fnmatch
import os
import shutil
from pathlib import Path

import pytest

from shardproof import ManifestError, ManifestNotFoundError, formats, seal, validate
from shardproof.formats import _registry
from tests.goldens import GOLDENS, Golden
from tests.helpers.commands import run


def lists_of(golden: Golden) -> list[str]:
    """What lists the shards of a golden; nothing where the shards themselves do."""
    path = str(golden.path)
    form = formats.detect(path)
    expected = {file.name for file in form.read_manifest(path).files}
    lists = (*form.marks, form.manifest_file, *form.further_parts)
    return [
        name
        for here, folders, names in os.walk(path)
        for name in (os.path.relpath(os.path.join(here, each), path) for each in folders + names)
        if any(fnmatch.fnmatchcase(name, each) for each in lists) and name not in expected
    ]


ANY_FILES = {"croissant", "digests", "model-signing", "bagit", "dvc"}
"""Formats that list any files: without their list nothing speaks for them."""

OTHERS = {"energon": "webdataset", "wids": "webdataset", "hf-local-dir": "safetensors"}
OTHERS |= {"arrow": "arrow-ipc", "litdata-parquet": "parquet"}
"""What is left is sound as this."""


def verdict(path: Path) -> str | ManifestError:
    """Which format a directory is of, or the error that says why of none."""
    try:
        return formats.detect(str(path)).name
    except ManifestError as error:
        return error


@pytest.mark.parametrize("golden", [*filter(lists_of, GOLDENS)], ids=lambda golden: golden.name)
def test_without_its_list_the_nearest_formats_name_the_right_one(golden, tmp_path: Path) -> None:
    path = golden.copy(tmp_path)
    form = formats.detect(str(path))
    for name in lists_of(golden):
        place = path / name
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    found = verdict(path)
    if isinstance(found, str):
        assert found in {form.name, OTHERS.get(golden.name)}
    elif "no known format" not in str(found):  # it says which list is gone
        assert os.path.basename(found.path) == form.manifest_file
    elif form.name in ANY_FILES:
        assert "shardproof seal" in str(found)
    elif "shards directories below: " not in str(found):
        assert f"  - near {form.name}: " in str(found)


def said_of(path: Path) -> list[str]:
    with pytest.raises(ManifestNotFoundError) as caught:
        validate(path)
    return str(caught.value).splitlines()


def test_it_names_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    for name in ("train.bin", "valid.bin", "notes.txt"):
        (tmp_path / name).write_bytes(b"x" * 100)
    unknown = "expected a shards directory, found 3 entries of no known format:"
    assert said_of(tmp_path) == [
        f"Could not read the manifest at '{tmp_path}': {unknown}",
        "  - near saev: train.bin and others, but no shards.json",
        "  - near megatron: train.bin and others, but no *.idx",
        "  - near torch: train.bin and others, but no *.bin.index.json",
        "  - `shardproof seal` records the digests of any files, which `valid` then verifies",
    ]
    seal(tmp_path)
    assert validate(tmp_path, level="valid").ok


def test_that_of_which_most_is_there_comes_first(tmp_path: Path) -> None:
    for name in ("refs", "trees"):
        (tmp_path / name).mkdir()
    (tmp_path / "x.bin").write_bytes(b"x" * 100)
    near = [line.split()[2] for line in said_of(tmp_path) if "- near " in line]
    assert near == ["hf-cache:", "saev:", "megatron:"]


def test_json_and_text_speak_for_no_format(tmp_path: Path) -> None:
    for name in ("config.json", "README.txt", "poetry.lock"):
        (tmp_path / name).write_text("{}")
    assert not [line for line in said_of(tmp_path) if "near" in line]


def test_shards_of_a_torch_checkpoint_whose_metadata_were_never_written(tmp_path: Path) -> None:
    """They are written last: a save that was killed leaves exactly these."""
    (tmp_path / "__0_0.distcp").write_bytes(b"x")
    done = run("validate", "-r", tmp_path)
    assert done.exit_code == 2
    assert "found 1 file __*_*.distcp, but .metadata is missing" in done.stderr


def test_one_level_too_high(make_shards_dir, tmp_path: Path) -> None:
    for name in "abcd":
        shutil.copytree(make_shards_dir(1), tmp_path / f"saev/{name}")
    below = "shards directories below: 'saev/a', 'saev/b', 'saev/c', ...; use -r"
    done = run("validate", tmp_path)
    assert (done.exit_code, below in done.stderr) == (2, True)
    assert "seal" not in done.stderr
    assert run("validate", "-r", tmp_path).exit_code == 0


def test_a_tree_without_end_is_not_walked_to_its_end(tmp_path: Path, monkeypatch) -> None:
    for n in range(200):
        (tmp_path / f"{n:03}").mkdir()
    asked = []
    real = _registry.claims
    monkeypatch.setattr(_registry, "claims", lambda path: asked.append(path) or real(path))
    assert "seal" in said_of(tmp_path)[-1]
    assert len(asked) == 1 + _registry._MOST_BELOW


def test_names_from_outside_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "\x1b[2J\n.bin").write_bytes(b"x")
    (tmp_path / "a\nb").mkdir()
    (tmp_path / "a\nb/shards.json").write_text("[]")
    lines = said_of(tmp_path)
    assert all(map(str.isprintable, lines))
    assert r"  - near saev: \x1b[2J\n.bin, but no shards.json" in lines
    assert r"  - shards directories below: 'a\nb'; use -r, or formats.find in Python" in lines

"""DVC's pipelines: what `dvc.lock` states of the outputs of stages."""

from pathlib import Path

import pytest

from shardproof import ManifestError, validate
from tests.formats.looking import found_in, md5


def output(name: str, data: bytes, *more: str) -> str:
    lines = (f"path: {name}", "hash: md5", f"md5: {md5(data)}", f"size: {len(data)}", *more)
    return "    - " + "\n      ".join(lines) + "\n"


def write_lock(root: Path, **stages: str) -> Path:
    """Write ``dvc.lock`` as DVC 3 does, with what each stage has."""
    (root / ".dvc").mkdir(parents=True, exist_ok=True)
    text = "".join(f"  {name}:\n    cmd: run\n{fields}" for name, fields in stages.items())
    (root / "dvc.lock").write_text(f"schema: '2.0'\nstages:\n{text}")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a.bin", "b.bin", "in.bin"):
        (tmp_path / name).write_bytes(name.encode())
    deps = f"    deps:\n{output('in.bin', b'what it was')}"
    params = (
        "    params:\n      params.yaml:\n        lr: &id001\n        - 1\n        lr2: *id001\n"
    )
    first = f"{deps}{params}    outs:\n{output('a.bin', b'a.bin')}"
    return write_lock(tmp_path, one=first, two=f"    outs:\n{output('b.bin', b'b.bin')}")


def test_outputs_of_stages(root: Path) -> None:
    report = validate(root, level="valid", strict=False)
    assert (report.format, report.ok, report.n_files, report.n_proven) == ("dvc", True, 2, 2)
    (root / "a.bin").write_bytes(b"x.bin")
    assert found_in(root, "valid") == [("digest", "a.bin")]
    (root / "b.bin").unlink()
    assert found_in(root) == [("missing", "b.bin")]


def test_beside_files_of_dvc(root: Path) -> None:
    text = f"outs:\n- md5: {md5(b'in.bin')}\n  size: 6\n  hash: md5\n  path: in.bin\n"
    (root / "in.bin.dvc").write_text(text)
    assert validate(root, level="valid").n_proven == 3
    (root / "a.bin").write_bytes(b"x.bin")
    (root / "in.bin").write_bytes(b"xn.bin")
    assert found_in(root, "valid") == [("digest", "a.bin"), ("digest", "in.bin")]


STAGES = {
    "one": "  one: {cmd: x, wdir: sub}\n",
    "one@p": "  one: {foreach: [p, q], do: {wdir: sub, cmd: x}}\n",
    "one@sub": "  one: {foreach: [sub, q], do: {wdir: '${item}', cmd: x}}\n",
}


@pytest.mark.parametrize("name", STAGES)
def test_paths_are_relative_to_where_a_stage_runs(tmp_path: Path, name: str) -> None:
    write_lock(tmp_path, **{name: f"    outs:\n{output('a', b'a')}{output('../b', b'b')}"})
    (tmp_path / "dvc.yaml").write_text(f"stages:\n{STAGES[name]}")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    assert validate(tmp_path, level="valid").n_proven == 2
    (tmp_path / "sub/a").write_bytes(b"x")
    assert found_in(tmp_path, "valid") == [("digest", "a")]


@pytest.mark.parametrize(
    "stages",
    [
        "  one: {cmd: x}\n",  # that was two, and is gone from the pipeline
        "  one: {cmd: x}\n  two: {cmd: x, wdir: '${where}'}\n",
        "  one: {cmd: x}\n  two: {cmd: x, wdir: ..}\n",
        "  one: {cmd: x}\n  two: {cmd: x, wdir: /mnt/data}\n",
    ],
)
def test_what_is_not_here_is_not_promised(root: Path, stages: str) -> None:
    (root / "dvc.yaml").write_text(f"stages:\n{stages}")
    (root / "b.bin").unlink()
    assert found_in(root, "valid") == []
    assert validate(root).n_files == 1


def write_folder(root: Path) -> Path:
    for name in ("x.bin", "sub/y.bin"):
        (root / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "data" / name).write_bytes(b"x")
    fields = f"    - path: data\n      hash: md5\n      md5: {'0f' * 16}.dir\n      size: 2\n"
    return write_lock(root, one=f"    outs:\n{fields}      nfiles: 2\n")


def test_a_folder_that_is_not_cached_proves_its_number_of_files(tmp_path: Path) -> None:
    """As with ``cache: false``: DVC keeps no list of it."""
    root = write_folder(tmp_path)
    report = validate(root, level="valid")
    assert (report.ok, report.n_files, len(report.unproven)) == (True, 2, 2)
    (root / "data/x.bin").unlink()
    assert found_in(root) == [("structure", "data")]
    assert "1 files are there" in validate(root).findings[0].found


def test_a_folder_that_was_never_brought_here(tmp_path: Path) -> None:
    root = write_folder(tmp_path)
    (root / "data").rename(tmp_path.parent / f"{tmp_path.name}-elsewhere")
    assert found_in(root) == [("structure", "data")]
    (root / "data").symlink_to(tmp_path.parent / f"{tmp_path.name}-elsewhere")
    assert found_in(root) == [("structure", "data")]


@pytest.mark.parametrize(
    ("lock", "pipeline"),
    [
        ("stages: {a: {outs: [{path: 1, md5: x, size: -1}]}}", ""),
        ("stages: {a: {outs: [{path: ../../x, md5: x}]}}", ""),
        ("stages: {a: {outs: [{path: a, md5: xyz, hash: md5}]}}", ""),
        ("stages: &a {b: *a}", ""),
        ("schema: '2.0'\nstages:", ""),
        ("one: {cmd: x, outs: [{path: a, md5: x}]}", ""),  # of version 1, which no later one reads
        ("", ""),
        ("stages: {a: {outs: [{path: a, md5: x}]}}", "stages: ["),
        ("stages: {a: {outs: [{path: a, md5: x}]}}", "one: {cmd: x}"),
        ("stages: {a: {outs: [{path: a, md5: x}]}}", "stages: {a: {wdir: [1]}}"),
    ],
)
def test_what_can_not_be_read_is_refused(tmp_path: Path, lock: str, pipeline: str) -> None:
    (tmp_path / "dvc.lock").write_text(lock)
    if pipeline:
        (tmp_path / "dvc.yaml").write_text(pipeline)
    with pytest.raises(ManifestError):
        validate(tmp_path, format="dvc")


@pytest.mark.parametrize(
    "stage",
    [
        "{cmd: x, outs: [c]}",
        "{foreach: [p, q], do: {cmd: x, outs: [c]}}",
        "{foreach: {p: 1, q: 2}, do: {cmd: x, outs: ['${key}': {cache: false}]}}",
        "{foreach: '${all}', do: {cmd: x, outs: [c]}}",
        "{matrix: {n: [p, q]}, cmd: x, outs: [c, d]}",
    ],
)
def test_a_stage_that_has_not_run_is_told(root: Path, stage: str) -> None:
    others = "  one: {cmd: x, outs: [a.bin]}\n  two: {cmd: x}\n"
    (root / "dvc.yaml").write_text(f"stages:\n{others}  more: {stage}\n")
    assert set(found_in(root)) == {("structure", "dvc.lock")}


def test_a_lock_that_is_torn_between_two_outputs_is_told(root: Path) -> None:
    (root / "dvc.yaml").write_text("stages:\n  one: {cmd: x, outs: [a.bin, more.bin]}\n")
    ((*_, finding),) = (validate(root).findings,)
    assert finding.expected == "2 outputs of the stage 'one'"

"""DVC: what its files state, and what lies in its cache."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from shardproof import ManifestError, validate


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def write_file(path: Path, *, is_new: bool = True) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "a.bin").write_bytes(b"a" * 10)
    hash_line = "  hash: md5\n" if is_new else ""
    text = f"outs:\n- md5: {md5(b'a' * 10)}\n  size: 10\n{hash_line}  path: a.bin\n"
    (path / "a.bin.dvc").write_text(text)
    return path


def write_folder(path: Path, *, links: bool = False, cache: str = ".dvc/cache") -> Path:
    files = {"x.bin": b"x" * 5, "sub/y.bin": b"y" * 7, "empty": b""}
    listing = json.dumps([{"md5": md5(data), "relpath": name} for name, data in files.items()])
    folder = md5(listing.encode())
    store = path / cache / "files/md5"
    (path / ".dvc").mkdir(parents=True, exist_ok=True)
    for name, data in {f"{folder[2:]}.dir": listing.encode()}.items():
        (store / folder[:2]).mkdir(parents=True, exist_ok=True)
        (store / folder[:2] / name).write_bytes(data)
    for name, data in files.items():
        target, blob = path / "data" / name, store / md5(data)[:2] / md5(data)[2:]
        target.parent.mkdir(parents=True, exist_ok=True)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        if links:
            target.symlink_to(os.path.relpath(blob, target.parent))
        else:
            target.write_bytes(data)
    text = f"outs:\n- md5: {folder}.dir\n  size: 12\n  nfiles: 3\n  hash: md5\n  path: data\n"
    (path / "data.dvc").write_text(text)
    return path


def found_in(path: Path, level: str = "complete") -> list[tuple[str, str]]:
    return [(each.kind.value, each.path.name) for each in validate(path, level=level).findings]


def test_a_file(tmp_path) -> None:
    report = validate(write_file(tmp_path), level="valid")
    assert (report.format, report.ok, report.n_proven) == ("dvc", True, 1)
    (tmp_path / "a.bin").write_bytes(b"b" * 10)
    assert found_in(tmp_path, "valid") == [("digest", "a.bin")]
    (tmp_path / "a.bin").write_bytes(b"b")
    assert found_in(tmp_path) == [("size", "a.bin")]


def test_a_digest_of_old_proves_no_bytes(tmp_path) -> None:
    report = validate(write_file(tmp_path, is_new=False), level="valid")
    assert (report.ok, len(report.unproven)) == (True, 1)


@pytest.mark.parametrize("links", [True, False])
def test_a_folder(tmp_path, links: bool) -> None:
    report = validate(write_folder(tmp_path, links=links), level="valid")
    assert (report.format, report.ok, report.n_files) == ("dvc", True, 3)
    (tmp_path / "data/sub/y.bin").unlink()
    assert found_in(tmp_path, "present") == [("missing", "y.bin")]


def test_a_cache_elsewhere_and_links_into_it(tmp_path) -> None:
    root = tmp_path / "project"
    write_folder(root, links=True, cache="../shared")
    (root / ".dvc/config").write_text(
        "[core]\n    autostage = true\n['remote \"x\"']\n    url = y\n"
    )
    assert found_in(root)[0] == ("structure", "data")
    (root / ".dvc/config").write_text("[cache]\n    dir = ../../shared\n")
    assert found_in(root, "valid") == []
    (root / "data/x.bin").unlink()
    (root / "data/x.bin").symlink_to("/etc/passwd")
    assert found_in(root, "valid") == [("not-regular", "x.bin")]


def test_a_project_above(tmp_path) -> None:
    write_folder(tmp_path)
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "data.dvc").rename(inner / "data.dvc")
    (tmp_path / "data").rename(inner / "data")
    assert found_in(inner, "valid") == []


def test_a_list_that_was_not_fetched(tmp_path) -> None:
    write_folder(tmp_path)
    for path in (tmp_path / ".dvc/cache").rglob("*.dir"):
        path.unlink()
    report = validate(tmp_path)
    assert [(each.kind.value, each.path.name) for each in report.findings] == [
        ("structure", "data")
    ]
    assert "run `dvc fetch`" in report.findings[0].found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "outs: 3",
        "outs: [1]",
        "outs: [{path: 1}]",
        "outs: [{md5: x, path: ../../x}]",
        "outs: [{md5: xyz, hash: md5, path: a}]",
        "outs: [{size: -1, path: a}]",
        "outs: [{size: true, path: a}]",
        "a: &a [1]\nouts: *a",
        "\t",
    ],
)
def test_what_can_not_be_read_is_refused(tmp_path, text: str) -> None:
    (tmp_path / "a.dvc").write_text(text)
    with pytest.raises(ManifestError):
        validate(tmp_path)


def test_a_hostile_list_of_a_folder(tmp_path) -> None:
    write_folder(tmp_path)
    [listing] = (tmp_path / ".dvc/cache").rglob("*.dir")
    listing.write_text('[{"md5": "00", "relpath": "../../../etc/passwd"}]')
    with pytest.raises(ManifestError):
        validate(tmp_path)

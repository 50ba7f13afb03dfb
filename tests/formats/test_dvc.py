"""DVC: what its files state, and what lies in its cache."""

import json
import os
from pathlib import Path

import pytest

from shardproof import ManifestError, validate
from shardproof.testing import time_limit
from tests.formats.looking import found_in, md5


def write_file(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "a.bin").write_bytes(b"a" * 10)
    text = f"outs:\n- md5: {md5(b'a' * 10)}\n  size: 10\n  hash: md5\n  path: a.bin\n"
    (path / "a.bin.dvc").write_text(text)
    return path


@pytest.mark.parametrize("space", [" ", "\n", "\t", "{", " \n"])
def test_a_file_of_nothing_but_space_is_refused_at_once(tmp_path: Path, space: str) -> None:
    (write_file(tmp_path) / "data.dvc").write_text(space * 10**6)
    with time_limit(5), pytest.raises(ManifestError, match=r"data\.dvc"):
        validate(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("b.dvc", "outs: []\n"),
        ("b.dvc", '{"outs": []}\n'),
        ("b.dvc", "md5: 00\ncmd: run\ndeps:\n- md5: 00\n  path: a.bin\n"),  # of version 2
        ("dvc.lock", "schema: '2.0'\n"),
        ("dvc.lock", "schema: '2.0'\nstages:\n  one:\n    cmd: run\n"),
        ("dvc.lock", "schema: '2.0'\nstages: {}\n"),
        ("dvc.yaml", "artifacts:\n  a: {path: a.bin}\n"),
    ],
)
def test_what_dvc_writes_without_outputs_is_accepted(tmp_path: Path, name: str, text: str) -> None:
    (write_file(tmp_path) / name).write_text(text)
    if name == "dvc.yaml":
        (tmp_path / "dvc.lock").write_text("schema: '2.0'\n")
    assert validate(tmp_path, level="valid").n_proven == 1


FILES = {"x.bin": b"x" * 5, "sub/y.bin": b"y" * 7, "empty": b""}


def write_folder(
    path: Path, *, links: bool = False, cache: str = ".dvc/cache", is_new: bool = True
) -> Path:
    listing = json.dumps([{"md5": md5(data), "relpath": name} for name, data in FILES.items()])
    folder = md5(listing.encode())
    store = path / cache / ("files/md5" if is_new else "")
    (path / ".dvc").mkdir(parents=True, exist_ok=True)
    (store / folder[:2]).mkdir(parents=True, exist_ok=True)
    (store / folder[:2] / f"{folder[2:]}.dir").write_text(listing)
    for name, data in FILES.items():
        target, blob = path / "data" / name, store / md5(data)[:2] / md5(data)[2:]
        target.parent.mkdir(parents=True, exist_ok=True)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        if links:
            target.symlink_to(os.path.relpath(blob, target.parent))
        else:
            target.write_bytes(data)
    hash_line = "  hash: md5\n" if is_new else ""
    text = f"outs:\n- md5: {folder}.dir\n  size: 12\n  nfiles: 3\n{hash_line}  path: data\n"
    (path / "data.dvc").write_text(text)
    return path


@pytest.mark.parametrize("links", [True, False])
def test_a_folder(tmp_path, links: bool) -> None:
    report = validate(write_folder(tmp_path, links=links), level="valid")
    assert (report.format, report.ok, report.n_files) == ("dvc", True, 3)
    (tmp_path / "data/sub/y.bin").unlink()
    assert found_in(tmp_path, "present") == [("missing", "y.bin")]


def test_a_cache_elsewhere_and_links_into_it(tmp_path) -> None:
    root = tmp_path / "project"
    write_folder(root, links=True, cache="../shared")
    (root / ".dvc/config").write_text("[core]\n    autostage = true\n['remote \"x\"']\n    url = y")
    assert found_in(root)[0] == ("structure", "data")
    (root / ".dvc/config").write_text("[cache]\n    dir = ../../shared\n")
    assert found_in(root, "valid") == []
    (root / "data/x.bin").unlink()
    (root / "data/x.bin").symlink_to("/etc/passwd")
    assert found_in(root, "valid") == [("not-regular", "x.bin")]


def test_a_file_in_the_place_of_the_cache_has_no_list(tmp_path) -> None:
    write_folder(tmp_path)
    (tmp_path / ".dvc/cache/files").rename(tmp_path / "aside")
    (tmp_path / ".dvc/cache/files").touch()
    assert not validate(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        *("", "outs: 3", "outs: [{md5: x, path: ../../x}]", "outs: [{size: -1, path: a}]"),
        *("outs: [{md5: xyz, hash: md5, path: a}]", "a: &a [1]\nouts: *a"),
        *("outs:\n", "md5: 00\nfrozen: true\n", "layouts: [a]\n", "out"),  # as it is when it is cut
    ],
)
def test_what_can_not_be_read_is_refused(tmp_path, text: str) -> None:
    (tmp_path / "data.dvc").write_text(text)
    with pytest.raises(ManifestError, match=r"data\.dvc"):
        validate(tmp_path)


def rewrite_list(path: Path, text: str) -> None:
    [before] = (path / ".dvc/cache").rglob("*.dir")
    folder, name = before.parent.name + before.stem, md5(text.encode())
    after = before.parent.parent / name[:2] / f"{name[2:]}.dir"
    after.parent.mkdir(exist_ok=True)
    before.rename(after)
    after.write_text(text)
    file = path / "data.dvc"
    file.write_text(file.read_text().replace(folder, name))


@pytest.mark.parametrize(
    "text",
    [
        *('[{"md5": "00", "relpath": "../../../etc/passwd"}]', '[{"relpath": "a", "md5": "00"}]'),
        *('[{"relpath": "A"}, {"relpath": "a"}]', "["),
    ],
)
def test_a_hostile_list_of_a_folder(tmp_path, text: str) -> None:
    rewrite_list(write_folder(tmp_path), text)
    with pytest.raises(ManifestError):
        validate(tmp_path)


def test_a_list_that_is_not_the_one_by_its_name(tmp_path) -> None:
    [listing] = (write_folder(tmp_path) / ".dvc/cache").rglob("*.dir")
    listing.write_text(listing.read_text().replace("x.bin", "z.bin"))
    [finding] = validate(tmp_path).findings
    assert (finding.kind, finding.path.name) == ("structure", "data")
    assert finding.found.startswith("another text")


def test_a_folder_of_version_2(tmp_path) -> None:
    report = validate(write_folder(tmp_path, links=True, is_new=False), level="valid")
    assert (report.ok, report.n_files, len(report.unproven)) == (True, 3, 3)
    (tmp_path / "data/x.bin").unlink()
    assert found_in(tmp_path) == [("missing", "x.bin")]


def test_a_folder_whose_files_stand_in_the_file_itself(tmp_path) -> None:
    """Of a cloud that keeps versions: ``version_aware`` remotes."""
    write_folder(tmp_path)
    files = "".join(
        f"  - relpath: {name}\n    md5: {md5(data)}\n    size: {len(data)}\n"
        "    cloud:\n      s3:\n        etag: x\n"
        for name, data in FILES.items()
    )
    (tmp_path / "data.dvc").write_text(f"outs:\n- hash: md5\n  path: data\n  files:\n{files}")
    assert validate(tmp_path, level="valid").n_proven == 3
    (tmp_path / "data/x.bin").write_bytes(b"x")
    assert found_in(tmp_path) == [("size", "x.bin")]


@pytest.mark.parametrize("name", ["yes", "no", "12:30", "2001-99-99", "1_000", "null"])
def test_names_that_yaml_11_takes_for_something_else(tmp_path, name: str) -> None:
    """DVC writes YAML 1.2, in which these are texts."""
    (tmp_path / name).write_bytes(b"a")
    text = f"outs:\n- md5: {md5(b'a')}\n  size: 1\n  hash: md5\n  path: {name}\n"
    (tmp_path / "x.dvc").write_text(text)
    assert validate(tmp_path, level="valid").n_proven == 1


@pytest.mark.parametrize(
    "other",
    [
        *("- path: s3://bucket/x\n  etag: a", "- path: remote://x/y\n  md5: a"),
        *("- path: /mnt/data\n  md5: a", "- path: never-downloaded\n  hash: md5"),
    ],
)
def test_what_is_not_here_is_not_promised(tmp_path, other: str) -> None:
    path = write_file(tmp_path) / "a.bin.dvc"
    path.write_text(f"{path.read_text()}{other}\nmeta: {{1: x}}\n")
    assert validate(tmp_path, level="valid").n_proven == 1
    path.write_text(f"outs:\n{other}\n")
    with pytest.raises(ManifestError, match="it tracks no file in this directory"):
        validate(tmp_path)


def test_a_path_relative_to_another_folder(tmp_path) -> None:
    path = write_file(tmp_path) / "a.bin.dvc"
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.bin").rename(tmp_path / "sub/a.bin")
    path.write_text(f"wdir: sub\n{path.read_text()}")
    assert validate(tmp_path, level="valid").n_proven == 1
    path.write_text(path.read_text().replace("wdir: sub", "wdir: .."))
    with pytest.raises(ManifestError, match=r"'\.\./a\.bin'"):
        validate(tmp_path)


def test_a_cache_that_is_everything_is_followed_nowhere(tmp_path) -> None:
    root = tmp_path / "project"
    write_folder(root, cache="../files-of-cache")
    (tmp_path / "files").symlink_to("files-of-cache/files")  # where that cache would have its own
    secret = tmp_path / "secret"
    secret.write_bytes(FILES["x.bin"])
    (root / "data/x.bin").unlink()
    (root / "data/x.bin").symlink_to(secret)
    (root / ".dvc/config").write_text("[cache]\n    dir = ../..\n")
    assert found_in(root, "valid") == [("not-regular", "x.bin")]


@pytest.mark.parametrize("where", ["config", "config.local", "user"])
def test_where_the_cache_is_configured(tmp_path, monkeypatch, where: str) -> None:
    root = tmp_path / "project"
    write_folder(root, links=True, cache="../shared")
    user = tmp_path / "user"
    user.mkdir()
    monkeypatch.setenv("DVC_GLOBAL_CONFIG_DIR", str(user))
    assert found_in(root)[0] == ("structure", "data")
    path = user / "config" if where == "user" else root / ".dvc" / where
    path.write_text(f'[cache]\n    dir = "{tmp_path}/shared"\n')
    assert found_in(root, "valid") == []


def test_an_empty_folder_that_is_gone(tmp_path: Path) -> None:
    write_folder(tmp_path)
    rewrite_list(tmp_path, "[]")
    (tmp_path / "other").mkdir()
    write_file(tmp_path)
    assert found_in(tmp_path, "present") == []
    (tmp_path / "data").rename(tmp_path / "gone")
    assert found_in(tmp_path, "present") == [("structure", "data")]


def test_a_project_above(tmp_path) -> None:
    write_folder(tmp_path)
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "data.dvc").rename(inner / "data.dvc")
    (tmp_path / "data").rename(inner / "data")
    assert found_in(inner, "valid") == []

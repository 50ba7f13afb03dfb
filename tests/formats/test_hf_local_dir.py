"""Directories of ``hf download --local-dir``: what it writes is sound, and what breaks is told."""

import base64
import contextlib
import hashlib
import os
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardproof.errors import ManifestError, ManifestNotFoundError, ManifestPermissionError
from shardproof.formats.hub import LOCAL_DIR as FORMAT
from shardproof.testing import without_root_override
from shardproof.testing.faults import Hub, HubFault
from tests.formats import looking
from tests.formats.hub_files import (
    COMMIT,
    FILES,
    PART_NAMES,
    SHARDS,
    TAG,
    index_of,
    is_large,
    listing_of,
    put_all,
    tag_of,
    tensors,
)
from tests.helpers.drawing import examples

NOTES = ".cache/huggingface/download"
look = partial(looking.look, FORMAT, level="valid")
found = partial(looking.found, FORMAT, level="valid")


def note_of(root: Path, name: str) -> Path:
    path = root / NOTES / f"{name}.metadata"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def put(root: Path, name: str, data: bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    note_of(root, name).write_text(
        f"{COMMIT}\n{tag_of(data, large=is_large(name))}\n{time.time()}\n"
    )
    note_of(root, name).with_suffix(".lock").touch()
    return path


def keep_listing(root: Path, files: dict[str, bytes] = FILES) -> Path:
    path = root / ".cache/huggingface/trees" / f"{COMMIT}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(listing_of(files))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        put(tmp_path / "gpt", name, data)
    (tmp_path / "gpt/.cache/huggingface/.gitignore").write_text("*")
    return tmp_path / "gpt"


def test_a_sound_directory_has_no_findings_and_everything_in_it_is_proven(root: Path) -> None:
    assert FORMAT.recognizes(str(root))
    for level in ("present", "complete", "valid"):
        report = look(root, level=level)
        assert (report.ok, report.unproven, report.n_files) == (True, (), len(FILES))


@pytest.mark.parametrize("folder", ["", ".cache/huggingface", ".cache/huggingface/hub", NOTES])
def test_other_directories_are_not_recognized(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / "model.safetensors").write_bytes(tensors())
    assert not FORMAT.recognizes(str(tmp_path))
    with pytest.raises(ManifestNotFoundError, match="no notes of downloads"):
        look(tmp_path)
    (tmp_path / NOTES).mkdir(parents=True, exist_ok=True)
    (tmp_path / NOTES / f"{hashed('x')}.{TAG}.incomplete").touch()  # which alone promises nothing
    assert FORMAT.recognizes(str(tmp_path))
    with pytest.raises(ManifestNotFoundError, match="run the download again"):
        look(tmp_path)


@pytest.fixture
def where(hub: Hub, tmp_path: Path) -> dict[str, Any]:
    folders = {"local_dir": tmp_path / "here", "cache_dir": tmp_path / "cache"}
    return put_all(hub, "dataset") | folders


def test_what_the_client_writes_is_sound(hub: Hub, hf: ModuleType, where: dict[str, Any]) -> None:
    root = Path(hf.snapshot_download(**where))
    assert FORMAT.recognizes(str(root))
    for _ in range(2):  # the second time of two commits, as not all files have changed
        report = look(root)
        assert report.ok, report
        assert not report.unproven
        put_all(hub, "dataset", {"README.md": b"# Another\n", "new/data.bin": b"\2" * 500})
        hf.snapshot_download(**where)


def test_the_part_of_a_client_that_was_killed_is_told_until_it_ran_again(
    hub: Hub, hf: ModuleType, where: dict[str, Any], monkeypatch
) -> None:
    hf.hf_hub_download(filename="README.md", **where)
    root = where["local_dir"]
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)  # as it could not clean up
    hub.fault("onnx/*", HubFault.STATUS_404)
    with pytest.raises(hf.errors.HfHubHTTPError):
        hf.hf_hub_download(filename="onnx/model.bin", **where)
    monkeypatch.undo()
    hub.heal()

    ((_, name, expected, what),) = found(root, level="complete")
    assert Path(name).match(f"{NOTES}/onnx/*.incomplete")
    assert expected == "the whole file"
    assert "cut off; run it again" in what
    hf.hf_hub_download(filename="onnx/model.bin", **where)
    (root / name).touch()  # huggingface_hub leaves it there; before 1.0 it takes it up
    assert look(root).ok


def test_a_file_that_was_written_to_is_found(root: Path) -> None:
    (root / "onnx/model.bin").write_bytes(b"\1" * 999 + b"\2")
    (root / "README.md").write_bytes(b"# My model\n")
    assert found(root, level="complete") == []
    expected = {
        "onnx/model.bin": f"sha256:{tag_of(FILES['onnx/model.bin'])}",
        "README.md": f"git-sha1:{tag_of(FILES['README.md'], large=False)}",
    }
    assert {finding[1]: finding[2] for finding in found(root)} == expected


def test_a_truncated_file_is_found_at_complete_where_a_listing_was_kept(root: Path) -> None:
    os.truncate(root / "onnx/model.bin", 999)
    assert found(root, level="complete") == []
    keep_listing(root)
    assert found(root, level="complete") == [("size", "onnx/model.bin", "1000 bytes", "999 bytes")]
    os.truncate(root / "model.safetensors", 60)
    keep_listing(root).unlink()  # the structure tells without one
    kinds = [finding[:2] for finding in found(root, level="complete")]
    assert kinds == [("structure", "model.safetensors")]


def test_a_listing_of_other_bytes_does_not_count(root: Path) -> None:
    keep_listing(root, {**FILES, "onnx/model.bin": b"other"})
    assert look(root).ok


@pytest.mark.parametrize("text", [b"", b"\0" * 120, b"a\nb\nlater\n", b"\xff\n\n\n", b"x" * 5000])
def test_a_note_that_is_torn_is_told_and_its_file_is_promised_still(
    root: Path, text: bytes
) -> None:
    note = note_of(root, "onnx/model.bin")
    note.write_bytes(text)
    for level in ("present", "complete", "valid"):
        ((kind, name, expected, _),) = found(root, level=level)
        assert (kind, name) == ("structure", f"{NOTES}/onnx/model.bin.metadata")
        assert expected == "lines of commit, tag and time"
    assert [path.name for path in look(root).unproven] == ["model.bin"]
    (root / "onnx/model.bin").unlink()
    assert {finding[0] for finding in found(root)} == {"structure", "missing"}


@pytest.mark.parametrize("text", [None, b"", COMMIT.encode()])
def test_a_file_that_is_here_before_its_note_is_as_it_is_listed(
    root: Path, text: bytes | None
) -> None:
    """A copy from the client's cache is not put there at once, and may be torn."""
    keep_listing(root)
    note = note_of(root, "onnx/model.bin")
    note.unlink() if text is None else note.write_bytes(text)
    assert look(root).n_proven == len(FILES)
    os.truncate(root / "onnx/model.bin", 500)
    assert [each[:2] for each in found(root, level="complete")] == [("size", "onnx/model.bin")]
    note.with_suffix(".lock").unlink()
    assert look(root, level="complete").ok == (text is None), "it may be somebody's"


@pytest.mark.parametrize("end", ["", "\r\n", "\n\n"])
@pytest.mark.parametrize("when", ["0", "1712656091.123", "nan"])
def test_a_note_may_end_as_it_likes(root: Path, when: str, end: str) -> None:
    tag = tag_of(FILES["onnx/model.bin"])
    note_of(root, "onnx/model.bin").write_text(f"{COMMIT}\n{tag}\n{when}{end}")
    report = look(root)
    assert report.ok
    assert not report.unproven


def test_the_tag_of_another_server_proves_nothing(root: Path) -> None:
    note_of(root, "onnx/model.bin").write_text(f"{COMMIT}\n5f3c-1a2b\n0\n")
    report = look(root)
    assert report.ok
    assert [path.name for path in report.unproven] == ["model.bin"]
    keep_listing(root)
    assert not look(root).unproven, "but the listing does"


def test_a_note_that_is_no_file_is_told(root: Path) -> None:
    os.mkfifo(note_of(root, "pipe"))
    note_of(root, "loop").symlink_to("loop.metadata")
    note_of(root, "gone").symlink_to("nothing")
    note_of(root, "out").symlink_to("/etc/hostname")
    told = {finding[1]: finding[3] for finding in found(root) if finding[1].startswith(NOTES)}
    no_file = "expected a regular file, found a"
    assert told == {
        f"{NOTES}/pipe.metadata": f"{no_file} FIFO",
        f"{NOTES}/loop.metadata": f"{no_file} symbolic link that leads back to itself",
        f"{NOTES}/out.metadata": f"{no_file} symbolic link to '/etc/hostname', outside the root",
    }


def test_names_that_no_manifest_may_have_are_not_promised(root: Path) -> None:
    """Two that differ in case alone count as the first."""
    for name in ("a\\b.bin", "new\nline.bin", "Data.bin", "data.bin", "x.metadata"):
        put(root, name, b"x")
    report = look(root)
    assert (report.ok, report.n_files) == (True, len(FILES) + 2)
    (root / "x.metadata").unlink()  # a file may end as a note does
    assert [finding[1] for finding in found(root)] == ["x.metadata"]


def hashed(name: str) -> str:
    digest = hashlib.sha1(f"{name}.metadata".encode()).digest()
    return base64.urlsafe_b64encode(digest).decode()


@pytest.mark.parametrize("how", ["{hash}.{tag}.0123abcd", "{hash}.{tag}", "{name}.{tag}"])
@pytest.mark.parametrize("tag", [TAG, "e" * 40, "W-1.5"])
def test_a_part_is_told_unless_its_file_is_here(root: Path, how: str, tag: str) -> None:
    for name, is_told in (("new.bin", True), ("model.bin", False)):
        if tag == "W-1.5" and "hash" not in how:
            return  # where the name ends nobody knows
        part = root / NOTES / "onnx" / how.format(hash=hashed(name), name=name, tag=tag)
        part = part.with_name(f"{part.name}.incomplete")
        part.write_bytes(b"half")
        assert found(root, level="present") == []
        told = [finding[:2] for finding in found(root, level="complete")]
        assert told == [("structure", f"{NOTES}/onnx/{part.name}")] * is_told
        part.unlink()


def test_weights_that_an_index_names_beside_others_are_promised(root: Path) -> None:
    put(root, "unet/model.safetensors.index.json", index_of(*SHARDS))
    assert look(root).ok, "none was wanted"
    put(root, f"unet/{SHARDS[0]}", tensors(1))
    missing = [("missing", f"unet/{name}", "a regular file", "nothing") for name in SHARDS[1:]]
    assert found(root, level="present") == missing
    keep_listing(root)
    assert look(root).ok, "the Hub lists no such file"


@pytest.mark.parametrize("name", [NOTES, f"{NOTES}/README.md.metadata"])
def test_what_may_not_be_read_is_told_as_such(root: Path, name: str) -> None:
    (root / name).chmod(0)
    try:
        with without_root_override(), pytest.raises(ManifestPermissionError, match="permission"):
            look(root)
    finally:
        (root / name).chmod(0o700)


LINES = st.one_of(
    st.sampled_from([COMMIT, TAG, "1712656091.5", "", "nan", "-1", "a/b", "../x"]),
    st.text(max_size=40),
)


@settings(examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    notes=st.lists(st.lists(LINES, max_size=4).map("\n".join), max_size=4),
    tree=st.one_of(st.none(), st.binary(max_size=200)),
    index=st.binary(max_size=100),
    parts=st.lists(st.sampled_from(PART_NAMES)),
)
def test_whatever_stands_there_only_our_errors_come(
    tmp_path_factory, notes, tree, index, parts
) -> None:
    root = tmp_path_factory.mktemp("local")
    put(root, "a.index.json", index)
    for number, text in enumerate(notes):
        note_of(root, f"file-{number}").write_bytes(text.encode(errors="replace"))
    if tree is not None:
        keep_listing(root).write_bytes(tree)
    for part in parts:
        (root / NOTES / part).touch()
    with contextlib.suppress(ManifestError):
        look(root)

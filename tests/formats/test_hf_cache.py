"""Repositories in the cache of huggingface_hub: what it writes is sound, what breaks is told."""

import contextlib
import os
import shutil
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardproof.errors import ManifestError, ManifestNotFoundError, ManifestPermissionError
from shardproof.formats.hub import CACHE as FORMAT
from shardproof.testing import without_root_override
from shardproof.testing.faults import Hub
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
from tests.helpers.checkpoint_files import flip
from tests.helpers.drawing import examples

OLD = "b" * 40
MODEL = f"snapshots/{COMMIT}/onnx/model.bin"
look = partial(looking.look, FORMAT, level="valid")
found = partial(looking.found, FORMAT, level="valid")


class Repository:
    """A folder of the cache, written by hand as the client writes it."""

    def __init__(self, base: Path, name: str = "models--owner--gpt") -> None:
        self.path = base / name
        (self.path / "blobs").mkdir(parents=True)

    def put(self, name: str, data: bytes, commit: str = COMMIT, *, ref: str = "main") -> Path:
        blob = self.path / "blobs" / tag_of(data, large=is_large(name))
        blob.write_bytes(data)
        entry = self.path / "snapshots" / commit / name
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.symlink_to(os.path.relpath(blob, entry.parent))
        if ref:
            self.refer(ref, commit)
        return entry

    def refer(self, ref: str, commit: str) -> None:
        path = self.path / "refs" / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit)

    def list(self, files: dict[str, bytes], commit: str = COMMIT) -> Path:
        path = self.path / "trees" / f"{commit}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(listing_of(files))
        return path


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One snapshot of all files, to which a ref leads; without a listing."""
    made = Repository(tmp_path)
    for name, data in FILES.items():
        made.put(name, data)
    return made


def entry_of(repository: Repository, name: str = "onnx/model.bin") -> Path:
    return repository.path / "snapshots" / COMMIT / name


def relinked(repository: Repository, target: str | Path) -> None:
    entry = entry_of(repository)
    entry.unlink()
    entry.symlink_to(target)


def test_a_sound_repository_has_no_findings_and_everything_in_it_is_proven(repository) -> None:
    for path in (repository.path, repository.path / "snapshots" / COMMIT):
        assert FORMAT.recognizes(str(path))
        for level in ("present", "complete", "valid"):
            report = look(path, level=level)
            assert report.ok
            assert not report.unproven
        assert report.n_files == len(FILES) - 1  # of the two empty ones, which are one blob


@pytest.mark.parametrize("name", ["snapshots", "models", "model--a--b", "data"])
def test_other_folders_are_not_recognized(tmp_path: Path, name: str) -> None:
    Repository(tmp_path, name).put("x", b"x")
    for path in (tmp_path, tmp_path / name, tmp_path / name / "snapshots" / COMMIT):
        assert not FORMAT.recognizes(str(path))


@pytest.mark.parametrize("kind", ["models", "datasets", "spaces", "kernels"])
@pytest.mark.parametrize("part", ["snapshots", "blobs"])
def test_what_a_purge_leaves_of_a_repository_is_recognized(tmp_path, kind: str, part: str) -> None:
    repository = Repository(tmp_path, f"{kind}--owner--name")
    repository.put("x", b"x")
    shutil.rmtree(repository.path / part)
    assert FORMAT.recognizes(str(repository.path))
    assert not FORMAT.recognizes(str(repository.path / "blobs"))


@pytest.mark.parametrize("kind", ["model", "dataset"])
@pytest.mark.parametrize("links", [True, False])
def test_what_the_client_writes_is_sound(
    hub: Hub, hf: ModuleType, tmp_path: Path, monkeypatch, kind: str, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(hf.file_download, "are_symlinks_supported", lambda _: False)
    # Of two empty files, one of its threads moves away the blob that another is about to copy.
    where = {**put_all(hub, kind), "cache_dir": tmp_path, "max_workers": 8 if links else 1}
    first = Path(hf.snapshot_download(**where))
    put_all(hub, kind, {"README.md": b"# Another\n", "new/data.parquet-like": b"\2" * 500})
    second = Path(hf.snapshot_download(**where))
    repository = second.parent.parent

    assert first != second
    assert repository.name == f"{kind}s--owner--gpt"
    assert (second / "README.md").is_symlink() is links
    for path in (repository, first, second):
        assert FORMAT.recognizes(str(path))
        report = look(path)
        assert report.ok, report
        if links or (repository / "trees").exists():  # huggingface_hub keeps no listing before 1.0
            assert not report.unproven, "what has no blob is proven by the listing"
        else:
            assert len(report.unproven) == report.n_files > 0


def test_what_the_client_asked_for_in_vain_is_sound(
    hub: Hub, hf: ModuleType, tmp_path: Path
) -> None:
    where = {**put_all(hub, "model"), "cache_dir": tmp_path}
    hf.hf_hub_download(filename="config.json", **where)
    hub.put("README.md", b"# Another\n", repo="owner/gpt", repo_type="model")
    with pytest.raises(hf.errors.EntryNotFoundError):
        hf.hf_hub_download(filename="adapter_config.json", **where)

    repository = tmp_path / "models--owner--gpt"
    assert len(list((repository / ".no_exist").iterdir())) == 1
    assert not (repository / "snapshots" / (repository / "refs/main").read_text()).exists()
    assert look(repository).ok


def test_a_blob_that_was_written_to_is_found_by_its_name(repository) -> None:
    flip(entry_of(repository))
    assert found(repository.path, level="complete") == []
    (finding,) = found(repository.path)
    assert finding[:3] == ("digest", MODEL, f"sha256:{tag_of(FILES['onnx/model.bin'])}")


def test_a_truncated_blob_is_found_at_complete_where_a_listing_or_its_digest_tells(
    repository,
) -> None:
    entry_of(repository, "package/__init__.py").write_bytes(b"x")
    os.truncate(entry_of(repository), 999)
    name = f"snapshots/{COMMIT}/package/__init__.py"
    empty = ("size", name, "0 bytes", "1 bytes")
    assert found(repository.path, level="complete") == [empty]
    repository.list(FILES)
    both = [("size", MODEL, "1000 bytes", "999 bytes"), empty]
    assert found(repository.path, level="complete") == both


def test_sizes_of_one_listing_count_for_the_blob_of_another_snapshot(repository) -> None:
    """Though that comes first, as a ref names it."""
    entry = repository.put("onnx/model.bin", FILES["onnx/model.bin"], OLD, ref="")
    repository.list(FILES, OLD)
    os.truncate(entry, 999)
    assert [finding[0] for finding in found(repository.path, level="complete")] == ["size"]


def test_a_truncated_safetensors_file_is_found_at_complete_without_one(repository) -> None:
    os.truncate(entry_of(repository, "model.safetensors"), 60)
    (finding,) = found(repository.path, level="complete")
    assert finding[:2] == ("structure", f"snapshots/{COMMIT}/model.safetensors")


def test_a_link_into_another_repository_says_where_it_leads(repository, tmp_path: Path) -> None:
    other = Repository(tmp_path, "models--owner--other").put("onnx/model.bin", b"other").resolve()
    relinked(repository, os.path.relpath(other, entry_of(repository).parent))
    what = f"symbolic link to '{other}', outside the root"
    expected = [("not-regular", MODEL, "a regular file", what)]
    assert found(repository.path, level="present") == expected


def test_an_absolute_link_into_this_repository_is_sound(repository, tmp_path: Path) -> None:
    """Older clients made such; through whatever links the cache is reached."""
    alias, blob = tmp_path / "alias", entry_of(repository).resolve()
    alias.symlink_to(tmp_path)
    relinked(repository, alias / blob.relative_to(tmp_path))
    assert look(repository.path).ok
    assert not look(repository.path).unproven
    flip(blob)
    assert [finding[0] for finding in found(repository.path)] == ["digest"]


def test_a_link_to_what_is_no_blob_is_told(repository) -> None:
    relinked(repository, "../config.json")
    assert found(repository.path, level="present") == []
    told = ("a link to a file of 'blobs'", f"a link to 'snapshots/{COMMIT}/config.json'")
    assert found(repository.path, level="complete") == [("structure", MODEL, *told)]


def test_a_link_to_another_files_blob_is_told_where_a_listing_was_kept(repository) -> None:
    repository.list(FILES)
    relinked(repository, f"../../../blobs/{tag_of(FILES['model.safetensors'])}")
    expected = f"a link to sha256:{tag_of(FILES['onnx/model.bin'])}, as the Hub lists it"
    for level in ("complete", "valid"):
        assert [finding[2] for finding in found(repository.path, level=level)] == [expected]


def test_a_blob_of_two_snapshots_is_looked_at_once(repository) -> None:
    for name, data in FILES.items():
        repository.put(name, data, OLD, ref="")
    report = look(repository.path)
    assert (report.ok, report.n_files) == (True, len(FILES) - 1)
    flip(repository.path / "snapshots" / OLD / "README.md")
    assert [finding[1] for finding in found(repository.path)] == [f"snapshots/{COMMIT}/README.md"]


def test_a_blob_with_the_tag_of_another_server_is_unproven(repository) -> None:
    (repository.path / "blobs/5f3c-1a2b").write_bytes(b"text")
    entry_of(repository, "x.txt").symlink_to("../../blobs/5f3c-1a2b")
    report = look(repository.path)
    assert report.ok
    assert [path.name for path in report.unproven] == ["x.txt"]


def test_an_empty_copy_is_sound_unless_its_name_has_a_law(repository) -> None:
    entry_of(repository, ".gitkeep").touch()
    assert look(repository.path).ok
    entry_of(repository, "more.safetensors").touch()
    assert [finding[0] for finding in found(repository.path, level="present")] == ["empty"]


def share(repository: Repository) -> Path:
    """Move a blob to the cache's store, and leave a link, as the client does with that of Xet."""
    blob, store = entry_of(repository).resolve(), repository.path.parent / "blobs"
    shared = store / "ab" / ("ab" * 32)
    shared.parent.mkdir(parents=True)
    blob.rename(shared)
    blob.symlink_to(os.path.relpath(shared, blob.parent))
    return shared


def test_a_blob_in_the_store_of_the_cache_is_proven_there(repository) -> None:
    shared = share(repository)
    assert [finding[0] for finding in found(repository.path)] == ["not-regular"]
    (repository.path.parent / "blobs/.huggingface-shared-blobs").write_text("1\n")
    for path in (repository.path, entry_of(repository, "")):
        assert look(path).ok
        assert not look(path).unproven
    flip(shared)
    assert [finding[0] for finding in found(repository.path)] == ["digest"]


@pytest.mark.parametrize("text", [COMMIT, f"{COMMIT}\n", f" {COMMIT}\r\n"])
@pytest.mark.parametrize("name", ["main", "refs/pr/1", "v1.0"])
def test_a_ref_may_have_a_line_end_and_a_nested_name(repository, name: str, text: str) -> None:
    repository.refer(name, text)
    assert look(repository.path).ok


@pytest.mark.parametrize("text", ["d" * 40, "", "main", "../../x", "\0", "é"])
def test_a_ref_to_a_commit_that_is_not_here_is_told(repository, text: str) -> None:
    repository.refer("refs/pr/1", text)
    assert found(repository.path, level="present") == []
    ((kind, name, expected, what),) = found(repository.path, level="complete")
    assert (kind, name) == ("structure", "refs/refs/pr/1")
    assert expected == "a commit of which there is a snapshot"
    assert what.endswith("run the download again, or remove the ref")
    assert found(repository.path / "snapshots" / COMMIT) == []


def test_a_ref_that_is_no_file_or_to_an_empty_snapshot_is_told(repository) -> None:
    os.mkfifo(repository.path / "refs" / "pipe")
    (repository.path / "refs" / "loop").symlink_to("loop")
    (repository.path / "refs" / "long").write_text(COMMIT + " " * 2000)
    (repository.path / "snapshots" / OLD).mkdir()
    repository.refer("to-nothing", OLD)
    names = sorted(finding[1] for finding in found(repository.path))
    assert names == ["refs/long", "refs/loop", "refs/pipe", "refs/to-nothing"]


def test_what_lies_beside_is_ignored(repository) -> None:
    for folder in ("refs", "snapshots", f"snapshots/{COMMIT}", "blobs", "."):
        (repository.path / folder / ".DS_Store").touch()
    (repository.path / "refs" / "main.0123abcd.tmp").touch()
    (repository.path.parent / "CACHEDIR.TAG").touch()
    report = look(repository.path)
    assert report.ok
    assert not report.unproven


@pytest.mark.parametrize("part", [f"{TAG}.incomplete", f"{TAG}.0123abcd.incomplete"])
def test_a_download_that_was_cut_off_is_told(repository, part: str) -> None:
    (repository.path / "blobs" / part).write_bytes(b"half")
    assert found(repository.path, level="present") == []
    for path in (repository.path, entry_of(repository, "")):
        (finding,) = found(path, level="complete")
        assert finding[:3] == ("structure", f"blobs/{part}", "the whole file")
        assert "cut off; run it again" in finding[3]


def test_a_part_of_what_is_here_whole_is_sound(repository) -> None:
    for data in FILES.values():
        (repository.path / "blobs" / f"{tag_of(data)}.0123abcd.incomplete").touch()
        (repository.path / "blobs" / f"{tag_of(data, large=False)}.incomplete").touch()
    named = {tag_of(data, large=is_large(name)) for name, data in FILES.items()}
    told = {finding[1].split("/")[1].split(".")[0] for finding in found(repository.path)}
    assert told
    assert not told & named


def test_a_part_is_told_of_the_snapshot_that_wants_it(repository) -> None:
    repository.put("README.md", FILES["README.md"], OLD, ref="")
    part = repository.path / "blobs" / f"{tag_of(b'more')}.incomplete"
    part.touch()
    snapshots = repository.path / "snapshots"
    assert len(found(repository.path)) == 1
    assert found(snapshots / OLD) == found(snapshots / COMMIT) == [], "whose it is nobody knows"
    repository.list(FILES)
    repository.list({"README.md": FILES["README.md"], "more.bin": b"more"}, OLD)
    assert found(snapshots / COMMIT) == []
    assert [finding[1] for finding in found(snapshots / OLD)] == [f"blobs/{part.name}"]


def test_a_blob_to_which_nothing_leads_yet_is_of_a_file_that_is_missing(repository) -> None:
    entry_of(repository).unlink()
    assert look(repository.path).ok, "nothing tells of it"
    repository.list(FILES)
    assert [finding[:2] for finding in found(repository.path)] == [("missing", MODEL)]
    repository.put("onnx/model.bin", FILES["onnx/model.bin"], OLD, ref="")
    assert look(repository.path).ok, "it was fetched for another"


def test_a_part_of_a_copy_is_sound(repository) -> None:
    """Where there are no links, the blob has become the file."""
    entry = entry_of(repository)
    blob = entry.resolve()
    entry.unlink()
    blob.rename(entry)
    blob.with_name(f"{blob.name}.0123abcd.incomplete").touch()
    assert found(repository.path) == [], "it may be that of the copy"
    assert look(repository.path).unproven == (entry,)
    repository.list(FILES)
    assert found(repository.path) == []
    (repository.path / "blobs" / f"{TAG}.incomplete").touch()
    assert [finding[1] for finding in found(repository.path)] == [f"blobs/{TAG}.incomplete"]


@pytest.mark.parametrize("n_parts", [0, 2])
def test_a_repository_without_files_promises_nothing(tmp_path: Path, n_parts: int) -> None:
    repository = Repository(tmp_path)
    (repository.path / "snapshots" / COMMIT).mkdir(parents=True)
    for index in range(n_parts):
        (repository.path / "blobs" / f"{TAG}.0000000{index}.incomplete").touch()
    (repository.path / "blobs" / TAG).touch()
    parts = " and 2 parts of downloads that were cut off" if n_parts else ""
    told = f"a snapshot with files, found none, 1 blobs{parts}: run the download again"
    for path in (repository.path, repository.path / "snapshots" / COMMIT):
        with pytest.raises(ManifestNotFoundError, match=told):
            look(path)


def test_weights_that_an_index_names_beside_others_are_promised(repository) -> None:
    repository.put("unet/model.safetensors.index.json", index_of(*SHARDS))
    assert look(repository.path).ok, "none was wanted"
    for number in (1, 2):
        repository.put(f"unet/{SHARDS[number - 1]}", tensors(number))
    missing = ("missing", f"snapshots/{COMMIT}/unet/{SHARDS[2]}", "a regular file", "nothing")
    assert found(repository.path, level="present") == [missing]
    assert found(entry_of(repository, "")) == [missing]
    repository.put(f"unet/{SHARDS[2]}", tensors(3))
    assert look(repository.path).ok


def test_weights_that_the_hub_does_not_list_are_not(repository) -> None:
    files = {"model.safetensors.index.json": index_of(*SHARDS), SHARDS[0]: tensors(1)}
    for name, data in files.items():
        repository.put(name, data)
    repository.list({**FILES, **files})
    assert look(repository.path).ok
    files[SHARDS[2]] = tensors(3)
    repository.list({**FILES, **files})
    assert [finding[1] for finding in found(repository.path)] == [f"snapshots/{COMMIT}/{SHARDS[2]}"]


HOSTILE = ("../../../../etc/passwd", "/etc/passwd", "", "a\\b", SHARDS[0].upper(), SHARDS[0])


@pytest.mark.parametrize("index", [b"{", b'{"weight_map": {"a": 1}}', index_of(*HOSTILE)])
def test_an_index_that_makes_no_sense_promises_nothing(repository, index: bytes) -> None:
    repository.put(SHARDS[0], tensors(1))
    repository.put("model.safetensors.index.json", index)
    assert look(repository.path).ok


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format_version": 1, "files": {"x": {"size": -1, "blob_id": ""}}}']
)
def test_a_listing_that_is_torn_is_told(repository, text: str) -> None:
    repository.list(FILES).write_text(text)
    assert found(repository.path, level="present") == []
    ((kind, name, expected, _),) = found(repository.path, level="complete")
    assert (kind, name) == ("structure", f"trees/{COMMIT}.json")
    assert expected.startswith("a listing of the repository")


def test_a_listing_that_is_of_another_version_or_too_large_is_let_be(repository) -> None:
    for files in ('["README.md"]', '{"README.md": {"size": 1, "blob_id": "x"}}'):
        repository.list(FILES).write_text(f'{{"format_version": 2, "files": {files}}}')
        assert look(repository.path).ok
    os.truncate(repository.list(FILES), 64 * 2**20 + 1)
    assert look(repository.path).ok


@pytest.mark.parametrize(
    ("target", "is_told"), [("nothing", False), (f"{COMMIT}.json", True), ("/etc/hostname", True)]
)
def test_a_listing_that_is_a_link_is_read_inside_alone(
    repository, target: str, is_told: bool
) -> None:
    listing = repository.list(FILES)
    listing.rename(listing.with_suffix(""))
    assert look(repository.path).ok
    listing.symlink_to(target)
    told = [finding[1] for finding in found(repository.path)]
    assert told == [f"trees/{COMMIT}.json"] * is_told


def test_names_that_no_manifest_may_have_are_proven_by_their_blobs(repository) -> None:
    names = ["a\\b.bin", "new\nline.bin", "Data.bin", "data.bin"]
    for index, name in enumerate(names):
        repository.put(name, bytes([index]) * 10)
    assert look(repository.path).ok
    for name in names:
        flip(repository.path / "snapshots" / COMMIT / name)
    told = {finding[1] for finding in found(repository.path)}
    blobs = {f"blobs/{tag_of(bytes([index]) * 10)}" for index in (0, 1, 3)}
    assert told == {f"snapshots/{COMMIT}/Data.bin", *blobs}


@pytest.mark.parametrize(
    "place", ["snapshots", f"snapshots/{COMMIT}/onnx", "trees", f"trees/{COMMIT}.json"]
)
def test_what_may_not_be_read_is_told_as_such(repository, place: str) -> None:
    repository.list(FILES)
    path = repository.path / place
    path.chmod(0)
    try:
        with without_root_override(), pytest.raises(ManifestPermissionError, match=place):
            look(repository.path)
    finally:
        path.chmod(0o700)


TEXTS = st.one_of(
    st.sampled_from([COMMIT, OLD, "", f"../../blobs/{TAG}", "/", "..", ".", "../..", "loop"]),
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=60),
)


@pytest.mark.slow
@settings(examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    links=st.lists(TEXTS, max_size=4),
    refs=st.lists(st.binary(max_size=50), max_size=3),
    tree=st.one_of(st.none(), st.binary(max_size=200)),
    index=st.binary(max_size=100),
    parts=st.lists(st.sampled_from(PART_NAMES)),
)
def test_whatever_stands_there_only_our_errors_come(
    tmp_path_factory, links, refs, tree, index, parts
) -> None:
    repository = Repository(tmp_path_factory.mktemp("cache"))
    repository.put("a.index.json", index)
    folder = repository.path / "snapshots" / COMMIT
    for number, text in enumerate(links):
        os.symlink(os.fsencode(text) or b".", os.fsencode(folder / f"link-{number}"))
    for number, data in enumerate(refs):
        (repository.path / "refs" / f"ref-{number}").write_bytes(data)
    if tree is not None:
        repository.list({}).write_bytes(tree)
    for part in parts:
        (repository.path / "blobs" / part).touch()
    for path in (repository.path, folder):
        with contextlib.suppress(ManifestError):
            look(path)

"""Which directories are whose, and what saev's promise."""

import errno
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardproof import ManifestError, ManifestNotFoundError, OrderedDataLoader, formats, validate
from shardproof.manifest import ExpectedFile
from shardproof.testing.faults import FileSystemFaults
from tests.formats.looking import of_golden


@pytest.mark.parametrize(
    ("names", "holds"),
    [
        ([], "nothing; is the path right?"),
        (
            ["acts.txt", "x.bin", "metadata.json"],
            "4 entries of no known format:\n  - near saev: x.bin",
        ),
    ],
)
def test_another_directory_is_nobodys(tmp_path, names: list[str], holds: str) -> None:
    for name in names:
        (tmp_path / name).touch()
    if names:
        (tmp_path / "x.metadata.json").symlink_to("x.metadata.json")
    with pytest.raises(ManifestNotFoundError) as caught:
        formats.detect(str(tmp_path))
    assert str(caught.value).startswith(
        f"Could not read the manifest at '{tmp_path}': expected a shards directory, found {holds}"
    )


@pytest.mark.parametrize("name", ["llmc", "npy", "webdataset-tar"])
def test_a_number_of_shards_is_believed_only_where_writers_put_one(name: str, tmp_path) -> None:
    """A part of such a set is whole, and what Hadoop leaves beside others says nothing of these."""
    path = of_golden(name, tmp_path)
    [shard, *_] = (
        path / file.name for file in formats.detect(str(path)).read_manifest(str(path)).files
    )
    shard.rename(shard.with_stem("x-00003-of-00042"))
    (path / f".gone{shard.suffix}.crc").write_bytes(b"crc\0\0\0\2\0")
    assert validate(path, level="valid").ok


def test_there_are_formats_by_name() -> None:
    assert all(getattr(formats, name) is not None for name in formats.__all__)
    assert formats.names()[:3] == ["saev", "receipts", "checkpoint"]
    for name in formats.names():
        form = formats.get(name)
        assert isinstance(form, formats.Format)
        assert form.name == name
        assert form.description
        assert form.complete
        assert form.valid
    with pytest.raises(ValueError, match=r"expected one of saev, receipts, .*, found 'nonsense'"):
        formats.get("nonsense")


PACKAGE = """
import os
from pathlib import Path
from shardproof.formats import Format, Manifest, ExpectedFile

def _recognizes(path):
    return os.path.lexists(os.path.join(path, "mine.txt"))

def _read_manifest(path):
    manifest = Path(path, "mine.txt")
    files = [ExpectedFile(name=name) for name in manifest.read_text().split()]
    return Manifest(root=Path(path), path=manifest, format="mine", files=files)

FORMAT = Format(
    name="mine",
    description="a list of names, and what it lists",
    manifest_file="mine.txt",
    recognizes=_recognizes,
    read_manifest=_read_manifest,
)
NONE = 1
"""


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    site = tmp_path / "site"
    info = site / "mine-1.dist-info"
    info.mkdir(parents=True)
    (site / "mine_shards.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[shardproof.formats]\nmine = mine_shards:FORMAT\n")
    monkeypatch.syspath_prepend(site)
    yield info
    sys.modules.pop("mine_shards", None)


def test_a_format_of_another_package(package: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "mine.txt").write_text("a.bin b.bin")
    (root / "a.bin").write_bytes(b"a")

    report = validate(root)
    [finding] = report.findings
    assert (finding.kind, finding.path.name) == ("missing", "b.bin")
    assert report.format == "mine"
    assert "mine" in formats.names()
    assert repr(formats.get("mine")) == "<format mine: mine.txt>"


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("mine_shards:NONE", "expected a Format, found '1'"),
        ("mine_shards:NOTHING", "can't be loaded: "),
        ("no_such_package:FORMAT", "can't be loaded: No module named"),
    ],
)
def test_one_that_can_not_be_loaded(package: Path, tmp_path, target: str, problem: str) -> None:
    (package / "entry_points.txt").write_text(f"[shardproof.formats]\nmine = {target}\n")
    with pytest.raises(ValueError, match=problem):
        formats.get("mine")
    with pytest.raises(ManifestNotFoundError, match=problem):
        formats.detect(str(tmp_path))


def test_two_formats_that_claim_one_directory(make_shards_dir) -> None:
    shards_dir = make_shards_dir(2)
    (shards_dir / "plan.json").write_text("{}")
    (shards_dir / "receipts").mkdir()

    with pytest.raises(ManifestError, match=r"several .* \(saev, receipts\): .* --format NAME"):
        validate(shards_dir)
    assert validate(shards_dir, format="saev").ok
    with pytest.raises(ManifestError, match=r"plan.json"):
        validate(shards_dir, format="receipts")
    with pytest.raises(ValueError, match=r"format: expected one of saev, .*, found 'other'"):
        validate(shards_dir, format="other")


def test_a_list_in_a_download_of_the_hub_may_know_of_more_files(make_shards_dir) -> None:
    """The notes tell of what was downloaded; so nobody is told that all is well without a word."""
    shards_dir = make_shards_dir(2, missing_shards=[1])
    notes = shards_dir / ".cache/huggingface/download"
    notes.mkdir(parents=True)
    (notes / "shards.json.metadata").write_text("a\nb\n1.0\n")
    with pytest.raises(ManifestError, match=r"\(saev, hf-local-dir\): say which"):
        validate(shards_dir)
    assert validate(shards_dir, format="hf-local-dir").ok
    assert not validate(shards_dir, format="saev").ok


def test_the_signs_alone_import_no_format() -> None:
    code = (
        "import sys; from shardproof.formats import signs;"
        "sys.exit('msgspec' in sys.modules or 'shardproof.manifest' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_prefix_of_a_checkpoint_is_located_and_recognised(make_checkpoint) -> None:
    """Of its directory nothing else is looked at."""
    prefix = make_checkpoint(world_size=2)
    located = formats.locate(prefix)
    assert located == (str(prefix.resolve()), str(prefix.parent.resolve()))
    assert formats.detect(located.path).name == "checkpoint"
    assert formats.get("checkpoint").recognizes(located.path)
    with FileSystemFaults(prefix.parent) as fs:
        fs.fail("stat", errno.EIO, match="*.metadata.json")
        with pytest.raises(OSError, match="metadata") as caught:
            validate(prefix)
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE, errno.EACCES])
def test_labels_that_nobody_could_look_for_are_not_left_out(make_shards_dir, number: int) -> None:
    """They are optional: whether there are any is asked, and an answer is needed."""
    shards_dir = make_shards_dir(2, labels=True)
    with FileSystemFaults(shards_dir) as fs:
        fs.fail("stat", number, match="labels.bin")
        for look in (validate, functools.partial(OrderedDataLoader, layer=6)):
            with pytest.raises(OSError, match=r"labels\.bin") as caught:
                look(shards_dir)
            assert caught.value.errno == number
    assert validate(shards_dir).n_files == 3


def test_the_promise(make_shards_dir) -> None:
    tokens = {"layers": (3, 7), "content_tokens_per_example": 4, "cls_token": True, "d_model": 5}
    shards_dir = make_shards_dir(2, examples_per_shard=2, labels=True, n_examples=3, **tokens)
    manifest = formats.detect(str(shards_dir)).read_manifest(str(shards_dir))
    size = 2 * 2 * 5 * 5 * 4
    assert manifest.files == [
        ExpectedFile(name="acts000000.bin", size=size, n_items=2),
        ExpectedFile(name="acts000001.bin", size=size, n_items=1),
        ExpectedFile(name="labels.bin", size=12),
    ]
    assert (manifest.root, manifest.path) == (shards_dir, shards_dir / "shards.json")
    assert list(manifest.contradictions()) == []


TOO_FEW = [("6 examples in all, as metadata.json says", "4"), ("3 or 4 shards for 6 examples", "2")]


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([(0, 2), (1, 2), (2, 2)], []),
        ([(0, 2), (1, 2), (2, 2), (3, 0)], []),  # the extra shard may be there
        ([(0, 2), (1, 2)], TOO_FEW),
        (
            [(1, 2), (0, 2), (2, 2)],
            [("acts000000.bin with 2 examples as entry 0", "acts000001.bin with 2")],
        ),
        (
            [(0, 2), (1, 1), (2, 3)],
            [("acts000001.bin with 2 examples as entry 1", "acts000001.bin with 1")],
        ),
    ],
)
def test_what_a_killed_or_restarted_writer_leaves(make_shards_dir, entries, found) -> None:
    shards_dir = make_shards_dir(4, examples_per_shard=2, n_examples=6)
    shards = [{"name": f"acts{i:06}.bin", "n_examples": n} for i, n in entries]
    (shards_dir / "shards.json").write_text(json.dumps(shards))
    assert validate(shards_dir).findings == ()
    findings = validate(shards_dir, level="complete").findings
    assert {finding.path for finding in findings} <= {shards_dir / "shards.json"}
    assert [(finding.expected, finding.found) for finding in findings] == found


def test_labels_are_promised_where_they_are_there(make_shards_dir) -> None:
    labels = make_shards_dir(1, labels=True) / "labels.bin"
    verdicts = []
    for make in (labels.unlink, labels.touch, lambda: (labels.unlink(), labels.symlink_to("gone"))):
        make()
        verdicts.append([finding.kind.value for finding in validate(labels.parent).findings])
    assert verdicts == [[], ["empty"], ["missing"]]

"""Which directories are whose, and what saev's promise."""

import errno
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof import (
    ManifestError,
    ManifestNotFoundError,
    ManifestPermissionError,
    OrderedDataLoader,
    formats,
    saev,
    validate,
)
from shardproof.formats import signs
from shardproof.manifest import PromisedFile
from shardproof.testing import time_limit
from shardproof.testing.faults import FileSystemFaults
from tests.goldens import GOLDENS


def test_a_saev_directory_is_recognised(make_shards_dir) -> None:
    assert formats.detect(str(make_shards_dir(1))).name == "saev"


@pytest.mark.parametrize("gone", ["shards.json", "metadata.json"])
def test_a_half_written_one_too(make_shards_dir, gone: str) -> None:
    shards_dir = make_shards_dir(2)
    (shards_dir / gone).unlink()

    with pytest.raises(ManifestNotFoundError, match=f"{gone}': there is no such file"):
        formats.detect(str(shards_dir)).read_manifest(str(shards_dir))


def test_a_manifest_file_alone_is_enough(tmp_path) -> None:
    (tmp_path / "shards.json").write_text("[]")
    assert formats.detect(str(tmp_path)).name == "saev"


@pytest.mark.parametrize(
    ("names", "holds"), [([], "nothing"), (["acts.txt", "x.bin", "metadata.json"], "3 entries")]
)
def test_another_directory_is_nobodys(tmp_path, names: list[str], holds: str) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ManifestNotFoundError) as caught:
        formats.detect(str(tmp_path))
    assert str(caught.value).startswith(
        f"Could not read the manifest at '{tmp_path}': "
        f"expected a shards directory ({', '.join(formats.names())}), found {holds}"
    )


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("stat", "shards.json"),
        ("stat", "plan.json"),
        ("open", "x.metadata.json"),
        ("stat", "x.metadata.json"),
    ],
)
def test_what_could_not_be_looked_at_is_not_taken_for_absent(tmp_path, call, name) -> None:
    (tmp_path / "receipts").mkdir()
    (tmp_path / name).write_text("{}")
    with FileSystemFaults(tmp_path) as fs:
        fs.fail(call, errno.EIO, match=name)
        with pytest.raises(OSError, match="Input/output error") as caught:
            formats.detect(str(tmp_path))
    assert not isinstance(caught.value, ManifestError)


REPLACEMENTS: dict[str, Callable[[Path], None]] = {
    "FIFO": os.mkfifo,
    "link": lambda path: path.symlink_to("../outside"),
    "directory": os.mkdir,
    "nothing": lambda path: None,
}


@pytest.mark.parametrize("kind", REPLACEMENTS)
def test_metadata_that_are_replaced_after_a_first_look(tmp_path, monkeypatch, kind: str) -> None:
    (tmp_path / "outside").write_text('{"schema_version": 1, "world_size": 1}')
    root = tmp_path / "root"
    root.mkdir()
    path = root / "x.metadata.json"
    path.write_text("{}")
    real = os.stat

    def stat_then_replace(asked, *args, **keywords):
        status = real(asked, *args, **keywords)
        if str(asked).endswith(path.name):
            monkeypatch.setattr(os, "stat", real)
            path.unlink()
            REPLACEMENTS[kind](path)
        return status

    monkeypatch.setattr(os, "stat", stat_then_replace)
    with time_limit(10), pytest.raises(ManifestNotFoundError, match="a shards directory"):
        formats.detect(str(root))


def test_metadata_that_are_a_link_alone_are_nobodys(tmp_path) -> None:
    (tmp_path / "x.metadata.json").symlink_to("x.metadata.json")
    with pytest.raises(ManifestNotFoundError, match="none of a known format"):
        formats.detect(str(tmp_path))


def test_each_name_of_the_room_is_there() -> None:
    assert all(getattr(formats, name) is not None for name in formats.__all__)


@pytest.mark.parametrize("name", ["llmc", "npy", "webdataset-tar"])
def test_a_number_of_shards_is_believed_only_where_writers_put_one(name: str, tmp_path) -> None:
    """A part of such a set is whole, and what Hadoop leaves beside others says nothing of these."""
    path = next(each for each in GOLDENS if each.name == name).copy(tmp_path)
    [shard, *_] = (
        path / file.name for file in formats.detect(str(path)).read_manifest(str(path)).files
    )
    shard.rename(shard.with_stem("x-00003-of-00042"))
    (path / f".gone{shard.suffix}.crc").write_bytes(b"crc\0\0\0\2\0")
    assert validate(path, level="valid").ok


def test_there_are_formats_by_name() -> None:
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


def test_the_signs_are_those_of_the_rooms() -> None:
    """Repeated, so that a look at the signs imports none of them."""
    assert signs.SAEV.manifest_file == saev.SHARDS_FILE


PACKAGE = """
import os
from pathlib import Path
from shardproof.formats import Format, Manifest, PromisedFile

def _recognizes(path):
    return os.path.lexists(os.path.join(path, "mine.txt"))

def _read_manifest(path):
    manifest = Path(path, "mine.txt")
    files = [PromisedFile(name=name) for name in manifest.read_text().split()]
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
    """A package with a format, as pip would install it."""
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

    assert [(finding.kind, finding.path.name) for finding in report.findings] == [
        ("missing", "b.bin")
    ]
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


class TestAPrefix:
    """A checkpoint's, of whose directory nothing else is looked at."""

    @pytest.fixture
    def prefix(self, make_checkpoint) -> Path:
        return make_checkpoint(world_size=2)

    def test_it_is_located_and_recognised(self, prefix: Path) -> None:
        located = formats.locate(prefix)
        assert located == (str(prefix.resolve()), str(prefix.parent.resolve()))
        assert formats.detect(located.path).name == "checkpoint"
        assert formats.get("checkpoint").recognizes(located.path)

    def test_only_its_own_shards_are_promised(self, prefix: Path) -> None:
        other = prefix.with_name("other")
        for path in [*prefix.parent.iterdir()]:
            name = path.name.replace(prefix.name, other.name, 1)
            path.with_name(name).write_bytes(
                path.read_bytes().replace(prefix.name.encode(), other.name.encode())
            )
        manifest = formats.get("checkpoint").read_manifest(str(prefix))
        assert {file.name.partition("_shard_")[0] for file in manifest.files} == {prefix.name}

    def test_a_directory_that_is_not_there_is_none(self, tmp_path: Path) -> None:
        located = formats.locate(tmp_path / "gone")
        assert located == (str(tmp_path / "gone"),) * 2
        with pytest.raises(ManifestNotFoundError, match="there is no such directory"):
            formats.detect(located.path)

    def test_metadata_that_a_removal_takes_meanwhile_are_gone(self, prefix: Path) -> None:
        with FileSystemFaults(prefix.parent) as fs:
            fs.fail("open", errno.ENOENT, match="*.metadata.json")
            with pytest.raises(ManifestNotFoundError, match="there is no such file") as caught:
                formats.get("checkpoint").read_manifest(str(prefix))
        assert caught.value.path == f"{prefix}.metadata.json"

    @pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
    def test_nobody_could_look(self, prefix: Path, number: int) -> None:
        with FileSystemFaults(prefix.parent) as fs:
            fs.fail("stat", number, match="*.metadata.json")
            with pytest.raises(OSError, match="metadata") as caught:
                validate(prefix)
        assert caught.value.errno == number


class TestLabels:
    """They are optional: whether there are any is asked, and an answer is needed."""

    @pytest.fixture
    def shards_dir(self, make_shards_dir) -> Path:
        return make_shards_dir(2, labels=True)

    @pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE, errno.EACCES])
    def test_that_nobody_could_look_for_are_not_left_out(self, shards_dir, number: int) -> None:
        with FileSystemFaults(shards_dir) as fs:
            fs.fail("stat", number, match="labels.bin")
            for look in (validate, functools.partial(OrderedDataLoader, layer=6)):
                with pytest.raises(OSError, match=r"labels\.bin") as caught:
                    look(shards_dir)
                assert caught.value.errno == number
        assert validate(shards_dir).n_files == 3

    def test_that_may_not_be_looked_for_are_named(self, shards_dir) -> None:
        with FileSystemFaults(shards_dir) as fs:
            fs.fail("stat", errno.EACCES, match="labels.bin")
            with pytest.raises(ManifestPermissionError, match=r"labels\.bin': permission denied"):
                validate(shards_dir)


def test_the_promise(make_shards_dir) -> None:
    shards_dir = make_shards_dir(
        2,
        examples_per_shard=2,
        layers=(3, 7),
        content_tokens_per_example=4,
        cls_token=True,
        d_model=5,
        labels=True,
        n_examples=3,
    )
    manifest = formats.detect(str(shards_dir)).read_manifest(str(shards_dir))

    size = 2 * 2 * 5 * 5 * 4
    assert manifest.files == [
        PromisedFile(name="acts000000.bin", size=size, n_items=2),
        PromisedFile(name="acts000001.bin", size=size, n_items=1),
        PromisedFile(name="labels.bin", size=12),
    ]
    assert (manifest.root, manifest.path) == (shards_dir, shards_dir / "shards.json")
    assert list(manifest.contradictions()) == []


@pytest.mark.parametrize("level", ["present", "complete", "valid"])
@pytest.mark.parametrize("shape", [{}, {"labels": True}, {"n_examples": 6}, {"n_examples": 5}])
def test_a_healthy_directory_keeps_it(make_shards_dir, level, shape) -> None:
    report = validate(make_shards_dir(3, examples_per_shard=2, **shape), level=level)

    assert report.ok, str(report)
    assert (report.format, report.level) == ("saev", level)
    assert len(report.unproven) == (report.n_files if level == "valid" else 0)


def structure_findings(shards_dir: Path, shards: str) -> list[tuple[str, str]]:
    (shards_dir / "shards.json").write_text(shards)
    assert validate(shards_dir).findings == ()
    findings = validate(shards_dir, level="complete").findings
    assert {finding.path for finding in findings} <= {shards_dir / "shards.json"}
    return [(finding.expected, finding.found) for finding in findings]


def entries(*shards: tuple[int, int]) -> str:
    return json.dumps([{"name": f"acts{i:06}.bin", "n_examples": n} for i, n in shards])


class TestCountLaws:
    """What a killed or restarted writer leaves, seen from the two JSON files alone."""

    @pytest.fixture
    def shards_dir(self, make_shards_dir) -> Path:
        return make_shards_dir(4, examples_per_shard=2, n_examples=6)

    @pytest.mark.parametrize(
        "shards", [entries((0, 2), (1, 2), (2, 2)), entries((0, 2), (1, 2), (2, 2), (3, 0))]
    )
    def test_the_extra_shard_may_be_there_or_not(self, shards_dir, shards: str) -> None:
        assert structure_findings(shards_dir, shards) == []

    def test_a_last_entry_that_was_never_written(self, shards_dir) -> None:
        assert structure_findings(shards_dir, entries((0, 2), (1, 2))) == [
            ("6 examples in all, as metadata.json says", "4"),
            ("3 or 4 shards for 6 examples", "2"),
        ]

    def test_no_entry_at_all(self, shards_dir) -> None:
        assert structure_findings(shards_dir, "[]") == [
            ("6 examples in all, as metadata.json says", "0"),
            ("3 or 4 shards for 6 examples", "0"),
        ]

    def test_entries_out_of_order(self, shards_dir) -> None:
        assert structure_findings(shards_dir, entries((1, 2), (0, 2), (2, 2))) == [
            ("acts000000.bin with 2 examples as entry 0", "acts000001.bin with 2"),
        ]

    def test_a_shard_that_is_short_of_examples(self, shards_dir) -> None:
        assert structure_findings(shards_dir, entries((0, 2), (1, 1), (2, 3))) == [
            ("acts000001.bin with 2 examples as entry 1", "acts000001.bin with 1"),
        ]


def test_labels_are_promised_where_they_are_there(make_shards_dir) -> None:
    labels = make_shards_dir(1, labels=True) / "labels.bin"
    verdicts = []
    for make in (labels.unlink, labels.touch, lambda: (labels.unlink(), labels.symlink_to("gone"))):
        make()
        verdicts.append([finding.kind.value for finding in validate(labels.parent).findings])
    assert verdicts == [[], ["empty"], ["missing"]]


def test_truncated_shards_and_labels_are_found_by_their_size(make_shards_dir) -> None:
    shards_dir = make_shards_dir(2, labels=True)
    for name in ("acts000001.bin", "labels.bin"):
        with open(shards_dir / name, "r+b") as file:
            file.truncate(1)
    report = validate(shards_dir, level="complete")

    assert [(finding.path.name, finding.kind.value) for finding in report.findings] == [
        ("acts000001.bin", "size"),
        ("labels.bin", "size"),
    ]


def test_metadata_that_is_malformed(make_shards_dir) -> None:
    shards_dir = make_shards_dir(1)
    (shards_dir / "metadata.json").write_text('{"family": "clip", \n"d_model": 1e999}')
    with pytest.raises(ManifestError, match=r"metadata\.json'"):
        validate(shards_dir)

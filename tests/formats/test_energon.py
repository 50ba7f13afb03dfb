"""Archives that Energon counted and indexed: counts, indices and archives agree."""

import contextlib
import gzip
import io
import json
import os
import sqlite3
import struct
import tarfile
from functools import partial
from pathlib import Path

import pytest
import yaml

from shardproof import validate
from shardproof.errors import ManifestError
from shardproof.formats.samples import ENERGON as FORMAT
from shardproof.testing import ShardState
from tests.formats.looking import archive, contract, named

INFO = ".nv-meta/.info.json"
OLD_INFO = ".nv-meta/.info.yaml"
DATABASE = ".nv-meta/index.sqlite"
SPLIT, CLASS = ".nv-meta/split.yaml", ".nv-meta/dataset.yaml"


def index_of(data: bytes) -> bytes:
    """Return an index as Energon makes it: where each sample begins, and where tarfile stopped."""
    offsets, last = [], None
    with tarfile.open(fileobj=io.BytesIO(data)) as stream:
        for member in stream:
            key = member.name.partition(".")[0]
            if key != last:
                offsets.append(member.offset)
            last = key
        offsets.append(stream.offset)
    return struct.pack(f"<{len(offsets)}Q", *offsets)


def write_dir(counts: dict[str, int], root: Path) -> Path:
    (root / ".nv-meta").mkdir(parents=True)
    for name, n_samples in counts.items():
        (root / name).write_bytes(archive(n_samples))
        (root / f"{name}.idx").write_bytes(index_of(archive(n_samples)))
    info = {"energon_version": "7.4.1", "shard_counts": counts}
    (root / INFO).write_text(json.dumps(info, indent=2))
    (root / SPLIT).write_text("split_parts:\n  train:\n  - shard_{0..2}.tar\n")
    (root / CLASS).write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")
    return root


def write_database(root: Path) -> Path:
    with contextlib.closing(sqlite3.connect(root / DATABASE)) as db:
        db.execute("CREATE TABLE samples (key TEXT)")
        db.executemany("INSERT INTO samples VALUES (?)", [("k" * 90,)] * 500)
        db.commit()
    (root / ".nv-meta/index.uuid").write_text("0")
    return root / DATABASE


look = partial(named, FORMAT)


def write_alike(n_shards: int, base: Path) -> None:
    write_dir({f"shard_{i}.tar": 3 for i in range(n_shards)}, base)


class TestEnergon(contract(FORMAT, INFO, write_alike, "*.tar")):
    @pytest.mark.parametrize(
        "state", [ShardState.EMPTY, ShardState.UNREADABLE, ShardState.FIFO, ShardState.TRUNCATED]
    )
    def test_a_damaged_manifest_is_refused(self, form, root: Path, state: ShardState) -> None:
        """One that is a link out of its folder is still in the directory."""
        super().test_a_damaged_manifest_is_refused(form, root, state)

    def test_a_manifest_elsewhere_is_refused(self, form, root: Path) -> None:
        (root / INFO).rename(root.parent / "info.json")
        (root / INFO).symlink_to(root.parent / "info.json")
        assert "outside the root" in self.refused(form, root).text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_dir({f"shard_{i}.tar": i + 1 for i in range(3)}, tmp_path / "shards")


@pytest.mark.parametrize("name", [SPLIT, CLASS])
@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_what_an_interrupted_prepare_has_not_written(root: Path, name: str, harm) -> None:
    harm(root / name)
    assert look(root, "present") == []
    [(found, _, _, what)] = look(root)
    assert (found, "run it again" in what) == (Path(name).name, True)


@pytest.mark.parametrize("name", [SPLIT, CLASS])
@pytest.mark.parametrize("other", ["captions.yaml", "sets/captions.json", "captions.yml"])
def test_a_config_of_another_name(root: Path, name: str, other: str) -> None:
    """As ``dataset_config`` and ``split_config`` say it to Energon's loader."""
    path = root / ".nv-meta" / other
    path.parent.mkdir(exist_ok=True)
    (root / name).rename(path)
    assert look(root, "valid") == []


def test_a_prepare_that_was_interrupted_before_it_counted(root: Path) -> None:
    (root / INFO).unlink()
    with pytest.raises(ManifestError, match=r"\.info\.json': there is no such file"):
        validate(root)
    for path in root.glob("*.tar"):  # as of a folder of other files whose database alone is read
        path.unlink()
    assert not FORMAT.recognizes(str(root))


@pytest.mark.parametrize(
    "numbers", [(0, 0, 0), (0, 5120, 100), (0, 513, 10240), (0, 5120, 2**64 - 512), (0, 2048, 1024)]
)
def test_an_index_of_other_numbers(root: Path, numbers: tuple[int, ...]) -> None:
    (root / "shard_1.tar.idx").write_bytes(struct.pack("<3Q", *numbers))
    expected = "the first and last byte of a sample at the end"
    assert look(root) == [("shard_1.tar.idx", "structure", expected, "other numbers")]


def zeros_at_the_end(data: bytearray, start: int, end: int) -> None:
    data[start:] = bytes(len(data) - start)


def one_more_sample(data: bytearray, start: int, end: int) -> None:
    data[end : end + 512] = tarfile.TarInfo("more.jpg").tobuf()


@pytest.mark.parametrize("damage", [zeros_at_the_end, one_more_sample])
def test_an_archive_with_another_end_than_its_index_says(root: Path, damage) -> None:
    path = root / "shard_2.tar"
    *_, start, end = struct.unpack("<4Q", (root / "shard_2.tar.idx").read_bytes())
    data = bytearray(path.read_bytes())
    damage(data, start, end)
    path.write_bytes(data)
    expected = f"a last sample from byte {start} to byte {end}, as the index says"
    assert look(root) == [("shard_2.tar", "structure", expected, "none there")]


def test_a_shard_without_samples_owes_no_index(root: Path) -> None:
    """Energon could not read it, or there are none in it."""
    counts = {"shard_0.tar": 0, "shard_1.tar": 2, "shard_3.tgz": 5}
    (root / INFO).write_text(json.dumps({"shard_counts": counts}))
    (root / "shard_0.tar").write_bytes(bytes(10240))
    (root / "shard_0.tar.idx").unlink()
    member = tarfile.TarInfo("0.bin")
    member.size = 100_000
    packed = gzip.compress(member.tobuf(tarfile.USTAR_FORMAT) + os.urandom(100_000))
    (root / "shard_3.tgz").write_bytes(packed[:50_000] + b"other" + packed[50_005:])
    assert look(root) == []
    assert [kind for _, kind, *_ in look(root, "valid")] == ["digest"]
    strays = [each.path.name for each in validate(root, strict=True).findings]
    assert strays == ["shard_2.tar"]  # no index: Energon writes that of a packed archive, too


def test_the_database(root: Path) -> None:
    path = write_database(root)
    size = path.stat().st_size
    assert look(root, "valid") == []
    os.truncate(path, size - 4096)
    expected = f"{size} bytes for {size // 4096} pages"
    assert look(root) == [(path.name, "structure", expected, f"{size - 4096} bytes")]
    path.write_bytes(bytes(size))
    expected = "a database of SQLite"
    assert look(root) == [(path.name, "structure", expected, repr(bytes(16)))]
    path.unlink()
    assert [(name, kind) for name, kind, *_ in look(root)] == [(path.name, "missing")]
    (root / ".nv-meta/index.uuid").unlink()  # as of versions that made none
    assert look(root) == []
    write_database(root)  # of which nothing vouches for the size
    with path.open("r+b") as file:
        file.seek(92)
        file.write(b"\0\0\0\0")
    os.truncate(path, 4096)
    assert look(root) == []


def test_counts_of_old(root: Path) -> None:
    counts = {f"shard_{i}.tar": i + 1 for i in range(3)} | {"1e3": 1, "a b/c": 2, "é": 0}
    text = yaml.dump({"energon_version": "5.0.0", "shard_counts": counts}, allow_unicode=True)
    (root / INFO).unlink()
    (root / OLD_INFO).write_text(text)
    assert FORMAT.recognizes(str(root))
    manifest = FORMAT.read_manifest(str(root))
    assert manifest.path == root / OLD_INFO
    found = {f.name: f.n_items for f in manifest.files if not f.name.endswith(".idx")}
    assert found == counts


@pytest.mark.parametrize(
    "text",
    [
        *("shard_counts:\n  a: b\n", "shard_counts:\n  a: 1\n  *b : 2\n", "\0" * 100),
        "shard_counts:\n  a: " + "9" * 5000,
        *("shard_counts:\n  ../a: 1\n", "shard_counts:\n  a: 1\n  a: 2\n"),
    ],
)
def test_counts_of_old_that_are_refused(root: Path, text: str) -> None:
    (root / INFO).unlink()
    (root / OLD_INFO).write_text(text)
    with pytest.raises(ManifestError) as refused:
        FORMAT.read_manifest(str(root))
    assert str(root / OLD_INFO) in str(refused.value)

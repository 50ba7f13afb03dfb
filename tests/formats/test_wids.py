"""Archives that an index for random access lists: theirs are sizes and digests."""

import hashlib
import json
import os
from functools import partial
from pathlib import Path

import pytest

from shardproof.errors import ManifestError
from shardproof.formats.samples import WIDS as FORMAT
from shardproof.testing.strategies import hostile_names
from tests.formats.looking import archive, contract, named

INDEX = "shardindex.json"


def entry(path: Path, url: str | None = None, n_samples: int = 4) -> dict:
    data = path.read_bytes()
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    about = {"md5sum": md5, "nsamples": n_samples, "filesize": len(data)}
    return {"url": path.name if url is None else url, **about}


def write_index(path: Path, shards: list[dict], **fields) -> None:
    document = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}
    path.write_text(json.dumps(document | fields, indent=2))


def write_dir(n_shards: int, root: Path) -> Path:
    root.mkdir()
    paths = [root / f"train-{index:06d}.tar" for index in range(n_shards)]
    for path in paths:
        path.write_bytes(archive(4))
    write_index(root / INDEX, [entry(path) for path in paths], name="train")
    return root


look = partial(named, FORMAT)


def names(root: Path) -> list[str]:
    return [file.name for file in FORMAT.read_manifest(str(root)).files]


class TestWids(contract(FORMAT, INDEX, write_dir, "*.tar")):
    @pytest.mark.slow
    def test_hostile_names_are_refused(self, form, root: Path) -> None:
        """But "./name": it is what a shell makes of a pattern, and the index's reader takes it."""
        rename = self._renamed(root)
        hostile = hostile_names().filter(lambda name: not name.startswith("./"))
        self._refuses_all(form, root, hostile.map(lambda name: rename([name])))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_dir(3, tmp_path / "shards")


def test_without_sizes_the_archives_tell(root: Path) -> None:
    path = root / "train-000001.tar"
    names = sorted(each.name for each in root.glob("*.tar"))
    write_index(root / INDEX, [{"url": each, "nsamples": 4, "md5sum": ""} for each in names])
    assert look(root, "valid") == []
    path.write_bytes(bytes(10240))
    assert [(name, kind) for name, kind, *_ in look(root)] == [(path.name, "structure")]


@pytest.mark.parametrize("name", ["wids-meta.json", "train.json"])
def test_an_index_of_another_name(root: Path, name: str) -> None:
    (root / INDEX).rename(root / name)
    (root / "other.json").write_text("{}")
    (root / "link.json").symlink_to("/etc/hostname")
    os.mkfifo(root / "fifo.json")
    assert FORMAT.recognizes(str(root))
    assert FORMAT.read_manifest(str(root)).path == root / name
    assert len(names(root)) == 3


def test_addresses_elsewhere_are_promised_where_a_copy_is(root: Path) -> None:
    paths = sorted(root.glob("*.tar"))
    urls = ["https://example.org/a/train-000000.tar", "gs://bucket/train-000001.tar"]
    urls += [f"{root}/train-000002.tar"]
    shards = [entry(path, url) for path, url in zip(paths, urls, strict=True)]
    shards += [{"url": "s3://bucket/x/train-000003.tar", "nsamples": 1}]
    shards += [{"url": f"./{folder}/a.tar", "nsamples": 1} for folder in "cd"]
    # Of two that are called the same it can't be told which one a copy is.
    shards += [{"url": f"gs://{folder}/val-000000.tar", "nsamples": 1} for folder in "ef"]
    (root / "val-000000.tar").write_bytes(archive(1))
    write_index(root / INDEX, shards)
    promised = ["train-000002.tar", "c/a.tar", "d/a.tar", "train-000000.tar", "train-000001.tar"]
    assert names(root) == promised


def test_absolute_paths(root: Path) -> None:
    write_index(root / INDEX, [{"url": "/data/old/train-000000.tar", "nsamples": 4}])
    assert names(root) == ["train-000000.tar"]
    write_index(root / INDEX, [{"url": "/data/old/train-000009.tar", "nsamples": 4}])
    with pytest.raises(ManifestError, match="it is absolute"):
        names(root)


@pytest.mark.parametrize("shards", [[], [{"url": "https://example.org/a.tar", "nsamples": 1}]])
def test_an_index_of_nothing_here_is_refused(root: Path, shards: list[dict]) -> None:
    write_index(root / INDEX, shards)
    with pytest.raises(ManifestError, match="found none, or addresses elsewhere"):
        names(root)


def test_data_sets_within(root: Path) -> None:
    shards = [entry(path) for path in sorted(root.glob("*.tar"))]
    parts = [{"name": "b", "base": "https://example.org/b", "shardlist": shards[1:]}]
    parts += [{"source_url": "https://example.org/c.json"}]
    write_index(root / INDEX, shards[:1], datasets=parts)
    assert len(names(root)) == 3
    assert look(root, "valid") == []


def test_two_indices(root: Path) -> None:
    first = root / "train-000000.tar"
    (root / "val-000000.tar").write_bytes(archive(2))
    write_index(root / "val.json", [entry(root / "val-000000.tar", n_samples=2), entry(first)])
    assert len(names(root)) == 4
    assert look(root, "valid") == []
    (root / INDEX).rename(root / "all.json")
    write_index(root / "val.json", [entry(first) | {"nsamples": 5, "md5sum": "\x1b" * 90}])
    assert look(root, "present") == []
    found = sorted(look(root, "complete"))
    assert [each[:2] for each in found] == [(first.name, "structure")] * 2
    assert found[1] == (first.name, "structure", "samples 4", "5 in 'val.json'")
    assert found[0][2].startswith("digest 'md5:")
    assert found[0][3].startswith(r"'md5:\x1b\x1b")
    assert found[0][3].isprintable()


def test_a_placeholder_is_no_digest_and_a_wrong_one_is_refused(root: Path) -> None:
    path = root / "train-000000.tar"
    write_index(root / INDEX, [entry(path) | {"md5sum": None}])
    assert look(root, "valid") == []
    write_index(root / INDEX, [entry(path) | {"md5sum": "abc"}])
    with pytest.raises(ManifestError, match="expected 32 hexadecimal digits"):
        names(root)

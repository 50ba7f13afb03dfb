"""saev's own code reads what we write, and we read what saev writes.

saev is not on the package index in this form, so its source comes from a checkout::

    git clone https://github.com/OSU-NLP-Group/saev
    SAEV_CHECKOUT=$PWD/saev tox -e interop

saev's package imports every model that it knows. Only its `shards` and `indexed` modules are
imported here, as they stand, with an empty `torchvision` in the place of the one they do not use.
"""

import dataclasses
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from shardproof import Metadata, Shard, ShardInfo, testing, validate

SHAPES = [
    {},
    {"labels": True},
    {"cls_token": False},
    {"n_examples": 8, "examples_per_shard": 4},  # full, so that an extra shard follows
    {"layers": (0,), "d_model": 3, "content_tokens_per_example": 5},
]


@pytest.fixture(scope="session")
def saev() -> types.SimpleNamespace:
    source = Path(os.environ["SAEV_CHECKOUT"], "src", "saev")
    for name, path in {"saev": source, "saev.data": source / "data"}.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(path)]
    datasets = types.ModuleType("torchvision.datasets")
    datasets.ImageFolder = object
    sys.modules["torchvision.datasets"] = datasets
    sys.modules["torchvision"] = types.ModuleType("torchvision")
    sys.modules["torchvision"].datasets = datasets
    from saev.data import indexed, shards

    return types.SimpleNamespace(indexed=indexed, shards=shards)


@pytest.fixture(params=SHAPES, ids=str)
def shards_dir(request, make_shards_dir) -> Path:
    return make_shards_dir(3, **request.param)


def test_saev_reads_the_fixtures_metadata_as_we_do(saev, shards_dir) -> None:
    theirs, ours = saev.shards.Metadata.load(shards_dir), Metadata.load(shards_dir)

    assert theirs.hash == ours.hash == shards_dir.name
    assert theirs.shard_shape == ours.shard_shape
    assert theirs.n_shards == ours.n_shards
    assert theirs.examples_per_shard == ours.examples_per_shard


def test_saev_accepts_the_fixtures_shards(saev, shards_dir) -> None:
    theirs = saev.shards.ShardInfo.load(shards_dir)

    theirs.validate(shards_dir)
    ours = ShardInfo.load(shards_dir)
    assert [(s.name, s.n_examples) for s in theirs] == [(s.name, s.n_examples) for s in ours]


def test_saevs_reader_finds_each_activation_where_the_fixture_put_it(saev, shards_dir) -> None:
    metadata = Metadata.load(shards_dir)
    files = sorted(shards_dir.glob("acts*.bin"))
    shards = [np.fromfile(file, "<f4").reshape(metadata.shard_shape) for file in files]
    for layer_index, layer in enumerate(metadata.layers):
        config = saev.indexed.Config(shards=shards_dir, tokens="content", layer=layer)
        rows = saev.indexed.Dataset(config)
        assert len(rows) == metadata.n_examples * metadata.content_tokens_per_example
        for row in (rows[i] for i in range(len(rows))):
            shard, example = divmod(row["example_idx"], metadata.examples_per_shard)
            token = row["token_idx"] + metadata.cls_token
            assert (row["act"].numpy() == shards[shard][example, layer_index, token]).all()


def test_what_we_dump_is_what_saev_dumps(saev, shards_dir, tmp_path) -> None:
    root = tmp_path / "theirs" / "saev" / "shards"
    root.mkdir(parents=True)
    (tmp_path / "ours").mkdir()
    metadata = saev.shards.Metadata.load(shards_dir)
    metadata.dump(root)
    Metadata.load(shards_dir).dump(tmp_path / "ours")
    saev.shards.ShardInfo([saev.shards.Shard("acts000000.bin", 3)]).dump(root / metadata.hash)
    ShardInfo([Shard("acts000000.bin", 3)]).dump(tmp_path / "ours")

    for name in ("metadata.json", "shards.json"):
        theirs = (root / metadata.hash / name).read_bytes()
        assert (tmp_path / "ours" / name).read_bytes() == theirs


@pytest.mark.parametrize(("n_examples", "n_shards"), [(10, 3), (12, 4), (1, 1)])
def test_what_saevs_writer_leaves_is_complete(saev, tmp_path, n_examples, n_shards) -> None:
    with testing.shards_dir(testing.Layout(n_shards=1)) as sample:
        template = saev.shards.Metadata.load(sample)
    metadata = dataclasses.replace(template, n_examples=n_examples)
    root = tmp_path / "saev" / "shards"
    root.mkdir(parents=True)
    metadata.dump(root)
    with saev.shards.ShardWriter(root, metadata) as writer:
        shape = n_examples, len(metadata.layers), metadata.tokens_per_example, metadata.d_model
        writer.write_batch(torch.ones(shape), 0)

    report = validate(root / metadata.hash, level="complete")
    assert report.ok, str(report)
    assert report.n_files == n_shards
    assert Metadata.load(report.path).has_extra_shard == (n_examples == 12)


def test_both_raise_the_same_text(saev, make_shards_dir) -> None:
    shards_dir = make_shards_dir(6, missing_shards=[1, 4], empty_shards=[2], directory_shards=[3])
    texts = []
    for shard_info in (saev.shards.ShardInfo, ShardInfo):
        with pytest.raises(FileNotFoundError) as caught:
            shard_info.load(shards_dir).validate(shards_dir)
        texts.append(str(caught.value))

    assert texts[0] == texts[1]

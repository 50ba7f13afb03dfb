"""The package datasets: it reads the same rows of the same files, and takes what we deliver."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest

from shardproof.datasets.rows import hf_load_dataset_sharded, load_dataset_from_spec

COUNTS = (5, 0, 1, 7)
FEATURES = datasets.Features(
    {
        "id": datasets.Value("int64"),
        "kind": datasets.ClassLabel(names=["even", "odd"]),
        "tags": datasets.Sequence(datasets.Value("string")),
    }
)


@pytest.fixture(autouse=True)
def _quiet(tmp_path, monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


@pytest.fixture
def files(tmp_path) -> list[str]:
    """The shards, as datasets writes them, with its features in their metadata."""
    (tmp_path / "data").mkdir()
    paths = []
    for n, start in enumerate(itertools.accumulate(COUNTS[:-1], initial=0)):
        numbers = range(start, start + COUNTS[n])
        columns = {
            "id": list(numbers),
            "kind": [number % 2 for number in numbers],
            "tags": [["a", None] * (number % 3) for number in numbers],
        }
        paths.append(str(tmp_path / "data" / f"train-{n:05d}-of-{len(COUNTS):05d}.parquet"))
        datasets.Dataset.from_dict(columns, features=FEATURES).to_parquet(paths[-1], batch_size=3)
    return paths


@pytest.fixture
def options(files, shard_hub, tmp_path) -> dict[str, Any]:
    for path in files:
        name = Path(path).name
        shard_hub.put(f"data/{name}", Path(path), repo="org/name")
    return {"endpoint": shard_hub.url, "cache_dir": tmp_path / "cache"}


@pytest.fixture
def expected(files) -> list[Any]:
    rows = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    return list(rows)


def test_rows_are_those_that_it_streams(options, expected) -> None:
    assert len(expected) == sum(COUNTS)
    for skip in range(len(expected) + 1):
        assert list(hf_load_dataset_sharded("org/name", skip=skip, **options)) == expected[skip:]


def test_each_shard_is_a_dataset_with_its_features(options, expected) -> None:
    rows = hf_load_dataset_sharded("org/name", **options).shards()
    found = list(rows)
    assert [len(dataset) for dataset in found] == list(COUNTS)
    assert all(dataset.features == FEATURES for dataset in found)
    assert datasets.concatenate_datasets(found).to_list() == expected
    assert not any(dataset.cache_files for dataset in found)  # their files are gone by now


def test_a_dataset_of_what_is_left_of_a_shard(options, expected) -> None:
    row_by_row = load_dataset_from_spec("hf:org/name", **options)
    list(itertools.islice(row_by_row, 3))
    rows = load_dataset_from_spec("hf:org/name", **options).shards()
    rows.load_state_dict(json.loads(json.dumps(row_by_row.state_dict())))
    first, *others = rows
    assert first.to_list() == expected[3:5]
    assert [row for dataset in others for row in dataset] == expected[5:]


def test_it_takes_our_rows_for_a_generator(options, expected) -> None:
    rows = hf_load_dataset_sharded("org/name", **options)
    stream = datasets.IterableDataset.from_generator(lambda: iter(rows))
    assert list(stream.map(lambda row: {"next": row["id"] + 1}))[-1]["next"] == len(expected)
    assert list(stream.skip(4).take(2)) == expected[4:6]

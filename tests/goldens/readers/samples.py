"""Samples, and rows of tables."""

import json
from collections.abc import Iterable
from pathlib import Path

from ._readers import reader


@reader("mds-raw", "mds-hashed", "mds-zstd", "mds-gz", "mds-bz2", "mds-snappy", "mds-br")
@reader("mds-jsonl", "mds-csv")
def mds(root: Path) -> Iterable[object]:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    yield from StreamingDataset(local=str(root), batch_size=1)


@reader("litdata-classic", "litdata-zstd", "litdata-optimized")
def litdata(root: Path) -> Iterable[object]:
    from litdata import StreamingDataset

    yield from StreamingDataset(str(root))


@reader("litdata-tokens")
def litdata_tokens(root: Path) -> Iterable[object]:
    from litdata import StreamingDataset, TokensLoader

    for block in StreamingDataset(str(root), item_loader=TokensLoader(block_size=32)):
        yield block.tolist()


@reader("litdata-parquet")
def litdata_parquet(root: Path) -> Iterable[object]:
    from litdata import StreamingDataset
    from litdata.streaming.item_loader import ParquetLoader

    yield from StreamingDataset(str(root), item_loader=ParquetLoader())


@reader("webdataset-tar", "webdataset-gz")
def webdataset(root: Path) -> Iterable[object]:
    import webdataset as wds

    shards = sorted(map(str, root.glob("*.tar*")))
    for sample in wds.WebDataset(shards, shardshuffle=False, empty_check=False):
        yield {name: sample[name] for name in sample if name not in {"__url__", "__local_path__"}}


@reader("wids")
def wids(root: Path) -> Iterable[object]:
    from wids import ShardListDataset

    index = root / "shardindex.json"
    shards = json.loads(index.read_text())["shardlist"]
    for shard in shards:
        shard["url"] = str(root / shard["url"])
    [*samples] = ShardListDataset(shards, cache_dir=str(root.parent / "cache"))
    for sample in samples:
        yield {name: sample[name] for name in sample if name[:2] != "__" or name == "__key__"}


@reader("parquet-plain", "parquet-checksums", "parquet-indexed", "parquet-empty")
def parquet(root: Path) -> Iterable[object]:
    import pyarrow.parquet as pq

    return pq.read_table(root).to_pylist()


@reader("parquet-folders")
def parquet_folders(root: Path) -> Iterable[object]:
    import pyarrow.dataset as ds

    return ds.dataset(root, format="parquet", partitioning="hive").to_table().to_pylist()


@reader("parquet-names")
def parquet_names(root: Path) -> Iterable[object]:
    import pandas as pd

    for path in sorted(root.iterdir()):
        yield from pd.read_parquet(path).itertuples()


@reader("lerobot", "lerobot-2")
def lerobot(root: Path) -> Iterable[object]:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    for frame in LeRobotDataset("org/robot", root=root, video_backend="pyav"):
        yield {name: getattr(value, "tolist", value.__str__)() for name, value in frame.items()}


@reader("datasets-cache")
def datasets_cache(root: Path) -> Iterable[object]:
    """Whatever is prepared there, as `datasets` reads it: by what is written of it."""
    from datasets import DatasetInfo
    from datasets.arrow_reader import ArrowReader

    for folder in sorted(path.parent for path in root.glob("*/*/*/*/dataset_info.json")):
        info = DatasetInfo.from_directory(str(folder))
        for split in info.splits:
            arrow = ArrowReader(str(folder), info)
            read = arrow.read("json", split, [*info.splits.values()], in_memory=True)
            yield from ((split, row) for row in read["arrow_table"].to_pylist())


@reader("parquet-dask")
def parquet_dask(root: Path) -> Iterable[object]:
    import dask.dataframe as dd

    return dd.read_parquet(str(root)).compute(scheduler="sync").itertuples()


@reader("parquet-hive")
def parquet_hive(root: Path) -> Iterable[object]:
    import fastparquet

    return fastparquet.ParquetFile(str(root)).to_pandas().itertuples(index=False)


@reader("parquet-spark")
def parquet_spark(root: Path) -> Iterable[object]:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    return spark.getOrCreate().read.parquet(str(root)).collect()


@reader("parquet-datasets")
def parquet_datasets(root: Path) -> Iterable[object]:
    from datasets import load_dataset

    for name, split in load_dataset(str(root), cache_dir=str(root.parent / "cache")).items():
        yield from ((name, row) for row in split)


@reader("arrow", "arrow-splits")
def arrow(root: Path) -> Iterable[object]:
    from datasets import Dataset, load_from_disk

    found = load_from_disk(str(root))
    splits = {"": found} if isinstance(found, Dataset) else found
    for name, split in splits.items():
        yield from ((name, row) for row in split)


@reader("json-lines", "json-lines-gz")
def json_lines(root: Path) -> Iterable[object]:
    from datasets import load_dataset

    files = [str(path) for path in sorted(root.glob("*.json*"))]
    yield from load_dataset("json", data_files=files, cache_dir=str(root.parent / "cache"))["train"]


@reader("json-lines-zst")
def json_lines_zst(root: Path) -> Iterable[object]:
    import zstandard

    for path in sorted(root.glob("*.zst")):
        with zstandard.open(path, "rt") as lines:
            yield from map(json.loads, lines)


@reader("tfrecord")
def tfrecord(root: Path) -> Iterable[object]:
    from tfrecord.reader import tfrecord_loader

    for path in sorted(root.glob("*.tfrecord*")):
        for example in tfrecord_loader(str(path), None):
            yield {name: bytes(value) for name, value in example.items()}


@reader("tfrecord-gzip", "tfrecord-zlib")
def tensorflow(root: Path) -> Iterable[object]:
    import tensorflow as tf

    paths, kind = sorted(map(str, root.glob("*tfrecord*"))), root.name.partition("-")[2].upper()
    return [record.numpy() for record in tf.data.TFRecordDataset(paths, kind)]

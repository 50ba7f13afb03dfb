"""Samples, and rows of tables."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ._cases import Writer, case, cases, package


def mds(to: Path, **options: object) -> None:
    from streaming import MDSWriter

    columns = {"id": "int", "text": "str", "data": "bytes"}
    with MDSWriter(out=str(to), columns=columns, size_limit=700, **options) as writer:
        for number in range(24):
            writer.write({"id": number, "text": f"row {number}", "data": bytes([number]) * number})


def lines(to: Path, kind: str, **options: object) -> None:
    import streaming

    columns, make = {"id": "int", "text": "str"}, getattr(streaming, kind)
    with make(out=str(to), columns=columns, size_limit=400, **options) as writer:
        for number in range(24):
            writer.write({"id": number, "text": f"row {number}"})


cases(
    package("mosaicml-streaming"),
    mds_raw=mds,
    mds_hashed=partial(mds, hashes=["sha1", "xxh64"]),
    mds_zstd=partial(mds, compression="zstd:3", hashes=["sha256", "xxh3_128"]),
    mds_gz=partial(mds, compression="gz"),
    mds_bz2=partial(mds, compression="bz2"),
    mds_snappy=partial(mds, compression="snappy"),
    mds_br=partial(mds, compression="br"),
    mds_jsonl=partial(lines, kind="JSONWriter", hashes=["sha1"]),
    mds_csv=partial(lines, kind="CSVWriter"),
)


def litdata(to: Path, **options: object) -> None:
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(to), chunk_size=8, **options)
    for number in range(20):
        writer[number] = {"id": number, "text": f"row {number}"}
    writer.done()
    writer.merge()


cases(
    package("litdata"), litdata_classic=litdata, litdata_zstd=partial(litdata, compression="zstd")
)


@case(package("litdata"))
def litdata_tokens(to: Path) -> None:
    import torch
    from litdata.streaming.item_loader import TokensLoader
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(to), chunk_bytes=400, item_loader=TokensLoader())
    for number in range(6):
        writer[number] = torch.arange(32, dtype=torch.int64)
    writer.done()
    writer.merge()


@case(package("litdata", "polars"))
def litdata_parquet(to: Path) -> None:
    from litdata import index_parquet_dataset

    parquet(to)
    index_parquet_dataset(str(to), num_workers=1)


@case(package("litdata"))
def litdata_optimized(to: Path) -> None:
    run_as_script(OPTIMIZE, to)


OPTIMIZE = """
import litdata, sys

def sample(number):
    return {"id": number, "text": f"row {number}", "data": bytes([number]) * number}

if __name__ == "__main__":
    litdata.optimize(sample, [*range(30)], sys.argv[1], num_workers=2, chunk_size=8)
"""


def run_as_script(text: str, *arguments: object) -> None:
    """Run code by a process of its own, whose workers can import it again."""
    with tempfile.TemporaryDirectory() as place:
        script = Path(place, "script.py")
        script.write_text(text)
        subprocess.run([sys.executable, script, *map(str, arguments)], check=True)


def webdataset(to: Path, suffix: str = "tar", *, maxcount: int = 5, end: int = 12) -> None:
    import webdataset as wds

    with wds.ShardWriter(f"{to}/train-%06d.{suffix}", maxcount=maxcount, verbose=0) as writer:
        for n in range(end):
            writer.write({"__key__": f"{n:04}", "txt": f"row {n}", "cls": n})


cases(
    package("webdataset"),
    webdataset_tar=webdataset,
    webdataset_gz=partial(webdataset, suffix="tar.gz"),
)


@case(package("wids"))
def wids(to: Path) -> None:
    """By `widsindex`, which copies each archive to one place that all its runs share."""
    shared = Path("/tmp/shard.tar")
    if shared.exists():
        raise SystemExit(f"{shared} is of somebody else")
    webdataset(to, maxcount=2, end=5)
    names = sorted(path.name for path in to.glob("*.tar"))
    with in_directory(to):
        index = [sys.executable, "-m", "wids.wids_index"]
        subprocess.run([*index, "create", *names, "-o", "shardindex.json"], check=True)
    shared.unlink()


@contextlib.contextmanager
def in_directory(path: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


@case(package("megatron-energon"))
def energon(to: Path) -> None:
    webdataset(to, maxcount=2, end=3)
    words = ["--non-interactive", "--no-progress", "--num-workers", "1", "--split-ratio", "1,1,0"]
    kind = ["--sample-type", "CrudeWebdataset"]
    command = [sys.executable, "-m", "megatron.energon.cli.main", "prepare", *words, *kind, "."]
    subprocess.run(command, cwd=to, check=True)


def table() -> object:
    import pyarrow as pa

    return pa.table({"id": list(range(40)), "text": [f"row {n}" for n in range(40)]})


def parquet(to: Path, **options: object) -> None:
    import pyarrow.parquet as pq

    for number in range(3):
        name = f"train-{number:05}-of-00003.parquet"
        pq.write_table(table(), to / name, row_group_size=15, **options)


CHECKSUMS = {"write_page_checksum": True, "compression": "zstd", "data_page_version": "2.0"}
INDEXED = {"write_page_index": True, "use_dictionary": ["text"]}
"""With what most leave out, which has places of its own in a file."""

cases(
    package("pyarrow"),
    parquet_plain=parquet,
    parquet_checksums=partial(parquet, **CHECKSUMS),
    parquet_indexed=partial(parquet, **INDEXED, bloom_filter_options={"id": {"ndv": 40}}),
)


@case(package("pyarrow"))
def parquet_empty(to: Path) -> None:
    """Of nothing: no row groups, row groups without rows, and those between others with rows."""
    import pyarrow.parquet as pq

    whole, none = table(), table().slice(0, 0)
    for name, tables in {"groups": (), "rows": (none,), "some": (whole, none, whole)}.items():
        with pq.ParquetWriter(to / f"{name}.parquet", whole.schema) as writer:
            for each in tables:
                writer.write_table(each)
    pq.write_table(none, to / "dictionaries.parquet", use_dictionary=False)


@case(package("dask", "pyarrow", "pandas"))
def parquet_dask(to: Path) -> None:
    import dask.dataframe as dd

    rows = dd.from_pandas(table().to_pandas(), npartitions=4)
    rows = rows[rows.id < 25]  # the last has no rows
    rows.to_parquet(str(to), write_metadata_file=True)


@case(package("fastparquet"))
def parquet_hive(to: Path) -> None:
    import fastparquet

    rows = table().to_pandas().assign(year=lambda rows: 2023 + rows.id % 2)
    fastparquet.write(str(to), rows, file_scheme="hive", partition_on=["year"])


@case(package("pyarrow"))
def parquet_folders(to: Path) -> None:
    """In folders of two keys, without a list."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    years, months = ([begin + n % 2 for n in range(40)] for begin in (2023, 1))
    rows = table().append_column("year", [years]).append_column("month", [months])
    keys = ds.partitioning(pa.schema([("year", pa.int64()), ("month", pa.int64())]), flavor="hive")
    ds.write_dataset(rows, to, format="parquet", partitioning=keys)


@case(package("pandas", "pyarrow"))
def parquet_names(to: Path) -> None:
    """By the names that people give: the first is of the documentation of pandas."""
    for name in ("rows.parquet.gzip", "part.0.parq", "part.1.PARQUET", "part.2.pq"):
        table().to_pandas().to_parquet(to / name, compression="gzip")


def robot(to: Path, *, version: int) -> None:
    import numpy as np
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    names = {"names": ["x", "y"]}
    features = {
        "action": {"dtype": "float32", "shape": (2,), **names},
        "observation.images.top": {
            "dtype": "video",
            "shape": (64, 96, 3),
            "names": ["height", "width", "channels"],
        },
    }
    to.rmdir()
    made = LeRobotDataset.create("org/robot", 10, features, root=to, use_videos=True)
    for episode in range(2):
        for n in range(4):
            image = np.full((64, 96, 3), 40 * n, np.uint8)
            action = np.array([episode, n], np.float32)
            frame = {"action": action, "observation.images.top": image}
            if version == 2:
                made.add_frame(frame, "push")
            else:
                made.add_frame(frame | {"task": "push"})
        made.save_episode()
    if version > 2:
        made.finalize()


def lerobot_of(*versions: str) -> Writer:
    """Return what tells the version of LeRobot if it writes these: since 0.4 a file has many."""

    def writer() -> str | None:
        found = package("lerobot")()
        return found if found and found.split()[1].startswith(versions) else None

    return writer


cases(lerobot_of("0.4", "0.5", "0.6", "1."), lerobot=partial(robot, version=3))
cases(lerobot_of("0.2", "0.3"), lerobot_2=partial(robot, version=2))


@case(package("pyspark"))
def parquet_spark(to: Path) -> None:
    """With a number that is left out: of a partition without rows there is no file."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = spark.getOrCreate()
    rows = session.range(0, 300, 1, 3).selectExpr("id", "cast(id as string) as text")
    rows = rows.where("id < 100 or id >= 200")
    rows.write.mode("overwrite").parquet(str(to))
    session.stop()


@case(package("datasets"))
def parquet_datasets(to: Path) -> None:
    """By a builder of `datasets`, which writes down how many rows a split has."""
    from datasets import load_dataset_builder

    with tempfile.TemporaryDirectory() as place:
        for split, n_rows in (("train", 300), ("test", 20)):
            lines = [f'{{"id": {n}, "text": "row {n}"}}' for n in range(n_rows)]
            Path(place, f"{split}.jsonl").write_text("\n".join(lines))
        with in_directory(Path(place)):
            files = {"train": "train.jsonl", "test": "test.jsonl"}
            builder = load_dataset_builder(
                "json", data_files=files, cache_dir="cache", chunksize=2000
            )
            builder.download_and_prepare(to, file_format="parquet", max_shard_size="1KB")


@case(package("datasets"))
def arrow(to: Path) -> None:
    from datasets import Dataset

    Dataset(table()).save_to_disk(str(to), num_shards=3)


@case(package("datasets"))
def arrow_splits(to: Path) -> None:
    from datasets import Dataset, DatasetDict

    DatasetDict({"train": Dataset(table()), "test": Dataset(table())}).save_to_disk(str(to))


@case(package("datasets"))
def datasets_cache(to: Path) -> None:
    """What `load_dataset` prepares, in one file of a split or in several, and `map` caches."""
    from datasets import load_dataset

    with tempfile.TemporaryDirectory() as place, in_directory(Path(place)):
        for name, n_rows in (("train", 300), ("test", 20)):
            Path(f"{name}.jsonl").write_text("\n".join(f'{{"id": {n}}}' for n in range(n_rows)))
        both = {"train": "train.jsonl", "test": "test.jsonl"}
        rows = load_dataset("json", data_files=both, cache_dir="cache")
        rows["test"].map(lambda row: {"next": row["id"] + 1})
        files = {"train": [*both.values()]}
        load_dataset("json", data_files=files, cache_dir="cache", num_proc=2)
        to.rmdir()
        Path("cache").rename(to)


def json_lines(to: Path, suffix: str = "", **options: object) -> None:
    from datasets import Dataset

    for number in range(3):
        name = f"c4-train.{number:05}-of-00003.json{suffix}"
        Dataset(table()).shard(3, number).to_json(to / name, **options)


cases(
    package("datasets"),
    json_lines=partial(json_lines, suffix="l"),
    json_lines_gz=partial(json_lines, suffix=".gz", compression="gzip"),
)


@case(package("zstandard"))
def json_lines_zst(to: Path) -> None:
    """Of one frame, as the Pile has them, and of a frame for each few lines."""
    import zstandard

    lines = [f'{{"text": "row {n}", "meta": {{}}}}\n'.encode() for n in range(400)]
    packer = zstandard.ZstdCompressor(write_checksum=True)
    with open(to / "00.jsonl.zst", "wb") as file, packer.stream_writer(file) as stream:
        for line in lines:
            stream.write(line)
    frames = (packer.compress(b"".join(lines[n : n + 100])) for n in range(0, 400, 100))
    (to / "01.jsonl.zst").write_bytes(b"".join(frames))


@case(package("tfrecord"))
def tfrecord(to: Path) -> None:
    from tfrecord.writer import TFRecordWriter

    for number in range(2):
        writer = TFRecordWriter(str(to / f"train.tfrecord-{number:05}-of-00002"))
        for n in range(10):
            writer.write({"id": (n, "int"), "text": (f"row {n}".encode(), "byte")})
        writer.close()


def tensorflow(to: Path, compression: str, name: str = "train.tfrecord") -> None:
    """Without a suffix that tells: TensorFlow leaves that to whoever names the file."""
    import tensorflow as tf

    for number in range(2):
        path = str(to / f"{name}-{number:05}-of-00002")
        with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions(compression)) as writer:
            for n in range(10):
                writer.write(f"row {n}".encode() * n)
    with tf.io.TFRecordWriter(str(to / f"empty.{name}"), tf.io.TFRecordOptions(compression)):
        pass


cases(
    package("tensorflow-cpu"),
    tfrecord_gzip=partial(tensorflow, compression="GZIP"),
    tfrecord_zlib=partial(tensorflow, compression="ZLIB"),
)

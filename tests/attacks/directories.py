"""Directories that subjects are run in: each function fills an empty one."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import shardproof
from shardproof import checkpoint, receipts, testing
from tests.helpers.token_files import write_shard

Prepare = Callable[[Path], object]


def saev(**keywords: Any) -> Prepare:
    return _written(
        testing.Layout(
            n_shards=2, examples_per_shard=2, d_model=2, layers=[6], labels=True, **keywords
        )
    )


def plan(n_shards: int = 2, **keywords: Any) -> Prepare:
    return _written(testing.Layout(n_shards=n_shards, format="receipts", **keywords))


def _written(layout: testing.Layout) -> Prepare:
    return lambda root: testing.write_layout(layout, root)


def checkpoints(**keywords: Any) -> Prepare:
    layout = testing.Layout(2, format="checkpoint", **keywords)
    return lambda root: testing.write_layout(layout, root / layout.prefix)


def within(folder: str, *makers: Prepare) -> Prepare:
    """Fill a folder, beside an empty one that what is made of it is to go to."""

    def prepare(root: Path) -> None:
        for name in (folder, "to"):
            (root / name).mkdir()
        for make in makers:
            make(root / folder)

    return prepare


def bad_labels(root: Path) -> None:
    saev()(root)
    with open(root / "labels.bin", "ab") as file:
        file.write(b"x")


def unlabelled(root: Path) -> None:
    saev()(root)
    (root / "labels.bin").unlink()


def beside_another(*, cut: bool = False) -> Prepare:
    def prepare(root: Path) -> None:
        for name in ("a", "other"):
            (root / name).mkdir()
            saev()(root / name)
        files = sorted(path for path in (root / "other").iterdir() if path.suffix == ".bin")
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
        (root / "list.sha256").write_text("".join(sums))
        if cut:
            os.truncate(root / "a" / files[0].name, 7)

    return prepare


def arrays(step: int, rank: int, attempt: int = 0) -> dict[str, np.ndarray]:
    """As large in each attempt, so that only the bytes can tell them apart."""
    values = np.random.default_rng([step, rank, attempt]).random((2, 3))
    return {f"w{rank}": values.astype("f4"), f"b{rank}": np.arange(step + 2)}


def save(prefix: Path, step: int = 1, *, attempt: int = 0, overwrite: bool = False) -> None:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    saver = checkpoint.MultiShardSaver()
    for rank in (0, 1):
        saver.save_shard(prefix, rank, arrays(step, rank, attempt), step=step, overwrite=overwrite)
    saver.save_metadata(prefix, world_size=2, step=step)


def save_behind(prefix: Path, step: int) -> None:
    """Two ranks save at once, and change their arrays as soon as they may."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    savers, handles = [checkpoint.MultiShardSaver(attempt="behind") for _ in (0, 1)], []
    for rank, saver in enumerate(savers):
        taken = arrays(step, rank)
        handles.append(saver.begin_shard(prefix, rank, taken, step=step))
        for name in taken:
            taken[name] += 1
    for handle in handles:
        handle.result()
    savers[0].save_metadata(prefix, world_size=2, step=step)


def steps(root: Path) -> None:
    """Three whole ones, of which the last lies in a directory of its own; and an unfinished one."""
    for step in (1, 2, 3):
        save((root / "step_3" if step == 3 else root) / f"m{step}", step)
    checkpoint.MultiShardSaver().save_shard(str(root / "m4"), 0, arrays(4, 0), step=4)


def torn_steps(root: Path) -> None:
    steps(root)
    shard = root / "step_3" / "m3_shard_1.shard"
    shard.write_bytes(shard.read_bytes()[:-1])


def two_steps(root: Path) -> None:
    for step in (1, 2):
        save(root / f"m{step}", step)


def converted(root: Path) -> None:
    two_steps(root)
    checkpoint.to_safetensors(root / "m1", root / "st")


def safetensors(root: Path) -> None:
    converted(root)
    for path in root.glob("m*"):
        path.unlink()


KINDS = ("bin", "idx")


def outputs(index: int, attempt: str) -> dict[str, bytes]:
    return {f"shard_{index:06d}.{kind}": f"{attempt} {kind}".encode() * 9 for kind in KINDS}


def write_outputs(work: Any, attempt: str) -> None:
    for name, data in outputs(work.index, attempt).items():
        work.output_path(name).write_bytes(data)
    work.stats["num_sequences"] = 9


def plan_dir(root: Path) -> Path:
    (path,) = receipts.plan_dirs(root)
    return path


def run_dir(root: Path) -> Path:
    source = receipts.InputFile(path="a.txt", size=1, local_path=None)
    made = receipts.make_plan("corpus", [source], n_shards=2)
    return receipts.open_run(root, datasets=["corpus"]).store(made).path


def to_do(why: str) -> Prepare:
    """A plan of which shard 1 is done, and shard 0 is not, or not any more."""

    def prepare(root: Path) -> None:
        path = run_dir(root)
        for work in receipts.ReceiptStore(path).claim_pending():
            with work:
                write_outputs(work, "old")
        receipt = path / "receipts" / "shard_000000.json"
        if why in {"new", "failed"}:
            for file in (receipt, *path.glob("shard_000000.*")):
                file.unlink()
        if why == "failed":
            work = receipts.ReceiptStore(path).claim(0)
            work.__enter__()
            work.__exit__(ValueError, ValueError("no"), None)
        elif why == "purged":
            (path / "shard_000000.bin").unlink()
        elif why == "cut":
            (path / "shard_000000.idx").write_bytes(b"old")
        elif why == "rotten":
            data = (path / "shard_000000.bin").read_bytes()
            (path / "shard_000000.bin").write_bytes(data[::-1])
        elif why == "damaged":
            receipt.write_text('{"status": "comp')

    return prepare


def several(root: Path) -> None:
    for name, keywords in (("a", {}), ("b", {"absent": [1]})):
        where = root / "runs" / name / "datasets" / "corpus" / name
        where.mkdir(parents=True)
        plan(**keywords)(where)


def claimed(root: Path) -> None:
    made = run_dir(root)
    work = receipts.ReceiptStore(made).claim(1)
    work.__enter__()
    shutil.copytree(made, root / "now")
    work.__exit__(RuntimeError, RuntimeError("no"), None)
    shutil.rmtree(root / "runs")
    shutil.copytree(root / "now", root, dirs_exist_ok=True)
    shutil.rmtree(root / "now")


def corpus(root: Path) -> None:
    for name in ("a/x.txt", "b/y.txt", "z.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(name)


def remote(root: Path) -> None:
    (root / "remote" / "train").mkdir(parents=True)
    for n in (0, 1):
        (root / "remote" / "train" / f"{n}.bin").write_bytes(bytes([n]) * 100)
    (root / "cache").mkdir()


def foreign(root: Path) -> None:
    remote(root)
    shutil.copytree(root / "remote" / "train", root / "theirs")


def parquet(root: Path) -> None:
    (root / "data").mkdir(parents=True)
    for n in (0, 1):
        table = pa.table({"id": list(range(3 * n, 3 * n + 3))})
        pq.write_table(table, root / "data" / f"train-{n:05d}-of-00002.parquet")
    (root / "cache").mkdir()


def texts(root: Path) -> None:
    for n in range(3):
        (root / f"a{n}.txt").write_text(f"{n}\n{n}\n")


def tokens(root: Path) -> None:
    write_shard(root, 3, np.arange(12, dtype=np.uint32))


def torn_tokens(root: Path) -> None:
    tokens(root)
    path = root / "sample_ids_000003.npy"
    path.write_bytes(path.read_bytes()[:-1])


FILES = {"a": b"a" * 1000, "b": b"b" * 2000, "sub/c": b"c" * 3000}
LIST = "SHA256SUMS"


def listed(algorithm: str = "sha256") -> bytes:
    """What a list of all files is to be, made without the code under test."""
    lines = (f"{hashlib.new(algorithm, FILES[name]).hexdigest()}  {name}\n" for name in FILES)
    return "".join(lines).encode()


def plain(root: Path) -> None:
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def half_sealed(root: Path) -> None:
    """The list has one file, and another list has all."""
    plain(root)
    (root / LIST).write_bytes(listed()[: listed().index(b"\n") + 1])
    (root / "MD5SUMS").write_bytes(listed("md5"))


def begun_to_seal(root: Path) -> None:
    """An attempt ended before the list was written; all files are older than that."""
    plain(root)
    shardproof.seal(root)
    (root / LIST).unlink()


def sealed_otherwise(root: Path) -> None:
    plain(root)
    (root / "B2SUMS").write_bytes(listed("blake2b"))


SEALS: dict[str, Prepare] = {
    "plain": plain,
    "half": half_sealed,
    "begun": begun_to_seal,
    "sealed by another": sealed_otherwise,
}

"""Each file that the product reads: how to make it, how to read it, and how to sign it again."""

import contextlib
import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import shardproof
from shardproof import testing
from shardproof._base import holds
from shardproof._base.opening import Descriptor
from shardproof.checkpoint import MultiShardLoader, from_safetensors, to_safetensors
from shardproof.datasets.rows._card import configs_of, told_default
from shardproof.datasets.rows._parquet import row_count
from shardproof.datasets.tokens._token_files import IDS, read_header
from shardproof.errors import ShardproofError
from shardproof.fetching.cache._proofs import ProofFiles
from shardproof.fetching.sources import open_source
from shardproof.fetching.transfer import Limits
from shardproof.fetching.transfer._partial_file import extents_in, provenance_in
from shardproof.receipts import claims_in
from shardproof.staging._proofs import Proofs as Sidecar

PATIENCE = 2  # seconds of a processor, for one file
MEMORY = 2**29  # of which most is room for the stacks of threads, 8 MiB each

Read = Callable[[Path], Iterator[str]]


class Target(NamedTuple):
    name: str
    make: Callable[[Path], Path]
    """Make what is read, below a directory; returns where."""
    files: Sequence[str]
    """The files in it that are spoiled, one at a time."""
    read: Read
    """Read it, and yield all that is said about it."""
    seal: Callable[[bytes], bytes] = lambda data: data
    """Make good again what whoever spoils a file can make good, such as a checksum."""
    patience: float = PATIENCE
    memory: int = MEMORY


def said_by(call: Callable[[], str]) -> Iterator[str]:
    """What a call returns, or how it ended, if that is documented."""
    try:
        yield call()
    except ShardproofError as error:
        yield str(error)
    except OSError as error:
        if error.errno is None:
            raise


def saev(base: Path) -> Path:
    return testing.write_layout(testing.Layout(n_shards=2), base)


def read_saev(root: Path) -> Iterator[str]:
    for load in (shardproof.Metadata.load, shardproof.ShardInfo.load):
        yield from said_by(lambda load=load: str(load(root)) and "")
    yield from validated(root)


def validated(root: Path) -> Iterator[str]:
    report = shardproof.validate(root, level="valid", workers=1)
    yield str(report)
    yield from (f"{finding.expected} {finding.found}" for finding in report.findings)
    json.dumps(report.to_dict(), allow_nan=False).encode()


def receipts(base: Path) -> Path:
    return testing.write_layout(testing.Layout(n_shards=2, format="receipts"), base)


def read_receipts(root: Path) -> Iterator[str]:
    store = shardproof.ReceiptStore
    yield from said_by(lambda: list_of(store(root).verdicts(pending=True, level="valid")))
    yield from validated(root)


def read_claims(root: Path) -> Iterator[str]:
    assert [index for index, _ in claims_in(str(root))] == [1]
    yield from said_by(lambda: claimed(root))


def claimed(root: Path) -> str:
    """How a claim ends; all that it leaves is taken away again."""
    try:
        shardproof.ReceiptStore(root).claim(1).abandon()
    finally:
        for path in (root / "claims").iterdir():
            if path.name != CLAIM:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return ""


CLAIM = "shard_000001.json"


def list_of(values: Any) -> str:
    return "; ".join(getattr(value, "reason", value) for value in values)


def claims(base: Path) -> Path:
    root = testing.write_layout(testing.Layout(n_shards=2, format="receipts", absent=[1]), base)
    claim = {"token": "0" * 32, "owner": "uid 1 on host, process 1", "process": "a/b/1/2"}
    claim |= {"since": 1.7e9, "stale_after": 300.0, "beat": 3, "note": {"x": 1}}
    (root / "claims").mkdir(exist_ok=True)
    (root / "claims" / CLAIM).write_text(json.dumps(claim))
    return root


def checkpoint(base: Path) -> Path:
    return testing.write_layout(testing.Layout(format="checkpoint"), base / "model").parent


def read_checkpoint(root: Path) -> Iterator[str]:
    prefix = root / "model"
    loader = MultiShardLoader(workers=1)
    yield from said_by(lambda: str(loader.load_metadata(prefix)) and "")
    yield from said_by(lambda: str(len(loader.load_shard(prefix, 0))))
    yield from validated(root)


def resealed(data: bytes) -> bytes:
    """Metadata end with the checksum of what is before it."""
    body = data.rpartition(b"sha256:")[0] or data.rstrip(b"}\n")
    if not body.endswith(b'"checksum":"'):
        body = body.rstrip(b"}") + b',"checksum":"'
    return body + b"sha256:" + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def safetensors(base: Path) -> Path:
    to_safetensors(checkpoint(base / "from") / "model", base / "files")
    return base / "files"


def read_safetensors(root: Path) -> Iterator[str]:
    into = root.parent / "into"
    shutil.rmtree(into, ignore_errors=True)
    yield from said_by(lambda: str(from_safetensors(root, into / "model")))


def with_length(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def written(name: str, text: str) -> Callable[[Path], Path]:
    def make(base: Path) -> Path:
        base.mkdir(exist_ok=True)
        (base / name).write_text(text)
        return base

    return make


ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
HEADER = {"a": ENTRY, "b": ENTRY | {"data_offsets": [16, 32]}, "__metadata__": {"step": "1"}}


def npy(base: Path) -> Path:
    np.save(base / "ids.npy", np.arange(40, dtype="<u8"))
    return base


def read_npy(root: Path) -> Iterator[str]:
    fd = Descriptor(os.open(root / "ids.npy", os.O_RDONLY))
    try:
        yield str(read_header(fd, fd.status.st_size, IDS))
    finally:
        os.close(fd)


CARD = """\
language: [en]
dataset_info:
  - config_name: en
    features: [{name: text, dtype: string}]
configs:
  - config_name: en
    default: true
    data_files:
      - split: train
        path: ["en/train-*.parquet", "en/more/**"]
      - {split: test, path: en/test.parquet}
  - config_name: de
    data_dir: de
"""


def read_card(root: Path) -> Iterator[str]:
    texts = {"README.md": (root / "README.md").read_bytes().decode(errors="replace")}
    url = "hf://datasets/org/name"
    yield from said_by(lambda: repr(told_default(texts, url)))
    yield from said_by(lambda: str(len(configs_of(texts, url))))


def wide_plan(base: Path) -> Path:
    root = receipts(base)
    path = root / "plan.json"
    more = {f"field{i}": {"a": [i, None, "b"]} for i in range(200)}
    more |= {"kinds": ["bin", "idx"], "pins": [], "config": {"a": {"b": [1]}}, "run_hash": "r"}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return root


def read_plan(root: Path) -> Iterator[str]:
    yield from said_by(lambda: str(shardproof.receipts.Plan.load(root)) and "")
    yield from read_receipts(root)


WORST = """\
configs:
- {config_name: "\\u0301\\u0301", data_dir: "a*[",
   data_files: [{split: a, path: ["**/**/*", "*?*?*["]}]}
- config_name: 1:59:59:59
  data_files: |
    a/**/b
    - c
  default: yes
- {config_name: !!str x, data_files: &a ["x"], more: *a}
dataset_info: {config_name: 0x_f, features: [[[[{a: 2001-01-01}]]]]}
"""


def parquet(base: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a", "b"], "n": [1, 2]}), base / "x.parquet")
    return base


def read_parquet(root: Path) -> Iterator[str]:
    with contextlib.closing(open_source(f"file://{root}")) as source:
        yield str(row_count(source, source.stat("x.parquet", timeout=5), Limits()))


def records(base: Path) -> Path:
    source = {"source": "https://h/x", "resource": "r", "name": "x", "size": 9, "digest": None}
    source |= {"identity": '"t"'}
    (base / "part").write_text(json.dumps(source))
    stamp = {"name": "x", "source": [1, 2, 3, 4], "copy": [1, 2, 3], "digest": None, "boot": "b"}
    (base / ".shardproof-stage.jsonl").write_text(f"\n{json.dumps(stamp)}\n")
    proof = {"name": "x", "size": 9, "mtime_ns": 1, "inode": 2}
    (base / "proof").write_text(json.dumps(proof))
    return base


def with_lines(data: bytes) -> bytes:
    return data + b"\n0 5 " + b"0" * 32 + b"\n5 9 " + b"a" * 32 + b"\n"


def read_records(root: Path) -> Iterator[str]:
    yield from said_by(lambda: str(provenance_in(str(root / "part")) and ""))
    yield from said_by(lambda: str(len([*extents_in(str(root / "part"))])))
    Sidecar(str(root)).read()
    ProofFiles(str(root)).of_file("proof")
    holds.observe(str(root / "proof"))


TARGETS = [
    Target("saev", saev, ["shards.json", "metadata.json"], read_saev),
    Target("receipts", receipts, ["plan.json", "receipts/shard_000000.json"], read_receipts),
    Target("plan of many fields", wide_plan, ["plan.json"], read_plan),
    Target("worst card", written("README.md", WORST), ["README.md"], read_card),
    Target("claims", claims, [f"claims/{CLAIM}"], read_claims),
    Target("checkpoint", checkpoint, ["model.metadata.json"], read_checkpoint),
    Target("sealed", checkpoint, ["model.metadata.json"], read_checkpoint, resealed),
    Target("shard", checkpoint, ["model_shard_0.shard"], read_checkpoint),
    Target("index", safetensors, ["model.safetensors.index.json"], read_safetensors),
    Target(
        *("header", written("model.safetensors", json.dumps(HEADER)), ["model.safetensors"]),
        *(read_safetensors, with_length),
    ),
    Target("npy", npy, ["ids.npy"], read_npy),
    Target("card", written("README.md", CARD), ["README.md"], read_card),
    Target("parquet", parquet, ["x.parquet"], read_parquet),
    Target(
        "records", records, ["part", ".shardproof-stage.jsonl", "proof"], read_records, with_lines
    ),
]

"""NVIDIA-NeMo/Nemotron's own code reads our receipts and plans, and we read what it writes.

It is on no package index, so its source comes from a checkout::

    git clone https://github.com/NVIDIA-NeMo/Nemotron
    NEMOTRON_CHECKOUT=$PWD/Nemotron tox -e interop

Its package imports Ray and more. Only the modules for plans, receipts and indexed data sets are
imported here, as they stand, with an empty `ray` and `pyarrow` whose versions they ask for.
"""

import importlib
import json
import os
import sys
import types
from pathlib import Path

import fsspec
import numpy as np
import pytest

from shardproof import ReceiptStore, receipts, validate

N_SHARDS = 4


@pytest.fixture(scope="session")
def nemotron() -> types.SimpleNamespace:
    source = Path(os.environ["NEMOTRON_CHECKOUT"], "src", "nemotron")
    for name in ("", ".data_prep", ".data_prep.core", ".data_prep.utils", ".data_prep.formats"):
        package = types.ModuleType(f"nemotron{name}")
        package.__path__ = [str(source.joinpath(*name.split(".")))]
        sys.modules[package.__name__] = package
    for name in ("ray", "pyarrow"):
        sys.modules.setdefault(name, types.ModuleType(name)).__version__ = "0"
    modules = {
        name: importlib.import_module(f"nemotron.data_prep.{path}")
        for name, path in {
            "config": "config",
            "planning": "core.planning",
            "receipt": "core.receipt",
            "filesystem": "utils.filesystem",
            "indexed": "formats.indexed_dataset",
        }.items()
    }
    return types.SimpleNamespace(**modules, fs=fsspec.filesystem("file"))


@pytest.fixture
def corpus(tmp_path) -> Path:
    base = tmp_path / "corpus"
    base.mkdir()
    for index in range(2):
        (base / f"{index}.jsonl").write_text('{"text": "x"}\n' * (index + 3))
    return base


@pytest.fixture
def theirs(nemotron, corpus, tmp_path) -> Path:
    """A plan directory of Nemotron's: shard 1 is empty, 3 was started, 2 not begun."""
    dataset = nemotron.config.DatasetConfig(name="corpus", path=f"{corpus}/*.jsonl")
    request = nemotron.planning.PlanRequest(dataset, N_SHARDS, "config", None, None, None)
    plan = nemotron.planning.create_plan(request, nemotron.fs)
    root = tmp_path / "theirs"
    (root / "receipts").mkdir(parents=True)
    serialized = nemotron.planning.serialize_shard_plan(plan)
    nemotron.filesystem.write_json(nemotron.fs, str(root / "plan.json"), serialized)
    manager = nemotron.receipt.ReceiptManager(nemotron.fs, "run")

    def said(index: int) -> dict:
        path = manager.receipt_path(str(root / "receipts"), index)
        said = {"path": path, "plan_hash": plan.plan_hash, "shard_index": index}
        return said | {"dataset_name": "corpus"}

    stats, files = build(nemotron, root, 0)
    manager.write_completed(**said(0), stats=stats, files=files)
    empty = {"path": "shard_000001.bin", "bytes": 0, "checksum": "xxh64:empty"}
    manager.write_completed(**said(1), stats={"num_sequences": 0}, files={"bin": empty})
    manager.write_started(**said(3))
    return root


def build(nemotron, root: Path, index: int) -> tuple[dict, dict]:
    """A .bin and an .idx, with their digests, by Nemotron's builder."""
    name = f"shard_{index:06d}"
    with open(root / f"{name}.bin", "wb") as output:
        builder = nemotron.indexed.IndexedDatasetBuilder(output, dtype=np.int32)
        builder.add_documents([[1, 2, 3], [4, 5]])
        bin_bytes, bin_checksum = builder.get_bin_info()
    with open(root / f"{name}.idx", "wb") as output:
        idx_bytes, idx_checksum = builder.write_index(output)
    files = {
        "bin": {"path": f"{name}.bin", "bytes": bin_bytes, "checksum": bin_checksum},
        "idx": {"path": f"{name}.idx", "bytes": idx_bytes, "checksum": idx_checksum},
    }
    return builder.get_stats(), files


def test_we_read_their_receipts(theirs) -> None:
    store = ReceiptStore(theirs)
    for level in ("present", "complete", "valid"):
        assert store.pending(level) == [2, 3]
        assert validate(theirs, level=level).ok
    assert not validate(theirs, level="valid").unproven


def test_we_prove_their_digests(theirs) -> None:
    data = bytearray((theirs / "shard_000000.bin").read_bytes())
    data[0] ^= 1
    (theirs / "shard_000000.bin").write_bytes(data)
    assert ReceiptStore(theirs).pending() == [2, 3]
    assert ReceiptStore(theirs).pending("valid") == [0, 2, 3]


def test_we_read_their_plan(theirs) -> None:
    plan = receipts.read_plan(theirs)
    assert plan.n_shards == N_SHARDS
    files = [file for shard in plan.file_assignments for file in shard.files]
    assert len(files) == N_SHARDS
    assert all(file.row_modulus == 2 for file in files)


def test_we_go_on_with_their_run(theirs, nemotron) -> None:
    for work in ReceiptStore(theirs).claim_pending():
        with work:
            assert work.files
            work.output(f"shard_{work.index:06d}.bin").write_bytes(b"x")
            work.output(f"shard_{work.index:06d}.idx").write_bytes(b"x")
            work.stats["num_sequences"] = 1
    assert pending(nemotron, theirs) == ReceiptStore(theirs).pending("valid") == []


def pending(nemotron, root: Path) -> list[int]:
    """What Nemotron plans to do."""
    plan = nemotron.config.ShardPlan.from_dict(json.loads((root / "plan.json").read_bytes()))
    return nemotron.planning.get_pending_shards(plan, str(root / "receipts"), nemotron.fs)


def skips(nemotron, root: Path, index: int) -> bool:
    """Whether Nemotron's stage skips a shard."""
    manager = nemotron.receipt.ReceiptManager(nemotron.fs, "run")
    path = manager.receipt_path(str(root / "receipts"), index)
    return manager.is_completed(path, ReceiptStore(root).plan_hash)


@pytest.fixture
def ours(corpus, tmp_path) -> ReceiptStore:
    """Shards 0 and 2 are done, 1 failed, 3 was not begun."""
    plan = receipts.make_plan("corpus", receipts.source_files(corpus), N_SHARDS)
    store = receipts.open_run(tmp_path / "ours", datasets=["corpus"]).open(plan)
    for index in (0, 2):
        with store.claim(index) as work:
            work.output(f"shard_{index:06d}.bin").write_bytes(b"x")
            work.output(f"shard_{index:06d}.idx").write_bytes(b"x")
            work.stats["num_sequences"] = 1
    with pytest.raises(ZeroDivisionError), store.claim(1):
        raise ZeroDivisionError
    return store


def test_they_read_our_plan_and_receipts(ours, nemotron) -> None:
    assert pending(nemotron, ours.path) == ours.pending() == [1, 3]
    assert [skips(nemotron, ours.path, i) for i in range(N_SHARDS)] == [True, False, True, False]


def test_what_they_lose_and_we_do_not(ours, nemotron) -> None:
    """Their stage goes by the receipt alone: it skips what their planning wants to be done."""
    (ours.path / "shard_000002.bin").unlink()
    assert pending(nemotron, ours.path) == ours.pending() == [1, 2, 3]
    assert skips(nemotron, ours.path, 2)
    assert not ours.is_completed(2)

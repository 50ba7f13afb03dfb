"""NVIDIA-NeMo/Nemotron's own stages go on with our shards, and we with theirs.

It is on no package index, so its source comes from a checkout::

    git clone https://github.com/NVIDIA-NeMo/Nemotron
    NEMOTRON_CHECKOUT=$PWD/Nemotron tox -e interop

Everything is imported as it stands, with the real Ray, cosmos-xenna, transformers and pyarrow. The
stages are set up and given their work as cosmos-xenna does it in a worker, but in this process: no
cluster is started, and nothing is downloaded.
"""

import importlib
import json
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from shardproof import ReceiptStore, receipts, validate

N_SHARDS = 4
LEVELS = ("present", "complete", "valid")
MODULES = {
    "blend": "blend",
    "config": "config",
    "context": "stages.context",
    "filesystem": "utils.filesystem",
    "indexed": "formats.indexed_dataset",
    "lines": "stages.jsonl_write",
    "plan": "stages.plan",
    "planning": "core.planning",
    "pretrain": "recipes.pretrain",
    "receipt": "core.receipt",
    "rl": "recipes.rl",
    "tokens": "stages.megatron_bin_idx",
    "work": "core.work_items",
}


@pytest.fixture(scope="session")
def nemotron() -> Iterator[types.SimpleNamespace]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(Path(os.environ["NEMOTRON_CHECKOUT"], "src")), *sys.path])
        modules = {
            name: importlib.import_module(f"nemotron.data_prep.{path}")
            for name, path in MODULES.items()
        }
        yield types.SimpleNamespace(**modules, fs=fsspec.filesystem("file"))


@pytest.fixture
def corpus(tmp_path) -> Path:
    base = tmp_path / "corpus"
    base.mkdir()
    for index in range(2):
        (base / f"{index}.jsonl").write_text('{"text": "x y"}\n' * (index + 3))
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
        assert store.pending(level=level) == [2, 3]
        assert validate(theirs, level=level).ok
    assert not validate(theirs, level="valid").unproven


def test_we_prove_their_digests(theirs) -> None:
    data = bytearray((theirs / "shard_000000.bin").read_bytes())
    data[0] ^= 1
    (theirs / "shard_000000.bin").write_bytes(data)
    assert ReceiptStore(theirs).pending() == [2, 3]
    assert ReceiptStore(theirs).pending(level="valid") == [0, 2, 3]


def test_we_read_their_plan(theirs) -> None:
    plan = receipts.Plan.load(theirs)
    assert plan.n_shards == N_SHARDS
    files = [file for shard in plan.file_assignments for file in shard.files]
    assert len(files) == N_SHARDS
    assert all(file.row_modulus == 2 for file in files)


def test_we_go_on_with_their_run(theirs, nemotron) -> None:
    for work in ReceiptStore(theirs).claim_pending():
        with work:
            assert work.files
            work.output_path(f"shard_{work.index:06d}.bin").write_bytes(b"x")
            work.output_path(f"shard_{work.index:06d}.idx").write_bytes(b"x")
            work.stats["num_sequences"] = 1
    assert pending(nemotron, theirs) == ReceiptStore(theirs).pending(level="valid") == []


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
    plan = receipts.make_plan("corpus", receipts.input_files(corpus), n_shards=N_SHARDS)
    store = receipts.open_run(tmp_path / "ours", datasets=["corpus"]).store(plan)
    for index in (0, 2):
        with store.claim(index) as work:
            work.output_path(f"shard_{index:06d}.bin").write_bytes(b"x")
            work.output_path(f"shard_{index:06d}.idx").write_bytes(b"x")
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


class Pipeline:
    """One of Nemotron's recipes: its planning stage, and the stage that writes shards."""

    def __init__(self, nemotron, item: Any, adapter: Any, stage: Any) -> None:
        context = stage._ctx
        self.item, self.stage, self.root = item, stage, Path(item.run_dir)
        self.planning = nemotron.plan.PlanStage(nemotron.plan.PlanStageConfig(), context, adapter)
        self.planning.setup(None)
        self.stage.setup(None)

    def plan(self) -> list[Any]:
        """What it hands to its second stage: the shards that are not done."""
        return self.planning.process_data([self.item])

    def store(self) -> ReceiptStore:
        (plan_dir,) = self.root.glob(f"datasets/{self.item.dataset_name}/*")
        return ReceiptStore(plan_dir)

    def on_disk(self) -> dict[str, tuple[int, int]]:
        """Which files there are; another if it was written again."""
        files = (path for path in self.root.rglob("shard_*") if path.is_file())
        return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


@pytest.fixture(params=["none", "zstd"])
def lines(nemotron, corpus, tmp_path, request) -> Pipeline:
    """The recipe for reinforcement learning: JSON lines."""
    run_dir = tmp_path / "out" / "runs" / "run"
    item = nemotron.work.JsonlDatasetWorkItem(
        "corpus__train", f"{corpus}/*.jsonl", 1.0, None, None, "text", "run", str(run_dir),
        "config", N_SHARDS, compression=request.param,
    )  # fmt: skip
    context = nemotron.context.PipelineContext(str(tmp_path / "out"), "run", str(run_dir), "config")
    stage = nemotron.lines.JsonlShardStage(nemotron.lines.JsonlShardStageConfig(), context)
    return Pipeline(nemotron, item, nemotron.rl.JsonlPlanAdapter(), stage)


def write_lines(store: ReceiptStore, suffix: str) -> list[int]:
    """Do what is left by shardproof."""
    made = []
    for work in store.claim_pending():
        with work:
            rows = [
                row
                for file in work.files
                for number, row in enumerate(Path(file.local_path).read_text().splitlines())
                if file.has_row(number)
            ]
            work.output_path(f"shard_{work.index:06d}.{suffix}").write_text("\n".join(rows))
            work.stats["num_records"] = len(rows)
        made.append(work.index)
    return made


class TestJsonLines:
    def test_their_stages_find_our_shards_done(self, lines, nemotron, tmp_path) -> None:
        items = lines.plan()
        lines.stage.process_data(items[:1])
        suffix = "jsonl.zst" if lines.item.compression == "zstd" else "jsonl"
        assert write_lines(lines.store(), suffix) == [1, 2, 3]

        before = lines.on_disk()
        assert lines.plan() == []
        lines.stage.process_data(items)
        assert lines.on_disk() == before
        done = nemotron.rl.finalize_rl_run(str(lines.root), tmp_path / "out", ["train"], "corpus")
        assert (len(items), done.total_records) == (N_SHARDS, 7)
        assert done.split_paths == {"train": str(lines.store().path / f"shard_000000.{suffix}")}
        manifest = json.loads((tmp_path / "out/manifest.json").read_text())
        assert manifest["train"].endswith(suffix)
        assert lines.store().pending() == []

    def test_their_stages_make_again_what_was_lost(self, lines) -> None:
        items = lines.plan()
        write_lines(lines.store(), "jsonl")
        (lines.store().path / "shard_000002.jsonl").unlink()
        assert [item.shard_index for item in lines.plan()] == lines.store().pending() == [2]
        lines.stage.process_data(items)
        assert lines.plan() == lines.store().pending() == []

    def test_we_find_their_shards_done(self, lines) -> None:
        lines.stage.process_data(lines.plan())
        store = lines.store()
        assert write_lines(store, "jsonl") == []
        outputs = [store.path / store.receipt(i).extra["output_file"] for i in range(N_SHARDS)]
        report = validate(store.path, level="valid")
        assert report.ok
        if lines.item.compression == "zstd":  # their digest is that of the lines, not of the file
            assert sorted(report.unproven) == outputs
            return
        assert store.pending(level="valid") == []
        outputs[3].write_bytes(outputs[3].read_bytes()[:-1] + b"?")
        assert store.pending(level="valid") == [3]


@pytest.fixture
def tokens(nemotron, corpus, tmp_path) -> Pipeline:
    """The recipe for pretraining: .bin and .idx, with a tokenizer that knows three words."""
    import tokenizers
    import transformers

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, "x": 1, "y": 2}, "?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")
    whole.save_pretrained(tmp_path / "tokenizer")
    dataset = nemotron.blend.Dataset(name="corpus", path=f"{corpus}/*.jsonl", weight=1.0)
    (item,), context, resolved = nemotron.pretrain.setup_pretrain_run(
        nemotron.blend.DataBlend(datasets=[dataset]),
        tmp_path / "out",
        {"model": str(tmp_path / "tokenizer"), "add_eos": False},
        num_shards=N_SHARDS,
    )
    context = nemotron.context.PipelineContext(
        str(tmp_path / "out"), context.run_hash, context.run_dir, None, resolved
    )
    config = nemotron.tokens.BinIdxTokenizationStageConfig()
    stage = nemotron.tokens.BinIdxTokenizationStage(config, context)
    return Pipeline(nemotron, item, nemotron.pretrain.PretrainPlanAdapter(), stage)


def write_tokens(nemotron, store: ReceiptStore) -> list[int]:
    """Do what is left by shardproof, with Nemotron's builder."""
    made = []
    for work in store.claim_pending():
        with work:
            outputs = [
                work.output_path(f"shard_{work.index:06d}.{kind}") for kind in ("bin", "idx")
            ]
            work.stats |= build(nemotron, outputs[0].parent, work.index)[0]
        made.append(work.index)
    return made


class TestTokens:
    def test_their_stages_find_our_shards_done(self, tokens, nemotron) -> None:
        items = tokens.plan()
        tokens.stage.process_data(items[:1])
        assert write_tokens(nemotron, tokens.store()) == [1, 2, 3]

        before = tokens.on_disk()
        assert tokens.plan() == []
        tokens.stage.process_data(items)
        assert tokens.on_disk() == before
        assert tokens.store().pending(level="valid") == []

    @pytest.mark.parametrize("kind", ["bin", "idx"])
    def test_one_output_of_two_is_neither_done_there_nor_here(self, tokens, nemotron, kind) -> None:
        items = tokens.plan()
        write_tokens(nemotron, tokens.store())
        store = tokens.store()
        path = store.path / "receipts" / "shard_000002.json"
        receipt = json.loads(path.read_bytes())
        receipt.pop("kinds", None)
        (store.path / receipt["files"].pop(kind)["path"]).unlink()
        path.write_text(json.dumps(receipt))

        assert [item.shard_index for item in tokens.plan()] == store.pending() == [2]
        tokens.stage.process_data(items)
        assert tokens.plan() == store.pending(level="valid") == []

    def test_we_find_their_shards_done(self, tokens) -> None:
        tokens.stage.process_data(tokens.plan())
        store = tokens.store()
        for level in LEVELS:
            assert store.pending(level=level) == []
            assert validate(store.path, level=level).ok
        assert not validate(store.path, level="valid").unproven
        (store.path / "shard_000001.idx").unlink()
        assert [item.shard_index for item in tokens.plan()] == store.pending() == [1]


def test_they_name_a_plan_of_the_same_inputs_otherwise(lines) -> None:
    """So their planning goes on with runs that it began, and not with a plan of ours."""
    source = receipts.input_files(Path(lines.item.path).parent)
    ours = receipts.make_plan(lines.item.dataset_name, source, n_shards=N_SHARDS)
    assert lines.plan()[0].plan_hash != ours.plan_hash

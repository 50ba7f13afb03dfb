"""An empty path is refused wherever one is taken: mostly a variable of a script is not set."""

import inspect
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import shardproof
from shardproof import checkpoint, datasets, fetching, receipts
from shardproof.cli import app
from shardproof.fetching import fetch_file
from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.cache._settings import cache_root

METADATA = shardproof.Metadata(
    family="clip", ckpt="c", layers=(0,), content_tokens_per_example=1, cls_token=False, d_model=1,
    n_examples=1, max_tokens_per_shard=1, data="", dataset="/d",
)  # fmt: skip
STATE = {"bias": np.arange(3)}
SAVER, LOADER = shardproof.MultiShardSaver(), shardproof.MultiShardLoader()

ENTRANCES = {
    "validate path": lambda: shardproof.validate(""),
    "validate against": lambda: shardproof.validate("/nowhere", against=""),
    "forecast path": lambda: shardproof.forecast("", purge_after=1),
    "forecast victims": lambda: shardproof.forecast("/nowhere", victims=""),
    "seal path": lambda: shardproof.seal(""),
    "repair path": lambda: shardproof.repair("", "https://example.org"),
    "repair source": lambda: shardproof.repair("/nowhere", ""),
    "repair against": lambda: shardproof.repair("/nowhere", "https://x.org", against=""),
    "stage path": lambda: shardproof.stage(""),
    "stage to": lambda: shardproof.stage("/nowhere", ""),
    "ShardInfo.load shards_dir": lambda: shardproof.ShardInfo.load(""),
    "ShardInfo.dump shards_dir": lambda: shardproof.ShardInfo().dump(""),
    "ShardInfo.validate shards_dir": lambda: shardproof.ShardInfo().validate(""),
    "Metadata.load shards_dir": lambda: shardproof.Metadata.load(""),
    "Metadata.dump shards_dir": lambda: METADATA.dump(""),
    "OrderedDataLoader shards_dir": lambda: shardproof.OrderedDataLoader("", layer=0),
    "ShuffledDataLoader shards_dir": lambda: shardproof.ShuffledDataLoader("", layer=0),
    "IndexedDataset shards_dir": lambda: shardproof.IndexedDataset("", layer=0),
    "ReceiptStore plan_dir": lambda: shardproof.ReceiptStore(""),
    "Plan.load plan_dir": lambda: receipts.Plan.load(""),
    "Run.load path": lambda: receipts.Run.load(""),
    "open_run output_dir": lambda: receipts.open_run("", datasets=["corpus"]),
    "input_files path": lambda: receipts.input_files(""),
    "pin_files path": lambda: receipts.pin_files(""),
    "pin_hub output_dir": lambda: receipts.pin_hub("org/name", "0" * 40, output_dir=""),
    "claims_in plan_dir": lambda: list(receipts.claims_in("")),
    "save_shard prefix": lambda: SAVER.save_shard("", 0, STATE),
    "save_metadata prefix": lambda: SAVER.save_metadata("", world_size=1),
    "load_shard prefix": lambda: LOADER.load_shard("", 0),
    "load_metadata prefix": lambda: LOADER.load_metadata(""),
    "load_all_shards prefix": lambda: LOADER.load_all_shards(""),
    "verify_checkpoint prefix": lambda: shardproof.ShardFileVerifier().verify_checkpoint(""),
    "latest_checkpoint path": lambda: shardproof.latest_checkpoint(""),
    "unfinished_steps path": lambda: list(checkpoint.unfinished_steps("")),
    "prune path": lambda: checkpoint.prune(""),
    "to_safetensors prefix": lambda: checkpoint.to_safetensors("", "/nowhere"),
    "to_safetensors to": lambda: checkpoint.to_safetensors("/nowhere/model", ""),
    "from_safetensors source": lambda: checkpoint.from_safetensors("", "/nowhere/model"),
    "from_safetensors prefix": lambda: checkpoint.from_safetensors("/nowhere", ""),
    "fetch to": lambda: shardproof.fetch(own_source(), "", name="x"),
    "fetch_file path": lambda: fetch_file(own_source(), "x", ""),
    "ShardPrefetcher cache_dir": lambda: shardproof.ShardPrefetcher(own_source(), ["x"], ""),
    "CallableSource scratch": lambda: own_source(scratch=""),
    "Cache root": lambda: Cache(""),
    "cache_root cache_dir": lambda: cache_root("", "hf://datasets/org/name"),
    "SharedShardedDataset shards_path": lambda: shardproof.SharedShardedDataset(
        0, 1, shards_path=""
    ),
    "locate_shards shards_path": lambda: shardproof.SharedShardedDataset.locate_shards(0, ""),
    "ShardedDatasetManager shards_path": lambda: shardproof.ShardedDatasetManager(
        1, 0, 1, own_source(), shards_path=""
    ),
    "adopt path": lambda: fetching.adopt(""),
    "plan_dirs path": lambda: list(receipts.plan_dirs("")),
    "hf_load_dataset_sharded cache_dir": lambda: shardproof.hf_load_dataset_sharded(
        "org/name", cache_dir="", source=own_source()
    ),
    "load_dataset_from_spec cache_dir": lambda: datasets.load_dataset_from_spec(
        "hf:org/name", cache_dir="", source=own_source()
    ),
    "resolve_resume_plan cache_dir": lambda: shardproof.resolve_resume_plan(
        "hf:org/name", cache_dir="", source=own_source()
    ),
}


def own_source(**keywords: object) -> fetching.CallableSource:
    return fetching.CallableSource(lambda name, path: None, ["x"], **keywords)


@pytest.fixture(autouse=True)
def a_place_where_an_empty_path_would_do(make_shards_dir, monkeypatch) -> Path:
    """The current directory is a healthy one, which is what made a wrong script pass."""
    shards_dir = make_shards_dir(2)
    monkeypatch.chdir(shards_dir)
    return shards_dir


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_in_the_library(entrance: str) -> None:
    before = sorted(os.listdir())
    with pytest.raises(ValueError, match="is a variable not set") as caught:
        ENTRANCES[entrance]()
    assert str(caught.value).startswith(f"{entrance.split()[1]}: expected a path, found an empty")
    assert sorted(os.listdir()) == before


def test_each_public_name_that_takes_a_path_is_in_the_list() -> None:
    words = {"path", "shards_dir", "shards", "prefix", "directory", "cache_dir", "plan_dir"}
    words |= {"output_dir", "to", "root", "shards_path", "source", "scratch"}
    tried = {entrance.split()[0] for entrance in ENTRANCES}
    for module in (shardproof, receipts, checkpoint, fetching):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) and words & set(inspect.signature(value).parameters):
                assert name in tried | {"promise"}, name


COMMANDS = [
    ["validate", ""],
    ["validate", "{here}", ""],
    ["validate", "{here}", "--against", ""],
    ["repair", "", "--from", "{here}"],
    ["repair", "{here}", "--from", ""],
    ["repair", "{here}", "--from", "/tmp", "--against", ""],
    ["seal", ""],
    ["stage", ""],
    ["stage", "{here}", "--to", ""],
    ["fetch", "", "{here}"],
    ["fetch", "file://{here}/acts000000.bin", ""],
    ["adopt", ""],
    ["adopt", "{here}", "--from", ""],
    ["receipts", ""],
    ["checkpoint", "verify", ""],
    ["checkpoint", "show", ""],
    ["checkpoint", "latest", ""],
    ["checkpoint", "convert", "", "{here}/new"],
    ["checkpoint", "convert", "{here}", ""],
    ["demo", "--to", ""],
]


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_on_the_command_line(args: list[str], monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    before = sorted(os.listdir())
    result = CliRunner().invoke(app.app, [arg.format(here=Path.cwd()) for arg in args])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Invalid value for" in result.stderr
    assert "is a variable not set?" in result.stderr
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--shards-dir="], "--shards-dir=PATH"),
        (["-o", "shards_dirs="], "ini option shards_dirs"),
        (["-o", "shards_dirs=''"], "ini option shards_dirs"),
    ],
)
def test_in_a_test_run(pytester: pytest.Pytester, options: list[str], problem: str) -> None:
    pytester.makeini("[pytest]\nvalidate_shards = true")
    result = pytester.runpytest_inprocess("--validate-shards", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {problem}: expected a path, found *variable not set?*"])


COMMANDS_HERE = ["validate here", "validate .", "stage here", "receipts .", "adopt ."]
COMMANDS_HERE += ["fetch file:///nowhere/x .", "checkpoint verify model", "demo --to here"]


@pytest.mark.parametrize("command", COMMANDS_HERE)
def test_below_a_current_directory_that_is_gone_nobody_can_look(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result = CliRunner().invoke(app.app, command.split())
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"Could not check '{command.rsplit(maxsplit=1)[-1]}'" in result.stderr
    assert "current directory" in result.stderr

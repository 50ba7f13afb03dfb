"""A copy of what is in a store: proven, and used again."""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import shardproof
from shardproof import FetchError, ManifestError, ShardValidationError, stage
from shardproof.fetching import HubSource
from tests.helpers.commands import run
from tests.helpers.in_memory import contents_of, in_memory
from tests.helpers.planning import new_store

OURS = {".shardproof-stage.jsonl", ".shardproof-stage.lock"}


@pytest.fixture
def stored() -> Iterator[Callable[[Path], str]]:
    """Copy directories into a store, and return their addresses."""
    with contextlib.ExitStack() as stack:
        yield lambda path: stack.enter_context(in_memory(path))


@pytest.fixture
def address(shards_dir, stored) -> str:
    return stored(shards_dir)


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """Note each shard of which bytes are read in the store."""
    names, before = list[str](), MemoryFileSystem.cat_file

    def note(self, path, *args, **kwargs):
        if path.endswith(".bin"):
            names.append(path.rpartition("/")[2])
        return before(self, path, *args, **kwargs)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", note)
    return names


def content(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name not in OURS}


@pytest.mark.parametrize("level", ["present", "complete", "valid"])
def test_a_copy_has_all_of_it(address, to, level) -> None:
    copy = stage(address, to, level=level)

    assert content(copy) == contents_of(address)
    assert shardproof.validate(copy, level="valid").ok
    assert {path.name for path in copy.iterdir()} - set(content(copy)) == OURS, "no parts are left"


def test_what_is_there_is_not_fetched_again(address, to, opened) -> None:
    first = stage(address, to)
    opened.clear()

    assert stage(address, to) == first
    assert opened == []


def test_what_changed_in_the_store_is_fetched_again(address, to, opened) -> None:
    copy = stage(address, to)
    memory, path = fsspec.filesystem("memory"), address.partition(":/")[2] + "/acts000001.bin"
    data = memory.cat(path)[::-1]
    memory.rm(path)
    memory.pipe(path, data)
    opened.clear()

    assert stage(address, to) == copy
    assert (copy / "acts000001.bin").read_bytes() == data
    assert {*opened} == {"acts000001.bin"}


def test_damage_in_the_store_is_reported_and_nothing_is_copied(
    shards_dir, to, opened, stored
) -> None:
    (shards_dir / "acts000001.bin").write_bytes(b"short")
    address = stored(shards_dir)

    with pytest.raises(ShardValidationError, match=r"acts000001\.bin") as caught:
        stage(address, to)

    assert str(caught.value.report.findings[0].path) == f"{address}/acts000001.bin"
    assert not list(to.rglob("*.bin"))


def test_what_can_not_be_checked_in_a_store_is_refused(tmp_path, to, stored) -> None:
    plan = new_store(tmp_path, 3)
    with pytest.raises(ManifestError, match="only directories of saev are staged from a bucket"):
        stage(stored(plan.path), to)

    assert not list(to.rglob("plan.json"))


def test_a_store_that_fails_is_continued(address, to, monkeypatch, opened) -> None:
    before, is_down = MemoryFileSystem.info, [True]

    def info(self, path, **kwargs):
        if is_down and path.endswith("acts000002.bin"):
            raise OSError("the store is down")
        return before(self, path, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr("shardproof.fetching.transfer._attempts._seconds_between", lambda *_: 0.0)
        patch.setattr(MemoryFileSystem, "info", info)
        with pytest.raises(FetchError, match="the store is down"):
            stage(address, to, workers=1)
    assert all(path.parent.name.endswith(".unfinished") for path in to.rglob("acts*"))
    opened.clear()

    copy = stage(address, to)

    assert {*opened} == {"acts000002.bin"}
    assert content(copy) == contents_of(address)


def test_a_repository_of_the_hub_is_a_store(shards_dir, to, shard_hub, monkeypatch) -> None:
    pytest.importorskip("huggingface_hub")
    source = functools.partial(HubSource, "org/name", endpoint=shard_hub.url, subfolder="dir")
    monkeypatch.setattr("shardproof.remote._directory.open_source", lambda _: source())
    for file in shards_dir.iterdir():
        shard_hub.put(f"dir/{file.name}", file.read_bytes(), repo="org/name")

    copy = stage("hf://datasets/org/name/dir", to, level="valid")

    assert content(copy) == content(shards_dir)
    assert stage("hf://datasets/org/name/dir", to, level="valid") == copy


def test_a_copy_is_on_this_machine(address) -> None:
    with pytest.raises(ValueError, match="expected a path on this machine"):
        stage(address, "memory://elsewhere")


def test_the_command(address, to) -> None:
    done = run("stage", address, "--to", to, "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["path"]) == (0, address)
    assert content(Path(told["copy"])) == contents_of(address)
    assert run("stage", "memory://nothing-here", "--to", to).exit_code == 2
    assert run("stage", "nosuch://bucket/dir", "--to", to).exit_code == 2

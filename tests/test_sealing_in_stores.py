"""Seal a directory in a store: what it states is believed, the rest is read, one request writes."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from shardproof import SealError, ShardValidationError, seal, validate
from tests.helpers.commands import run
from tests.helpers.in_memory import contents_of, in_memory


@pytest.fixture
def stored() -> Iterator[Callable[[Path], str]]:
    """Copy directories into a store, and return their addresses."""
    with contextlib.ExitStack() as stack:
        yield lambda path: stack.enter_context(in_memory(path))


@pytest.fixture
def address(make_shards_dir, stored) -> str:
    return stored(make_shards_dir(3))


def test_the_list_is_that_of_a_directory(make_shards_dir, stored) -> None:
    path = make_shards_dir(3)
    address = stored(path)

    sealed = seal(address)

    assert (str(sealed.path), str(sealed.list_path)) == (address, f"{address}/SHA256SUMS")
    assert (sealed.n_files, sealed.n_resumed) == (3, 0)
    assert "shards.json" in sealed.left_out
    there = seal(path).list_path.read_bytes()
    assert contents_of(address)["SHA256SUMS"] == there
    assert str(validate(address, level="valid")).startswith("valid: 3 of 3 files")


def test_what_is_damaged_is_not_sealed(make_shards_dir, stored) -> None:
    path = make_shards_dir(3)
    (path / "acts000001.bin").write_bytes(b"short")
    address = stored(path)

    with pytest.raises(ShardValidationError, match=r"acts000001\.bin"):
        seal(address)

    assert "SHA256SUMS" not in contents_of(address)


def test_nothing_is_sealed_twice(address) -> None:
    seal(address)
    before = contents_of(address)

    with pytest.raises(SealError, match="it is sealed already"):
        seal(address)

    assert contents_of(address) == before


def test_update_adds_what_is_new(make_shards_dir, stored) -> None:
    address = stored(make_shards_dir(2))
    first = seal(address)
    fsspec.filesystem("memory").rm(address.partition(":/")[2], recursive=True)
    fs, more = fsspec.filesystem("memory"), make_shards_dir(3)
    root = address.partition(":/")[2]
    for file in more.iterdir():
        fs.pipe(f"{root}/{file.name}", file.read_bytes())
    assert first.n_files == 2
    fs.pipe(f"{root}/SHA256SUMS", b"0" * 64 + b"  acts000000.bin\n")

    sealed = seal(address, update=True)

    assert sealed.added == ("acts000001.bin", "acts000002.bin")
    assert sealed.n_files == 3
    lines = contents_of(address)["SHA256SUMS"].decode().splitlines()
    assert lines[0] == "0" * 64 + "  acts000000.bin", "nothing is ever blessed twice"


@pytest.mark.parametrize("data", [b"of another size", None])
def test_what_changes_while_it_is_read_ends_it(address, monkeypatch, data) -> None:
    before, changed = MemoryFileSystem.cat_file, list[str]()

    def read(self, path, *args, **kwargs):
        found = before(self, path, *args, **kwargs)
        if path.endswith("acts000001.bin") and not changed:
            changed.append(path)
            self.rm(path)
            self.pipe(path, data or found[::-1])
        return found

    monkeypatch.setattr(MemoryFileSystem, "cat_file", read)
    with pytest.raises((SealError, OSError), match=r"changed (while|since)"):
        seal(address)

    assert changed
    assert "SHA256SUMS" not in contents_of(address)


def test_a_list_that_came_meanwhile_stays(address, monkeypatch) -> None:
    before = MemoryFileSystem.pipe_file

    def piped(self, path, value, mode="overwrite"):
        before(self, path, b"of another process")
        if mode == "create":  # which fsspec before 2024.12 does not know
            raise FileExistsError(path)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", piped)
    with pytest.raises(SealError, match="another process has written it"):
        seal(address)

    assert contents_of(address)["SHA256SUMS"] == b"of another process"


def test_a_list_whose_answer_was_lost_is_ours(address, monkeypatch) -> None:
    """A client that asks again finds the list that its first request has written."""
    before = MemoryFileSystem.pipe_file

    def piped(self, path, value, mode="overwrite"):
        before(self, path, value)
        if mode == "create":
            raise FileExistsError(path)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", piped)

    assert seal(address).n_files == 3


def test_the_command(address) -> None:
    done = run("seal", address)
    assert done.exit_code == 0
    assert done.output.startswith(f"'{address}/SHA256SUMS': 3 files\n")
    assert run("seal", address).exit_code == 2
    assert run("seal", "memory://nothing-here").exit_code == 2


def test_where_nothing_is_written(shard_hub, monkeypatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", shard_hub.url)
    shard_hub.put("0.bin", b"1234", repo="org/name")

    with pytest.raises(SealError, match="nothing is written there: seal a copy"):
        seal("hf://datasets/org/name")

"""Checkpoints elsewhere: a store that fails is told as such, whatever its client raises."""

import errno
import json
import os
import pickle
import re
from collections.abc import Iterator

import numpy as np
import pytest
from fsspec.exceptions import FSTimeoutError
from fsspec.implementations.memory import MemoryFileSystem

from shardproof import FindingKind, MultiShardSaver, ShardFileVerifier, latest_checkpoint
from shardproof.checkpoint import FsspecStorage
from shardproof.formats import detect
from tests.helpers.saving import saved


class RefusedError(Exception):
    """As httpx.ConnectError and botocore's are: no OSError at all."""


NOT_LOOKED = {
    "a time that is over": FSTimeoutError(),
    "a status": OSError("503 Server Error"),
    "no connection": RefusedError("Connection refused"),
    "a page instead of JSON": json.JSONDecodeError("Expecting value", "<html>", 0),
    "two texts": OSError("Forbidden", "bucket"),
    "a number": OSError(errno.ESTALE, "Stale file handle"),
}


def words_of(error: Exception) -> str:
    """A pattern for what an error says, or for its class where it says nothing."""
    return re.escape(str(error)) or type(error).__name__


class Failing(MemoryFileSystem):
    """A store in which one call fails for the paths that have a word in them."""

    store, pseudo_dirs, cachable, protocol = {}, [""], False, "failing"
    call, word, error = "", "", Exception()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:  # that of memory knows memory:// alone
        return super()._strip_protocol(path.removeprefix("failing://"))

    @classmethod
    def fail(cls, call: str, word: str, error: Exception) -> None:
        cls.call, cls.word, cls.error = call, word, error

    def __getattribute__(self, name: str):
        found = super().__getattribute__(name)
        return self._failing(found) if name == Failing.call else found

    def _failing(self, call):
        def fail(path="", *args, **keywords):
            if Failing.word in path:
                raise Failing.error
            return call(path, *args, **keywords)

        return fail


@pytest.fixture
def storage() -> Iterator[FsspecStorage]:
    storage = FsspecStorage(Failing())
    for step in (1, 2):
        save(storage, step)
    yield storage
    Failing.call = ""
    Failing.store.clear()
    Failing.pseudo_dirs[:] = [""]


def save(storage, step: int, prefix: str = "/run/step_{}/m") -> str:
    saver = MultiShardSaver(storage)
    saver.save_shard(prefix.format(step), 0, {"w": np.arange(9)}, step=step)
    return saver.save_metadata(prefix.format(step), world_size=1, step=step)


def verify(storage):
    return ShardFileVerifier(storage).verify_checkpoint("/run/step_2/m")


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("memory://run/model", "memory:///run/model"),
        ("memory:///model", "memory:///model"),
        ("run/model", "memory:///run/model"),
        ("file:///run/model", "file:///run/model"),
    ],
)
def test_a_url_is_its_own(path: str, url: str) -> None:
    storage = FsspecStorage.from_url(path if "://" in path else f"memory://{path}")
    assert storage.url(path) == url
    assert storage.url(url) == url


def test_a_checkpoint_at_the_root_of_a_store() -> None:
    storage = FsspecStorage.from_url("memory://")
    try:
        assert save(storage, 1, "memory://at_root") == "memory:///at_root.metadata.json"
        assert latest_checkpoint("memory://", name="at_root") == "memory:///at_root"
    finally:
        storage._fs.rm_file("/at_root_shard_0.shard")
        storage._fs.rm_file("/at_root.metadata.json")


LOOKS = {  # which call, and what its path has in it
    ("invalidate_cache", "step_2"),
    *((call, f"step_2/m{end}") for call in ("info", "cat_file") for end in ("_shard", ".meta")),
}


@pytest.mark.parametrize(("call", "word"), sorted(LOOKS))
@pytest.mark.parametrize("error", NOT_LOOKED.values(), ids=NOT_LOOKED)
def test_a_verdict_says_that_nobody_could_look(storage, call: str, word: str, error) -> None:
    Failing.fail(call, word, error)
    result = verify(storage)
    assert result.exit_code == 3
    assert [finding.kind for finding in result.findings] == [FindingKind.UNREADABLE]


@pytest.mark.parametrize(("call", "word"), [*sorted(LOOKS), ("ls", "run")])
@pytest.mark.parametrize("error", NOT_LOOKED.values(), ids=NOT_LOOKED)
def test_no_older_step_is_taken_for_the_newest(storage, call: str, word: str, error) -> None:
    Failing.fail(call, word, error)
    with pytest.raises(OSError, match=words_of(error)) as caught:
        latest_checkpoint("/run", storage=storage)
    assert caught.value.errno in errno.errorcode


@pytest.mark.parametrize("error", NOT_LOOKED.values(), ids=NOT_LOOKED)
@pytest.mark.parametrize("call", ["makedirs", "put_file", "pipe_file"])
def test_what_can_t_be_written_is_an_error_of_the_system(storage, call, error) -> None:
    Failing.fail(call, "", error)
    with pytest.raises(OSError, match=words_of(error)):
        save(storage, 3)


def test_what_the_store_says_is_not_there_is_not_there(storage) -> None:
    Failing.fail("info", "m_shard", FileNotFoundError("/run/step_2/m_shard_0.shard"))
    result = verify(storage)
    assert result.exit_code == 1
    assert [finding.kind for finding in result.findings] == [FindingKind.MISSING]
    assert latest_checkpoint("/run", storage=storage) is None


def test_a_directory_in_the_place_of_a_shard_was_looked_at(storage) -> None:
    path = "/run/step_2/m_shard_0.shard"
    del Failing.store[path]
    storage._fs.pipe_file(f"{path}/inside", b"x")
    result = verify(storage)
    assert result.exit_code == 1
    assert [finding.kind for finding in result.findings] == [FindingKind.NOT_REGULAR]
    assert latest_checkpoint("/run", storage=storage) == "failing:///run/step_1/m"


@pytest.mark.parametrize(
    "error",
    [ImportError("Install s3fs"), NotImplementedError(), TypeError("token"), ValueError("repo id")],
    ids=lambda error: type(error).__name__,
)
def test_wrong_usage_stays_what_it_is(storage, error) -> None:
    Failing.fail("info", "m_shard", error)
    with pytest.raises(type(error)):
        verify(storage)


def test_what_is_sent_for_a_shard_does_not_grow_with_its_tensors(tmp_path) -> None:
    """An executor is sent the probe again for each shard whose digest it computes."""
    sizes = []
    for n_tensors in (1, 300):
        state = {f"layer.{i}.weight": np.zeros(1, np.float32) for i in range(n_tensors)}
        root = os.path.realpath(saved(tmp_path / str(n_tensors) / "m", [state] * 4).parent)
        sizes.append(len(pickle.dumps(detect(root).read_manifest(root).probe)))
    assert sizes[1] < sizes[0] + 100

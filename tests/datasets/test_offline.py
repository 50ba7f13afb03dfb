"""The listing of a repository: asked for by limits; kept, and believed only if it is right."""

import io
import itertools
import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from shardproof.datasets.rows import hf_load_dataset_sharded
from shardproof.datasets.rows._rows import ShardedRows
from shardproof.errors import SourceError
from shardproof.fetching.cache import key_of
from shardproof.fetching.transfer._attempts import Limits
from shardproof.testing.faults import Hub, serve_hub

NAMES = [f"data/train-{n:05d}-of-00003.parquet" for n in range(3)]
CARD = b"---\nconfigs: [{config_name: a, data_files: 'data/train-*'}]\n---\n"
ROWS = [{"n": n} for n in range(6)]
LIMITS = Limits(attempts=2, stall_timeout=10, max_backoff=0)

Load = Callable[..., ShardedRows]


def fill(hub: Hub) -> None:
    for n, name in enumerate(NAMES):
        buffer = io.BytesIO()
        pq.write_table(pa.table({"n": [2 * n, 2 * n + 1]}), buffer)
        hub.put(name, buffer.getvalue(), repo="org/name")
    hub.put("README.md", CARD, repo="org/name")


@pytest.fixture
def repo(shard_hub: Hub) -> Hub:
    fill(shard_hub)
    return shard_hub


@pytest.fixture
def load(repo: Hub, tmp_path: Path) -> Load:
    def load(**options: Any) -> ShardedRows:
        options = {"limits": LIMITS, "cache_dir": tmp_path, "cleanup": "keep"} | options
        return hf_load_dataset_sharded("org/name", endpoint=repo.url, **options)

    return load


def commit_of(rows: ShardedRows) -> str:
    return str(rows.state_dict()["source"]).partition("@")[2]


@pytest.mark.slow
@pytest.mark.parametrize("request_", ["api/datasets/org/name", "api/*/tree/*"])
@pytest.mark.parametrize("fault", ["status-503", "stall-before-header", "truncated"])
def test_a_listing_is_asked_for_again(request_: str, fault: str, load: Load, repo: Hub) -> None:
    repo.fault(request_, fault, times=1)
    stalls = fault.startswith("stall")  # a busy machine that pauses as long takes some attempts
    limits = Limits(attempts=9 if stalls else 2, stall_timeout=0.3 if stalls else 10, max_backoff=0)
    assert list(load(limits=limits)) == ROWS
    assert repo.requests_for(request_, fault=fault)


def test_a_card_that_is_none_is_told_although_an_earlier_listing_is_kept(
    load: Load, repo: Hub
) -> None:
    """A `SourceError` is a `FetchError`, and is not taken for a hub that can't be asked."""
    assert list(load()) == ROWS
    repo.put("README.md", b"\xff" + CARD, repo="org/name")
    with pytest.raises(SourceError, match=r"the dataset card .* expected UTF-8") as caught:
        load()
    assert caught.value.kind == "unusable"
    assert "can't be listed" not in str(caught.value)


@pytest.fixture
def gone(tmp_path: Path) -> tuple[Load, str]:
    """Load from a hub that was there once; and the commit that it had."""
    with serve_hub() as hub:
        fill(hub)
        options: Any = {"endpoint": hub.url, "cache_dir": tmp_path, "cleanup": "keep"}
        commit = commit_of(hf_load_dataset_sharded("org/name", **options))
        assert list(hf_load_dataset_sharded("org/name", revision=commit, **options)) == ROWS

    def load(**changes: Any) -> ShardedRows:
        return hf_load_dataset_sharded(
            "org/name", **options | {"limits": Limits(attempts=1)} | changes
        )

    return load, commit


def test_a_commit_starts_from_what_is_kept(gone: tuple[Load, str]) -> None:
    load, commit = gone
    rows = load(revision=commit)
    assert list(rows) == ROWS == list(rows)
    assert [list(load(revision=commit, skip=n)) for n in range(7)] == [ROWS[n:] for n in range(7)]
    iterator = iter(rows)
    list(itertools.islice(iterator, 3))
    later = load(revision=commit)
    later.load_state_dict(json.loads(json.dumps(rows.state_dict())))
    iterator.close()
    assert list(later) == ROWS[3:]
    assert list(load(revision=commit, data_files=NAMES[1])) == ROWS[2:4]


def test_a_branch_is_taken_for_its_last_known_commit(
    gone: tuple[Load, str], caplog: pytest.LogCaptureFixture
) -> None:
    load, commit = gone
    with caplog.at_level(logging.WARNING):
        rows = load()
    assert commit_of(rows) == commit
    assert f"what is kept of commit {commit} is taken" in caplog.text
    with pytest.raises(SourceError, match=r"nothing is kept of it in '.*org--name'. Load it once"):
        load(revision="v1")


def test_a_refusal_is_an_answer(load: Load, repo: Hub) -> None:
    commit = commit_of(load())
    repo.fault("api/*", "status-404")
    with pytest.raises(SourceError, match="after 2 attempts") as caught:
        load(revision=commit)
    assert caught.value.kind == "refused"


def test_a_listing_that_is_kept_without_its_card(load: Load, repo: Hub) -> None:
    commit = commit_of(load(data_files="data/*"))
    repo.fault("*", "status-503")
    assert load(revision=commit, data_files="data/*").data_files == NAMES
    with pytest.raises(SourceError, match="it was kept without the dataset card"):
        load(revision=commit)
    repo.heal()
    load(revision=commit)
    load(revision=commit, data_files="data/*")  # which takes nothing away
    repo.fault("*", "status-503")
    assert load(revision=commit).data_files == NAMES


def kept(tmp_path: Path, revision: str = "") -> Path:
    return tmp_path / "listings" / "org--name" / f"{key_of(revision)}.json"


HARM: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda data: data[: len(data) // 2],
    "a key twice": lambda data: data.replace(b'"commit"', b'"commit":"","commit"'),
    "another name": lambda data: data.replace(b"00001-of", b"00009-of"),
    "no digest of a file": lambda data: re.sub(rb'"digest":"git[^"]*"', b'"digest":null', data),
    "one file less": lambda data: re.sub(rb'\{"name":[^}]*00001-of[^}]*\},?', b"", data),
}


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARM)
def test_a_listing_that_is_not_as_it_was_kept_is_not_believed(
    harm: str, gone: tuple[Load, str], tmp_path: Path
) -> None:
    load, commit = gone
    path = kept(tmp_path, commit)
    data = path.read_bytes()
    path.write_bytes(HARM[harm](data))
    with pytest.raises(SourceError, match="what is kept of it is not believed") as caught:
        load(revision=commit)
    assert str(path) in str(caught.value)
    assert load().data_files == NAMES  # of the branch, which was the same commit
    path.unlink()
    assert list(load(revision=commit)) == ROWS
    path.mkdir()
    with pytest.raises(SourceError, match="expected a regular file, found a directory"):
        load(revision=commit)


def test_what_is_wrong_is_written_anew_and_what_fails_is_told(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load()
    path = kept(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:-9])
    load()
    assert path.read_bytes() == data
    shutil.rmtree(path.parent)
    path.parent.write_bytes(b"")
    assert list(load()) == ROWS
    assert "Could not keep a listing in" in caplog.text


def test_of_each_revision_what_it_was_last_is_kept(load: Load, repo: Hub, tmp_path: Path) -> None:
    commits = []
    for n in range(3):
        repo.put("x.txt", b"%d" % n, repo="org/name")
        commits.append(commit_of(load()))
    assert [path.name for path in kept(tmp_path).parent.iterdir()] == [kept(tmp_path).name]
    repo.fault("*", "status-503")
    assert commit_of(load(revision=commits[-1])) == commits[-1] == commit_of(load())
    with pytest.raises(SourceError, match="nothing is kept of it"):
        load(revision=commits[0])


def test_the_word_of_the_library_that_there_is_no_network(
    load: Load, repo: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit = commit_of(load())
    n_requests = len(repo.requests)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load(revision=commit).data_files == NAMES
    assert caplog.text.count("HF_HUB_OFFLINE is set") >= 1
    assert len(repo.requests) == n_requests

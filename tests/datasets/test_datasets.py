"""Datasets shard by shard: the rows, where they go on, and what is fetched and kept for it."""

import contextlib
import errno
import io
import itertools
import json
import os
import pickle
import re
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof.datasets.rows import (
    hf_load_dataset_sharded,
    load_dataset_from_spec,
    resolve_resume_plan,
)
from shardproof.datasets.rows._rows import ShardedRows
from shardproof.datasets.rows._shard_lists import known_counts
from shardproof.datasets.rows._specs import TextSpec
from shardproof.errors import FetchError, ShardReadError, SourceError
from shardproof.fetching.transfer._attempts import Limits
from shardproof.testing.faults import FileSystemFaults, Hub
from tests.helpers.drawing import examples

LIMITS = Limits(attempts=1, stall_timeout=5)
COUNTS = (5, 0, 1, 7)
N_ROWS = sum(COUNTS)
NAMES = [f"data/train-{n:05d}-of-{len(COUNTS):05d}.parquet" for n in range(len(COUNTS))]

Load = Callable[..., ShardedRows]


def table(start: int, n_rows: int) -> pa.Table:
    numbers = range(start, start + n_rows)
    nested = [None if n % 4 == 1 else [{"a": n}] * (n % 3) for n in numbers]
    kind = pa.list_(pa.struct([("a", pa.int64())]))
    return pa.table({"id": pa.array(numbers, pa.int64()), "x": pa.array(nested, kind)})


def shards(counts: Sequence[int], group: int = 3) -> Iterator[bytes]:
    starts = itertools.accumulate(counts, initial=0)
    for start, n_rows in zip(starts, counts, strict=False):
        buffer = io.BytesIO()
        pq.write_table(table(start, n_rows), buffer, row_group_size=group)
        yield buffer.getvalue()


ROWS = table(0, N_ROWS).to_pylist()


@pytest.fixture
def repo(shard_hub: Hub) -> Hub:
    for name, data in zip(NAMES, shards(COUNTS), strict=True):
        shard_hub.put(name, data, repo="org/name")
    shard_hub.put("README.md", b"# Data", repo="org/name")
    return shard_hub


@pytest.fixture
def load(repo: Hub, tmp_path: Path) -> Load:
    def load(*arguments: Any, **options: Any) -> ShardedRows:
        options = {"cache_dir": tmp_path, "endpoint": repo.url, "limits": LIMITS} | options
        return hf_load_dataset_sharded("org/name", *arguments, **options)

    return load


def fetched_whole(hub: Hub) -> list[str]:
    return [name for name in NAMES for request in hub.requests_for(name) if _is_whole(request)]


def _is_whole(request: Any) -> bool:
    return request.method == "GET" and "range" not in request.headers and request.bytes_sent > 0


def test_batches_and_columns(load: Load) -> None:
    for size, error in ((0, ValueError), (True, TypeError), ("2", TypeError)):
        with pytest.raises(error, match="size: expected"):
            load().batches(size)  # type: ignore[arg-type]
    batches = list(load(skip=1).batches(2))
    assert pa.Table.from_batches(batches).to_pylist() == ROWS[1:]
    assert [batch.num_rows for batch in batches] == [2, 2, 1, 2, 1, 2, 1, 1]
    assert list(load(columns=["id"])) == [{"id": n} for n in range(N_ROWS)]
    with pytest.raises(ValueError, match="has no 'y', but 'id', 'x'"):
        list(load(columns=["y"]))


@examples(30)
@given(
    counts=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    group=st.integers(1, 5),
    data=st.data(),
)
def test_rows_after_a_skip_are_what_pyarrow_reads_after_it(
    counts: list[int], group: int, data: st.DataObject
) -> None:
    skip = data.draw(st.integers(0, sum(counts)))
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "source")
        source.mkdir()
        for n, content in enumerate(shards(counts, group)):
            (source / f"train-{n}.parquet").write_bytes(content)
        files = sorted(source.iterdir())
        expected = pa.concat_tables(map(pq.read_table, files)).to_pylist()
        rows = hf_load_dataset_sharded(
            "org/name", cache_dir=f"{place}/cache", source=f"file://{source}", skip=skip
        )
        assert list(rows) == expected[skip:]
        again = rows.skip(sum(counts) - skip)
        assert list(again) == []


@pytest.mark.slow
@pytest.mark.parametrize("are_rows", [True, False])
def test_each_state_leads_to_the_rest(are_rows: bool, load: Load) -> None:
    def numbers(item: Any) -> list[int]:
        return [item["id"]] if are_rows else item["id"].to_pylist()

    whole = load() if are_rows else load().batches(2)
    states = [whole.state_dict()]
    done = [0]
    for item in whole:
        states.append(json.loads(json.dumps(whole.state_dict())))
        done.append(done[-1] + len(numbers(item)))
    assert done[-1] == N_ROWS
    rows = load() if are_rows else load().batches(2)
    for state, n_done in [*zip(states, done, strict=True)][::3]:
        assert state["total_rows"] == n_done
        rows.load_state_dict(state)
        assert rows.state_dict() == state
        rest = [n for item in rows for n in numbers(item)]
        assert rest == list(range(n_done, N_ROWS))
    assert [n for item in rows for n in numbers(item)] == list(range(N_ROWS))  # the next epoch


def test_a_state_is_of_the_row_that_came_last(load: Load) -> None:
    rows = load()
    for n, row in enumerate(itertools.islice(rows, 6)):
        state = rows.state_dict()
        assert (row["id"], state["total_rows"]) == (n, n + 1)
    assert state["shard"] == NAMES[3]  # the first row after it is there: none is fetched to see it
    assert (state["shard_index"], state["row"]) == (3, 0)
    assert len(json.dumps(state)) < 500
    rows.close()
    assert list(load(skip=state["total_rows"])) == ROWS[6:]


def test_shards_that_are_skipped_are_not_fetched(load: Load, repo: Hub) -> None:
    assert list(load(skip=8)) == ROWS[8:]
    assert fetched_whole(repo) == NAMES[3:]
    asked = [request for name in NAMES[:3] for request in repo.requests_for(name)]
    assert asked
    assert all("range" in request.headers for request in asked)


def test_numbers_of_rows_are_asked_for_once(load: Load, repo: Hub, tmp_path: Path) -> None:
    def n_asked() -> int:
        return sum("range" in request.headers for request in repo.requests_for("data/*"))

    load(skip=8)
    once = n_asked()
    assert load(skip=12).state_dict()["total_rows"] == 12
    assert n_asked() == once
    (kept,) = (tmp_path / "row_counts").iterdir()
    written = kept.stat().st_mtime_ns
    load(skip=8)
    assert kept.stat().st_mtime_ns == written
    kept.write_text('{"row_counts": {"sha256:0": -1}}')
    assert list(load(skip=8)) == ROWS[8:]
    assert n_asked() == 2 * once


@pytest.mark.parametrize("end", ["exhausted", "closed", "left", "error"])
def test_no_thread_and_no_lease_is_left(end: str, load: Load, repo: Hub) -> None:
    with contextlib.suppress(FetchError), load(prefetch=2) as rows:
        if end == "error":
            repo.fault(NAMES[2], "status-404")
        iterator = iter(rows)
        next(iterator)
        if end == "closed":
            rows.close()
            assert list(iterator) == []
        elif end != "left":
            list(iterator)
    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name.startswith("shardproof-")}  # but those of the hub


def test_a_shard_that_never_comes_is_an_error_in_its_place(load: Load, repo: Hub) -> None:
    repo.fault(NAMES[2], "status-404")
    rows = load()
    iterator = iter(rows)
    assert [next(iterator)["id"] for _ in range(5)] == list(range(5))
    with pytest.raises(FetchError, match=r"train-00002"):
        next(iterator)
    repo.heal()
    state = rows.state_dict()
    rows = load()
    rows.load_state_dict(state)
    assert list(rows) == ROWS[5:]


def test_a_shard_that_is_damaged_at_its_source(repo: Hub, load: Load, tmp_path: Path) -> None:
    repo.put(NAMES[2], b"PAR1 and no more", repo="org/name")
    with pytest.raises(ShardReadError) as caught:
        list(load())
    assert str(tmp_path) in str(caught.value)
    assert "train-00002" in str(caught.value)
    assert "Parquet magic bytes not found" in str(caught.value)
    with pytest.raises(ShardReadError, match=r"hf://datasets/org/name/data/train-00002"):
        load(skip=6)


def test_what_split_and_name_mean(load: Load, repo: Hub) -> None:
    (data,) = shards([2])
    repo.put("en/test-0.parquet", data, repo="org/name")
    assert list(load("test", "en")) == ROWS[:2]
    assert list(load("test", data_files="en/*.parquet")) == ROWS[:2]
    assert list(load(data_files=[NAMES[2], NAMES[0]])) == [ROWS[5], *ROWS[:5]]
    assert list(load(data_files=())) == []
    for wrong in ({"split": "validation"}, {"name": "de"}, {"data_files": ["x.parquet"]}):
        with pytest.raises(SourceError, match=r"hf://datasets/org/name@\w{40}' does not have"):
            load(**wrong)


def test_a_revision_is_the_one_that_was_asked_for(load: Load, repo: Hub, tmp_path: Path) -> None:
    (data,) = shards([2])
    revision = "refs/convert/parquet"
    repo.put("default/train/0.parquet", data, repo="org/name", revision=revision)
    assert list(load(revision=revision)) == ROWS[:2]
    (there,) = (tmp_path / "hf_shards" / "org").iterdir()
    assert there.name.startswith("name@")


def test_all_epochs_are_of_the_commit_that_was_found_first(load: Load, repo: Hub) -> None:
    rows = load()
    state = rows.state_dict()
    (data,) = shards([2])
    for name in NAMES:
        repo.put(name, data, repo="org/name")
    assert list(rows) == ROWS
    assert list(rows.skip(6)) == ROWS[6:]
    assert rows.data_files == NAMES
    at_commit = load(revision=state["source"].partition("@")[2])
    at_commit.load_state_dict(state)
    assert list(at_commit) == ROWS
    assert list(load()) == ROWS[:2] * 4


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"skip": -1}, ValueError, "skip: expected 0 or more, found -1"),
        ({"skip": True}, TypeError, "skip: expected int, found True"),
        ({"skip": N_ROWS + 1}, ValueError, f"at most {N_ROWS}, the rows of all 4 files"),
        ({"prefetch": -1}, ValueError, "prefetch: expected 0 or more"),
        ({"cleanup": "never"}, ValueError, "cleanup: expected 'auto', 'keep' or None"),
        ({"cleanup": "keep", "max_cache_bytes": 9}, ValueError, "which removes nothing"),
        ({"split": "a/b"}, ValueError, "split 'a/b': it has a slash"),
        ({"data_files": [NAMES[0], ""]}, ValueError, "data_files: .* is a variable not set"),
        ({"columns": "id"}, TypeError, "columns: expected a list of names, found the text 'id'"),
    ],
)
def test_wrong_arguments(options: Any, error: type[Exception], said: str, load: Load) -> None:
    with pytest.raises(error, match=said):
        load(**options)


@pytest.mark.parametrize("argument", ["source", "endpoint", "data_files"])
def test_an_empty_text_means_neither_the_hub_nor_the_current_directory(
    argument: str, texts: Path, load: Load, repo: Hub
) -> None:
    refused = pytest.raises(ValueError, match=f"{argument}: .* is a variable not set")
    options: dict[str, Any] = {"endpoint": repo.url, argument: ""}
    with refused:
        load(**options)
    for spec in ("hf:org/name", f"txt:{texts}/a9.txt"):
        with refused:
            resolve_resume_plan(spec, 1, texts, limits=LIMITS, **options)
    with refused:
        load_dataset_from_spec("hf:org/name", texts, **options)
    with pytest.raises(ValueError, match="is a variable not set"):
        load_dataset_from_spec(f"txt:{texts}/a9.txt", texts, data_files="")
    assert not repo.requests


def test_batches_go_on_where_rows_are(load: Load) -> None:
    rows = load(skip=1)
    list(itertools.islice(rows, 2))
    state = rows.state_dict()
    assert rows.batches(2).state_dict()["total_rows"] == 1  # a new pass, as of the rows
    rows.load_state_dict(state)
    batches = rows.batches(2)
    assert batches.state_dict() == state
    assert pa.Table.from_batches(list(batches)).to_pylist() == ROWS[3:]
    assert pa.Table.from_batches(list(batches)).to_pylist() == ROWS[1:]  # the next epoch
    assert list(rows) == ROWS[3:]


def test_a_state_of_other_data_is_refused(load: Load, repo: Hub) -> None:
    rows = load()
    state = rows.state_dict()
    wrong = {
        "files": {"files": "sha256:00"},
        "shard": {"shard": "x"},
        "n_files": {"n_files": 5},
        "shard_index": {"shard_index": 9, "shard": None},
        "total_rows": {"row": 3, "total_rows": 2},
        "version": {"version": 2},
        "row": {"row": -1},
        "other": {"other": 1},
    }
    for field, changes in wrong.items():
        with pytest.raises(ValueError, match=field):
            rows.load_state_dict(state | changes)
    with pytest.raises(ValueError, match="expected what state_dict"):
        rows.load_state_dict({})
    assert rows.state_dict() == state
    repo.put("README.md", b"# Another commit", repo="org/name")
    later = load()
    assert later.state_dict()["source"] != state["source"]
    later.load_state_dict(state)  # none of the shards has changed
    repo.put(NAMES[0], b"another", repo="org/name")
    with pytest.raises(ValueError, match="this state is of other data than 'hf://") as caught:
        load().load_state_dict(state)
    assert state["source"] in str(caught.value)


def test_a_state_that_is_behind_the_end_of_its_shard(load: Load) -> None:
    rows = load()
    rows.load_state_dict(rows.state_dict() | {"row": 6, "total_rows": 6})
    with pytest.raises(ShardReadError, match=r"expected 6 rows or more.*found 5"):
        next(iter(rows))


def test_it_can_be_sent_to_another_process(load: Load) -> None:
    rows = load(skip=2)
    next(iterator := iter(rows))
    copy = pickle.loads(pickle.dumps(rows))
    assert copy.state_dict() == rows.state_dict()
    assert list(copy) == ROWS[2:]
    assert list(iterator) == ROWS[3:]


def test_each_shard_as_a_whole(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the table of a shard stands for its `datasets.Dataset`."""
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(Dataset=lambda table: table))
    rows = load(skip=1)
    tables = list(rows.shards())
    assert len(tables) == len(NAMES)
    assert pa.concat_tables(tables).to_pylist() == ROWS[1:]
    list(itertools.islice(rows, 2))
    rows.load_state_dict(rows.state_dict())
    assert pa.concat_tables(rows.shards()).to_pylist() == ROWS[3:]


def test_a_dataset_needs_datasets(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match="pip install datasets"):
        load().shards()


def test_a_plan_and_its_files_lead_to_the_rest(load: Load, repo: Hub, tmp_path: Path) -> None:
    for skip in (0, 4, 5, 6, 8, N_ROWS):
        plan = resolve_resume_plan("hf:org/name", skip, tmp_path, endpoint=repo.url)
        data_files, in_shard_offset, _ = plan
        rows = load(data_files=data_files, skip=in_shard_offset)
        assert list(rows) == ROWS[skip:]
        assert list(load(data_files=data_files).skip(in_shard_offset)) == ROWS[skip:]
    assert plan.shard_label == "behind the last of 4 shards"
    with pytest.raises(ValueError, match=f"row_offset: expected at most {N_ROWS}"):
        resolve_resume_plan("hf:org/name", 99, tmp_path, endpoint=repo.url)
    with pytest.raises(ValueError, match="row_offset: expected 0 or more"):
        resolve_resume_plan([("a", 1)], -1)
    with pytest.raises(ValueError, match="spec: expected one, found 2"):
        resolve_resume_plan("hf:a/b,hf:c/d", 1)
    assert resolve_resume_plan([("a", 1)], None).in_shard_offset == 0


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "a10.txt").write_text("four\nfive")
    (tmp_path / "a9.txt").write_text("one\n\nthree\n")
    (tmp_path / "b.txt").write_text("")
    return tmp_path


def test_a_spec_of_text_files(texts: Path) -> None:
    spec = f"txt:{texts}/*.txt:line"
    lines = ["four", "five", "one", "", "three"]
    expected = [{"line": line} for line in lines]
    rows = load_dataset_from_spec(spec)
    assert list(rows) == expected
    for skip in range(6):
        assert list(load_dataset_from_spec(spec, skip=skip)) == expected[skip:]
        plan = resolve_resume_plan(spec, skip)
        left = load_dataset_from_spec(spec, data_files=plan.data_files, skip=plan.in_shard_offset)
        assert list(left) == expected[skip:]
        iterator = iter(rows)
        list(itertools.islice(iterator, skip))
        other = load_dataset_from_spec(spec)
        other.load_state_dict(json.loads(json.dumps(rows.state_dict())))
        assert list(other) == expected[skip:]
    (batch,) = load_dataset_from_spec(TextSpec(f"{texts}/a9.txt")).batches()
    assert batch.to_pydict() == {"text": lines[2:]}
    with pytest.raises(ValueError, match="at most 5, the rows of all 3 files"):
        load_dataset_from_spec(spec, skip=6)


def test_text_files_that_are_not_there_or_not_the_same(texts: Path) -> None:
    with pytest.raises(SourceError, match=rf"no file is meant by '{texts}/\*.md'.*3 others"):
        load_dataset_from_spec(f"txt:{texts}/*.md")
    with pytest.raises(SourceError, match="no file is meant by"):
        load_dataset_from_spec(f"txt:{texts}/x.txt")
    for names in ("nope.txt", [f"{texts}/b.txt", f"{texts}/b.txt/nope.txt"]):
        with pytest.raises(SourceError, match=r"there is no file '/.*/nope\.txt'"):
            load_dataset_from_spec(f"txt:{texts}/b.txt", data_files=names)
    with pytest.raises(TypeError, match="columns: not for a spec of text files"):
        load_dataset_from_spec(f"txt:{texts}/b.txt", columns=["x"])
    state = load_dataset_from_spec(f"txt:{texts}/*.txt").state_dict()
    with (texts / "b.txt").open("a") as file:
        file.write("six")
    with pytest.raises(ValueError, match="other data"):
        load_dataset_from_spec(f"txt:{texts}/*.txt").load_state_dict(state)


@pytest.mark.parametrize(("call", "number"), [("scandir", errno.ESTALE), ("stat", errno.EACCES)])
def test_text_files_that_nobody_could_look_for_are_not_fewer(
    texts: Path, call: str, number: int
) -> None:
    with FileSystemFaults(texts) as fs:
        fs.fail(call, number, times=1)
        with pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught:
            load_dataset_from_spec(f"txt:{texts}/*.txt")
    assert caught.value.errno == number


def test_files_of_a_web_server_are_those_that_are_named(shard_hub: Hub, tmp_path: Path) -> None:
    for n, data in enumerate(shards(COUNTS)):
        shard_hub.put(f"s/{n}.parquet", data)
    source = f"{shard_hub.url}/s"
    names = [f"{n}.parquet" for n in range(len(COUNTS))]
    for skip in (0, 6, 9):
        rows = hf_load_dataset_sharded(
            "org/name", data_files=names, source=source, skip=skip, cache_dir=tmp_path
        )
        assert list(rows) == ROWS[skip:]
    state = rows.state_dict()
    moved = hf_load_dataset_sharded(
        "org/name", data_files=names, source=f"{shard_hub.url}/other", cache_dir=tmp_path
    )
    with pytest.raises(ValueError, match="source: expected"):
        moved.load_state_dict(state)


def test_counts_that_may_not_be_read_are_told_and_done_without(tmp_path: Path, caplog) -> None:
    path = tmp_path / "counts.json"
    assert known_counts(str(path)) == {}
    assert not caplog.records
    path.write_text('{"row_counts": {}}')
    with FileSystemFaults(tmp_path) as fs:
        fs.fail("stat", errno.EACCES, match=path.name)
        assert known_counts(str(path)) == {}
    assert "permission denied" in caplog.text.lower()

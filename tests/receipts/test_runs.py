"""Runs: found again by what they were configured with, and never destroyed."""

import errno
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardproof import receipts
from shardproof.errors import ManifestNotFoundError
from tests.helpers.descriptors import path_of
from tests.helpers.planning import complete, source

CONFIG = {"datasets": ["a", {"name": "b"}], "output": {"format": "binidx"}, "sample": {"seed": 1}}


def test_the_layout(tmp_path) -> None:
    run = receipts.open_run(tmp_path, **CONFIG)
    plan = receipts.make_plan("corpus", [source("a")], n_shards=2)
    store = run.store(plan)
    assert run.path == tmp_path / "runs" / run.run_hash
    assert store.path == run.path / "datasets" / "corpus" / plan.plan_hash
    assert (store.path / "receipts").is_dir()
    assert json.loads((store.path / "plan.json").read_bytes())["run_hash"] == run.run_hash
    assert json.loads((run.path / "config.json").read_bytes())["datasets"] == CONFIG["datasets"]


def test_the_same_configuration_is_the_same_run(tmp_path) -> None:
    run = receipts.open_run(tmp_path, **CONFIG)
    assert run.run_hash == KNOWN_RUN
    assert receipts.open_run(f"{tmp_path}/./", **dict(reversed(CONFIG.items()))) == run


def test_a_run_is_loaded_without_its_configuration(tmp_path) -> None:
    run = receipts.open_run(tmp_path, **CONFIG)
    assert receipts.Run.load(run.path) == run
    for path in (tmp_path, tmp_path / "gone"):
        with pytest.raises(ManifestNotFoundError, match=r"open_run makes a run") as caught:
            receipts.Run.load(path)
        assert caught.value.path == str(path / "config.json")


def test_a_run_that_can_not_be_looked_at_is_not_taken_for_none(tmp_path, make_shard_faults) -> None:
    run = receipts.open_run(tmp_path, **CONFIG)
    make_shard_faults(tmp_path).fail("stat", errno.EIO, match="config.json")
    with pytest.raises(OSError, match="Input/output error"):
        receipts.Run.load(run.path)


KNOWN_RUN = "1d16fe0156cfbe4d"


@pytest.mark.parametrize(
    "change",
    [
        {"datasets": ["a"]},
        {"output": {"format": "parquet"}},
        {"sample": {"seed": 2}},
        {"sample": None},
        {"tokenizer": {"type": "huggingface", "model": "m", "resolved_revision": "r"}},
    ],
)
def test_another_configuration_is_another_run(tmp_path, change) -> None:
    assert receipts.open_run(tmp_path, **(CONFIG | change)).run_hash != KNOWN_RUN


def test_force_begins_anew_and_leaves_the_old_one(tmp_path) -> None:
    plan = receipts.make_plan("corpus", [source("a")], n_shards=2)
    old = receipts.open_run(tmp_path, **CONFIG).store(plan)
    complete(old, 0)
    fresh = receipts.open_run(tmp_path, **CONFIG, force=True)
    store = fresh.store(plan)
    assert store.pending() == [0, 1]
    assert old.pending() == [1]
    assert fresh.run_hash == f"{KNOWN_RUN}-2"
    # The next job, without force, goes on with the fresh one.
    assert receipts.open_run(tmp_path, **CONFIG) == fresh
    assert receipts.open_run(tmp_path, **CONFIG, force=True).run_hash == f"{KNOWN_RUN}-3"


@pytest.mark.parametrize("n_before", [0, 16])
def test_several_at_once(tmp_path, n_before: int) -> None:
    with ThreadPoolExecutor(8) as pool:
        same = {pool.submit(receipts.open_run, tmp_path, **CONFIG) for _ in range(n_before)}
        assert {future.result().run_hash for future in same} <= {KNOWN_RUN}
        forced = {pool.submit(receipts.open_run, tmp_path, **CONFIG, force=True) for _ in range(8)}
        assert len({future.result().run_hash for future in forced}) == 8


class TestPowerCuts:
    """A fresh directory is there after one, or `open_run` fails."""

    def test_its_name_is_synced_first(self, tmp_path, monkeypatch) -> None:
        receipts.open_run(tmp_path, **CONFIG)
        synced, real = [], os.fsync

        def fsync(fd: int) -> None:
            synced.append(path_of(fd))
            real(fd)

        monkeypatch.setattr(os, "fsync", fsync)
        fresh = receipts.open_run(tmp_path, **CONFIG, force=True)
        assert synced[0] == str(tmp_path / "runs")
        assert synced[-1] == str(fresh.path)

    def test_its_name_can_not_be_synced(self, tmp_path, monkeypatch) -> None:
        receipts.open_run(tmp_path, **CONFIG)

        def fail(fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(OSError, match="Input/output error") as caught:
                receipts.open_run(tmp_path, **CONFIG, force=True)
        assert caught.value.filename == str(tmp_path / "runs")
        assert receipts.open_run(tmp_path, **CONFIG).run_hash == KNOWN_RUN


def test_a_directory_of_another_name_is_no_run(tmp_path) -> None:
    for name in (f"{KNOWN_RUN}-x", f"{KNOWN_RUN}-0", f"{KNOWN_RUN}x", f"{KNOWN_RUN}-007", "y"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert receipts.open_run(tmp_path, **CONFIG).run_hash == KNOWN_RUN


def test_an_earlier_plan_stays_and_the_log_says_what_differs(tmp_path, caplog) -> None:
    run = receipts.open_run(tmp_path, **CONFIG)
    plan = receipts.make_plan("corpus", [source("a")], n_shards=2, config={"x": 1})
    first = run.store(plan)
    text = (first.path / "plan.json").read_bytes()
    assert run.store(plan).path == first.path
    assert (first.path / "plan.json").read_bytes() == text
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        run.store(receipts.make_plan("corpus", [source("a")], n_shards=2, config={"x": 2}))
    assert caplog.messages == [caplog.messages[0]]
    assert caplog.messages[0].endswith(f"plan {plan.plan_hash}, which is here too: another config")
    assert first.path.exists()


def test_an_earlier_plan_that_can_not_be_read_is_told(tmp_path, caplog) -> None:
    run = receipts.open_run(tmp_path, **CONFIG)
    broken = run.path / "datasets" / "corpus" / "0" / "plan.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    run.store(receipts.make_plan("corpus", [source("a")], n_shards=2))
    assert "An earlier plan can't be read" in caplog.text


def test_source_files_are_where_the_caller_has_them(tmp_path) -> None:
    """Not where the machine had them that wrote the plan."""
    run = receipts.open_run(tmp_path, **CONFIG)
    for place in ("/here/a", "/there/a"):
        files = [receipts.InputFile(path="a", size=1, local_path=place)]
        store = run.store(receipts.make_plan("corpus", files, n_shards=1))
        with store.claim(0) as work:
            assert [file.local_path for file in work.files] == [place]
            work.mark_empty()
        (store.path / "receipts" / "shard_000000.json").unlink()
    written = receipts.ReceiptStore(store.path).plan.file_assignments[0].files
    assert [file.local_path for file in written] == ["/here/a"]


def test_one_name_is_no_list(tmp_path) -> None:
    with pytest.raises(TypeError, match="expected a list, found str"):
        receipts.open_run(tmp_path, datasets="corpus")

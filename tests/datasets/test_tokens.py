"""Shards of tokens: what is read is what was written, or an error says which file is wrong."""

import asyncio
import contextlib
import copy
import dataclasses
import errno
import gc
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof import ShardReadError, ShardValidationError
from shardproof._base.holds import Heartbeat, ObservedSilence
from shardproof.datasets.tokens import ShardedDatasetManager, _ranks
from shardproof.datasets.tokens._token_checks import sequence_id
from shardproof.datasets.tokens._token_files import TokenFiles, TokenShard
from shardproof.datasets.tokens._tokens import SharedShardedDataset
from shardproof.errors import FetchError, FetchTimeoutError
from shardproof.testing.faults import FileSystemFaults, damage
from tests.goldens import golden
from tests.helpers.token_files import ids_of, write_shard
from tests.helpers.waiting import files_below, until


def opened(path: Path, length: int = 4, **keywords) -> SharedShardedDataset:
    return SharedShardedDataset(3, length, 0, 1, shards_path=path, **keywords)


@contextlib.contextmanager
def four_opened(path: Path, index: int) -> Iterator[list[SharedShardedDataset]]:
    """Four datasets of one shard, which are closed at the end."""
    with contextlib.ExitStack() as stack:
        datasets = [SharedShardedDataset(index, 4, shards_path=path) for _ in range(4)]
        yield [stack.enter_context(dataset) for dataset in datasets]


def refusal(path: Path, length: int = 4, **keywords) -> ShardValidationError:
    with pytest.raises(ShardValidationError) as caught:
        opened(path, length, **keywords)
    assert isinstance(caught.value, FileNotFoundError)
    return caught.value


def why(error: ShardValidationError) -> str:
    """The one note of an error."""
    (note,) = error.__notes__
    return note


@pytest.fixture
def path(tmp_path) -> Path:
    write_shard(tmp_path, 3, np.arange(12, dtype=np.uint32))
    return tmp_path


class TestReading:
    @pytest.mark.parametrize("dtype", [np.uint32, np.uint16, np.int64, np.uint8])
    def test_sequences_and_ids(self, tmp_path, dtype) -> None:
        tokens = np.arange(60, dtype=dtype)
        write_shard(tmp_path, 3, tokens, 5)
        with opened(tmp_path, 5, token_dtype=dtype, level="valid") as dataset:
            assert len(dataset) == 12
            for index, row in enumerate(tokens.reshape(12, 5)):
                assert dataset[index].tolist() == row.tolist()
                assert dataset[index].dtype == dtype
                assert dataset.sample_id(index) == sequence_id(row)

    def test_it_ends_where_the_sequences_end(self, path) -> None:
        dataset = opened(path)
        for index in (3, -1, 2**70):
            with pytest.raises(IndexError, match="expected 0 to 2"):
                dataset[index]
            with pytest.raises(IndexError):
                dataset.sample_id(index)
        assert [row.tolist() for row in dataset] == np.arange(12).reshape(3, 4).tolist()

    def test_batches(self, path) -> None:
        dataset = opened(path)
        assert dataset.read([2, 0, 2])[:, 0].tolist() == [8, 0, 8]
        assert dataset.read(np.array([1])).tolist() == [[4, 5, 6, 7]]
        assert dataset.read([]).shape == (0, 4)
        with pytest.raises(IndexError):
            dataset.read([0, 3])

    @pytest.mark.parametrize("index", [True, np.True_, 0.0, "0", None, slice(2)])
    def test_what_is_no_index(self, path, index) -> None:
        with pytest.raises(TypeError):
            opened(path)[index]

    def test_other_names(self, tmp_path) -> None:
        assert [p.name for p in SharedShardedDataset.locate_shards(7, tmp_path, "anneal")] == [
            "anneal_000007.npy",
            "sample_ids_anneal_000007.npy",
        ]
        write_shard(tmp_path, 3, np.arange(8, dtype=np.uint32), names=("val", "sample_ids"))
        assert len(opened(tmp_path, file_prefix="val", ids_prefix="sample_ids")) == 2

    def test_a_copy_for_a_worker_reads_the_same(self, path) -> None:
        dataset = SharedShardedDataset(3, 4, 1, 2, shards_path=path)
        for other in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset)):
            assert (other.rank, other.world_size, other[2].tolist()) == (1, 2, [8, 9, 10, 11])

    def test_a_shard_that_was_removed_is_read_to_its_end(self, path) -> None:
        dataset = opened(path)
        for file in (dataset.tokens_file, dataset.ids_file):
            file.unlink()
        assert dataset[2].tolist() == [8, 9, 10, 11]
        assert dataset.sample_id(0) == sequence_id(np.arange(4, dtype=np.uint32))

    def test_descriptors_go_with_the_dataset(self, path) -> None:
        gc.collect()
        before = os.listdir("/dev/fd")
        dataset = opened(path, level="valid")
        assert len(os.listdir("/dev/fd")) == len(before) + 2
        dataset.close()
        dataset.close()
        with pytest.raises(ValueError, match="is closed"):
            dataset[0]
        dataset = opened(path)
        del dataset
        gc.collect()
        assert len(os.listdir("/dev/fd")) == len(before)

    def test_a_file_that_is_closed_while_it_is_read_is_closed_by_the_last_reader(
        self, path, monkeypatch
    ) -> None:
        write_shard(path, 4, np.arange(100, 112, dtype=np.uint32))
        begun, go_on, preadv = threading.Event(), threading.Event(), os.preadv

        def read_late(*args: Any) -> int:
            begun.set()
            assert go_on.wait(60)
            return preadv(*args)

        gc.collect()
        before = os.listdir("/dev/fd")
        dataset = opened(path)
        monkeypatch.setattr(os, "preadv", read_late)
        with ThreadPoolExecutor(1) as readers:
            reading = readers.submit(dataset.read, [1])
            assert begun.wait(60)
            dataset.close()
            with pytest.raises(ValueError, match="is closed"):  # who comes now waits for nobody
                dataset[0]
            monkeypatch.undo()
            with four_opened(path, 4):  # which get the numbers that are free
                go_on.set()
                assert reading.result(60).tolist() == [[4, 5, 6, 7]]
        assert len(os.listdir("/dev/fd")) == len(before)


class TestCutWhileOpen:
    def test_a_cut_file_is_an_error_that_names_it(self, path) -> None:
        dataset = opened(path)
        os.truncate(dataset.tokens_file, 128 + 4 * 6)
        assert dataset[0].tolist() == [0, 1, 2, 3]
        with pytest.raises(ShardReadError) as caught:
            dataset[1]
        assert str(caught.value) == (
            f"Could not read '{dataset.tokens_file}': it is shorter than when it was opened "
            "(at byte 144: expected 16 bytes, found 8)"
        )

    def test_what_the_system_says(self, path) -> None:
        with FileSystemFaults(path) as fs, opened(path) as dataset:
            fs.fail("read", errno.EIO, match="train_*.npy")
            with pytest.raises(ShardReadError, match="Input/output error") as caught:
                dataset[1]
        assert caught.value.errno == errno.EIO


def link_outside(path: Path) -> None:
    path.rename(path.parent.parent / path.name)
    path.symlink_to(path.parent.parent / path.name)


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "Missing files"),
    "empty": (lambda path: os.truncate(path, 0), "Empty files"),
    "cut": (lambda path: damage(path, "truncated-at-end"), "Files of another structure"),
    "cut-in-header": (lambda path: os.truncate(path, 60), "Files of another structure"),
    "extended": (lambda path: damage(path, "extended"), "Files of another structure"),
    "outside": (link_outside, "Not regular files"),
    "fifo": (lambda path: (path.unlink(), os.mkfifo(path)), "Not regular files"),
    "text": (lambda path: path.write_text("<html>not found</html>" * 9), "something else"),
}


class TestDamage:
    @pytest.mark.parametrize("which", [0, 1])
    @pytest.mark.parametrize("harm", HARMS)
    def test_it_names_the_file(self, tmp_path, which: int, harm: str) -> None:
        path = tmp_path / "shards"
        files = write_shard(path, 3, np.arange(12, dtype=np.uint32))
        act, title = HARMS[harm]
        act(files[which])
        error = refusal(path)
        assert title in str(error)
        assert [finding.path for finding in error.report.findings] == [files[which]]
        assert why(error).startswith(f"{files[which]}: expected ")

    @pytest.mark.parametrize(
        ("file", "wrong", "found"),
        [
            ("train", np.array([*range(11), 10], np.uint32), "others: 2"),
            ("train", np.arange(1, 13, dtype=np.uint32), "others: 0, 1, 2"),
            ("sample_ids", ids_of(np.arange(4, 16, dtype=np.uint32), 4), "others: 0, 1, 2"),
        ],
    )
    def test_only_valid_sees_other_tokens_or_ids(self, path, file: str, wrong, found: str) -> None:
        np.save(path / f"{file}_000003.npy", wrong)
        assert len(opened(path)) == 3
        error = refusal(path, level="valid")
        assert "Files with another digest (1)" in str(error)
        assert why(error).endswith(f"found {found}")

    @pytest.mark.parametrize("at", [0, 1533, 3577, 4095])
    def test_valid_sees_each_bit_of_many_chunks(self, tmp_path, monkeypatch, at: int) -> None:
        monkeypatch.setattr("shardproof.datasets.tokens._token_checks._CHUNK_BYTES", 100)
        tokens = np.arange(1024, dtype=np.uint32)
        file, _ = write_shard(tmp_path, 3, tokens, 8)
        opened(tmp_path, 8, level="valid")
        data = bytearray(file.read_bytes())
        data[128 + at] ^= 1 << at % 8
        file.write_bytes(data)
        assert why(refusal(tmp_path, 8, level="valid")).endswith(f"found others: {at // 32}")

    def test_another_type_and_another_order_of_bytes(self, path) -> None:
        error = refusal(path, 2, token_dtype=np.uint64)
        assert why(error).endswith("expected items of type <u8, found <u4")
        np.save(path / "train_000003.npy", np.arange(12, dtype=">u4"))
        assert why(refusal(path)).endswith("expected items of type <u4, found >u4")

    def test_a_file_that_is_replaced_between_look_and_open(self, path, monkeypatch) -> None:
        from shardproof.datasets.tokens import _token_checks

        look = _token_checks.check_tokens

        def look_and_replace(shard):
            report = look(shard)
            np.save(path / "train_000003.npy", np.arange(16, dtype=np.uint32))
            return report

        monkeypatch.setattr(_token_checks, "check_tokens", look_and_replace)
        with pytest.raises(ShardReadError, match="it was just replaced"):
            opened(path)


class TestLengths:
    @pytest.mark.parametrize(
        ("n_tokens", "n_ids", "n_findings", "n_sequences"),
        [(12, 2, 1, 2), (12, 4, 1, 3), (13, 3, 1, 3), (15, 4, 2, 3), (12, 0, 1, 0), (3, 0, 1, 0)],
    )
    def test_numbers_that_disagree(
        self, tmp_path, caplog, n_tokens: int, n_ids: int, n_findings: int, n_sequences: int
    ) -> None:
        tokens = np.arange(n_tokens, dtype=np.uint32)
        whole = ids_of(np.arange(16, dtype=np.uint32), 4)
        np.save(tmp_path / "train_000003.npy", tokens)
        np.save(tmp_path / "sample_ids_000003.npy", whole[:n_ids])

        error = refusal(tmp_path)
        assert len(error.report.findings) == n_findings
        assert "Files of another structure" in str(error)

        for level in ("complete", "valid"):
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                dataset = opened(tmp_path, allow_length_mismatch=True, level=level)
            assert len(caplog.records) == n_findings
            assert "what has no partner is left out" in caplog.text
            assert len(dataset) == n_sequences
            assert [row.tolist() for row in dataset] == [
                tokens[4 * i : 4 * i + 4].tolist() for i in range(n_sequences)
            ]

    def test_an_empty_shard(self, tmp_path) -> None:
        write_shard(tmp_path, 3, np.arange(0, dtype=np.uint32))
        assert len(opened(tmp_path, level="valid")) == 0


class TestIdsOfTemplarsScript:
    """They are of the file with its header, and bits of a number of numpy's."""

    def opened(self, path: Path) -> SharedShardedDataset:
        how = {"token_dtype": np.uint16, "level": "valid"}
        return SharedShardedDataset(0, 128, shards_path=path, **how)

    def test_they_prove_their_sequences(self, caplog) -> None:
        assert len(self.opened(golden("npy-templar").path)) == 4
        assert "none proves its last 128 bytes" in caplog.text

    @pytest.mark.parametrize("sequence", [0, 3])
    def test_a_wrong_token_is_found(self, tmp_path, sequence: int) -> None:
        path = golden("npy-templar").copy(tmp_path)
        with (path / "train_000000.npy").open("r+b") as file:
            file.seek(sequence * 256 + 200)
            file.write(b"\xff")
        with pytest.raises(ShardValidationError) as caught:
            self.opened(path)
        assert why(caught.value).endswith(f"found others: {sequence}")


def npy(header: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode() + data


DICT = "{'descr': '<u4', 'fortran_order': False, 'shape': (4,), }"
HOSTILE = {  # of those that no array has, see the tests of the format
    "object": npy(DICT.replace("<u4", "|O")),
    "float": npy(DICT.replace("<u4", "<f4"), bytes(16)),
    "0 bytes an item": npy(DICT.replace("<u4", "<u0")),
    "2**64 bytes": npy(DICT.replace("(4,)", f"({2**62 + 4},)"), bytes(16)),
    "two dimensions": npy(DICT.replace("(4,)", "(2, 2)"), bytes(16)),
}


class TestHostileHeaders:
    @pytest.mark.parametrize("case", HOSTILE)
    @pytest.mark.parametrize("name", ["train_000003.npy", "sample_ids_000003.npy"])
    def test_it_is_a_finding(self, path, case: str, name: str) -> None:
        (path / name).write_bytes(HOSTILE[case])
        begin = time.process_time()
        for keywords in ({}, {"allow_length_mismatch": True}):
            report = refusal(path, **keywords).report
            assert [finding.path for finding in report.findings] == [path / name]
            assert len(report.findings[0].found) < 300
        assert time.process_time() - begin < 1  # of a hang it would be a hundred times that


class TestArguments:
    def test_no_directory_is_named(self, monkeypatch) -> None:
        monkeypatch.delenv("DATASET_BINS_PATH", raising=False)
        with pytest.raises(ValueError, match=r"or \$DATASET_BINS_PATH to name one"):
            SharedShardedDataset(3, 4, 0, 1)

    @pytest.mark.parametrize(
        ("keywords", "error", "problem"),
        [
            ({"shard_index": -1}, ValueError, "shard_index: expected 0 to"),
            ({"shard_index": True}, TypeError, "shard_index"),
            ({"sequence_length": 0}, ValueError, "sequence_length: expected 1 to"),
            ({"rank": -1}, ValueError, "rank: expected 0 to 0, found -1"),
            ({"rank": 1}, ValueError, "rank: expected 0 to 0, found 1"),
            ({"world_size": 0}, ValueError, "world_size"),
            ({"token_dtype": np.float32}, ValueError, "token_dtype: expected an integer type"),
            ({"file_prefix": "../train"}, ValueError, "prefix"),
            ({"file_prefix": ""}, ValueError, "prefix"),
            ({"file_prefix": "x" * 300}, ValueError, "over 255 bytes"),
            ({"ids_prefix": "train"}, ValueError, "listed twice"),
            ({"level": "present"}, ValueError, "level: expected 'complete' or 'valid'"),
            ({"shards_path": ""}, ValueError, "shards_path: expected a path"),
        ],
    )
    def test_wrong_ones(self, path, keywords: dict, error: type, problem: str) -> None:
        usual = {"shard_index": 3, "sequence_length": 4, "rank": 0, "world_size": 1}
        with pytest.raises(error, match=problem):
            SharedShardedDataset(**{**usual, "shards_path": path, **keywords})


class TestTokenFiles:
    """What three constructors say of files, once."""

    def test_what_is_left_open_is_settled_once(self, path, monkeypatch) -> None:
        monkeypatch.setenv("DATASET_BINS_PATH", str(path))
        files = TokenFiles(sequence_length=np.int64(4), file_prefix="anneal")
        monkeypatch.delenv("DATASET_BINS_PATH")
        assert (files.ids_prefix, files.shards_path) == ("sample_ids_anneal", str(path.resolve()))
        assert type(files.sequence_length) is int
        assert files == pickle.loads(pickle.dumps(files))
        assert hash(files) == hash(dataclasses.replace(files))


IMPORTS_OF_THREADS = """
import asyncio, pathlib, shutil, sys, threading
from shardproof.datasets import ShardedDatasetManager

remote, path = pathlib.Path(sys.argv[1]), sys.argv[2]

async def fetch(name, dest):
    shutil.copy(remote / name, dest)

def hook(event, args):
    if event == "import" and threading.current_thread() is not threading.main_thread():
        imported.add(args[0].partition(".")[0])

async def main(comms):
    async with ShardedDatasetManager(4, 0, 2, comms, shards_path=path, level="valid") as manager:
        assert threading.active_count() > 1  # from now on, a fork is one beside a thread
        await manager.create_dataset(0)

imported = set()
sys.addaudithook(hook)
asyncio.run(main(fetch if sys.argv[3] == "function" else f"file://{remote}"))
print(*sorted(imported))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "url"])
def test_no_thread_imports_a_client(kind: str, tmp_path) -> None:
    """A fork beside a thread that imports leaves the child with half of a module."""
    write_shard(tmp_path / "remote", 0, np.arange(12, dtype=np.uint32))
    command = [sys.executable, "-c", IMPORTS_OF_THREADS]
    command += [str(tmp_path / "remote"), str(tmp_path / "cache"), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


class TestManagerThatNobodyHas:
    """The collector finds it, in whichever thread it runs."""

    @pytest.mark.slow
    def test_it_is_closed_in_none_of_its_own_threads(self, tmp_path, monkeypatch) -> None:
        """As in the one that shows the other ranks a sign of life, which ends with the manager."""

        def collecting(heartbeat: Heartbeat) -> None:
            assert is_dropped.wait(30)
            del heartbeat
            gc.collect()
            is_collected.set()

        is_dropped, is_collected, told = threading.Event(), threading.Event(), []
        monkeypatch.setattr(Heartbeat, "_run", collecting)
        monkeypatch.setattr(sys, "unraisablehook", told.append)
        remote, cache = tmp_path / "remote", tmp_path / "cache"
        remote.mkdir()
        write_shard(remote, 0, np.arange(12, dtype=np.uint32))
        gc.disable()
        try:
            abandon(ShardedDatasetManager(4, 0, 2, f"file://{remote}", shards_path=cache))
            assert files_below(cache, "*.hold")
            is_dropped.set()
            assert is_collected.wait(30)
        finally:
            gc.enable()
        until(lambda: not files_below(cache, "*.hold"))
        until(lambda: not [t for t in threading.enumerate() if "shardproof" in t.name])
        assert [str(one.exc_value) for one in told] == []


RANKS, SAID = ".shardproof/ranks", ".shardproof/ranks/*/said.json"


class TestRanksThatCanNotLook:
    """What nobody could look at is not told as silence."""

    @pytest.fixture
    def leader(self, tmp_path) -> Iterator[_ranks.Leader]:
        """Rank 0, which has said how the first call went."""
        names = TokenShard(TokenFiles(sequence_length=4, shards_path=tmp_path), 0).names
        key = _ranks.key_of_run(4, 2, names, "r")
        with contextlib.closing(_ranks.Leader(str(tmp_path), key, 2)) as leader:
            leader.tell(_ranks.RankOutcome(1, 0, "there is none"))
            yield leader

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("operation", "match", "number"),
        [("scandir", RANKS, errno.EACCES), ("open", SAID, errno.ESTALE), ("open", SAID, errno.EIO)],
    )
    def test_it_is_told_what_kept_them(
        self, tmp_path, leader, operation: str, match: str, number: int
    ) -> None:
        with FileSystemFaults(tmp_path) as fs:
            fs.fail(operation, number, match=match)
            error = never_heard(tmp_path)
        where = next(tmp_path.glob(match))
        assert f"could not check '{where}'" in str(error)
        assert error.__cause__.errno == number

    def test_nor_for_long_as_the_end_of_rank_0(self, tmp_path, leader) -> None:
        now = 0.0
        follower = _ranks.Follower(str(tmp_path), leader._record.key, 1)
        follower._silence = ObservedSilence(lambda: now)
        assert follower.look(2) is None
        now = 200.0
        with FileSystemFaults(tmp_path) as fs:
            fs.fail("open", errno.ESTALE, match=SAID)
            with pytest.raises(FetchError, match=r"could not check '.*said.json'") as caught:
                follower.look(2)
        assert caught.value.__cause__.errno == errno.ESTALE


def never_heard(root: Path) -> FetchTimeoutError:
    """Why rank 1 does not hear what rank 0 has said."""

    async def wait() -> None:
        url, options = "http://127.0.0.1:9", {"run_id": "r", "wait_timeout": 0.3}
        async with ShardedDatasetManager(4, 1, 2, url, shards_path=root, **options) as manager:
            await manager.create_dataset(0)

    with pytest.raises(FetchTimeoutError) as caught:
        asyncio.run(wait())
    return caught.value


def abandon(manager: ShardedDatasetManager) -> None:
    """Leave a manager to the collector, with a shard that it holds."""
    asyncio.run(manager.create_dataset(0))
    manager.cycle = manager  # type: ignore[attr-defined]

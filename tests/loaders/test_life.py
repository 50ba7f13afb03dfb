"""How loaders begin and end: abandoned, nested, interrupted, closed; and what they refuse."""

import ctypes
import errno
import gc
import itertools
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import numpy as np
import pytest
import tenacity

from shardproof import (
    IndexedDataset,
    OrderedDataLoader,
    ShardproofError,
    ShardReadError,
    ShuffledDataLoader,
)
from shardproof.loaders.io import _memory, _open_shards, _read_ahead, _submissions
from shardproof.loaders.io._crew import Crew
from shardproof.testing import Layout, shards_dir, without_root_override
from shardproof.testing.contracts._child import run_in_child
from shardproof.testing.faults import FileSystemFaults
from tests.helpers.forking import returned
from tests.helpers.loading import flat, taken
from tests.helpers.waiting import until

KINDS = pytest.mark.parametrize("kind", [OrderedDataLoader, ShuffledDataLoader])
ALL = pytest.mark.parametrize("kind", [OrderedDataLoader, ShuffledDataLoader, IndexedDataset])


def held() -> tuple[int, int]:
    return threading.active_count(), len(os.listdir("/dev/fd"))


def is_no_more(n_threads: int, n_files: int) -> bool:
    found = held()
    return found[0] <= n_threads and found[1] <= n_files


def wait_until_held(n_threads: int, n_files: int) -> None:
    """Wait, though not for ever, until no more is held; less is where a test before left some."""
    end = time.monotonic() + 30
    while not is_no_more(n_threads, n_files) and time.monotonic() < end:
        time.sleep(0.01)
    assert is_no_more(n_threads, n_files), held()


@pytest.fixture
def path(shards_dir_factory):
    return shards_dir_factory(n_shards=4, examples_per_shard=8)


def plan_of_another(path):
    (path / "shards.json").write_text('[{"name": "acts000000.bin"}]')


WRONG = {
    "gone": shutil.rmtree,
    "a file": lambda path: (shutil.rmtree(path), path.touch()),
    "below a file": lambda path: (shutil.rmtree(path.parent), path.parent.touch()),
    "empty": lambda path: (shutil.rmtree(path), path.mkdir()),
    "a loop": lambda path: (shutil.rmtree(path), path.symlink_to(path)),
    "no metadata": lambda path: (path / "metadata.json").unlink(),
    "no permission": lambda path: path.chmod(0),
    "no permission for the manifest": lambda path: (path / "shards.json").chmod(0),
    "a directory for the manifest": lambda path: (
        (path / "shards.json").unlink(),
        (path / "shards.json").mkdir(),
    ),
    "another manifest": plan_of_another,
    "a missing shard": lambda path: (path / "acts000001.bin").unlink(),
}


@ALL
@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_wrong_directory_is_one_error_with_the_callers_line(kind, change, make_shards_dir):
    path = make_shards_dir(n_shards=2)
    try:
        change(path)
        with without_root_override(), pytest.raises(ShardproofError) as caught:
            kind(path, layer=6)
    finally:
        if path.is_dir():
            path.chmod(0o700)
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("Traceback") == 1
    assert text.count('File "') == 1
    assert str(path) in str(caught.value)


@KINDS
def test_what_torchs_dataloader_asks_for_says_what_to_give_it(kind, path):
    with pytest.raises(
        TypeError, match=r"DataLoader\(loader\.torch_dataset\(\), batch_size=None\)"
    ):
        kind(path, layer=6)[0]


@KINDS
def test_an_iteration_that_is_kept_holds_threads_until_the_loader_closes(kind, path):
    before = held()
    loader = kind(path, layer=6, batch_size=8)
    iterations = [iter(loader) for _ in range(3)]
    for iteration in iterations:
        next(iteration)
    assert held() > before
    loader.close()
    assert held() == before
    assert list(iterations[0]) == []
    assert len(taken(loader, 6)) == len(loader)


@KINDS
def test_an_interrupt_as_it_begins_to_be_closed_leaves_nothing_open_for_long(
    kind, path, monkeypatch
):
    """The threads end by themselves, and the last one closes what they read from."""

    def interrupted(_):
        raise KeyboardInterrupt

    before = held()
    loader = kind(path, layer=6, batch_size=8)
    iteration = iter(loader)
    next(iteration)
    monkeypatch.setattr(Crew, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loader.close()
    wait_until_held(*before)


@KINDS
def test_where_the_system_gives_no_thread_it_says_so_and_leaves_nothing(kind, path, monkeypatch):
    def none_left(_):
        raise RuntimeError("can't start new thread")

    before = held()
    loader = kind(path, layer=6, batch_size=8)
    monkeypatch.setattr(threading.Thread, "start", none_left)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        next(iter(loader))
    assert held() == before


@KINDS
def test_where_it_gives_fewer_threads_these_read_all(kind, path, monkeypatch):
    start, started = threading.Thread.start, []

    def one(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    loader = kind(path, layer=6, batch_size=8, workers=4)
    expected = taken(loader, 6)
    loader.set_epoch(0)
    monkeypatch.setattr(threading.Thread, "start", one)
    assert taken(loader, 6) == expected


@KINDS
def test_one_that_the_collector_finds_in_a_thread_that_reads_for_it_is_ended(kind, path):
    """Which it does by itself: from Python 3.12 on, in whichever thread allocates."""

    def left() -> tuple[int, int]:
        before, is_dropped, is_collected = held(), threading.Event(), threading.Event()
        read = _read_ahead.StretchRead.read

        def collecting(stretch, *where):
            if stretch.start and not is_collected.is_set() and is_dropped.wait(30):
                gc.collect()
                is_collected.set()
            return read(stretch, *where)

        _read_ahead.StretchRead.read = collecting
        small = {"buffer_size": 16} if kind is ShuffledDataLoader else {}
        iteration = iter(kind(path, layer=6, batch_size=8, **small))
        next(iteration)
        cycle = [iteration]
        cycle.append(cycle)
        del iteration, cycle
        is_dropped.set()
        assert is_collected.wait(30)
        until(lambda: held() == before)

    assert returned(run_in_child(left, deadline=60)) is None


@KINDS
def test_a_forked_process_does_not_go_on_with_what_its_parent_iterates_over(kind, path):
    """Its threads are the parent's alone: a wait for them would have no end."""
    small = {"buffer_size": 16} if kind is ShuffledDataLoader else {}
    iteration = iter(kind(path, layer=6, batch_size=8, **small))
    next(iteration)
    found = run_in_child(lambda: len(list(iteration)), deadline=30).error
    assert found is not None
    assert found.kinds[0] == "RuntimeError"
    assert found.text == "an iteration does not survive a fork: make one in each process"
    assert list(iteration)


@KINDS
@pytest.mark.parametrize(
    "options",
    [
        {"workers": 10**9},
        {"workers": 10**9, "batch_size": 8},
        {"batch_size": 2**40},
        {"batch_size": 2**70},
    ],
)
def test_more_threads_or_memory_than_there_are_rows(kind, options, path):
    whole = everything(kind(path, layer=6))
    outcome = run_in_child(lambda: everything(kind(path, layer=6, **options)) == whole, deadline=60)
    assert returned(outcome) is True


@pytest.mark.slow
def test_a_thread_imports_nothing(path):
    """What reads again after an error is there before: an interpreter that ends imports no more."""
    script = f"""
        import errno, os, sys, threading
        from shardproof import IndexedDataset, OrderedDataLoader, ShuffledDataLoader
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if threading.get_ident() != threading.main_thread().ident:
                    print(name)
        def failing(fd, buffers, offset):
            calls.append(fd)
            if len(calls) in (1, 2):
                raise OSError(errno.EIO, "planned")
            return preadv(fd, buffers, offset)
        sys.meta_path.insert(0, Finder())
        calls, preadv = [], os.preadv
        for kind in (OrderedDataLoader, ShuffledDataLoader, IndexedDataset):
            reader = kind({str(path)!r}, layer=6)
            calls, os.preadv = [], failing
            list(reader) if kind is not IndexedDataset else reader[range(len(reader))]
            os.preadv = preadv
    """
    assert printed_by(script) == b""


def test_nothing_is_printed_whoever_holds_what_is_open_at_the_end(path):
    """It is closed while the modules are still there that closing needs."""
    script = f"""
        import builtins, json, os, sys
        import shardproof
        class Holder: pass
        cycle = Holder()
        cycle.cycle = cycle
        for holder in (json, os, sys, builtins, shardproof, cycle, Holder):
            holder.held = [
                iter(kind({str(path)!r}, layer=6, batch_size=4))
                for kind in (shardproof.OrderedDataLoader, shardproof.ShuffledDataLoader)
            ]
            for iteration in holder.held:
                next(iteration)
            dataset = shardproof.IndexedDataset({str(path)!r}, layer=6)
            holder.held.append((dataset, dataset[[0, 1]]))
    """
    assert printed_by(script) == b""


def printed_by(script: str) -> bytes:
    command = [sys.executable, "-X", "dev", "-c", textwrap.dedent(script)]
    run = subprocess.run(command, capture_output=True, timeout=60, check=True)
    return run.stdout + run.stderr


@ALL
@pytest.mark.parametrize("instead", ["nothing", "directory"])
def test_a_shard_that_vanishes_raises(kind, instead, path):
    loader = kind(path, layer=6)
    (path / "acts000002.bin").unlink()
    if instead == "directory":
        (path / "acts000002.bin").mkdir()
    with pytest.raises(ShardReadError) as caught:
        list(loader)
    assert caught.value.path == str(path / "acts000002.bin")
    assert isinstance(caught.value, OSError)
    if instead == "directory":
        assert "expected a regular file, found a directory" in str(caught.value)
    else:
        assert caught.value.errno == errno.ENOENT
        assert isinstance(caught.value.__cause__, FileNotFoundError)


@ALL
def test_another_directory_in_its_place_raises(kind, path, shards_dir_factory):
    loader = kind(path, layer=6)
    path.rename(f"{path}.old")
    shutil.copytree(f"{path}.old", path)
    with pytest.raises(ShardReadError, match="another directory is in its place"):
        list(loader)


@KINDS
def test_a_directory_replaced_during_iteration_does_not_mix_in(kind, path):
    loader = kind(path, layer=6, batch_size=8)
    expected = taken(loader, 6)
    loader.set_epoch(0)
    iteration = iter(loader)
    first = next(iteration)
    path.rename(f"{path}.old")
    path.mkdir()
    for shard in os.listdir(f"{path}.old"):
        (path / shard).write_bytes(b"\0" * os.path.getsize(f"{path}.old/{shard}"))
    assert taken([first, *iteration], 6) == expected


def everything(loader) -> list[tuple]:
    batches = [loader[range(len(loader))]] if isinstance(loader, IndexedDataset) else loader
    return sorted(flat(taken(batches, 6)))


@ALL
@pytest.mark.parametrize(
    ("operation", "number"),
    [("read", errno.EIO), ("read", errno.ESTALE), ("open", errno.ETIMEDOUT)],
)
def test_what_may_pass_is_tried_again(kind, operation, number, path, monkeypatch):
    """With the file opened anew for each try; here without the time between them."""
    monkeypatch.setattr(tenacity, "wait_random", lambda *_: tenacity.wait_none())
    loader, whole = kind(path, layer=6), everything(kind(path, layer=6))
    with FileSystemFaults(path) as fs:
        fs.fail(operation, number, match="acts000001.bin", times=3)
        assert everything(loader) == whole
        shard = path / "acts000001.bin"
        n_opened = sum(call.operation == "open" and call.path == shard for call in fs.calls)
    assert n_opened == 4 or kind is ShuffledDataLoader  # two threads of which may be at it


@pytest.mark.slow
def test_what_does_not_pass_is_an_error(path):
    loader = OrderedDataLoader(path, layer=6)
    with FileSystemFaults(path) as fs:
        fault = fs.fail("read", errno.EIO, match="acts000001.bin")
        with pytest.raises(ShardReadError, match=r"Input/output error .*found 0\)") as caught:
            everything(loader)
        assert fault.n_calls == 4
    assert caught.value.errno == errno.EIO
    assert caught.value.path == str(path / "acts000001.bin")


@pytest.mark.parametrize("kind", [OrderedDataLoader, IndexedDataset])
def test_no_permission_is_not_waited_for(kind, path):
    loader = kind(path, layer=6)
    with FileSystemFaults(path) as fs:
        fault = fs.fail("open", errno.EACCES, match="acts000001.bin")
        with pytest.raises(ShardReadError, match="Permission denied"):
            everything(loader)
        assert fault.n_calls == 1


@pytest.fixture
def c_library(monkeypatch):
    """What the C library's preadv answers, where a test decides about it."""

    def install(answer):
        real = _memory._preadv

        def preadv(fd, address, count, offset):
            return answer(lambda n=count: real(fd, address, n, offset))

        monkeypatch.setattr(_memory, "_preadv", preadv)
        monkeypatch.setattr(_submissions, "queues", _submissions.Queues())
        monkeypatch.setattr(_submissions, "open_submissions", lambda: None)
        monkeypatch.setattr(_open_shards, "_MANY", 1)

    return install


def failing(_real, number=errno.EIO):
    ctypes.set_errno(number)
    return -1


def signalled(_real):
    return failing(_real, errno.EINTR)


ALL_ROWS = itertools.repeat(lambda real: real())


@pytest.mark.parametrize(
    "answers",
    [
        itertools.repeat(lambda real: real(1)),  # fewer rows
        itertools.cycle([lambda real: real() and 33, lambda real: real()]),  # half a row
        itertools.chain([failing, failing], ALL_ROWS),
        itertools.chain([signalled] * 10, ALL_ROWS),
    ],
    ids=["fewer", "half", "error", "signal"],
)
def test_every_row_comes_whatever_the_c_library_says(answers, path, c_library):
    whole = everything(ShuffledDataLoader(path, layer=6))
    c_library(lambda real: next(answers)(real))  # noqa: PLW0108 - another one each time
    assert everything(ShuffledDataLoader(path, layer=6, workers=1)) == whole


def test_the_c_library_says_errors_only(path, c_library):
    """Each row is read by itself then; what that says of an error is what the user is told."""
    whole = everything(ShuffledDataLoader(path, layer=6))
    c_library(failing)
    loader = ShuffledDataLoader(path, layer=6)
    assert everything(loader) == whole
    (path / "acts000001.bin").write_bytes(b"")
    with pytest.raises(ShardReadError, match=r"acts000001\.bin.*shorter"):
        everything(loader)


@ALL
@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"layer": 7}, ValueError, "layer: expected one of 6, 11, or 'all'; found 7"),
        ({"layer": True}, TypeError, "layer: expected int or 'all', found True"),
        ({"layer": 6, "tokens": "none"}, ValueError, "tokens"),
        ({"layer": 6, "framework": "torhc"}, ValueError, "expected 'numpy' or 'torch', found"),
    ],
)
def test_rows_that_there_are_not(kind, wrong, error, text, path):
    with pytest.raises(error, match=text):
        kind(path, **wrong)


@ALL
def test_no_special_token(kind, shards_dir_factory):
    path = shards_dir_factory(cls_token=False)
    with pytest.raises(ValueError, match="tokens: expected 'content' or 'all'"):
        kind(path, layer=6, tokens="special")


@KINDS
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"batch_size": 0}, "batch_size: expected 1 or more, found 0"),
        ({"workers": 0}, "workers: expected 1 or more"),
        ({"rank": 2, "world_size": 2}, "rank: expected 0 to 1, found 2"),
        ({"world_size": 94}, "world_size: expected at most 93, .* found 94"),
    ],
)
def test_numbers_out_of_range(kind, wrong, text, path):
    with pytest.raises(ValueError, match=text):
        kind(path, layer=6, **wrong)


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"seed": -1}, ValueError, "seed: expected 0 or more"),
        ({"buffer_size": 0}, ValueError, "buffer_size: expected 1 or more"),
        ({"ignore_labels": [1]}, ValueError, "there is no labels.bin"),
        ({"ignore_labels": [256]}, ValueError, "ignore_labels: expected 0 to 255"),
        ({"ignore_labels": ["a"]}, TypeError, "ignore_labels: expected int, found 'a'"),
    ],
)
def test_numbers_of_the_shuffled_one(wrong, error, text, path):
    with pytest.raises(error, match=text):
        ShuffledDataLoader(path, layer=6, **wrong)


@KINDS
def test_each_epoch_that_may_be_chosen_may_be_in_a_state(kind, path):
    loader, other = kind(path, layer=6), kind(path, layer=6)
    loader.set_epoch(2**53)
    other.load_state_dict(loader.state_dict())
    assert other.epoch == 2**53
    with pytest.raises(ValueError, match="epoch: expected 0 to"):
        loader.set_epoch(2**53 + 1)


@ALL
def test_tensors_without_torch_are_refused_at_construction(kind, path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "shardproof.loaders._torch", raising=False)
    text = "framework='torch' needs torch, which is not installed: pip install torch"
    with pytest.raises(ImportError, match=text):
        kind(path, layer=6, framework="torch")
    if kind is IndexedDataset:
        return
    with pytest.raises(ImportError, match=r"torch_dataset\(\) needs torch"):
        kind(path, layer=6).torch_dataset()


@ALL
def test_no_examples(kind, tmp_path):
    with shards_dir(Layout(n_shards=1, n_examples=0)) as path:
        loader = kind(path, layer=6)
        assert len(loader) == loader.n_samples == 0
        assert list(loader) == []


@ALL
def test_a_forked_process_takes_over_no_lock(kind, path):
    """A thread of the parent may be reading at the moment of the fork."""
    loader = kind(path, layer=6)
    expected = everything(loader)
    held = loader._shards._lock if kind is IndexedDataset else loader._pool._lock
    with held:
        outcome = run_in_child(lambda: len(everything(loader)), deadline=20)
    assert outcome.value == len(expected)


@KINDS
def test_a_process_forked_while_a_thread_decides_what_to_read_reads(kind, path, monkeypatch):
    """Before Python 3.12 all cached properties of a class have one lock, which a fork inherits."""
    expected, parent = len(everything(kind(path, layer=6))), os.getpid()
    is_there, may_go, real = threading.Event(), threading.Event(), _read_ahead.ReadPlan.of

    def of(*args):
        if os.getpid() == parent:
            is_there.set()
            assert may_go.wait(60)
        return real(*args)

    monkeypatch.setattr(_read_ahead.ReadPlan, "of", of)
    thread = threading.Thread(target=lambda: everything(kind(path, layer=6)))
    thread.start()
    assert is_there.wait(60)
    outcome = run_in_child(lambda: len(everything(kind(path, layer=6))), deadline=20)
    may_go.set()
    thread.join()
    assert returned(outcome) == expected


NAMES = {kind.__name__: kind for kind in (OrderedDataLoader, ShuffledDataLoader, IndexedDataset)}


@ALL
def test_what_it_shows_is_the_call_that_makes_it_again(kind, path):
    keywords = {"layer": np.int64(6), "tokens": "all"}
    if kind is not IndexedDataset:
        keywords |= {"batch_size": np.int32(8), "rank": 1, "world_size": 2, "workers": 1}
    loader = kind(path, **keywords)
    again = eval(repr(loader), NAMES.copy())
    assert repr(loader).startswith(f"{kind.__name__}({str(path)!r}, layer=6, tokens='all', ")
    assert repr(again) == repr(loader) == repr(pickle.loads(pickle.dumps(loader)))
    assert everything(again) == everything(loader)


def test_a_part_for_each_worker(path):
    """Of a resumed epoch too: what is left comes once over all workers."""
    whole = taken(OrderedDataLoader(path, layer=6, batch_size=4), 6)
    first = OrderedDataLoader(path, layer=6, batch_size=4)
    iteration = iter(first)
    done = flat(taken([next(iteration) for _ in range(5)], 6))
    for kind_of in (lambda loader: loader, lambda loader: pickle.loads(pickle.dumps(loader))):
        loader = OrderedDataLoader(path, layer=6, batch_size=4)
        loader.load_state_dict(first.state_dict())
        parts = [kind_of(loader.of_worker(number, 3)) for number in range(3)]
        shares = [flat(taken(part, 6)) for part in parts]
        assert all(shares)
        assert sorted(done + flat(shares)) == sorted(flat(whole))

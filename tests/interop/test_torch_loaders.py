"""Loaders under torch: tensors over their memory, torch's own DataLoader, and the training page."""

import functools
import gc
import itertools
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, default_convert

from shardproof import (
    IndexedDataset,
    Metadata,
    OrderedDataLoader,
    ShardReadError,
    ShuffledDataLoader,
    testing,
)
from shardproof.loaders import _torch
from tests.helpers import ROOT

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

# Three batches of a window, so that a buffer is neither a batch nor the whole directory.
LOADERS = {
    "ordered": (OrderedDataLoader, {"batch_size": 5}),
    "shuffled": (ShuffledDataLoader, {"batch_size": 5, "buffer_size": 30}),
    "permuted": (ShuffledDataLoader, {"batch_size": 5, "buffer_size": None}),
}

# The timeout turns a hang into an error; nothing that works comes near it.
FORKED = {"num_workers": 2, "multiprocessing_context": "fork", "timeout": 300}
SPAWNED = {"num_workers": 2, "multiprocessing_context": "spawn", "timeout": 300}
WORKERS = {"none": {"num_workers": 0}, "fork": FORKED, "spawn": SPAWNED}

# Each spawned worker imports torch, which takes seconds: they are where they may differ.
EACH = [(kind, name) for kind in LOADERS for name in ("none", "fork")] + [
    ("ordered", "spawn"),
    ("shuffled", "spawn"),
]

pytestmark = pytest.mark.usefixtures("no_worker_stays")
kinds = pytest.mark.parametrize("kind", LOADERS)
workers = pytest.mark.parametrize("workers", WORKERS.values(), ids=WORKERS)
here_or_forked = pytest.mark.parametrize("workers", [WORKERS["none"], FORKED], ids=["none", "fork"])
kinds_and_workers = pytest.mark.parametrize(
    ("kind", "workers"),
    [pytest.param(kind, WORKERS[name], id=f"{kind}-{name}") for kind, name in EACH],
)


@pytest.fixture
def shards_dir(make_shards_dir) -> Path:
    return make_shards_dir(6, labels=True)


@pytest.fixture(params=DTYPES)
def typed_dir(request, make_shards_dir) -> Path:
    """The same values as in any directory of the kit, stored as another type."""
    path = make_shards_dir(3, labels=True)
    for shard in path.glob("acts*.bin"):
        values = torch.from_numpy(np.fromfile(shard, "<f4")).to(DTYPES[request.param])
        shard.write_bytes(values.view(torch.uint8).numpy().tobytes())
    msgspec.structs.replace(Metadata.load(path), dtype=request.param).dump(path)
    return path


def open_loader(kind: str, path: Path, **options: Any) -> Any:
    loader, own = LOADERS[kind]
    return loader(path, layer="all", tokens="all", **own | options)


def whole(path: Path) -> torch.Tensor:
    """Everything in a directory, ``[example, layer, token, value]``."""
    metadata = Metadata.load(path)
    files = [np.fromfile(file, np.uint8) for file in sorted(path.glob("acts*.bin"))]
    values = torch.from_numpy(np.concatenate(files)).view(DTYPES[metadata.dtype])
    return values.reshape(-1, *metadata.shard_shape[1:])


def rows_in(path: Path) -> list[tuple[int, int, int]]:
    """Example, layer and token of each row, in order."""
    metadata = Metadata.load(path)
    tokens = range(-metadata.cls_token, metadata.content_tokens_per_example)
    return sorted(itertools.product(range(metadata.n_examples), metadata.layers, tokens))


def rows_of(batch: dict[str, Any]) -> list[tuple[int, int, int]]:
    columns = (batch[name].tolist() for name in ("example_idx", "layer", "token_idx"))
    return list(zip(*columns, strict=True))


def proven_rows(path: Path, batches: Iterable[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """Which rows batches have, in their order; each with the activation that is its own."""
    values, layers = whole(path), Metadata.load(path).layers
    rows = []
    for batch in batches:
        layer = [layers.index(number) for number in batch["layer"].tolist()]
        expected = values[batch["example_idx"], layer, batch["token_idx"] + 1]
        assert torch.equal(torch.as_tensor(batch["act"]), expected)
        rows += rows_of(batch)
    return rows


# Tensors


@kinds
def test_tensors_have_the_directorys_type_and_values(kind, typed_dir) -> None:
    batches = list(open_loader(kind, typed_dir, framework="torch"))

    assert sorted(proven_rows(typed_dir, batches)) == rows_in(typed_dir)
    expected = dict.fromkeys(("example_idx", "token_idx", "layer"), torch.int64)
    expected |= {"act": DTYPES[Metadata.load(typed_dir).dtype], "token_label": torch.uint8}
    for batch in batches:
        assert {name: tensor.dtype for name, tensor in batch.items()} == expected


@kinds
def test_tensors_are_over_the_memory_that_was_read_into(kind, typed_dir, monkeypatch) -> None:
    addresses = []
    tensors = _torch.tensors

    def watched(batch: Any, *how: Any, **options: Any) -> Any:
        addresses.append({name: array.ctypes.data for name, array in batch.items()})
        return tensors(batch, *how, **options)

    monkeypatch.setattr(_torch, "tensors", watched)
    for batch in open_loader(kind, typed_dir, framework="torch"):
        assert {name: tensor.data_ptr() for name, tensor in batch.items()} == addresses[-1]
    assert addresses


HOLDS = {
    "tensor": lambda act: act,
    "last row": lambda act: act[-1:],
    "other type": lambda act: act.view(torch.int8),
    "storage": lambda act: act.untyped_storage(),
    "detached": lambda act: torch.nn.Parameter(act).detach(),
}


@kinds
@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_what_is_held_of_a_batch_is_never_overwritten(kind, hold, typed_dir) -> None:
    loader = open_loader(kind, typed_dir, framework="torch")
    held, copies = [], []
    for epoch in range(3):
        loader.set_epoch(epoch)
        for batch in itertools.islice(loader, 0, None, 2):  # others go, and their memory is reused
            held.append(hold(batch["act"]))
            copies.append(bytes(flat(held[-1])))
            del batch

    assert [bytes(flat(part)) for part in held] == copies


def flat(part: torch.Tensor | torch.UntypedStorage) -> list[int]:
    if isinstance(part, torch.UntypedStorage):
        return list(part)
    return part.view(torch.uint8).reshape(-1).tolist()


@kinds
def test_memory_that_nobody_holds_is_used_again(kind, typed_dir) -> None:
    """Without which the test above would prove nothing."""
    loader = open_loader(kind, typed_dir, framework="torch")
    addresses = [batch["act"].data_ptr() for _ in range(20) for batch in loader]

    assert len(set(addresses)) < len(addresses) / 2


def test_a_gradient_is_of_the_batch_that_it_was_computed_from(shards_dir) -> None:
    """The graph of a step holds its batch, though the loop has gone on."""
    loader = open_loader("ordered", shards_dir, framework="torch")
    weight = torch.ones(loader.d_model, requires_grad=True)
    losses = [(batch["act"] @ weight).sum() for batch in loader]
    torch.stack(losses).sum().backward()

    n_examples = loader.metadata.n_examples
    assert torch.equal(weight.grad, whole(shards_dir)[:n_examples].sum(dim=(0, 1, 2)))


# torch's DataLoader over a loader


@kinds_and_workers
@pytest.mark.parametrize("world_size", [1, 2])
def test_workers_deliver_each_row_once_an_epoch(kind, workers, world_size, shards_dir) -> None:
    ranks = range(world_size)
    loaders = [open_loader(kind, shards_dir, rank=rank, world_size=world_size) for rank in ranks]
    for epoch in range(2):
        rows = []
        for loader in loaders:
            loader.set_epoch(epoch)
            batches = DataLoader(loader.torch_dataset(), batch_size=None, **workers)
            rows += proven_rows(shards_dir, batches)
        assert sorted(rows) == rows_in(shards_dir)


@kinds_and_workers
def test_a_resumed_epoch_in_workers_is_what_was_left(kind, workers, shards_dir) -> None:
    loader, resumed = (open_loader(kind, shards_dir) for _ in range(2))
    before = list(itertools.islice(loader, 4))
    resumed.load_state_dict(loader.state_dict())
    after = DataLoader(resumed.torch_dataset(), batch_size=None, **workers)

    rows = proven_rows(shards_dir, itertools.chain(before, after))
    assert sorted(rows) == rows_in(shards_dir)


@kinds
def test_the_state_of_one_rank_resumes_others_and_their_workers(kind, shards_dir) -> None:
    """Two ranks until the save, three with two workers each after it."""
    saved = [open_loader(kind, shards_dir, rank=rank, world_size=2) for rank in range(2)]
    rows = [row for old in saved for row in proven_rows(shards_dir, itertools.islice(old, 4))]
    for rank in range(3):
        loader = open_loader(kind, shards_dir, rank=rank, world_size=3)
        loader.load_state_dict(saved[0].state_dict())
        batches = DataLoader(loader.torch_dataset(), batch_size=None, **FORKED)
        rows += proven_rows(shards_dir, batches)

    assert sorted(rows) == rows_in(shards_dir)


def test_the_parent_sees_which_epoch_workers_have_finished_and_no_more(shards_dir) -> None:
    """As the page on training says; so that it saves between epochs."""
    loader, resumed = (open_loader("shuffled", shards_dir) for _ in range(2))
    batches = DataLoader(loader.torch_dataset(), batch_size=None, **FORKED)
    state = loader.state_dict()
    running = iter(batches)
    first = next(running)
    assert loader.state_dict() == state
    assert sorted(proven_rows(shards_dir, [first, *running])) == rows_in(shards_dir)

    resumed.load_state_dict(loader.state_dict())
    rows = proven_rows(shards_dir, resumed)
    loader.set_epoch(1)
    assert rows == proven_rows(shards_dir, loader)


@kinds
def test_workers_forked_while_the_parents_threads_read(kind, shards_dir) -> None:
    loader = open_loader(kind, shards_dir)
    own = iter(loader)
    first = next(own)
    batches = DataLoader(loader.torch_dataset(), batch_size=None, **FORKED)

    assert sorted(proven_rows(shards_dir, batches)) == rows_in(shards_dir)
    assert sorted(proven_rows(shards_dir, [first, *own])) == rows_in(shards_dir)


# torch's DataLoader over rows by number


@pytest.fixture
def dataset(shards_dir) -> Iterator[IndexedDataset]:
    with IndexedDataset(shards_dir, layer="all", tokens="all") as opened:
        yield opened


@pytest.mark.parametrize(
    ("workers", "is_open"),
    [(WORKERS["none"], False), (FORKED, False), (FORKED, True), (SPAWNED, True)],
    ids=["none", "fork-closed", "fork-open", "spawn-open"],
)
def test_shuffled_numbers_deliver_each_row_once(workers, is_open, dataset, shards_dir) -> None:
    """Also when a row was read before, so that workers that are forked inherit descriptors."""
    if is_open:
        assert rows_of({name: value[None] for name, value in dataset[-1].items()})
    options = {"batch_size": 7, "shuffle": True, "collate_fn": default_convert, **workers}
    for _ in range(2):
        rows = proven_rows(shards_dir, DataLoader(dataset, **options))
        assert sorted(rows) == rows_in(shards_dir) != rows
    assert int(dataset[0]["act"][0]) == 1


@workers
def test_a_dataset_needs_no_collate_fn(workers, dataset, shards_dir) -> None:
    """Nor one of its parts."""
    batches = DataLoader(dataset, batch_size=7, shuffle=True, **workers)
    found = list(batches)
    assert sorted(proven_rows(shards_dir, found)) == rows_in(shards_dir)
    assert {type(value) for batch in found for value in batch.values()} == {torch.Tensor}
    part = torch.utils.data.Subset(dataset, range(3, 17))
    whole = proven_rows(shards_dir, [dataset[range(3, 17)] | {}])
    assert proven_rows(shards_dir, DataLoader(part, batch_size=5, **workers)) == whole


@here_or_forked
def test_a_batch_sampler_needs_no_collate_fn(workers, dataset, shards_dir) -> None:
    sampler = BatchSampler(RandomSampler(dataset), 7, drop_last=False)
    batches = DataLoader(dataset, sampler=sampler, batch_size=None, **workers)

    assert sorted(proven_rows(shards_dir, batches)) == rows_in(shards_dir)


@here_or_forked
def test_bits_by_number_are_viewed_as_bfloat16(workers, typed_dir) -> None:
    """As the page on training says; of other types the view is the same."""
    dataset = IndexedDataset(typed_dir, layer="all", tokens="all")
    batches = DataLoader(dataset, batch_size=7, collate_fn=default_convert, **workers)
    dtype = DTYPES[dataset.metadata.dtype]
    viewed = [batch | {"act": batch["act"].view(dtype)} for batch in batches]

    assert proven_rows(typed_dir, viewed) == rows_in(typed_dir)


@here_or_forked
def test_rows_by_number_as_tensors(workers, typed_dir) -> None:
    dataset = IndexedDataset(typed_dir, layer="all", tokens="all", framework="torch")
    batches = list(DataLoader(dataset, batch_size=7, **workers))

    assert proven_rows(typed_dir, batches) == rows_in(typed_dir)
    dtype = DTYPES[dataset.metadata.dtype]
    assert dataset[0]["act"].dtype == batches[0]["act"].dtype == dtype
    assert dataset[0]["example_idx"].dtype == torch.int64


# Shards that are cut while workers read


def of_loader(path: Path, kind: str = "ordered") -> dict[str, Any]:
    return {"dataset": open_loader(kind, path).torch_dataset(), "batch_size": None}


def of_numbers(path: Path) -> dict[str, Any]:
    dataset = IndexedDataset(path, layer="all", tokens="all")
    return {"dataset": dataset, "batch_size": 5, "collate_fn": default_convert}


of_shuffled = functools.partial(of_loader, kind="shuffled")
sources = pytest.mark.parametrize(
    "source", [of_loader, of_shuffled, of_numbers], ids=["ordered", "shuffled", "numbers"]
)


@sources
@pytest.mark.parametrize(
    ("workers", "kept"),
    [(FORKED, 0), (FORKED, 100), (SPAWNED, 0)],
    ids=["fork-empty", "fork-inside a row", "spawn-empty"],
)
def test_the_path_of_a_cut_shard_reaches_the_parent(source, workers, kept, make_shards_dir) -> None:
    """There are more shards than are read ahead."""
    path = make_shards_dir(16, labels=True)
    batches = iter(DataLoader(**source(path), **workers))
    next(batches)
    pids = [child.pid for child in multiprocessing.active_children()]
    for shard in path.glob("acts*.bin"):
        os.truncate(shard, kept)
    # torch makes the exception anew from a text alone.
    text = rf"(?s)ShardReadError.*Could not read '{re.escape(str(path))}/acts\d+.bin': it is short"
    with pytest.raises(ShardReadError, match=text):
        list(batches)
    del batches
    assert_gone(pids)


@sources
@pytest.mark.parametrize("n_taken", [1, None], ids=["broken off", "exhausted"])
def test_no_worker_is_left(source, n_taken, shards_dir) -> None:
    batches = iter(DataLoader(**source(shards_dir), **FORKED))
    next(batches)
    pids = [child.pid for child in multiprocessing.active_children()]
    assert list(itertools.islice(batches, n_taken))
    del batches
    assert_gone(pids)


def assert_gone(pids: list[int]) -> None:
    gc.collect()
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


# The end of the interpreter


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_nothing_is_printed_when_the_interpreter_ends_during_an_iteration(
    framework, shards_dir
) -> None:
    """Whoever holds the iteration, and whenever torch is imported."""
    script = f"""if True:
        import json, torch
        from shardproof import OrderedDataLoader, ShuffledDataLoader
        from torch.utils.data import DataLoader
        for holder, kind in ((json, OrderedDataLoader), (torch, ShuffledDataLoader)):
            loader = kind({str(shards_dir)!r}, layer=6, batch_size=4, framework={framework!r})
            in_torch = DataLoader(loader.torch_dataset(), batch_size=None)
            holder.held = [iter(loader), iter(in_torch)]
            for iteration in holder.held:
                next(iteration)
        it = iter(loader)
        next(it)
    """
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert run.stdout == run.stderr == b""


# The page on training

PAGE = ROOT / "docs" / "training.md"

# Runs the page's script, writes down the rows of each step that was finished, and kills itself
# after so many steps, or when so many checkpoints were written and the last not yet renamed.
WATCH = """
import collections, json, os, runpy, signal, sys
import shardproof

shards_dir, log, what, number = sys.argv[1:]
counts = collections.Counter()
replace = os.replace

def count(name):
    counts[name] += 1
    if (name, counts[name]) == (what, int(number)):
        os.kill(os.getpid(), signal.SIGKILL)

class ShuffledDataLoader(shardproof.ShuffledDataLoader):
    def __iter__(self):
        for batch in super().__iter__():
            rows = batch["example_idx"].tolist(), batch["token_idx"].tolist()
            yield batch
            with open(log, "a") as file:
                print(json.dumps([self.epoch, list(zip(*rows))]), file=file)
            count("step")

def counted(*paths):
    count("save")
    replace(*paths)

shardproof.ShuffledDataLoader = ShuffledDataLoader
os.replace = counted
train = runpy.run_path("train.py")["train"]
train(shards_dir, "checkpoint.pt", n_epochs=2, layer=6, batch_size=4, save_every=2)
"""

STEPS = 9  # of an epoch: 33 rows
# The step after which it is killed, and the step that the checkpoint then is of.
KILLS = [
    ("step", 1, 0),
    ("step", 5, 4),
    ("save", 3, 4),
    ("save", 5, 8),  # the end of the first epoch, finished and not saved
    ("step", STEPS + 5, STEPS + 4),
]


class Training:
    """A directory with the page's script, and shards."""

    def __init__(self, home: Path, shards_dir: Path) -> None:
        self._home, self._shards_dir = home, shards_dir
        (home / "train.py").write_text(script())
        (home / "watch.py").write_text(WATCH)

    def run(self, name: str, what: str = "never", number: int = 0) -> int:
        command = [sys.executable, "watch.py", str(self._shards_dir), name, what, str(number)]
        return subprocess.run(command, cwd=self._home).returncode

    def steps(self, name: str) -> list[Any]:
        lines = (self._home / name).read_text().splitlines()
        return [json.loads(line) for line in lines]

    def checkpoint(self) -> dict[str, Any]:
        return torch.load(self._home / "checkpoint.pt")


def script() -> str:
    (found,) = re.findall(r"```python\n(# train\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    return found if torch.cuda.is_available() else found.replace('"cuda"', '"cpu"')


@pytest.fixture(scope="module")
def training_dir() -> Iterator[Path]:
    with testing.shards_dir(testing.Layout(n_shards=3)) as path:
        yield path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, training_dir) -> Training:
    training = Training(tmp_path_factory.mktemp("undisturbed"), training_dir)
    assert training.run("log") == 0
    return training


def test_an_undisturbed_run_has_each_row_once_an_epoch(undisturbed) -> None:
    steps = undisturbed.steps("log")
    rows = sorted((epoch, *row) for epoch, rows in steps for row in rows)

    assert rows == list(itertools.product(range(2), range(11), range(3)))
    assert len(steps) == 2 * STEPS


@pytest.mark.parametrize(("what", "number", "saved"), KILLS)
def test_a_killed_run_goes_on_after_its_checkpoint(
    what, number, saved, undisturbed, training_dir, tmp_path
) -> None:
    training, expected = Training(tmp_path, training_dir), undisturbed.steps("log")
    assert training.run("killed", what, number) == -signal.SIGKILL
    assert training.run("resumed") == 0

    killed = training.steps("killed")
    assert killed == expected[: len(killed)]
    assert training.steps("resumed") == expected[saved:]
    assert_same(training.checkpoint(), undisturbed.checkpoint())


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["loader"] == expected["loader"]
    for name, parameter in expected["model"].items():
        assert torch.equal(found["model"][name], parameter), name


def test_a_run_that_was_finished_does_nothing_more(undisturbed) -> None:
    before = undisturbed.checkpoint()
    assert undisturbed.run("again") == 0

    assert_same(undisturbed.checkpoint(), before)
    with pytest.raises(FileNotFoundError):
        undisturbed.steps("again")


def test_the_command_of_the_page_trains(tmp_path, training_dir) -> None:
    (tmp_path / "train.py").write_text(script())
    command = [sys.executable, "train.py", str(training_dir), "checkpoint.pt"]
    subprocess.run(command, cwd=tmp_path, check=True)

    assert sorted(os.listdir(tmp_path)) == ["checkpoint.pt", "train.py"]
    assert torch.load(tmp_path / "checkpoint.pt")["loader"]["epoch"] == 2

"""Frameworks that iterate for you: torchdata, Lightning, accelerate; as the page on them says."""

import functools
import itertools
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from shardproof import ShuffledDataLoader
from shardproof.loaders.io import _read_ahead
from tests.helpers import ROOT

Rows = list[tuple[int, int]]

N_WORKERS = pytest.mark.parametrize("n_workers", [0, 2])


def opened(path: Path, **options: Any) -> ShuffledDataLoader:
    options = {"layer": 6, "batch_size": 4, "buffer_size": 24, "framework": "torch"} | options
    return ShuffledDataLoader(path, **options)


def rows_of(batch: dict[str, Any]) -> Rows:
    columns = (batch[name].tolist() for name in ("example_idx", "token_idx"))
    return list(zip(*columns, strict=True))


def rows(batches: Any) -> Rows:
    return [row for batch in batches for row in rows_of(batch)]


def order(path: Path, epoch: int, n_workers: int = 0) -> Rows:
    """Of an epoch, from a loader of its own that was told which."""
    loader = opened(path)
    loader.set_epoch(epoch)
    return rows(DataLoader(loader.torch_dataset(), batch_size=None, num_workers=n_workers))


@pytest.fixture
def n_read(monkeypatch) -> list[int]:
    """How many rows each window has that is read in this process."""
    counts: list[int] = []
    window = _read_ahead.ReadAhead.window

    def counted(self: Any, *where: int) -> Any:
        found = window(self, *where)
        counts.append(len(found.rows))
        return found

    monkeypatch.setattr(_read_ahead.ReadAhead, "window", counted)
    return counts


# torchdata


def stateful(loader: Any, n_workers: int, **options: Any) -> StatefulDataLoader:
    dataset = loader.torch_dataset()
    return StatefulDataLoader(dataset, batch_size=None, num_workers=n_workers, **options)


@N_WORKERS
@pytest.mark.parametrize("n_taken", [0, 1, 7, 20])
def test_a_stateful_dataloader_goes_on_where_it_was(n_workers, n_taken, shards_dir) -> None:
    batches = stateful(opened(shards_dir), n_workers)
    rows(batches)
    running = iter(batches)
    before = rows(itertools.islice(running, n_taken))
    state = json.loads(json.dumps(batches.state_dict()))
    after = rows(running)

    resumed = stateful(opened(shards_dir), n_workers)
    resumed.load_state_dict(state)
    assert rows(resumed) == after
    assert before + after == order(shards_dir, 1, n_workers)
    assert rows(resumed) == order(shards_dir, 2, n_workers)


@N_WORKERS
@pytest.mark.parametrize("n_taken", [0, 1, 8, 9, 10, 17])
def test_a_loop_over_a_stateful_dataloader_ends_when_so_many_are_done(
    n_workers, n_taken, shards_dir
) -> None:
    """Of two epochs; the workers know where they are, and this process hears when they are done."""
    loader = opened(shards_dir)
    batches = stateful(loader, n_workers)
    every = (batch for _ in loader.epochs(2) for batch in batches)
    before = rows(itertools.islice(every, n_taken))
    state = json.loads(json.dumps(batches.state_dict()))
    every.close()

    again = opened(shards_dir)
    resumed = stateful(again, n_workers)
    resumed.load_state_dict(state)
    after = [row for _ in again.epochs(2) for row in rows(resumed)]
    assert before + after == order(shards_dir, 0, n_workers) + order(shards_dir, 1, n_workers)


@N_WORKERS
@pytest.mark.parametrize("stays", [False, True])
def test_after_a_finished_epoch_comes_the_next_one(n_workers, stays, shards_dir) -> None:
    options = {"persistent_workers": bool(stays and n_workers)}
    batches = stateful(opened(shards_dir), n_workers, **options)
    assert rows(batches) == order(shards_dir, 0, n_workers)
    assert rows(batches) == order(shards_dir, 1, n_workers)
    resumed = stateful(opened(shards_dir), n_workers, **options)
    resumed.load_state_dict(batches.state_dict())

    assert rows(resumed) == order(shards_dir, 2, n_workers)
    assert rows(resumed) == order(shards_dir, 3, n_workers)


def test_a_stateful_dataloader_reads_nothing_again(shards_dir, n_read) -> None:
    batches = stateful(opened(shards_dir), 0)
    n_batches = 20
    rows(itertools.islice(batches, n_batches))
    resumed = stateful(opened(shards_dir), 0)
    resumed.load_state_dict(batches.state_dict())
    n_read.clear()
    n_rows = len(rows(resumed))

    assert sum(n_read) == n_rows


@N_WORKERS
@pytest.mark.parametrize("batch_size", [4, 5, 1000])
def test_the_length_is_exact(batch_size, n_workers, shards_dir) -> None:
    loader = opened(shards_dir, batch_size=batch_size, buffer_size=max(24, batch_size))
    dataset = loader.torch_dataset(num_workers=n_workers)
    batches = StatefulDataLoader(dataset, batch_size=None, num_workers=n_workers)
    assert len(batches) == len([*batches]) == len([*batches])


def test_another_number_of_workers_is_refused(shards_dir) -> None:
    dataset = opened(shards_dir).torch_dataset(num_workers=2)
    with pytest.raises(ValueError, match=r"num_workers: expected 2.*found 0"):
        next(iter(DataLoader(dataset, batch_size=None)))
    with pytest.raises(ValueError, match=r"num_workers: expected 2.*found 1"):
        next(iter(DataLoader(dataset, batch_size=None, num_workers=1)))
    with pytest.raises(ValueError, match="num_workers: expected 0 or more, found -1"):
        opened(shards_dir).torch_dataset(num_workers=-1)


@N_WORKERS
def test_after_the_last_batch_of_an_epoch_comes_the_next_one(n_workers, shards_dir) -> None:
    """Nobody asked for the one after the last; then it stops where only some workers began."""
    batches = stateful(opened(shards_dir), n_workers)
    order_0, order_1 = (order(shards_dir, epoch, n_workers) for epoch in range(2))
    n_batches = len([*stateful(opened(shards_dir), n_workers)])
    assert rows(itertools.islice(batches, n_batches)) == order_0
    resumed = stateful(opened(shards_dir), n_workers)
    resumed.load_state_dict(batches.state_dict())
    before = rows_of(next(iter(resumed)))
    again = stateful(opened(shards_dir), n_workers)
    again.load_state_dict(resumed.state_dict())

    assert before + rows(again) == order_1
    assert rows(again) == order(shards_dir, 2, n_workers)


# Lightning


class Model(lightning.LightningModule):
    """Writes down which rows it was trained on, epoch by epoch; may stop in the midst."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.seen: dict[int, Rows] = {}
        self.stop_after = stop_after

    def training_step(self, batch: dict[str, Any], _: int) -> torch.Tensor:
        self.seen.setdefault(self.current_epoch, []).extend(rows_of(batch))
        return self.layer(batch["act"]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-6)

    def on_train_batch_end(self, *_: object) -> None:
        if self.global_step == self.stop_after:
            self.trainer.save_checkpoint(self.trainer.default_root_dir + "/stopped.ckpt")
            raise KeyboardInterrupt


def trainer(home: Path, n_epochs: int, **options: Any) -> lightning.Trainer:
    return lightning.Trainer(
        max_epochs=n_epochs,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=home,
        **{"enable_checkpointing": False} | options,
    )


def in_torch(path: Path, n_workers: int = 0) -> Any:
    dataset, stays = opened(path).torch_dataset(), bool(n_workers)
    return DataLoader(dataset, batch_size=None, num_workers=n_workers, persistent_workers=stays)


def in_stateful(path: Path, n_workers: int = 0) -> Any:
    return stateful(opened(path), n_workers)


def in_stateful_sized(path: Path, n_workers: int = 0) -> Any:
    dataset = opened(path).torch_dataset(num_workers=n_workers)
    return StatefulDataLoader(dataset, batch_size=None, num_workers=n_workers)


SIZED = [(in_stateful_sized, n_workers) for n_workers in (0, 2)]
GIVEN = [(given, n_workers) for given in (in_torch, in_stateful) for n_workers in (0, 2)] + SIZED


def plain(path: Path, _: int) -> Any:
    return opened(path)


@pytest.mark.parametrize(("given", "n_workers"), [(plain, 0), *GIVEN])
def test_lightning_trains_each_epoch_in_another_order(
    given, n_workers, shards_dir, tmp_path
) -> None:
    model = Model()
    trainer(tmp_path, 3).fit(model, given(shards_dir, n_workers))

    assert model.seen == {epoch: order(shards_dir, epoch, n_workers) for epoch in range(3)}


@pytest.mark.parametrize(("given", "n_workers"), [(plain, 0), *SIZED])
@pytest.mark.parametrize("n_before_the_end", [0, 1, 20, -1, -9], ids=str)
def test_lightning_resumes_in_the_midst(
    n_before_the_end, given, n_workers, shards_dir, tmp_path, recwarn, n_read
) -> None:
    """Of the first epoch, at its end, and in the second; and reads nothing again."""
    open_it = functools.partial(given, shards_dir, n_workers)
    stop_after = len(open_it()) - n_before_the_end
    undisturbed, stopped, resumed = Model(), Model(stop_after), Model()
    trainer(tmp_path, 2).fit(undisturbed, open_it())
    with pytest.raises(SystemExit):
        trainer(tmp_path, 2).fit(stopped, open_it())
    n_read.clear()
    trainer(tmp_path, 2).fit(resumed, open_it(), ckpt_path=tmp_path / "stopped.ckpt")
    assert given is not plain or sum(n_read) == sum(map(len, resumed.seen.values()))

    both = {epoch: stopped.seen.get(epoch, []) + resumed.seen.get(epoch, []) for epoch in range(2)}
    assert both == undisturbed.seen
    assert not [each for each in recwarn if "Length of IterableDataset" in str(each.message)]


@N_WORKERS
def test_it_is_told_that_without_a_length_a_batch_would_be_left_out(n_workers, shards_dir) -> None:
    batches = stateful(opened(shards_dir), n_workers)
    with pytest.warns(UserWarning, match=r"torch_dataset.num_workers=") as told:
        lightning.fabric.utilities.data.sized_len(batches)
    assert len(told) == 1


def test_an_epoch_that_lightning_breaks_off_is_another_one_when_it_is_set(
    shards_dir, tmp_path
) -> None:
    """As the page says."""
    loader = opened(shards_dir)

    class Told(Model):
        def on_train_epoch_end(self) -> None:
            loader.set_epoch(self.current_epoch + 1)

    model = Told()
    trainer(tmp_path, 3, limit_train_batches=5).fit(model, loader)
    assert model.seen == {epoch: order(shards_dir, epoch)[:20] for epoch in range(3)}


# accelerate


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    yield
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.mark.parametrize("in_torch", [False, True])
@N_WORKERS
def test_accelerate_trains_each_epoch_in_another_order(in_torch, n_workers, shards_dir) -> None:
    loader = opened(shards_dir)
    if in_torch:
        loader = DataLoader(loader.torch_dataset(), batch_size=None, num_workers=n_workers)
    prepared = Accelerator(cpu=True).prepare(loader)
    assert in_torch or prepared is loader
    found = [rows(prepared) for _ in range(2)]
    assert found == [order(shards_dir, epoch, n_workers * in_torch) for epoch in range(2)]


@pytest.mark.parametrize("in_torch", [False, True])
def test_accelerate_skips_the_first_batches(in_torch, shards_dir) -> None:
    loader = given = opened(shards_dir)
    if in_torch:
        given = DataLoader(loader.torch_dataset(), batch_size=None)
    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(given)
    loader.set_epoch(2)
    whole = order(shards_dir, 2)
    for skipped in (accelerator.skip_first_batches, skip_first_batches):
        loader.set_epoch(2)
        assert rows(skipped(prepared, 5)) == whole[20:]
    assert rows(prepared) == order(shards_dir, 3)


def test_accelerate_saves_and_loads_the_loader(shards_dir, tmp_path) -> None:
    accelerator, loader, resumed = Accelerator(cpu=True), opened(shards_dir), opened(shards_dir)
    accelerator.register_for_checkpointing(loader)
    rows(loader)
    before = rows(itertools.islice(loader, 7))
    accelerator.save_state(tmp_path / "state")

    accelerator = Accelerator(cpu=True)
    accelerator._custom_objects.clear()
    accelerator.register_for_checkpointing(resumed)
    accelerator.load_state(tmp_path / "state")
    assert before + rows(resumed) == order(shards_dir, 1)


@N_WORKERS
def test_accelerate_saves_and_loads_a_stateful_dataloader(n_workers, shards_dir, tmp_path) -> None:
    def prepared() -> tuple[Accelerator, Any]:
        configuration = DataLoaderConfiguration(use_stateful_dataloader=True)
        accelerator = Accelerator(cpu=True, dataloader_config=configuration)
        dataset = opened(shards_dir).torch_dataset()
        loader = DataLoader(dataset, batch_size=None, num_workers=n_workers)
        return accelerator, accelerator.prepare(loader)

    accelerator, batches = prepared()
    rows(batches)
    running = iter(batches)
    before = rows(itertools.islice(running, 7))
    accelerator.save_state(tmp_path / "state")
    after = rows(running)
    assert before + after == order(shards_dir, 1, n_workers)

    accelerator, batches = prepared()
    accelerator.load_state(tmp_path / "state")
    assert rows(batches) == after
    assert rows(batches) == order(shards_dir, 2, n_workers)


# Two processes, each of which writes down its rows.
RANKS = """
    import json, sys
    from accelerate import Accelerator
    from shardproof import ShuffledDataLoader

    accelerator = Accelerator(cpu=True)
    loader = ShuffledDataLoader(
        sys.argv[1], layer=6, batch_size=4, buffer_size=24, framework="torch", even_batches=True,
        rank=accelerator.process_index, world_size=accelerator.num_processes,
    )
    loader = accelerator.prepare(loader)
    found = []
    for epoch in range(2):
        found.append([])
        for batch in loader:
            rows = zip(batch["example_idx"].tolist(), batch["token_idx"].tolist())
            found[-1] += rows
            accelerator.wait_for_everyone()
    with open(f"{sys.argv[2]}/{accelerator.process_index}", "w") as file:
        json.dump([accelerator.num_processes, found], file)
"""


def test_accelerate_with_two_processes(shards_dir, tmp_path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(textwrap.dedent(RANKS))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*command, script, shards_dir, tmp_path], check=True, timeout=300, env=environment
    )
    ranks = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    assert [n_processes for n_processes, _ in ranks] == [2, 2]
    for epoch in range(2):
        found = [[tuple(row) for row in epochs[epoch]] for _, epochs in ranks]
        for rank, seen in enumerate(found):
            loader = opened(shards_dir, rank=rank, world_size=2, even_batches=True)
            loader.set_epoch(epoch)
            assert seen == rows(loader)
        assert not set(found[0]) & set(found[1])


# The page

PAGE = ROOT / "docs" / "frameworks.md"


def test_the_examples_of_the_page_run(shards_dir, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    fitted = trainer(tmp_path, 1)
    fitted.fit(Model(), opened(shards_dir))
    fitted.save_checkpoint("last.ckpt")
    model = Model()
    names: dict[str, Any] = {
        "Accelerator": lambda: Accelerator(cpu=True),
        "ShuffledDataLoader": ShuffledDataLoader,
        "model": model,
        "n_epochs": 2,
        "optimizer": model.configure_optimizers(),
        "shards_dir": shards_dir,
        "trainer": trainer(tmp_path, 1),
    }
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for example in examples:
        exec(example, names)
    assert len(examples) == 4

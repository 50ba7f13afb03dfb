"""Loaders that deliver on a CUDA device; without one, the calls that are made of torch."""

import contextlib
import functools
import types

import pytest
import torch
from torch.utils.data import DataLoader

from shardproof import (
    IndexedDataset,
    MultiShardLoader,
    MultiShardSaver,
    OrderedDataLoader,
    ShuffledDataLoader,
)
from shardproof.checkpoint import _torch

KINDS = {
    "ordered": (OrderedDataLoader, {"batch_size": 5}),
    "shuffled": (ShuffledDataLoader, {"batch_size": 5, "buffer_size": 30}),
}
kinds = pytest.mark.parametrize("kind", KINDS)
on_a_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.fixture
def path(shards_dir_factory):
    return shards_dir_factory(n_shards=3, examples_per_shard=7, labels=True)


def unpinned(*size, pin_memory=False, empty=torch.empty, **more):
    return empty(*size, **more)


def loader_of(path, kind, **options):
    make, own = KINDS[kind]
    return make(path, layer=6, framework="torch", **own, **options)


@pytest.fixture
def calls(monkeypatch):
    """A device that is the host: what is asked of torch's streams is written down."""
    made = []

    class Stream:
        def __init__(self, name="of the device"):
            self.name, self.device = name, torch.device("cuda:0")

        def record_event(self):
            made.append(f"event {self.name}")
            return types.SimpleNamespace(synchronize=lambda: made.append("synchronized"))

        def wait_event(self, _):
            made.append(f"wait {self.name}")

    @contextlib.contextmanager
    def stream(which):
        made.append(f"begin {which.name}")
        yield
        made.append(f"end {which.name}")

    to = torch.Tensor.to

    def to_the_device(tensor, goal, **_):
        assert goal != torch.device("cuda")  # which is another one in another thread
        return tensor if isinstance(goal, torch.device) else to(tensor, goal)

    monkeypatch.setattr(torch, "empty", unpinned)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("of the caller"))
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: False)
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: made.append("recorded"))
    monkeypatch.setattr(torch.Tensor, "to", to_the_device)
    return made


@kinds
def test_what_is_delivered_on_a_device_is_what_is_delivered_here(path, kind, calls):
    expected = list(loader_of(path, kind))
    found = list(loader_of(path, kind, device="cuda", dtype="float16"))
    assert len(found) == len(expected)
    for batch, other in zip(found, expected, strict=True):
        assert batch["act"].dtype == torch.float16
        assert torch.equal(batch["act"], other["act"].half())
        assert torch.equal(batch["token_label"], other["token_label"])


def test_the_caller_s_stream_waits_for_a_batch_and_holds_its_memory(path, calls):
    batches = iter(loader_of(path, "ordered", device="cuda", n_ahead=0))
    next(batches)
    assert calls == [
        *("begin of the device", "end of the device", "event of the device"),
        "wait of the caller",
        *["recorded"] * 4,
        "event of the caller",
    ]
    batches.close()


def test_rows_by_number_are_copied_when_they_are_returned(path, calls):
    dataset = IndexedDataset(path, layer=6, framework="torch", device="cuda:0")
    assert torch.equal(
        dataset[[3, 1]]["act"], torch.as_tensor(IndexedDataset(path, layer=6)[[3, 1]]["act"])
    )
    assert calls.index("synchronized") < calls.index("wait of the caller")


@pytest.mark.parametrize("make", [OrderedDataLoader, ShuffledDataLoader, IndexedDataset])
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"device": "cuda"}, "device: for tensors only: pass framework='torch' too"),
        ({"dtype": "float16"}, "dtype: for tensors only: pass framework='torch' too"),
        ({"device": "cuda", "framework": "torch"}, "device: torch .* finds no CUDA device here: "),
        ({"device": "mps", "framework": "torch"}, "device: expected 'cpu', 'cuda' or 'cuda:1'"),
        ({"device": "gpu", "framework": "torch"}, "device: expected 'cpu', 'cuda' or 'cuda:1'"),
    ],
)
def test_what_can_not_be_delivered_is_refused_at_construction(
    path, make, options, problem, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=problem):
        make(path, layer=6, **options)


def test_a_device_that_is_not_there_is_refused(path, calls):
    with pytest.raises(ValueError, match="device: expected one of 1 CUDA devices, found 'cuda:1'"):
        loader_of(path, "ordered", device=torch.device("cuda", 1))


def test_pinned_memory_is_for_the_host(path, calls, monkeypatch):
    with pytest.raises(ValueError, match="pin_memory: for batches on the host"):
        loader_of(path, "ordered", device="cuda", pin_memory=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"pin_memory: torch .* finds no CUDA device here: "):
        loader_of(path, "ordered", pin_memory=True)


def test_a_pinned_batch_is_a_part_of_torch_s_own_memory(path, calls):
    """Only of such does torch know that a copy is under way, however much of it is copied."""
    expected = loader_of(path, "shuffled")
    for batch, other in zip(loader_of(path, "shuffled", pin_memory=True), expected, strict=True):
        assert torch.equal(batch["act"], other["act"])
        assert batch["act"].untyped_storage().nbytes() == 5 * 8 * 4
    assert not calls


@kinds
def test_rows_are_cast_on_the_host_too(path, kind):
    for batch, other in zip(
        loader_of(path, kind, dtype="bfloat16"), loader_of(path, kind), strict=True
    ):
        assert torch.equal(batch["act"], other["act"].bfloat16())


def test_the_arguments_are_shown(path):
    loader = loader_of(path, "ordered", dtype="bfloat16")
    assert "framework='torch', device='cpu', dtype='bfloat16', pin_memory=False, n_ahead=2" in repr(
        loader
    )
    dataset = IndexedDataset(path, layer=6)
    assert repr(dataset).endswith("framework='numpy', device='cpu', dtype=None)")


def test_a_worker_process_delivers_on_the_host(path, calls):
    loader = loader_of(path, "ordered", device="cuda")
    with pytest.raises(ValueError, match="worker processes deliver on the host"):
        next(iter(DataLoader(loader.torch_dataset(), batch_size=None, num_workers=1)))


def test_a_tensor_of_a_device_is_saved_once_each_piece_has_come(monkeypatch):
    """By copies that come when they are waited for, and not before."""
    under_way, copy = [], torch.Tensor.copy_

    def late_copy(target, source, non_blocking):
        assert non_blocking
        under_way.append(lambda: copy(target, source))
        return target

    def record_event():
        return types.SimpleNamespace(synchronize=under_way[-1])

    monkeypatch.setattr(torch, "empty", unpinned)
    monkeypatch.setattr(torch.Tensor, "copy_", late_copy)
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda _: types.SimpleNamespace(record_event=record_event)
    )
    monkeypatch.setattr(_torch, "_FETCHED_BYTES", 5)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    tensor = torch.arange(23, dtype=torch.uint8)
    assert b"".join(map(bytes, _torch.pieces_of(tensor))) == bytes(range(23))
    assert len(under_way) == 5


@pytest.mark.parametrize("level", ["valid", "complete"])
def test_a_shard_is_read_into_tensors_of_a_device_by_copies_that_come_late(
    tmp_path, monkeypatch, level
):
    """At most so many are under way, and all have come when it is there."""
    begun, ended, most, copy = [], [], [0], torch.Tensor.copy_

    def late_copy(target, source, non_blocking):
        assert non_blocking
        begun.append(lambda: copy(target, source))
        most[0] = max(most[0], len(begun) - len(ended))

    def synchronize(number=None):
        ended.extend(copied() for copied in begun[len(ended) : number])

    def record_event():
        return types.SimpleNamespace(synchronize=functools.partial(synchronize, len(begun)))

    tensors = {"w": torch.randn(3, 1000, 1000), "b": torch.ones(()), "none": torch.ones(0, 3)}
    saver = MultiShardSaver()
    saver.save_shard(tmp_path / "m", 0, tensors)
    saver.save_metadata(tmp_path / "m", world_size=1)
    out = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    stream = types.SimpleNamespace(record_event=record_event)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", unpinned)
        patch.setattr(torch.Tensor, "copy_", late_copy)
        patch.setattr(torch.Tensor, "is_cuda", True)
        patch.setattr(torch.cuda, "current_stream", lambda _: stream)
        patch.setattr(torch.cuda, "synchronize", lambda _: synchronize())
        patch.setattr(_torch, "_MOST_UNDER_WAY", 2)
        found = MultiShardLoader(level=level).load_shard(tmp_path / "m", 0, out=out)
    assert most[0] == 2
    assert all(found[name] is out[name] for name in tensors)
    assert all(torch.equal(out[name], tensors[name]) for name in tensors)


@on_a_device
def test_a_shard_is_read_into_tensors_of_a_device(tmp_path):
    tensors = {"w": torch.randn(3000, 3000), "b": torch.ones(())}
    saver = MultiShardSaver(algorithm="sha256-tree")
    saver.save_shard(tmp_path / "m", 0, tensors)
    saver.save_metadata(tmp_path / "m", world_size=1)
    delay = torch.zeros(4000, 4000, device="cuda")
    out = {name: torch.zeros_like(tensor, device="cuda") for name, tensor in tensors.items()}
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(20):
            delay = delay @ delay
        before = out["w"].clone()  # what was asked before sees what was there
        found = MultiShardLoader().load_shard(tmp_path / "m", 0, out=out)
    assert not before.any()
    assert all(found[name].is_cuda for name in tensors)
    assert all(torch.equal(found[name].cpu(), tensors[name]) for name in tensors)


@on_a_device
def test_a_shard_of_a_device_is_what_its_tensors_were(tmp_path):
    tensors = {"w": torch.randn(3000, 3000, device="cuda"), "b": torch.ones((), device="cuda")}
    saver, expected = MultiShardSaver(), {name: t.cpu() for name, t in tensors.items()}
    saver.save_shard(tmp_path / "a", 0, tensors)
    saving = saver.begin_shard(tmp_path / "b", 0, tensors)
    tensors["w"].zero_()
    saving.result()
    for prefix in (tmp_path / "a", tmp_path / "b"):
        saver.save_metadata(prefix, world_size=1)
        found = MultiShardLoader(framework="torch").load_shard(prefix, 0)
        assert all(torch.equal(found[name], expected[name]) for name in expected)


@on_a_device
@kinds
@pytest.mark.parametrize("n_ahead", [0, 2])
def test_the_device_has_the_right_bytes_however_late_it_works(path, kind, n_ahead):
    expected = list(loader_of(path, kind))
    delay = torch.zeros(4000, 4000, device="cuda")
    seen = []
    for batch in loader_of(path, kind, device="cuda", n_ahead=n_ahead):
        delay = delay @ delay
        seen.append(batch["act"].clone())
    for act, other in zip(seen, expected, strict=True):
        assert torch.equal(act.cpu(), other["act"])


@on_a_device
def test_a_pinned_batch_may_be_dropped_while_it_is_copied(path):
    expected = list(loader_of(path, "shuffled"))
    delay, seen = torch.zeros(4000, 4000, device="cuda"), []
    for batch in loader_of(path, "shuffled", pin_memory=True):
        assert batch["act"].is_pinned()
        delay = delay @ delay
        seen.append(batch["act"][2:].to("cuda", non_blocking=True))
    for act, other in zip(seen, expected, strict=True):
        assert torch.equal(act.cpu(), other["act"][2:])


@on_a_device
def test_torch_pins_what_a_worker_process_delivers(path):
    loader = loader_of(path, "ordered")
    batches = DataLoader(loader.torch_dataset(), batch_size=None, num_workers=1, pin_memory=True)
    assert all(batch["act"].is_pinned() for batch in batches)

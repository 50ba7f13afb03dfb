"""Checkpoints of torch's tensors: every type, without a copy, and beside safetensors' own torch."""

import numpy as np
import pytest
import torch

from shardproof import MultiShardLoader, MultiShardSaver
from shardproof.checkpoint import from_safetensors, to_safetensors
from shardproof.checkpoint._format import ITEM_SIZES

TYPES = sorted(name for name in ITEM_SIZES if hasattr(torch, name))


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def saved(prefix, tensors: dict) -> str:
    MultiShardSaver().save_shard(prefix, 0, tensors)
    MultiShardSaver().save_metadata(prefix, world_size=1)
    return prefix


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)])
def test_every_type_comes_back(tmp_path, name: str, shape: tuple[int, ...]) -> None:
    dtype = getattr(torch, name)
    n_bytes = int(np.prod(shape)) * ITEM_SIZES[name]
    raw = torch.randint(0, 2 if name == "bool" else 256, (n_bytes,), dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(shape)
    found = MultiShardLoader(framework="torch").load_shard(
        saved(tmp_path / "model", {"w": tensor}), 0
    )["w"]

    assert (found.dtype, found.shape) == (dtype, tensor.shape)
    assert bits(found) == bits(tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(12.0)[::2],
        torch.arange(4.0).expand(3, 4),
        torch.nn.Parameter(torch.ones(3)),
        torch.arange(4.0).to(torch.complex64).conj(),
        torch.tensor([1 + 2j]).conj().imag,
        torch.arange(8.0)[::4][:0],
        torch.arange(8.0)[::4][:1],
    ],
)
def test_what_is_not_contiguous_or_wants_gradients(tmp_path, tensor: torch.Tensor) -> None:
    prefix = saved(tmp_path / "model", {"w": tensor})
    found = MultiShardLoader(framework="torch").load_tensors(prefix)["w"]

    assert torch.equal(found, tensor.detach())


def test_neither_way_copies(tmp_path) -> None:
    from shardproof.checkpoint._torch import from_torch, to_torch

    tensor = torch.arange(6.0)
    assert from_torch(tensor)[1].data_ptr() == tensor.data_ptr()
    array = np.arange(6.0)
    assert to_torch(array, "float64").data_ptr() == array.ctypes.data


@pytest.mark.parametrize("level", ["valid", "complete"])
def test_tensors_that_are_there_are_filled_and_returned(tmp_path, level) -> None:
    tensors = {
        "w": torch.randn(700, 300, dtype=torch.bfloat16),
        "b": torch.randn(7).to(torch.float8_e4m3fn),
        "c": torch.randn(3, dtype=torch.complex64),
        "one": torch.tensor(1.5),
        "none": torch.zeros(0, 4, dtype=torch.int8),
    }
    prefix = saved(tmp_path / "m", tensors)
    out = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    out["one"] = torch.nn.Parameter(out["one"])
    loader = MultiShardLoader(level=level)
    for load in (
        lambda: loader.load_shard(prefix, 0, out=out),
        lambda: loader.load_all_shards(prefix, out=[out])[0],
        lambda: loader.load_tensors(prefix, out=out),
    ):
        found = load()
        assert all(found[name] is out[name] for name in tensors)
        assert all(bits(out[name].detach()) == bits(tensors[name]) for name in tensors)
        for tensor in out.values():
            tensor.detach().zero_()


class OwnTensor(torch.Tensor):
    """A tensor that is something else than its memory, as those of other libraries."""


MISFITS = {
    "type": (torch.zeros(5, 3, dtype=torch.float64), TypeError, "expected float32, found float64"),
    "shape": (torch.zeros(3, 5), ValueError, r"expected the shape \(5, 3\), found \(3, 5\)"),
    "transposed": (torch.zeros(3, 5).T, ValueError, "expected a tensor in C order, with memory"),
    "expanded": (torch.zeros(3).expand(5, 3), ValueError, "in C order, with memory of its own"),
    "no memory": (torch.zeros(5, 3, device="meta"), TypeError, "expected a dense tensor with data"),
    "sparse": (torch.zeros(5, 3).to_sparse(), TypeError, "expected a dense tensor with data"),
    "a subclass": (torch.zeros(5, 3).as_subclass(OwnTensor), TypeError, "expected a plain tensor"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_tensor_that_does_not_fit_is_refused(tmp_path, misfit: str) -> None:
    out, error, text = MISFITS[misfit]
    prefix = saved(tmp_path / "m", {"w": torch.zeros(5, 3)})
    with pytest.raises(error, match=rf"^out\['w'\]: .*{text}"):
        MultiShardLoader().load_shard(prefix, 0, out={"w": out})


def test_a_tensor_and_an_array_of_the_same_memory_are_refused(tmp_path) -> None:
    prefix = saved(tmp_path / "m", {"a": torch.zeros(5), "b": torch.zeros(5)})
    memory = np.zeros(8, np.float32)
    out = {"a": torch.from_numpy(memory[:5]), "b": memory[3:]}
    with pytest.raises(ValueError, match="no memory in common, found some in"):
        MultiShardLoader().load_shard(prefix, 0, out=out)


@pytest.mark.parametrize("tensor", [torch.eye(3).to_sparse(), torch.zeros(2, device="meta")])
def test_what_is_no_dense_tensor_is_refused(tmp_path, tensor: torch.Tensor) -> None:
    with pytest.raises(TypeError, match=r"arrays\['w'\]: "):
        MultiShardSaver().save_shard(tmp_path / "model", 0, {"w": tensor})


def test_to_and_from_the_real_safetensors(tmp_path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {
        "a": torch.randn(5, 3, dtype=torch.bfloat16),
        "b": torch.randn(7).to(torch.float8_e4m3fn),
    }
    file, _ = to_safetensors(saved(tmp_path / "model", tensors), tmp_path / "out")
    found = load_file(file)
    assert {name: bits(tensor) for name, tensor in found.items()} == {
        name: bits(tensor) for name, tensor in tensors.items()
    }

    save_file(tensors, tmp_path / "theirs.safetensors")
    from_safetensors(tmp_path / "theirs.safetensors", tmp_path / "again")
    back = MultiShardLoader(framework="torch").load_tensors(tmp_path / "again")
    assert all(back[name].dtype == tensors[name].dtype for name in tensors)
    assert all(bits(back[name]) == bits(tensors[name]) for name in tensors)

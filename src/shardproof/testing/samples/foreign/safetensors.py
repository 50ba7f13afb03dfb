"""Models in several files of safetensors, with an index of which tensor is in which file."""

import json
import struct

from shardproof.testing.samples._layout import Layout, SampleFormat, SampleOptions
from shardproof.testing.samples._states import ShardState
from shardproof.testing.samples.foreign._files import index_of, made_bytes, write_flat
from shardproof.testing.samples.foreign._sight import OTHER_ENDS, Sight

__all__ = ["FORMAT", "INDEX_NAME", "SafetensorsOptions", "index_bytes", "model_bytes", "model_name"]

INDEX_NAME = "model.safetensors.index.json"
_SHAPES = {"mlp.weight": [32, 8], "norm.weight": [32]}
_VALUE_BYTES = 4


def model_name(index: int, n_shards: int) -> str:
    """Return the name of one file; the first is number 1."""
    return f"model-{index + 1:05}-of-{n_shards:05}.safetensors"


class SafetensorsOptions(SampleOptions):
    """What a model is like: two tensors, and a little more than 1 KiB, a file."""

    least_shards = 1

    def shard_name(self, index: int) -> str:
        """Return the file name of one shard; `shard_names` makes all of them, each time."""
        return model_name(index, self.n_shards)


def model_bytes(layout: Layout, index: int) -> bytes:
    """Return the bytes of one file: a header, and its tensors one after the other."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in _tensors(index).items():
        begin, end = end, end + _n_bytes(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return struct.pack("<Q", len(text)) + text + made_bytes(layout, index, end)


def index_bytes(layout: Layout) -> bytes:
    """Return the bytes of the index."""
    files = {index: model_name(index, layout.n_shards) for index in range(layout.n_shards)}
    weights = {tensor: file for index, file in files.items() for tensor in _tensors(index)}
    total_size = layout.n_shards * sum(map(_n_bytes, _SHAPES.values()))
    index = {"metadata": {"total_size": total_size}, "weight_map": weights}
    return json.dumps(index, indent=2, sort_keys=True).encode() + b"\n"


def _tensors(index: int) -> dict[str, list[int]]:
    return {f"model.layers.{index}.{name}": shape for name, shape in _SHAPES.items()}


def _n_bytes(shape: list[int]) -> int:
    n_bytes = _VALUE_BYTES
    for length in shape:
        n_bytes *= length
    return n_bytes


def _read_bytes(layout: Layout, name: str) -> bytes:
    if name == INDEX_NAME:
        return index_bytes(layout)
    return model_bytes(layout, index_of(layout, name, first=1))


# A swapped file has none of the tensors that the index says are in it.
_SIGHT = Sight(
    complete=OTHER_ENDS | {ShardState.SWAPPED: "structure"},
    unproven=["valid"],
)

FORMAT = SampleFormat(
    name="safetensors",
    options=SafetensorsOptions,
    manifest_names=lambda _: (INDEX_NAME,),
    read_bytes=_read_bytes,
    write=write_flat,
    problems=_SIGHT.problems,
    unproven=_SIGHT.unproven_names,
)

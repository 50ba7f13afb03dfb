"""Models as others write them: files of safetensors with an index, and the cache of the Hub."""

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import ClassVar

from shardproof.testing.samples._foreign import (
    OTHER_BYTES,
    OTHER_ENDS,
    ForeignOptions,
    Sight,
    flat,
    made_bytes,
)
from shardproof.testing.samples._layout import Layout, SampleFormat, index_of, unknown
from shardproof.testing.samples._states import ShardState, apply_states

_INDEX = "model.safetensors.index.json"
_SHAPES = {"mlp.weight": [32, 8], "norm.weight": [32]}
_VALUE_BYTES = 4


class _SafetensorsOptions(ForeignOptions):
    pattern = "model-{number:05}-of-{n_shards:05}.safetensors"


def _file_bytes(layout: Layout, name: str) -> bytes:
    """Return the index, or the bytes of one file: a header, then its tensors one by one."""
    if name == _INDEX:
        return _index_bytes(layout)
    index = index_of(layout, name, first=1)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor, shape in _tensors(index).items():
        begin, end = end, end + _VALUE_BYTES * math.prod(shape)
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return struct.pack("<Q", len(text)) + text + made_bytes(layout, index, end)


def _index_bytes(layout: Layout) -> bytes:
    files = [name.rpartition("/")[2] for name in layout.shard_names]
    weights = {tensor: file for index, file in enumerate(files) for tensor in _tensors(index)}
    total_size = len(files) * _VALUE_BYTES * sum(map(math.prod, _SHAPES.values()))
    index = {"metadata": {"total_size": total_size}, "weight_map": weights}
    return json.dumps(index, indent=2, sort_keys=True).encode() + b"\n"


def _tensors(index: int) -> dict[str, list[int]]:
    return {f"model.layers.{index}.{name}": shape for name, shape in _SHAPES.items()}


# A swapped file has none of the tensors that the index says are in it.
_SIGHT = Sight(complete=OTHER_ENDS | {ShardState.SWAPPED: "structure"}, unproven=["valid"])

SAFETENSORS = flat("safetensors", _SafetensorsOptions, _file_bytes, lambda _: _SIGHT, _INDEX)


class _HfCacheOptions(ForeignOptions):
    """A snapshot of links to blobs, named by digests; another seed is another commit."""

    pattern = _SafetensorsOptions.pattern
    repo_id: ClassVar[str] = "acme/tiny"

    @property
    def commit(self) -> str:
        """The commit of which there is a snapshot, and to which ``refs/main`` leads."""
        text = f"commit of {self.n_shards} shards, seed {self.seed}"
        return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    @property
    def file_names(self) -> tuple[str, ...]:
        return (self._name("config.json"), *self.shard_names, self._name(_INDEX))

    def shard_name(self, index: int) -> str:
        return self._name(super().shard_name(index))

    def _name(self, path: str) -> str:
        return f"snapshots/{self.commit}/{path}"


def _cached_bytes(layout: Layout, name: str) -> bytes:
    if name == "refs/main":
        return str(layout.commit).encode()
    path = name.removeprefix(f"snapshots/{layout.commit}/")
    if path == name:
        raise unknown(layout, name)
    if path == "config.json":
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
        return json.dumps(config, indent=2).encode() + b"\n"
    return _index_bytes(layout) if path == _INDEX else _file_bytes(layout, name)


def _blob_name(name: str, content: bytes) -> str:
    """Return the digest by which the Hub calls a file: git's own, unless it is a large one."""
    if name.endswith(".safetensors"):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _write_cache(layout: Layout, root: Path) -> None:
    options: _HfCacheOptions = layout.options
    for folder in ("blobs", "refs", f"snapshots/{options.commit}"):
        (root / folder).mkdir(parents=True)
    (root / "refs" / "main").write_bytes(_cached_bytes(layout, "refs/main"))
    blobs = {}
    for name in options.file_names:
        content = _cached_bytes(layout, name)
        blobs[name] = root / "blobs" / _blob_name(name, content)
        blobs[name].write_bytes(content)
        (root / name).symlink_to(f"../../blobs/{blobs[name].name}")
    apply_states([blobs[name] for name in options.shard_names], layout.states, root=root)


# Zeros are no header, which is seen before their digest.
_CACHE_SIGHT = Sight(complete=OTHER_ENDS, valid=OTHER_BYTES | {ShardState.SPARSE: "structure"})

HF_CACHE = SampleFormat(
    name="hf-cache",
    options=_HfCacheOptions,
    manifest_names=lambda _: ("refs/main",),
    read_bytes=_cached_bytes,
    write=_write_cache,
    problems=_CACHE_SIGHT.problems,
    unproven=_CACHE_SIGHT.unproven_names,
    folder=lambda layout: f"hub/models--{layout.repo_id.replace('/', '--')}",
)

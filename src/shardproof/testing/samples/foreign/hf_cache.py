"""A model in the cache of the Hub's client: a snapshot of links to blobs, named by digests."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import ClassVar

from shardproof.testing.samples._layout import Layout, SampleFormat, SampleOptions
from shardproof.testing.samples._states import ShardState, apply_states
from shardproof.testing.samples.foreign._files import index_of, unknown
from shardproof.testing.samples.foreign._sight import OTHER_BYTES, OTHER_ENDS, Sight
from shardproof.testing.samples.foreign.safetensors import (
    INDEX_NAME,
    index_bytes,
    model_bytes,
    model_name,
)

__all__ = ["FORMAT", "HfCacheOptions"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HfCacheOptions(SampleOptions):
    """What a model is like: its shards are files of safetensors; another seed is another commit."""

    least_shards = 1
    repo_id: ClassVar[str] = "acme/tiny"

    @property
    def commit(self) -> str:
        """The commit of which there is a snapshot, and to which ``refs/main`` leads."""
        text = f"commit of {self.n_shards} shards, seed {self.seed}"
        return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    @property
    def file_names(self) -> tuple[str, ...]:
        """Name of each file of the snapshot, in order."""
        return (self._name("config.json"), *self.shard_names, self._name(INDEX_NAME))

    def shard_name(self, index: int) -> str:
        """Return the name of one shard in the snapshot; `shard_names` makes all, each time."""
        return self._name(model_name(index, self.n_shards))

    def _name(self, path: str) -> str:
        return f"snapshots/{self.commit}/{path}"


def _read_bytes(layout: Layout, name: str) -> bytes:
    options: HfCacheOptions = layout.options
    if name == "refs/main":
        return options.commit.encode()
    path = name.removeprefix(f"snapshots/{options.commit}/")
    if path == name:
        raise unknown(layout, name)
    if path == "config.json":
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
        return json.dumps(config, indent=2).encode() + b"\n"
    if path == INDEX_NAME:
        return index_bytes(layout)
    return model_bytes(layout, index_of(layout, name, first=1))


def _blob_name(name: str, content: bytes) -> str:
    """Return the digest by which the Hub calls a file: git's own, unless it is a large one."""
    if name.endswith(".safetensors"):
        return hashlib.sha256(content).hexdigest()
    framed = b"blob %d\0" % len(content) + content
    return hashlib.sha1(framed, usedforsecurity=False).hexdigest()


def _write(layout: Layout, to: Path) -> Path:
    options: HfCacheOptions = layout.options
    root = to / "hub" / f"models--{options.repo_id.replace('/', '--')}"
    for folder in ("blobs", "refs", f"snapshots/{options.commit}"):
        (root / folder).mkdir(parents=True)
    (root / "refs" / "main").write_bytes(_read_bytes(layout, "refs/main"))
    blobs = {}
    for name in options.file_names:
        content = _read_bytes(layout, name)
        blobs[name] = root / "blobs" / _blob_name(name, content)
        blobs[name].write_bytes(content)
        (root / name).symlink_to(f"../../blobs/{blobs[name].name}")
    shards = [blobs[name] for name in options.shard_names]
    apply_states(shards, layout.states, root=root)
    return root


# Zeros are no header, which is seen before their digest.
_SIGHT = Sight(complete=OTHER_ENDS, valid=OTHER_BYTES | {ShardState.SPARSE: "structure"})

FORMAT = SampleFormat(
    name="hf-cache",
    options=HfCacheOptions,
    manifest_names=lambda _: ("refs/main",),
    read_bytes=_read_bytes,
    write=_write,
    problems=_SIGHT.problems,
    unproven=_SIGHT.unproven_names,
)

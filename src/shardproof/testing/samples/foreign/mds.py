"""Datasets of MosaicML Streaming, as its ``MDSWriter`` writes them: samples, and an index."""

import dataclasses
import hashlib
import json
import struct
from typing import Any

from shardproof.testing.samples._keywords import one_of
from shardproof.testing.samples._layout import Layout, SampleFormat, SampleOptions
from shardproof.testing.samples._states import ShardState
from shardproof.testing.samples.foreign._files import index_of, made_bytes, write_flat
from shardproof.testing.samples.foreign._sight import OTHER_BYTES, OTHER_SIZE, Sight

__all__ = ["FORMAT", "MdsOptions"]

_HASHES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b")
_SIZE_LIMIT = 2048
_X_BYTES = 244
_SAMPLE_BYTES = 8 + 4 + _X_BYTES  # an int, and bytes after their length


@dataclasses.dataclass(frozen=True, kw_only=True)
class MdsOptions(SampleOptions):
    """What a dataset is like: about 2 KiB a shard.

    Attributes:
        hashes: By which algorithms the index states digests; the writer's own default is by none.

    Raises:
        ValueError: An algorithm that it has not, or algorithms that are not in order.
    """

    hashes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.hashes
        if isinstance(given, str):
            raise TypeError(f"hashes: expected names, such as ['sha1'], found {given!r}")
        self.settle("hashes", tuple(one_of("hashes", each, _HASHES) for each in given))
        if list(self.hashes) != sorted({*self.hashes}):
            raise ValueError(f"hashes: expected each once and in order, found {self.hashes}")

    def shard_name(self, index: int) -> str:
        """Return the file name of one shard; `shard_names` makes all of them, each time."""
        return f"shard.{index:05}.mds"


def _config(options: MdsOptions) -> dict[str, object]:
    """Return what each shard, and the index of each shard, says of all of them."""
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [*options.hashes],
        "size_limit": _SIZE_LIMIT,
        "column_names": ["id", "x"],
        "column_encodings": ["int", "bytes"],
        "column_sizes": [8, None],
    }


def _n_samples(config: bytes) -> int:
    """Return how many samples fit into a shard: beside each stands where it begins."""
    return (_SIZE_LIMIT - 4 - 4 - len(config)) // (_SAMPLE_BYTES + 4)


def _shard_bytes(layout: Layout, index: int) -> bytes:
    config = json.dumps(_config(layout.options), sort_keys=True).encode()
    n_samples = _n_samples(config)
    content = made_bytes(layout, index, n_samples * _X_BYTES)
    start = 4 + 4 * (n_samples + 1) + len(config)
    offsets = [start + place * _SAMPLE_BYTES for place in range(n_samples + 1)]
    samples = (
        struct.pack("<Iq", _X_BYTES, index * n_samples + place)
        + content[place * _X_BYTES : (place + 1) * _X_BYTES]
        for place in range(n_samples)
    )
    return struct.pack(f"<{n_samples + 2}I", n_samples, *offsets) + config + b"".join(samples)


def _index_bytes(layout: Layout) -> bytes:
    options: MdsOptions = layout.options
    config = _config(options)
    n_samples = _n_samples(json.dumps(config, sort_keys=True).encode())
    shards = []
    for index, name in enumerate(options.shard_names):
        content = _shard_bytes(layout, index)
        hashes = {each: hashlib.new(each, content).hexdigest() for each in options.hashes}
        raw = {"basename": name, "bytes": len(content), "hashes": hashes}
        shards.append({"samples": n_samples, "raw_data": raw, "zip_data": None, **config})
    return json.dumps({"version": 2, "shards": shards}, sort_keys=True).encode()


def _read_bytes(layout: Layout, name: str) -> bytes:
    if name == "index.json":
        return _index_bytes(layout)
    return _shard_bytes(layout, index_of(layout, name))


_WITHOUT_DIGESTS = Sight(complete=OTHER_SIZE, unproven=["valid"])
# Zeros are no beginning of a shard, which is seen before its digest.
_WITH_DIGESTS = Sight(complete=OTHER_SIZE, valid=OTHER_BYTES | {ShardState.SPARSE: "structure"})


def _sight(layout: Layout) -> Sight:
    return _WITH_DIGESTS if layout.hashes else _WITHOUT_DIGESTS


FORMAT = SampleFormat(
    name="mds",
    options=MdsOptions,
    manifest_names=lambda _: ("index.json",),
    read_bytes=_read_bytes,
    write=write_flat,
    problems=lambda layout, *asked: _sight(layout).problems(layout, *asked),
    unproven=lambda layout, *asked: _sight(layout).unproven_names(layout, *asked),
)

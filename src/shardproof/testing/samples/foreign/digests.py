"""Any files, with a list of their digests, as ``sha256sum * > SHA256SUMS`` writes it."""

import hashlib

from shardproof.testing.samples._layout import Layout, SampleFormat, SampleOptions
from shardproof.testing.samples._states import ShardState
from shardproof.testing.samples.foreign._files import index_of, made_bytes, write_flat
from shardproof.testing.samples.foreign._sight import OTHER_BYTES, UNWRITTEN, Sight

__all__ = ["FORMAT", "DigestsOptions"]

_LIST = "SHA256SUMS"
_SHARD_BYTES = 1000


class DigestsOptions(SampleOptions):
    """What a directory is like: 1000 bytes a shard, of no known kind."""

    least_shards = 1

    def shard_name(self, index: int) -> str:
        """Return the file name of one shard; `shard_names` makes all of them, each time."""
        return f"part-{index:05}.bin"


def _shard_bytes(layout: Layout, index: int) -> bytes:
    return made_bytes(layout, index, _SHARD_BYTES)


def _read_bytes(layout: Layout, name: str) -> bytes:
    if name != _LIST:
        return _shard_bytes(layout, index_of(layout, name))
    lines = (
        f"{hashlib.sha256(_shard_bytes(layout, index)).hexdigest()}  {shard}\n"
        for index, shard in enumerate(layout.shard_names)
    )
    return "".join(lines).encode()


_CHANGED = [ShardState.TRUNCATED, ShardState.EXTENDED, ShardState.SPARSE]
_SIGHT = Sight(
    complete=UNWRITTEN,
    valid=OTHER_BYTES | dict.fromkeys(_CHANGED, "digest"),
    unproven=["complete"],
)

FORMAT = SampleFormat(
    name="digests",
    options=DigestsOptions,
    manifest_names=lambda _: (_LIST,),
    read_bytes=_read_bytes,
    write=write_flat,
    problems=_SIGHT.problems,
    unproven=_SIGHT.unproven_names,
)

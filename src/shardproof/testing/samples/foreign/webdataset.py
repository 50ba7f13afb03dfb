"""Tar archives of samples, as the ``ShardWriter`` of WebDataset writes them; nothing lists them."""

import io
import struct
import tarfile

from shardproof.testing.samples._layout import Layout, SampleFormat, SampleOptions
from shardproof.testing.samples._states import ShardState
from shardproof.testing.samples.foreign._files import index_of, made_bytes, write_flat
from shardproof.testing.samples.foreign._sight import OTHER_ENDS, Sight

__all__ = ["FORMAT", "WebdatasetOptions"]

_N_SAMPLES = 3
_X_BYTES = 2432  # so long that it is what lies in the middle of an archive
_WRITTEN_AT = 1767225600.25  # the writer's clock has fractions of seconds, which take a header more


class WebdatasetOptions(SampleOptions):
    """What a dataset is like: three samples and 20 KiB a shard."""

    least_shards = 1

    def shard_name(self, index: int) -> str:
        """Return the file name of one shard; `shard_names` makes all of them, each time."""
        return f"shard-{index:06}.tar"


def _read_bytes(layout: Layout, name: str) -> bytes:
    index = index_of(layout, name)
    content = made_bytes(layout, index, _N_SAMPLES * _X_BYTES)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w|") as tar:
        for place in range(_N_SAMPLES):
            number = index * _N_SAMPLES + place
            values = content[place * _X_BYTES : (place + 1) * _X_BYTES]
            _add(tar, f"{number:09}.cls", str(number % 10).encode())
            _add(tar, f"{number:09}.npy", _npy(values))
    return archive.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(content), _WRITTEN_AT, 0o444
    member.uname, member.gname = "bigdata", "bigdata"
    tar.addfile(member, io.BytesIO(content))


def _npy(values: bytes) -> bytes:
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(values)},), }}"
    padded = header.encode().ljust(128 - 10 - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + values


_SIGHT = Sight(
    complete=OTHER_ENDS,
    unlisted=[ShardState.MISSING, ShardState.UNFINISHED],
    unproven=["valid"],
)

FORMAT = SampleFormat(
    name="webdataset",
    options=WebdatasetOptions,
    manifest_names=lambda _: (),
    read_bytes=_read_bytes,
    write=write_flat,
    problems=_SIGHT.problems,
    unproven=_SIGHT.unproven_names,
    known_by_shards=True,
)

"""Files of Parquet with a column of numbers, called as the libraries of Hugging Face call them."""

import struct

from shardproof.testing.samples._layout import Layout, SampleFormat, SampleOptions
from shardproof.testing.samples.foreign._files import index_of, write_flat
from shardproof.testing.samples.foreign._sight import OTHER_ENDS, Sight

__all__ = ["FORMAT", "ParquetOptions"]

_N_ROWS = 64
_MAGIC = b"PAR1"
_PAGE_HEADER = bytes.fromhex("15001580081580082c1580011500150615060000")
_FOOTER = bytes.fromhex(
    "1504192c4806736368656d61150200150425001802696400168001191c191c26081c15041915001918026964150016"
    "800116a80816a8082608000016a80816800100280a736861726470726f6f6600"
)
"""Structs of parquet.thrift in Thrift's compact protocol; only the rows differ from file to file.

They say: one row group with one data page, PLAIN and not compressed, of 64 required INT64 ``id``.
"""


class ParquetOptions(SampleOptions):
    """What a dataset is like: 64 rows of ``id`` a shard, in one row group."""

    least_shards = 1

    def shard_name(self, index: int) -> str:
        """Return the file name of one shard; `shard_names` makes all of them, each time."""
        return f"train-{index:05}-of-{self.n_shards:05}.parquet"


def _read_bytes(layout: Layout, name: str) -> bytes:
    first = index_of(layout, name) * _N_ROWS + layout.seed
    rows = struct.pack(f"<{_N_ROWS}q", *range(first, first + _N_ROWS))
    end = struct.pack("<I", len(_FOOTER)) + _MAGIC
    return _MAGIC + _PAGE_HEADER + rows + _FOOTER + end


_SIGHT = Sight(complete=OTHER_ENDS, unproven=["valid"])

FORMAT = SampleFormat(
    name="parquet",
    options=ParquetOptions,
    manifest_names=lambda _: (),
    read_bytes=_read_bytes,
    write=write_flat,
    problems=_SIGHT.problems,
    unproven=_SIGHT.unproven_names,
    known_by_shards=True,
)

"""Files of Parquet with a column of numbers, called as the libraries of Hugging Face call them."""

import struct
from typing import NamedTuple

from shardproof.testing.samples._layout import Layout, SampleFormat, SampleOptions
from shardproof.testing.samples.foreign._files import index_of, write_flat
from shardproof.testing.samples.foreign._sight import OTHER_ENDS, Sight

__all__ = ["FORMAT", "ParquetOptions"]

_N_ROWS = 64
_MAGIC = b"PAR1"


class ParquetOptions(SampleOptions):
    """What a dataset is like: 64 rows of ``id`` a shard, in one row group."""

    least_shards = 1

    def shard_name(self, index: int) -> str:
        """Return the file name of one shard; `shard_names` makes all of them, each time."""
        return f"train-{index:05}-of-{self.n_shards:05}.parquet"


class _I32(NamedTuple):
    value: int


class _I64(NamedTuple):
    value: int


class _ThriftFields(dict[int, "_Value"]):
    """A struct of Thrift: values by the numbers of their fields, ascending."""


_Value = _I32 | _I64 | bytes | _ThriftFields | list["_Value"]
_KINDS = {_I32: 5, _I64: 6, bytes: 8, list: 9, _ThriftFields: 12}
"""How Thrift's compact protocol numbers types (thrift-compact-protocol.md of Apache Thrift)."""


def _encoded(value: "_Value") -> bytes:
    if isinstance(value, _I32 | _I64):
        return _varint(value.value << 1)  # zigzag, of what is not negative
    if isinstance(value, bytes):
        return _varint(len(value)) + value
    if isinstance(value, list):
        head = bytes([len(value) << 4 | _KINDS[type(value[0])]])
        return head + b"".join(map(_encoded, value))
    fields, before = [], 0
    for number, each in value.items():
        fields.append(bytes([number - before << 4 | _KINDS[type(each)]]) + _encoded(each))
        before = number
    return b"".join(fields) + b"\0"


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


_PLAIN, _RLE, _INT64, _REQUIRED, _UNCOMPRESSED, _DATA_PAGE = 0, 3, 2, 0, 0, 0
"""Of the enumerations of parquet.thrift."""


def _read_bytes(layout: Layout, name: str) -> bytes:
    first = index_of(layout, name) * _N_ROWS + layout.seed
    rows = struct.pack(f"<{_N_ROWS}q", *range(first, first + _N_ROWS))
    page = _page_header(len(rows)) + rows
    footer = _footer(len(page))
    return _MAGIC + page + footer + struct.pack("<I", len(footer)) + _MAGIC


def _page_header(n_bytes: int) -> bytes:
    levels = {3: _I32(_RLE), 4: _I32(_RLE)}  # of which a required column has none
    values = _ThriftFields({1: _I32(_N_ROWS), 2: _I32(_PLAIN), **levels})
    sizes = {2: _I32(n_bytes), 3: _I32(n_bytes)}
    return _encoded(_ThriftFields({1: _I32(_DATA_PAGE), **sizes, 5: values}))


def _footer(n_bytes: int) -> bytes:
    root = _ThriftFields({4: b"schema", 5: _I32(1)})
    leaf = _ThriftFields({1: _I32(_INT64), 3: _I32(_REQUIRED), 4: b"id"})
    start = _I64(len(_MAGIC))
    column = _ThriftFields(
        {
            1: _I32(_INT64),
            2: [_I32(_PLAIN)],
            3: [b"id"],
            4: _I32(_UNCOMPRESSED),
            5: _I64(_N_ROWS),
            6: _I64(n_bytes),
            7: _I64(n_bytes),
            9: start,
        }
    )
    chunk = _ThriftFields({2: start, 3: column})
    group = _ThriftFields({1: [chunk], 2: _I64(n_bytes), 3: _I64(_N_ROWS)})
    schema: list[_Value] = [root, leaf]
    return _encoded(
        _ThriftFields({1: _I32(2), 2: schema, 3: _I64(_N_ROWS), 4: [group], 6: b"shardproof"})
    )


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

"""Datasets as others write them: MDS, WebDataset, Parquet, and any files with their digests."""

import dataclasses
import hashlib
import io
import json
import struct
import tarfile
from typing import Any

from shardproof.testing.samples._foreign import (
    OTHER_BYTES,
    OTHER_ENDS,
    OTHER_SIZE,
    UNWRITTEN,
    ForeignOptions,
    Sight,
    flat,
    made_bytes,
)
from shardproof.testing.samples._keywords import one_of
from shardproof.testing.samples._layout import Layout, index_of
from shardproof.testing.samples._states import ShardState

_HASHES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b")
_SIZE_LIMIT = 2048
_X_BYTES = 244
_SAMPLE_BYTES = 8 + 4 + _X_BYTES  # an int, and bytes after their length


@dataclasses.dataclass(frozen=True, kw_only=True)
class MdsOptions(ForeignOptions):
    """What a dataset of MosaicML Streaming is like: about 2 KiB a shard.

    Attributes:
        hashes: By which algorithms the index states digests; the writer's own default is by none.

    Raises:
        ValueError: An algorithm that it has not, or algorithms that are not in order.
    """

    least_shards = 0
    pattern = "shard.{index:05}.mds"
    hashes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.hashes
        if isinstance(given, str):
            raise TypeError(f"hashes: expected names, such as ['sha1'], found {given!r}")
        self.settle("hashes", tuple(one_of("hashes", each, _HASHES) for each in given))
        if list(self.hashes) != sorted({*self.hashes}):
            raise ValueError(f"hashes: expected each once and in order, found {self.hashes}")

    def config(self) -> dict[str, object]:
        """Return what each shard, and the index of each shard, says of all of them."""
        return {
            "version": 2,
            "format": "mds",
            "compression": None,
            "hashes": [*self.hashes],
            "size_limit": _SIZE_LIMIT,
            "column_names": ["id", "x"],
            "column_encodings": ["int", "bytes"],
            "column_sizes": [8, None],
        }

    def config_text(self) -> bytes:
        """Return it as it stands in each shard."""
        return json.dumps(self.config(), sort_keys=True).encode()

    def n_samples(self) -> int:
        """Return how many samples fit into a shard: beside each stands where it begins."""
        return (_SIZE_LIMIT - 4 - 4 - len(self.config_text())) // (_SAMPLE_BYTES + 4)


def _mds_shard(layout: Layout, index: int) -> bytes:
    options: MdsOptions = layout.options
    config, n_samples = options.config_text(), options.n_samples()
    content = made_bytes(layout, index, n_samples * _X_BYTES)
    start = 4 + 4 * (n_samples + 1) + len(config)
    offsets = [start + place * _SAMPLE_BYTES for place in range(n_samples + 1)]
    samples = (
        struct.pack("<Iq", _X_BYTES, index * n_samples + place)
        + content[place * _X_BYTES : (place + 1) * _X_BYTES]
        for place in range(n_samples)
    )
    return struct.pack(f"<{n_samples + 2}I", n_samples, *offsets) + config + b"".join(samples)


def _mds_bytes(layout: Layout, name: str) -> bytes:
    options: MdsOptions = layout.options
    if name != "index.json":
        return _mds_shard(layout, index_of(layout, name))
    shards = []
    for index, shard in enumerate(options.shard_names):
        content = _mds_shard(layout, index)
        hashes = {each: hashlib.new(each, content).hexdigest() for each in options.hashes}
        raw = {"basename": shard, "bytes": len(content), "hashes": hashes}
        entry = {"samples": options.n_samples(), "raw_data": raw, "zip_data": None}
        shards.append(entry | options.config())
    return json.dumps({"version": 2, "shards": shards}, sort_keys=True).encode()


# Zeros are no beginning of a shard, which is seen before its digest.
_MDS_SIGHTS = {
    False: Sight(complete=OTHER_SIZE, unproven=["valid"]),
    True: Sight(complete=OTHER_SIZE, valid=OTHER_BYTES | {ShardState.SPARSE: "structure"}),
}

MDS = flat(
    "mds", MdsOptions, _mds_bytes, lambda layout: _MDS_SIGHTS[bool(layout.hashes)], "index.json"
)

_N_SAMPLES = 3
_NPY_BYTES = 2432  # so long that it is what lies in the middle of an archive
_WRITTEN_AT = 1767225600.25  # the writer's clock has fractions of seconds, which take a header more


class _WebdatasetOptions(ForeignOptions):
    pattern = "shard-{index:06}.tar"


def _webdataset_bytes(layout: Layout, name: str) -> bytes:
    index = index_of(layout, name)
    content = made_bytes(layout, index, _N_SAMPLES * _NPY_BYTES)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w|") as tar:
        for place in range(_N_SAMPLES):
            number = index * _N_SAMPLES + place
            values = content[place * _NPY_BYTES : (place + 1) * _NPY_BYTES]
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


_WEBDATASET_SIGHT = Sight(
    complete=OTHER_ENDS,
    unlisted=[ShardState.MISSING, ShardState.UNFINISHED],
    unproven=["valid"],
)

WEBDATASET = flat("webdataset", _WebdatasetOptions, _webdataset_bytes, lambda _: _WEBDATASET_SIGHT)

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


class _ParquetOptions(ForeignOptions):
    pattern = "train-{index:05}-of-{n_shards:05}.parquet"


def _parquet_bytes(layout: Layout, name: str) -> bytes:
    first = index_of(layout, name) * _N_ROWS + layout.seed
    rows = struct.pack(f"<{_N_ROWS}q", *range(first, first + _N_ROWS))
    return _MAGIC + _PAGE_HEADER + rows + _FOOTER + struct.pack("<I", len(_FOOTER)) + _MAGIC


_PARQUET_SIGHT = Sight(complete=OTHER_ENDS, unproven=["valid"])

PARQUET = flat("parquet", _ParquetOptions, _parquet_bytes, lambda _: _PARQUET_SIGHT)

_LIST = "SHA256SUMS"
_ANY_BYTES = 1000


class _DigestsOptions(ForeignOptions):
    pattern = "part-{index:05}.bin"


def _digests_bytes(layout: Layout, name: str) -> bytes:
    if name != _LIST:
        return made_bytes(layout, index_of(layout, name), _ANY_BYTES)
    lines = (
        f"{hashlib.sha256(made_bytes(layout, index, _ANY_BYTES)).hexdigest()}  {shard}\n"
        for index, shard in enumerate(layout.shard_names)
    )
    return "".join(lines).encode()


_CHANGED = [ShardState.TRUNCATED, ShardState.EXTENDED, ShardState.SPARSE]
_DIGESTS_SIGHT = Sight(
    complete=UNWRITTEN,
    valid=OTHER_BYTES | dict.fromkeys(_CHANGED, "digest"),
    unproven=["complete"],
)

DIGESTS = flat("digests", _DigestsOptions, _digests_bytes, lambda _: _DIGESTS_SIGHT, _LIST)

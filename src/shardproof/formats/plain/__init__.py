"""Formats of plain files that nothing lists: the law of their files, and what is said of them."""

import functools
import os
import re

from shardproof._base import digest_lists
from shardproof._base.messages import quoted
from shardproof._base.opening import Read, matching
from shardproof.formats._flat import flat
from shardproof.formats._format import Format, later
from shardproof.formats.plain import llmc
from shardproof.manifest import ExpectedFile, Mismatch
from shardproof.probes.impostors import is_text

_DTYPE = re.compile(r"(?:u?int|b?float)(8|16|32|64)")


def _are_half_arrays(path: str) -> bool:
    """Whether half or more of what is there are such files, not counting lists of digests."""
    n_files = sum(not digest_lists.is_list(name) for name in matching(path, "*"))
    return 0 < n_files <= 2 * len(matching(path, "*.npy"))


_LINES = re.compile(
    r".*\.(?:(?:jsonl|ndjson)(?:\.(?:gz|zst|zstd|bz2|xz))?|json\.(?:gz|zst|zstd|bz2|xz))"
    r"|part-\d{5}-[0-9a-f-]{36}.*\.json",  # as Spark calls them
    re.DOTALL,
)


def _are_mostly_lines(path: str) -> bool:
    """Whether there are as many such files as others: lines may describe images beside them."""
    names = matching(path, "*")
    lines = list(filter(_LINES.fullmatch, names))
    others = {name for name in names if os.path.splitext(name)[1] and not is_text(name)}
    return len(lines) > 0 and len(lines) >= len(others.difference(lines))


LLMC = flat(
    "llmc",
    (".bin",),
    probe=llmc.probe,
    choose=llmc.choose,
    recognizes=llmc.recognizes,
    description="tokens as llm.c and modded-nanogpt write them: .bin files with a header",
    complete="the size of each file, as its header implies it",
    blind_spots="changed tokens; missing shards; files without a header, such as nanoGPT's",
)
NPY = flat(
    "npy",
    (".npy",),
    probe="npy",
    prove=later("probes.token_ids", "IdsProof"),
    recognizes=_are_half_arrays,
    description="numpy arrays, such as token shards with ids of their sequences",
    complete="the size of each file, as its header implies it",
    valid="the id of each token sequence, if there are ids beside the tokens, as templar writes "
    "them",
    blind_spots="changed numbers without ids; missing files; types with fields or objects",
)
TFRECORD = flat(
    "tfrecord",
    (".tfrecord", ".tfrecords", ".tfrec", ".tfrecord.gz", ".tfrecord.zlib"),
    probe="tfrecord",
    job_names=re.compile(r".*\.tfrec(?:ords?)?(?:[-.].*)?", re.DOTALL),
    manifest_file="*.tfrecord*",
    description="records of TensorFlow, with `-00003-of-00042` in the names or without",
    beside=("*.json", "*.index", "_SUCCESS", "*.crc"),
    complete="that the first 4096 records of each file follow one another, each with a length "
    "that matches its checksum, and that a file with no more records ends there; for gzip and "
    "zlib, the first record and the end: all data up to 64 KiB, otherwise the size that gzip "
    "states. A file of 0 bytes is a finding, because it may be torn",
    valid="the checksums of all data, and those of gzip and zlib over whole files",
    blind_spots="a cut between two records of an uncompressed file; missing files, unless a name "
    "or a remaining `.crc` file implies them; at `complete`, a cut after 4096 records, or in a "
    "large gzip or zlib file, which has no markers before its end",
)
WEBDATASET = flat(
    "webdataset",
    (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"),
    probe="tar",
    # What torch.save wrote is often called so, and is no archive of tar.
    choose=lambda _, names: [name for name in names if not name.endswith((".pt.tar", ".pth.tar"))],
    description="samples in tar archives that nothing lists",
    complete="the first headers and the end marker of each archive; for compressed archives, the "
    "ends of bzip2 and xz, all blocks of zstd, and the content of gzip: all of it if it is small",
    valid="the checksum of each gzip archive, all headers of gzip and uncompressed archives",
    blind_spots="missing archives; zeros in place of the last members; changed samples, except in "
    "gzip archives; the content of bzip2, xz and zstd",
    includes=("parquet",),
)
JSON_LINES = flat(
    "json-lines",
    (".jsonl", ".ndjson", ".gz", ".zst", ".zstd", ".bz2", ".xz", ".json"),
    probe="json_lines",
    job_names=_LINES,
    recognizes=_are_mostly_lines,
    manifest_file="*.jsonl*",
    yields=True,
    description="JSON lines, plain or packed, with `-00003-of-00042` in the names or without",
    beside=("*.ndjson*", "*.json*", "*.md", "*.txt", "_SUCCESS", "*.crc"),
    complete="the first and the last line of plain files, if under 64 KiB; for packed ones, the "
    "ends of gzip, bzip2 and xz, and the first 4096 blocks of zstd; the first line in gzip",
    valid="the checksums of gzip over whole files; that all blocks of zstd are there",
    blind_spots="a cut between two lines of a plain file; changed lines, except in gzip; the "
    "content of bzip2, xz and zstd; missing files, unless a name implies them",
)
ARRAY_RECORD = flat(
    "array-record",
    (".array_record", ".arrayrecord"),
    probe="array_record",
    job_names=re.compile(r".*\.array_?record(?:[-.].*)?", re.DOTALL),
    yields=True,
    manifest_file="*.array_record*",
    description="records of ArrayRecord, with `-00003-of-00042` in the names or without",
    beside=("*.json",),
    complete="that the first 4096 chunks of each file follow one another, and that a file with no "
    "more chunks ends there; that the last block says where the footer is, and it is there",
    blind_spots="changed records; missing files, unless a name implies them",
)
ARROW_IPC = flat(
    "arrow-ipc",
    (".arrow", ".arrows", ".feather", ".ipc"),
    probe="arrow",
    job_names=re.compile(r".*\.(?:arrows?|feather|ipc)", re.DOTALL),
    yields=True,
    description="files and streams of Arrow, and Feather, without the `state.json` of `datasets`",
    beside=("*.json", "*.lock"),
    complete="the beginning and the end of each file: a footer, or the marker that ends a stream, "
    "which a few writers leave out",
    blind_spots="changed rows; missing files, unless a name such as `-00003-of-00042` implies them",
)
HDF5 = flat(
    "hdf5",
    (".h5", ".hdf5", ".hdf", ".h5ad", ".nc"),
    probe="hdf5",
    choose=later("probes.hdf5", "choose"),
    yields=True,
    description="files of HDF5, such as h5py writes them; also netCDF 4 and anndata's .h5ad",
    complete="the superblock: the size that it states, and that no writer has the file open or was "
    "killed; the header of the root group",
    blind_spots="what is below the root group; checksums of metadata; missing files; the "
    "files by the drivers `split` and `family`, except the first; HDF4; netCDF before version 4",
)
NPZ = flat(
    "npz",
    (".npz",),
    probe="npz",
    yields=True,
    description="archives of numpy arrays, by `savez` and `savez_compressed`",
    complete="the directory at the end; the size of each array, as its header implies it",
    valid="the CRC-32 of each array",
    blind_spots="missing files",
)


def bin_of(dtype: str, name: str = "") -> Format:
    """Return the format of numbers without a header; a ValueError for a type of no known size."""
    n_bits = _DTYPE.fullmatch(dtype)
    if n_bits is None:
        problem = "expected a type such as uint16, int32 or bfloat16"
        raise ValueError(f"format: {problem}, found {quoted(dtype)}")
    return flat(
        name or f"bin:{dtype}",
        (".bin",),
        probe=functools.partial(_wrong_size, int(n_bits[1]) // 8),
        recognizes=lambda path: {"train.bin", "val.bin"} <= {*matching(path, "*.bin")},
        yields=True,
        description="numbers without a header, such as nanoGPT's train.bin and val.bin: uint16, "
        "or what `--dtype` says",
        beside=("meta.pkl",),
        complete="that each file has a whole number of items",
        blind_spots="everything else: nothing in such a file tells what it is, or where it ends",
    )


def _wrong_size(n_each: int, _promised: ExpectedFile, _read: Read, size: int) -> Mismatch | None:
    expected = f"a multiple of {n_each} bytes, the size of an item"
    return Mismatch(expected, f"{size} bytes") if size % n_each else None


BIN = bin_of("uint16", "bin")
FORMATS = (LLMC, NPY, TFRECORD, WEBDATASET, ARRAY_RECORD, ARROW_IPC, HDF5, NPZ, BIN, JSON_LINES)

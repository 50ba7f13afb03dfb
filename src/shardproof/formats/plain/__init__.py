"""Formats of plain files that nothing lists: the law of their files, and what is said of them."""

import re

from shardproof._base import digest_lists
from shardproof._base.opening import matching
from shardproof.formats._flat import flat
from shardproof.formats._format import later
from shardproof.formats.plain import llmc


def _are_half_arrays(path: str) -> bool:
    """Whether half or more of what is there are such files, not counting lists of digests."""
    n_files = sum(not digest_lists.is_list(name) for name in matching(path, "*"))
    return 0 < n_files <= 2 * len(matching(path, "*.npy"))


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
    (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecord.zlib"),
    probe="tfrecord",
    job_names=re.compile(r".*\.tfrecords?(?:[-.].*)?", re.DOTALL),
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
    description="samples in tar archives that nothing lists",
    complete="the first headers and the end marker of each archive; for compressed archives, the "
    "ends of bzip2 and xz, all blocks of zstd, and the content of gzip: all of it if it is small",
    valid="the checksum of each gzip archive, all headers of gzip and uncompressed archives",
    blind_spots="missing archives; zeros in place of the last members; changed samples, except in "
    "gzip archives; the content of bzip2, xz and zstd",
    includes=("parquet",),
)
FORMATS = (LLMC, NPY, TFRECORD, WEBDATASET)

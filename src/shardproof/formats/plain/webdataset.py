"""WebDataset: samples in tar archives. Nothing lists them, so those that are there are expected."""

from shardproof.formats._flat import flat

FORMAT = flat(
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

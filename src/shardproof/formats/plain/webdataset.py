"""WebDataset: samples in tar archives. Nothing lists them, so those that are there are expected."""

from shardproof.formats._flat import flat

FORMAT = flat(
    "webdataset",
    (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"),
    probe="tar",
    description="samples in tar archives, which nothing lists",
    complete="the first headers of each archive, and the mark at its end; of compressed archives "
    "the ends of bzip2 and xz and all blocks of zstd; of gzip what is inside: of small ones all",
    valid="the checksum of each archive in gzip, all headers of these and of plain ones",
    blind_spots="archives that are gone; zeros in place of the last members; changed samples, but "
    "for archives in gzip; what is inside bzip2, xz and zstd",
    includes=("parquet",),
)

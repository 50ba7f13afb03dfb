"""TFRecord files: those whose names imply how many there are, or all in the directory."""

import re

from shardproof.formats._flat import flat

FORMAT = flat(
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

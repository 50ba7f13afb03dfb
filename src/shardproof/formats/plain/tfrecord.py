"""TFRecord files: those whose names imply how many there are, or all in the directory."""

import re

from shardproof.formats._flat import flat

FORMAT = flat(
    "tfrecord",
    (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecord.zlib"),
    probe="tfrecord",
    job_names=re.compile(r".*\.tfrecords?(?:[-.].*)?", re.DOTALL),
    manifest_file="*.tfrecord*",
    description="records of TensorFlow, with `-00003-of-00042` in their names or without",
    beside=("*.json", "*.index", "_SUCCESS", "*.crc"),
    complete="that the first 4096 records of each file follow one another, each with a length that "
    "its checksum proves, up to the end of a file that has no more; of one in gzip or zlib the "
    "first record, and the end: all of it up to 64 KiB, else how much gzip says that it holds. One "
    "of 0 bytes is a finding: whether nothing was to be written, or it is torn, can't be told",
    valid="the checksums of all data; whole files in gzip or zlib, by theirs, too",
    blind_spots="a cut between two records, where nothing packs them; files that are gone, where "
    "neither a name nor a `.crc` that is left tells of them; at `complete` a cut behind 4096 "
    "records, or in a large file in gzip or zlib, which only ends, and has no marks before",
)

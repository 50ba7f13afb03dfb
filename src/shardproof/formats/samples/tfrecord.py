"""TFRecord files: those whose names imply how many there are, or all in the directory."""

import re
from collections.abc import Sequence
from pathlib import Path

from shardproof._base import files
from shardproof._base.opening import names_in
from shardproof.errors import ManifestNotFoundError
from shardproof.formats._counted import promised_by_names
from shardproof.formats._format import Format
from shardproof.formats.samples import _hadoop
from shardproof.manifest import Manifest, PromisedFile
from shardproof.probes import tfrecord

__all__ = ["FORMAT"]

_NAME = re.compile(r".*\.tfrecords?(?:[-.].*)?", re.DOTALL)


def _recognizes(path: str) -> bool:
    return bool(_listed(names_in(path)))


def _listed(names: Sequence[str]) -> list[str]:
    found = filter(_NAME.fullmatch, _hadoop.expected_of(names))
    return [name for name in found if not files.is_aside(name)]


def _read_manifest(path: str) -> Manifest:
    there = names_in(path)
    names = _listed(there)
    if not names:
        raise ManifestNotFoundError("there is no file of TFRecord", path=path)
    counted = promised_by_names(names)
    return Manifest(
        root=Path(path),
        path=Path(path, names[0]),
        format=FORMAT.name,
        files=[PromisedFile(name=name) for name in counted.names],
        probe=tfrecord.probe,
        prove=_hadoop.HadoopProof(path, tfrecord.prove),
        contradictions=lambda: [*counted.contradictions, *_hadoop.uncommitted(there)],
    )


FORMAT = Format(
    name="tfrecord",
    description="records of TensorFlow, with `-00003-of-00042` in their names or without",
    manifest_file="*.tfrecord*",
    beside=("*.json", "features.json", "*.index", *_hadoop.BESIDE),
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="that the first 4096 records of each file follow one another, each with a length that "
    "its checksum proves, up to the end of a file that has no more; of one in gzip or zlib the "
    "first record, and the end: all of it up to 64 KiB, else how much gzip says that it holds. One "
    "of 0 bytes is a finding: whether nothing was to be written, or it is torn, can't be told",
    valid="the checksums of all data; whole files in gzip or zlib, by theirs, too",
    blind_spots="a cut between two records, where nothing packs them; files that are gone, where "
    "neither a name nor a `.crc` that is left tells of them; at `complete` a cut behind 4096 "
    "records, or in a large file in gzip or zlib, which only ends, and has no marks before",
)

"""TFRecord files: those whose names imply how many there are, or all in the directory."""

import functools
import os
import re
from pathlib import Path

from shardproof._base import files
from shardproof._base.opening import is_never_a_shard, names_in
from shardproof.errors import ManifestNotFoundError
from shardproof.formats._counted import promised_by_names
from shardproof.formats._format import Format
from shardproof.manifest import Manifest, PromisedFile
from shardproof.probes import tfrecord

__all__ = ["FORMAT"]

_NAME = re.compile(r".*\.tfrecords?(?:[-.].*)?", re.DOTALL)


def _recognizes(path: str) -> bool:
    return any(map(_is_one, os.listdir(path)))


def _is_one(name: str) -> bool:
    is_passed_over = is_never_a_shard(name) or files.is_aside(name)
    return _NAME.fullmatch(name) is not None and not is_passed_over


def _read_manifest(path: str) -> Manifest:
    names = list(filter(_is_one, names_in(path)))
    if not names:
        raise ManifestNotFoundError("there is no file of TFRecord", path=path)
    counted = promised_by_names(names)
    return Manifest(
        root=Path(path),
        path=Path(path, names[0]),
        format=FORMAT.name,
        files=[PromisedFile(name=name) for name in counted.names],
        probe=tfrecord.probe,
        contradictions=functools.partial(iter, counted.contradictions),
    )


FORMAT = Format(
    name="tfrecord",
    description="records of TensorFlow, with `-00003-of-00042` in their names or without",
    manifest_file="*.tfrecord*",
    beside=("*.json", "features.json", "*.index"),
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="that the first 4096 records of each file follow one another, each with a length that "
    "its checksum proves, up to the end of a file that has no more",
    valid="nothing more: the checksums of data are not read; seal it",
    blind_spots="changed data; a cut between two records, or behind the first 4096; compressed "
    "files; files that are gone, where no name implies how many there are",
)

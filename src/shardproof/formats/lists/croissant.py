"""Croissant: metadata of a data set in JSON-LD, whose file objects state digests and sizes.

Only files that lie beside the metadata are promised: other addresses, and files within archives,
are not here. A digest that is a placeholder proves nothing, and many are
(https://docs.mlcommons.org/croissant/docs/croissant-spec.html).
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from shardproof._base import digest, json
from shardproof._base.opening import is_there
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats._format import Format
from shardproof.manifest import Manifest, PromisedFile

__all__ = ["FORMAT"]

_NAMES = ("croissant.json", "metadata.json")
_MARK = b"mlcommons.org/croissant"
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_EXACT_SIZE = re.compile(r"(\d{1,18})(?: ?B(?:ytes)?)?", re.IGNORECASE)


class _FileObject(msgspec.Struct):
    """One entry of ``distribution``: a file, or, without an address, a set of files."""

    kind: Any = msgspec.field(default=None, name="@type")
    address: str | None = msgspec.field(default=None, name="contentUrl")
    size: str | int | None = msgspec.field(default=None, name="contentSize")
    sha256: str | None = None
    md5: str | None = None
    within: Any = msgspec.field(default=None, name="containedIn")


class _CroissantMetadata(msgspec.Struct):
    distribution: list[_FileObject]


def _recognizes(path: str) -> bool:
    return _metadata_in(path) is not None


def _metadata_in(path: str) -> str | None:
    """Return the name of the file that has the metadata."""
    for name in _NAMES:
        try:
            if _MARK in json.read_bytes(path, name, max_bytes=json.MAX_BYTES):
                return name
        except ManifestError:  # another program's, or one that can't be read
            continue
    return None


def _read_manifest(path: str) -> Manifest:
    name = _metadata_in(path)
    if name is None:
        problem = f"there are no metadata of Croissant ({', '.join(_NAMES)})"
        raise ManifestNotFoundError(problem, path=path)
    entries = json.read(path, name, _CroissantMetadata).distribution
    files = list(_promises(entries, path))
    where = Path(path, name)
    if not files:
        raise ManifestError("it has no file that lies beside it", path=where)
    return Manifest(root=Path(path), path=where, format=FORMAT.name, files=files)


def _promises(entries: list[_FileObject], path: str) -> Iterator[PromisedFile]:
    for entry in entries:
        if entry.address is None or entry.within or not str(entry.kind).endswith("FileObject"):
            continue
        name = entry.address.removeprefix("./")
        if _ADDRESS.match(name):
            name = name.rpartition("/")[2]
            if not name or not is_there(os.path.join(path, name)):
                continue
        digests = [f"sha256:{entry.sha256}"] if entry.sha256 else []
        digests += [f"md5:{entry.md5}"] if entry.md5 else []
        made = PromisedFile.by_digest(name, digest.best(digests))
        size = _EXACT_SIZE.fullmatch(str(entry.size))
        yield made if size is None else msgspec.structs.replace(made, size=int(size[1]))


FORMAT = Format(
    name="croissant",
    description="files that Croissant metadata describe, and that lie beside them",
    manifest_file="croissant.json",
    beside=("metadata.json",),
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="the size of each file, where it is stated in bytes",
    valid="the SHA-256 or MD5 of each file, where it is no placeholder",
    blind_spots="file sets, which state no digest; files within archives or at other addresses",
)

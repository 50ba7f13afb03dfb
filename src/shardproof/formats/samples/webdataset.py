"""WebDataset: samples in tar archives. Nothing lists them, so those that are there are promised."""

import os
from pathlib import Path

from shardproof._base.names import open_root
from shardproof._base.opening import matching
from shardproof.errors import ManifestNotFoundError
from shardproof.formats._format import Format
from shardproof.manifest import Manifest, PromisedFile
from shardproof.probes import tar

__all__ = ["FORMAT"]

_NAME = "webdataset"
_PATTERNS = ("*.tar", "*.tar.gz", "*.tgz", "*.tar.bz2", "*.tar.xz", "*.tar.zst")


def _names(path: str) -> list[str]:
    return sorted(name for pattern in _PATTERNS for name in matching(path, pattern))


def _recognizes(path: str) -> bool:
    return bool(_names(path))


def _read_manifest(path: str) -> Manifest:
    os.close(open_root(path))
    names = _names(path)
    if not names:
        problem = f"expected archives ({', '.join(_PATTERNS)}), found none"
        raise ManifestNotFoundError(problem, path=path)
    return Manifest(
        root=Path(path),
        path=Path(path),
        format=_NAME,
        files=[PromisedFile(name=name) for name in names],
        probe=tar.probe,
        prove=tar.prove,
    )


FORMAT = Format(
    name=_NAME,
    description="samples in tar archives, which nothing lists",
    manifest_file=_PATTERNS[0],
    beside=_PATTERNS[1:],
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="the first headers of each archive, and the mark at its end; of compressed archives "
    "the ends of bzip2 and xz and all blocks of zstd; of gzip what is inside: of small ones all",
    valid="the checksum of each archive in gzip, all headers of these and of plain ones",
    blind_spots="archives that are gone; zeros in place of the last members; changed samples, but "
    "for archives in gzip; what is inside bzip2, xz and zstd",
    includes=("parquet",),
)

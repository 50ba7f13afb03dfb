"""A set of parquet files: by what ``_metadata`` says, by what names imply, or all that are there.

dask, fastparquet and Spark write ``_metadata``: the footers of all files in one, with their names.
"""

import os
from collections.abc import Sequence

from shardproof._base import json
from shardproof._base.opening import files_below, is_directory, names_in, read_at
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats import _hadoop
from shardproof.formats._counted import promised_by_names
from shardproof.formats._opened import opened
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile
from shardproof.probes import parquet

_SUFFIX = ".parquet"
_METADATA = "_metadata"
_MAX_METADATA_BYTES = 2**27


def recognizes(path: str) -> bool:
    names = names_in(path)
    if _listed(names):
        return True
    with opened(_METADATA, path) as fd:
        begin = b"" if fd is None else read_at(fd, 4)  # to read what is no file says so
    # A folder, or of another begin, it is another program's, unless folders are called y=2024.
    is_one = begin in {b"PAR1", b""} and not is_directory(os.path.join(path, _METADATA))
    return _METADATA in names and (is_one or any("=" in name for name in names))


def _listed(names: Sequence[str]) -> list[str]:
    return [name for name in _hadoop.expected_of(names) if name.endswith(_SUFFIX)]


def read_manifest(path: str) -> Manifest:
    names, metadata = names_in(path), os.path.join(path, _METADATA)
    footer = None
    if _METADATA in names:
        footer = parquet.footer_in(json.read_bytes(path, _METADATA, max_bytes=_MAX_METADATA_BYTES))
    damaged = [Contradiction(_METADATA, *footer)] if isinstance(footer, Mismatch) else []
    rows, below = dict[str, int](), list[str]()
    if isinstance(footer, parquet.ParquetFooter):
        rows, below = dict(footer.rows_of_files), files_below(path)  # also what was added since
        rows.pop("", None)
    counted = promised_by_names(each for each in _listed([*names, *below]) if each not in rows)
    if not rows and not counted.names and isinstance(footer, Mismatch):
        raise ManifestError(f"expected {footer.expected}, found {footer.found}", path=metadata)
    if not rows and not counted.names and footer is None:
        raise ManifestNotFoundError("there is no parquet file", path=path)
    return Manifest.at(
        path,
        _METADATA if rows else [*counted.names, _METADATA][0],
        "parquet",
        [
            *(PromisedFile(name=name, n_items=n_rows) for name, n_rows in rows.items()),
            *(PromisedFile(name=name) for name in counted.names),
        ],
        probe=parquet.probe,
        prove=_hadoop.proof_of(path, [*names, *below], parquet.prove),
        contradictions=lambda: [*counted.contradictions, *_hadoop.uncommitted(names)],
        damaged=damaged,
    )

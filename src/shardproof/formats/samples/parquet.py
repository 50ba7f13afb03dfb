"""A set of parquet files: by what ``_metadata`` says, or names imply, or all that are there."""

import functools
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.names import spelled
from shardproof._base.opening import is_directory, is_link, is_never_a_shard, names_in, tree
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats import _jobs
from shardproof.formats._reading import begin_of
from shardproof.manifest import Contradiction, ExpectedFile, Manifest, Mismatch
from shardproof.probes import parquet

_SUFFIX = ".parquet"
_NAME = re.compile(
    r".*\.(?:parquet|parq|pq)(?:\.(?:brotli|gz|gzip|lz4|snappy|zstd))?", re.DOTALL | re.IGNORECASE
)
"""What such files are called; if none is called `.parquet`, one has to begin as parquet."""

_PARTITION = re.compile(r"[^=]+=.*|chunk-\d+", re.DOTALL)
_MOST_LOOKED_AT, _MOST_FOLDERS = 16, 1024
_PACKED = b"\x1f\x8b"
_METADATA = "_metadata"  # of dask, fastparquet and Spark: all footers in one, with the files' names
_MAX_METADATA_BYTES = 2**27
_INFO = "dataset_info.json"
_BEHIND_SPLIT = r"(?:-\d{4,6}-of-\d{4,6}(?:-[0-9a-f]+)?)?\.parquet"


class _SplitInfo(msgspec.Struct):
    num_examples: int | None = None


class _DatasetInfo(msgspec.Struct):
    """How many examples each split has; its files begin with the dataset's name, or without."""

    dataset_name: str | None = None
    splits: dict[str, _SplitInfo] | None = None


def recognizes(path: str) -> bool:
    names = names_in(path)
    if _listed(path, _jobs.expected_of(names)) or _is_partitioned(path, names):
        return True
    begin = begin_of(path, _METADATA, 4)  # to read what is no file says so
    # A folder, or of another begin, it is another program's, unless folders are called y=2024.
    is_one = begin in {b"PAR1", b""} and not is_directory(os.path.join(path, _METADATA))
    return _METADATA in names and (is_one or any("=" in name for name in names))


def _listed(root: str, names: Iterable[str]) -> list[str]:
    """Return what is called as parquet, and not packed as a whole, if one that is looked at is."""
    called = list(filter(_NAME.fullmatch, names))
    odd = [name for name in called if not name.endswith(_SUFFIX)]
    begins = [begin_of(root, name, 4) for name in odd[:_MOST_LOOKED_AT]]
    if len(odd) == len(called) and b"PAR1" not in begins:
        return []
    is_packed = any(begin.startswith(_PACKED) for begin in begins)
    return [name for name in called if not is_packed or name.endswith(_SUFFIX)]


def _is_partitioned(path: str, names: Sequence[str]) -> bool:
    """Whether folders are called as partitions, such as y=2024, and parquet is in one of them."""
    if not any(map(_PARTITION.fullmatch, names)):
        return False
    for here, folders, others in itertools.islice(tree(path), _MOST_FOLDERS):
        shown = [name for name in folders if not is_never_a_shard(name) and name[0] != "_"]
        folders[:] = filter(_PARTITION.fullmatch, shown)
        if here == path and folders != shown:  # what is in the others is not of this set
            return False
        if here != path and _listed(here, _jobs.expected_of(others)):
            return True
    return False


def read_manifest(path: str) -> Manifest:
    names, metadata = names_in(path), os.path.join(path, _METADATA)
    footer = None
    if _METADATA in names:
        footer = parquet.footer_in(json.read_bytes(path, _METADATA, max_bytes=_MAX_METADATA_BYTES))
    damaged = [Contradiction(_METADATA, *footer)] if isinstance(footer, Mismatch) else []
    rows = dict[str, int]()
    if isinstance(footer, parquet.ParquetFooter):
        rows = {name: n_rows for name, n_rows in footer.rows_of_files.items() if name}
        names = spelled(names, rows, path)
    is_below = bool(rows) or _is_partitioned(path, names)  # also what was added since
    there = _jobs.expected_below(path) if is_below else _jobs.expected_of(names)
    others = (each for each in spelled(_listed(path, there), rows, path) if each not in rows)
    # Into a folder that is a link nobody looks here, but who reads the set does: so it is told.
    partitions = [each for each in there if _PARTITION.fullmatch(os.path.basename(each))]
    linked = [each for each in partitions if is_link(os.path.join(path, each))]
    counted = _jobs.expected_by_names(path, [*others, *linked])
    if not rows and not counted.names and isinstance(footer, Mismatch):
        raise ManifestError(f"expected {footer.expected}, found {footer.found}", path=metadata)
    if not rows and not counted.names and footer is None:
        raise ManifestNotFoundError("there is no parquet file", path=path)
    return Manifest.at(
        path,
        _METADATA if rows else [*counted.names, _METADATA][0],
        "parquet",
        [
            *(ExpectedFile(name=name, n_items=n_rows) for name, n_rows in rows.items()),
            *(ExpectedFile(name=name) for name in counted.names),
        ],
        probe=parquet.probe,
        prove=functools.partial(_jobs.prove, path, parquet.prove),
        contradictions=lambda: [
            *counted.contradictions,
            *_jobs.uncommitted(names),
            *_other_counts(path, [*rows, *counted.names]),
        ],
        damaged=damaged,
    )


def _other_counts(path: str, names: Sequence[str]) -> Iterator[Contradiction]:
    """Yield the splits that have other numbers of rows than ``dataset_info.json`` states."""
    try:
        info = json.read(path, _INFO, _DatasetInfo)
    except ManifestError:  # it is not what lists the shards, and may be of another program
        return
    for split, stated in (info.splits or {}).items():
        if stated.num_examples is None or not split.isalnum():
            continue
        files = _files_of(split, info.dataset_name, names)
        n_rows = parquet.rows_in(path, files)
        if files and n_rows not in {None, stated.num_examples}:
            expected = f"{stated.num_examples} rows in the split {quoted(split)}, as {_INFO} says"
            yield Contradiction(files[0], expected, f"{n_rows} rows")


def _files_of(split: str, dataset_name: str | None, names: Sequence[str]) -> list[str]:
    """Return the files of a split: ``train-00000-of-00002.parquet``, ``json-train.parquet``."""
    befores = [split] if dataset_name is None else [f"{dataset_name}-{split}", split]
    for before in befores:
        is_of_split = re.compile(re.escape(before) + _BEHIND_SPLIT).fullmatch
        if found := [name for name in names if is_of_split(name)]:
            return found
    return []

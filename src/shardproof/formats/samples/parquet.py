"""A set of parquet files: those whose names imply how many there are, or all in the directory."""

import functools
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.names import NotRegularError, open_inside, open_root
from shardproof._base.opening import matching
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats._counted import CountedSet, promised_by_names
from shardproof.formats._format import Format
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile
from shardproof.probes import parquet

__all__ = ["FORMAT"]

_FILES = "*.parquet"
_INFO = "dataset_info.json"
_BEHIND_SPLIT = r"(?:-\d{4,6}-of-\d{4,6}(?:-[0-9a-f]+)?)?\.parquet"


class _SplitInfo(msgspec.Struct):
    num_examples: int | None = None


class _DatasetInfo(msgspec.Struct):
    """How many examples each split has; its files begin with the dataset's name, or without."""

    dataset_name: str | None = None
    splits: dict[str, _SplitInfo] | None = None


def _recognizes(path: str) -> bool:
    return bool(matching(path, _FILES))


def _read_manifest(path: str) -> Manifest:
    names = matching(path, _FILES)
    if not names:
        raise ManifestNotFoundError("there is no parquet file", path=path)
    counted = promised_by_names(names)
    return Manifest(
        root=Path(path),
        path=Path(path, names[0]),
        format=FORMAT.name,
        files=[PromisedFile(name=name) for name in counted.names],
        probe=parquet.probe,
        prove=parquet.prove,
        contradictions=functools.partial(_contradictions, path, counted),
    )


def _contradictions(path: str, counted: CountedSet) -> Iterator[Contradiction]:
    yield from counted.contradictions
    info = _info_in(path)
    for split, n_examples in _stated(info).items():
        names = _files_of(split, info.dataset_name, counted.names)
        n_rows = _rows_in(path, names)
        if names and n_rows not in {None, n_examples}:
            expected = f"{n_examples} rows in the split {quoted(split)}, as {_INFO} says"
            yield Contradiction(names[0], Mismatch(expected=expected, found=f"{n_rows} rows"))


def _info_in(path: str) -> _DatasetInfo:
    try:
        return json.read(path, _INFO, _DatasetInfo)
    except ManifestError:  # it is not what lists the shards, and may be of another program
        return _DatasetInfo()


def _files_of(split: str, dataset_name: str | None, names: Sequence[str]) -> list[str]:
    """Return the files of a split: ``train-00000-of-00002.parquet``, ``json-train.parquet``."""
    befores = [split] if dataset_name is None else [f"{dataset_name}-{split}", split]
    for before in befores:
        is_of_split = re.compile(re.escape(before) + _BEHIND_SPLIT).fullmatch
        if found := [name for name in names if is_of_split(name)]:
            return found
    return []


def _stated(info: _DatasetInfo) -> Mapping[str, int]:
    """Return how many rows each split has, where that is written down."""
    counts = ((name, split.num_examples) for name, split in (info.splits or {}).items())
    return {name: n for name, n in counts if n is not None and name.isalnum()}


def _rows_in(root: str, names: Sequence[str]) -> int | None:
    """Return how many rows files have together; None where one is not whole."""
    dir_fd = open_root(root)
    try:
        counts = list(itertools.takewhile(_is_told, (_rows_of(root, dir_fd, n) for n in names)))
    finally:
        os.close(dir_fd)
    return sum(filter(None, counts)) if len(counts) == len(names) else None


def _is_told(n_rows: int | None) -> bool:
    return n_rows is not None


def _rows_of(root: str, dir_fd: int, name: str) -> int | None:
    try:
        fd = open_inside(name, root=root, dir_fd=dir_fd)
    except (OSError, NotRegularError):
        return None
    try:
        footer = parquet.footer_of(fd, os.fstat(fd).st_size)
    except OSError:
        return None
    finally:
        os.close(fd)
    return footer.n_rows if isinstance(footer, parquet.ParquetFooter) else None


FORMAT = Format(
    name="parquet",
    description="parquet files, with `-00003-of-00042` in their names or without",
    manifest_file=_FILES,
    beside=("dataset_info.json", "dataset_infos.json", "README.md", ".gitattributes"),
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="that each file has its footer, every column chunk lies before it, and row groups "
    "have as many rows as it says; as many rows in a split as dataset_info.json states",
    valid="the CRC-32 of each page that has one (`write_page_checksum=True`); no file as a whole",
    blind_spots="changed values without page checksums, changed headers of pages; files that are "
    "gone, where no name implies how many there are; encrypted footers",
)

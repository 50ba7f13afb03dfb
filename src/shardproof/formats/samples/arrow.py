"""What ``datasets`` writes by ``save_to_disk``: Arrow files that a ``state.json`` lists.

A dictionary of data sets has a folder for each split, and ``dataset_dict.json`` that names them.

A file of Arrow begins and ends with ``ARROW1``, and has the length of its footer before that. A
stream ends with a mark of eight bytes; without it, one that was cut between two batches reads as a
whole one with fewer rows (https://arrow.apache.org/docs/format/Columnar.html).
"""

import functools
import os
from collections.abc import Iterator, Sequence

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.names import refusals
from shardproof._base.opening import is_there, read_at
from shardproof.errors import ManifestError
from shardproof.manifest import Contradiction, ExpectedFile, Manifest, Mismatch
from shardproof.probes import by_name

_STATE, _INFO, _SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
_MAGIC = b"ARROW1"
_CONTINUED = b"\xff\xff\xff\xff"
_END_OF_STREAM = _CONTINUED + bytes(4)
_TAIL_BYTES = len(_MAGIC) + 4
_RowsInfo = msgspec.defstruct("_RowsInfo", ())  # that it is an object


class _ArrowFile(msgspec.Struct):
    filename: str


class _SavedState(msgspec.Struct):
    data_files: list[_ArrowFile] = msgspec.field(name="_data_files")


class _SavedSplits(msgspec.Struct):
    splits: list[str]


def recognizes(path: str) -> bool:
    has_splits, has_state, has_info = (
        is_there(os.path.join(path, name)) for name in (_SPLITS, _STATE, _INFO)
    )
    if has_splits or not has_state or has_info:
        return has_splits or has_state
    try:
        return b'"_data_files"' in json.read_bytes(path, _STATE, max_bytes=json.MAX_BYTES)
    except ManifestError:
        return False


def read_manifest(path: str) -> Manifest:
    is_dict = is_there(os.path.join(path, _SPLITS))
    files = list(_of_splits(path) if is_dict else _of_state(path, ""))
    return Manifest.at(
        path,
        _SPLITS if is_dict else _STATE,
        "arrow",
        files,
        probe=_probe,
        contradictions=functools.partial(_unfinished, path, files),
    )


def _of_splits(path: str) -> Iterator[ExpectedFile]:
    for split in json.read(path, _SPLITS, _SavedSplits).splits:
        # Of a name that leads elsewhere, nothing is read: the manifest refuses what is made of it.
        is_name = not refusals([split]) and "/" not in split
        if is_name and is_there(os.path.join(path, split, _STATE)):
            yield from _of_state(path, f"{split}/")
        else:
            yield ExpectedFile(name=f"{split}/{_STATE}")


def _of_state(path: str, folder: str) -> Iterator[ExpectedFile]:
    for file in json.read(path, f"{folder}{_STATE}", _SavedState).data_files:
        yield ExpectedFile(name=f"{folder}{file.filename}")


def _probe(file: ExpectedFile, fd: int, size: int) -> Mismatch | None:
    """Return what is wrong with a list of files, or with the ends of such a file."""
    if os.path.basename(file.name) == _STATE:
        return by_name.flaw_of_list(_SavedState, fd, size)
    head = read_at(fd, 8)
    tail = read_at(fd, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    if head[:6] == _MAGIC:
        if tail[4:] != _MAGIC:
            return Mismatch("'ARROW1' at the end", quoted(tail[4:]))
        n_bytes = int.from_bytes(tail[:4], "little", signed=True)
        is_inside = 0 < n_bytes <= size - _TAIL_BYTES - 8
        found = f"a length of {n_bytes}"
        return None if is_inside else Mismatch(f"a footer within {size} bytes", found)
    if head[:4] != _CONTINUED:
        return Mismatch("the beginning of an Arrow file or stream", quoted(head))
    if tail.endswith(_END_OF_STREAM):
        return None
    expected = "the mark at the end of a stream of Arrow"
    return Mismatch(expected, f"{quoted(tail[-8:])}: the stream is cut")


def _unfinished(path: str, files: Sequence[ExpectedFile]) -> Iterator[Contradiction]:
    """Yield descriptions of rows that can't be read: `datasets` writes them last."""
    for folder in dict.fromkeys(os.path.dirname(file.name) for file in files):
        name = os.path.join(folder, _INFO)
        try:
            if not refusals([name]):
                json.read(path, name, _RowsInfo)
        except ManifestError as error:
            yield Contradiction(name, "a description of the rows", error.problem)

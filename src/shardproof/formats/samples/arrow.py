"""What ``datasets`` writes by ``save_to_disk``: Arrow files; each split has a list."""

import functools
import os
import re
from collections.abc import Iterator, Sequence

import msgspec

from shardproof._base import json
from shardproof._base.names import refusals
from shardproof._base.opening import Read, is_there, names_in
from shardproof.errors import ManifestError
from shardproof.manifest import Contradiction, ExpectedFile, Manifest, Mismatch
from shardproof.probes import arrow, by_name

_STATE, _INFO, _SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
_SAVED = re.compile(r"data-\d{5}-of-\d{5}\.arrow")
_RowsInfo = msgspec.defstruct("_RowsInfo", ())  # that it is an object


class _SavedSplits(msgspec.Struct):
    splits: list[str]


class _SavedFile(msgspec.Struct):
    filename: str


class _SavedState(msgspec.Struct):
    data_files: list[_SavedFile] = msgspec.field(name="_data_files")


def recognizes(path: str) -> bool:
    has_splits, has_state, has_info = (
        is_there(os.path.join(path, name)) for name in (_SPLITS, _STATE, _INFO)
    )
    if has_splits or has_info or not has_state:
        is_lost = has_info and any(map(_SAVED.fullmatch, names_in(path)))
        return has_splits or has_state or is_lost
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


def _probe(promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    if os.path.basename(promised.name) == _STATE:  # it came meanwhile
        return by_name.flaw_of_list(_SavedState, read, size)
    return arrow.probe(promised, read, size)


def _unfinished(path: str, files: Sequence[ExpectedFile]) -> Iterator[Contradiction]:
    """Yield descriptions of rows that can't be read: `datasets` writes them last."""
    for folder in dict.fromkeys(os.path.dirname(file.name) for file in files):
        name = os.path.join(folder, _INFO)
        try:
            if not refusals([name]):
                json.read(path, name, _RowsInfo)
        except ManifestError as error:
            yield Contradiction(name, "a description of the rows", error.problem)

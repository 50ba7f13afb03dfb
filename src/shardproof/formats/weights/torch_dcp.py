"""PyTorch's distributed checkpoints: ``.metadata`` says which bytes of which file are which tensor.

It is a pickle, and a pickle is a program: it is read without doing what it says (`_pickle`). Each
rank writes its items, one behind the other, into ``__<rank>_<n>.distcp``; when all are done, rank 0
writes ``.metadata.tmp`` and renames it. A save without collectives has ``__<rank>.metadata`` of
each rank instead.
"""

import functools
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from shardproof._base import json
from shardproof._base.messages import shown
from shardproof._base.opening import Read, listed_in, names_in
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats import signs
from shardproof.formats.weights._pickle import Pairs, PickledObject, read_pickle
from shardproof.manifest import Contradiction, ExpectedFile, Manifest, Mismatch

_METADATA = ".metadata"
_OF_A_RANK = re.compile(r"__\d+\.metadata")
_LEFT = re.compile(r"(?:__\d+)?\.metadata\.tmp")
_INTERRUPTED = ("a save that finished: '.metadata' alone", "one that was interrupted")
"""What is said of what a save leaves that did not finish: the files may be of that."""

_SHARD = re.compile(r"__\d+_\d+\.distcp")
_FIRST_FIELD = b"state_dict_metadata"

_MAX_BYTES = 2**26
_LENGTH_BYTES = 8  # of a header of safetensors

_Place = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class _StoredItem(msgspec.Struct):
    """What the metadata say of an item."""

    relative_path: str
    offset: _Place
    length: _Place
    transform_descriptors: Any = None  # what compressed it


class _Item(NamedTuple):
    """Where the bytes of one tensor, or of one object, are."""

    begin: int
    end: int
    is_transformed: bool


def recognizes(path: str) -> bool:
    names = listed_in(path)
    if any(_SHARD.fullmatch(name) or _OF_A_RANK.fullmatch(name) for name in names):
        return True
    # Others have files of that name too, and Eclipse has a directory.
    return _METADATA in names and signs.begins_with(os.path.join(path, _METADATA), _FIRST_FIELD)


def read_manifest(path: str) -> Manifest:
    names = names_in(path)
    of_ranks = [name for name in names if _OF_A_RANK.fullmatch(name)]
    parts = of_ranks if of_ranks and _METADATA not in names else [_METADATA]
    items: dict[str, list[_Item]] = {}
    for part in parts:
        for file, item in _items(os.path.join(path, part), _read(path, part, names)):
            items.setdefault(file, []).append(item)
    for each in items.values():
        each.sort()
    return Manifest.at(
        path,
        parts[0],
        "torch-dcp",
        [ExpectedFile(name=name) for name in items],
        probe=functools.partial(_probe, items),
        contradictions=functools.partial(_contradictions, items),
        damaged=[Contradiction(name, *_INTERRUPTED) for name in names if _LEFT.fullmatch(name)],
    )


def _read(root: str, name: str, there: Sequence[str]) -> bytes:
    """Return what a file of metadata holds; where it is missing, the error says what it means."""
    try:
        return json.read_bytes(root, name, max_bytes=_MAX_BYTES)
    except ManifestNotFoundError as error:
        if error.path == root or name in there:
            raise
        n_shards = sum(_SHARD.fullmatch(each) is not None for each in there)
        left = f" and '{shown(name)}.tmp'" if f"{name}.tmp" in there else ""
        problem = (
            f"there is no such file, beside {n_shards} '.distcp' files{left}: it is written last, "
            "so the save was interrupted; use an earlier checkpoint"
        )
        raise ManifestNotFoundError(problem, path=error.path) from error


def _items(path: str, data: bytes) -> Iterator[tuple[str, _Item]]:
    """Yield each item, with the name of the file that has it."""
    metadata = read_pickle(data, path=path)
    stored = metadata.fields().get("storage_data") if isinstance(metadata, PickledObject) else None
    if not isinstance(stored, Pairs):
        problem = "expected the metadata of a checkpoint in files, found no 'storage_data'"
        raise ManifestError(problem, path=path)
    for entry, info in enumerate(stored[1::2]):
        try:
            fields = info.fields() if isinstance(info, PickledObject) else {}
            told = msgspec.convert(fields, _StoredItem)
        except msgspec.ValidationError as error:
            problem = f"entry {entry}: {shown(str(error))}"
            raise ManifestError(problem, path=path, field="storage_data") from None
        end = told.offset + told.length
        yield told.relative_path, _Item(told.offset, end, bool(told.transform_descriptors))


def _probe(
    owed: Mapping[str, Sequence[_Item]], promised: ExpectedFile, read: Read, size: int
) -> Mismatch | None:
    """Return whether a file does not end where its last item does."""
    items = owed[promised.name]
    last, end, _ = items[-1]
    if size < end:
        return Mismatch(f"items up to byte {end}", f"{size} bytes")
    # It is full if items lie one behind the other, as they were saved, from its begin.
    begins = itertools.chain([0], (item.end for item in items))
    if size == end or any(
        item[::2] != (begin, False) for item, begin in zip(items, begins, strict=False)
    ):
        return None
    # The tensors may be in a file of safetensors behind the objects: it has a header, too.
    heads = (read(_LENGTH_BYTES + 1, at) for at in (last, end))
    if any(head[_LENGTH_BYTES:] == b"{" for head in heads):
        return None
    return Mismatch(f"{end} bytes", f"{size} bytes")


def _contradictions(items: Mapping[str, Sequence[_Item]]) -> Iterator[Contradiction]:
    """Yield each file of which two items share bytes; those of safetensors all begin alike."""
    for name, each in items.items():
        for before, after in itertools.pairwise(each):
            if before.begin < after.begin < before.end:
                found = f"one from {before.begin} to {before.end} and one from {after.begin}"
                yield Contradiction(name, "items apart", found)
                break

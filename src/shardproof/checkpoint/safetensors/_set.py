"""Read sets of files of safetensors that belong together: their names and their index."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from shardproof._base import json
from shardproof._base.messages import listed, quoted
from shardproof._base.names import refusals
from shardproof._base.opening import is_directory, read_at
from shardproof.checkpoint.format._sealed import refusal
from shardproof.checkpoint.safetensors._headers import StoredTensor, opened, read_header
from shardproof.errors import CheckpointError, CheckpointNotFoundError, ManifestError

__all__ = [
    "ENDING",
    "INDEX_ENDING",
    "SafetensorsFile",
    "file_name",
    "index_name",
    "pack_index",
    "safetensors_files",
    "stamp_of",
]

ENDING = ".safetensors"
INDEX_ENDING = ".safetensors.index.json"

_NUMBERED = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
_SHOWN = 20


class _Totals(msgspec.Struct, frozen=True):
    """The totals of an index; some writers state none, some use floats."""

    total_size: int | float | None = None


class _Index(msgspec.Struct, frozen=True):
    """An index: which tensor is in which file."""

    weight_map: dict[str, str]
    metadata: _Totals = _Totals()


class SafetensorsFile(NamedTuple):
    """A file whose header was read and proven.

    Attributes:
        path: Its absolute path.
        tensors: What it holds.
        of_set: The set that it is one of; nothing where it doesn't say so.
        stamp: By which it is known again.
    """

    path: str
    tensors: tuple[StoredTensor, ...]
    of_set: str
    stamp: tuple[int, ...]


def file_name(rank: int, n_files: int) -> str:
    """Return the name that loaders of such sets expect of one file; they count from 1."""
    return f"model-{rank + 1:05d}-of-{n_files:05d}{ENDING}"


def index_name() -> str:
    """Return the name that loaders of such sets expect of the index."""
    return f"model{INDEX_ENDING}"


def pack_index(weight_map: Mapping[str, str], total_size: int) -> bytes:
    """Return the text of an index."""
    index = {"metadata": {"total_size": total_size}, "weight_map": dict(sorted(weight_map.items()))}
    return msgspec.json.format(msgspec.json.encode(index), indent=2) + b"\n"


def stamp_of(fd: int) -> tuple[int, ...]:
    """Return what tells whether a file was changed or replaced."""
    found = os.fstat(fd)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def safetensors_files(source: str | os.PathLike[str]) -> list[SafetensorsFile]:
    """Return the files of a source, sorted by name, each of them and all together proven.

    Args:
        source: A file, an index, or a directory with one index or with files.

    Raises:
        CheckpointNotFoundError: It is not there, or there is nothing in it.
        CheckpointError: A file breaks a law, files are missing, or the index says something else.
        OSError: It can't be read.
    """
    path = os.path.abspath(source)
    if not is_directory(path):
        return _indexed(path) if path.endswith(".json") else [_read(path)]
    names = sorted(os.listdir(path))
    indices = [name for name in names if name.endswith(INDEX_ENDING)]
    if len(indices) > 1:
        problem = listed("expected one index; give the one that is meant", [*map(quoted, indices)])
        raise CheckpointError(problem, path=path)
    if indices:
        return _indexed(os.path.join(path, indices[0]))
    return _all_of(path, [name for name in names if name.endswith(ENDING)])


def _read(path: str) -> SafetensorsFile:
    with opened(path) as fd:
        return SafetensorsFile(path, *read_header(fd, path), stamp_of(fd))


def _all_of(path: str, names: Sequence[str]) -> list[SafetensorsFile]:
    if not names:
        problem = f"expected files that end with {ENDING}, found none"
        raise CheckpointNotFoundError(problem, path=path)
    files, problems = _read_each(path, names)
    problems += [f"{quoted(name)}: expected it beside the others" for name in _missing(names)]
    problems += _of_several_sets(files)
    if problems:
        raise CheckpointError(listed("files that can't be converted", problems), path=path)
    return list(files.values())


def _read_each(
    directory: str, names: Sequence[str]
) -> tuple[dict[str, SafetensorsFile], list[str]]:
    """Return the files that can be read, by name, and why the others can't."""
    files, problems = {}, []
    for name in names:
        try:
            files[name] = _read(os.path.join(directory, name))
        except CheckpointError as error:
            indented = error.problem.replace("\n", "\n    ")
            problems.append(f"{quoted(name)}: {indented}")
    return files, problems


def _of_several_sets(files: Mapping[str, SafetensorsFile]) -> Iterator[str]:
    """Yield which file is of which set, where that is not the same one: a writer was killed."""
    if len({file.of_set for file in files.values()}) > 1:
        yield "files of several sets: whoever wrote one of them didn't finish; convert it again"
        for name, file in islice(files.items(), _SHOWN):
            of_set = f"of the set {quoted(file.of_set)}" if file.of_set else "doesn't say of which"
            yield f"{quoted(name)}: {of_set}"


def _missing(names: Sequence[str]) -> Iterator[str]:
    """Yield the names of files that the numbers in the names of the others imply."""
    numbers: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for match in filter(None, map(_NUMBERED.fullmatch, names)):
        numbers[match["stem"], match["count"]].add(int(match["number"]))
    for (stem, count), found in numbers.items():
        absent = (number for number in range(1, int(count) + 1) if number not in found)
        for number in islice(absent, _SHOWN):
            yield f"{stem}-{number:05d}-of-{count}{ENDING}"


def _indexed(path: str) -> list[SafetensorsFile]:
    index = _read_index(path)
    names = sorted(set(index.weight_map.values()))
    files, problems = _read_each(os.path.dirname(path), names)
    problems += _disagreements(index, files)
    problems += _of_several_sets(files)
    if problems:
        raise CheckpointError(listed("the index and the files disagree", problems), path=path)
    return list(files.values())


def _disagreements(index: _Index, files: Mapping[str, SafetensorsFile]) -> Iterator[str]:
    inside = {name: {tensor.name for tensor in file.tensors} for name, file in files.items()}
    for tensor, name in index.weight_map.items():
        if name in inside and tensor not in inside[name]:
            yield f"{quoted(name)}: expected the tensor {quoted(tensor)}, found none of that name"
    for name, tensors in inside.items():
        for tensor in sorted(tensors):
            if index.weight_map.get(tensor) != name:
                yield f"{quoted(name)}: found the tensor {quoted(tensor)}, which isn't indexed here"
    total = sum(tensor.size for file in files.values() for tensor in file.tensors)
    if index.metadata.total_size not in {None, total}:
        yield f"total_size: expected {index.metadata.total_size} bytes of tensors, found {total}"


def _read_index(path: str) -> _Index:
    with opened(path) as fd:
        size = os.fstat(fd).st_size
        if size > json.MAX_BYTES:
            problem = f"expected at most {json.MAX_BYTES} bytes, found {size}"
            raise CheckpointError(problem, path=path)
        data = read_at(fd, size)
    try:
        index = json.decode(data, _Index, path=path)
    except ManifestError as error:
        raise refusal(error) from error
    if problems := list(_refused_names(index)):
        raise CheckpointError(listed("files that it may not name", problems), path=path)
    return index


def _refused_names(index: _Index) -> Iterator[str]:
    names = sorted(set(index.weight_map.values()))
    if not names:
        yield "expected at least one, found none"
    for refused in refusals(names):
        yield f"{quoted(refused.name)}: {refused.reason}"
    for name in names:
        if "/" in name.strip("/"):
            yield f"{quoted(name)}: expected a file of the index's own directory"

"""Write files of safetensors as a checkpoint: the same bytes, and proven from then on."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

import msgspec

from shardproof._base.arguments import checked
from shardproof._base.liveness import mark_of
from shardproof._base.messages import quoted
from shardproof._base.names import refusals
from shardproof._base.opening import is_directory, read_at, refuse_no_path
from shardproof._base.work import apart
from shardproof.checkpoint import _format, _safetensors
from shardproof.checkpoint._format import Sharding, TensorEntry
from shardproof.checkpoint._safetensors import SafetensorsFile
from shardproof.checkpoint.save._commit import (
    Algorithm,
    Attempt,
    clear_way,
    make_checkpoint,
    place_to_save,
)
from shardproof.checkpoint.save._shard_writer import Tensor, write_shard
from shardproof.checkpoint.storage._storage import CheckpointStorage
from shardproof.errors import CheckpointError, CheckpointNotFoundError

_PIECE_BYTES = 2**20
_NUMBERED = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
_SHOWN = 20


class _Totals(msgspec.Struct, frozen=True):
    """The totals of an index; some writers state none, some use floats."""

    total_size: int | float | None = None


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]  # which tensor is in which file
    metadata: _Totals = _Totals()


@checked
def from_safetensors(
    source: str | os.PathLike[str],
    prefix: str | os.PathLike[str],
    *,
    storage: CheckpointStorage | None = None,
    step: int = 0,
    algorithm: Algorithm = "sha256",
    overwrite: bool = False,
) -> str:
    """Write files of safetensors as a checkpoint; each file becomes a rank, in the order of names.

    Every header is proven before the first byte is written, and what an index says is compared
    with the files. The metadata come last: there is the whole checkpoint, or none.

    Args:
        source: A file, an index (``model.safetensors.index.json``), or a directory that has one
            index, or files that end with ``.safetensors``.
        prefix: Of the checkpoint.
        storage: Where the checkpoint goes; by default what the prefix looks like.
        step: Of the training.
        algorithm: By which it is to be proven: ``"sha256"``, ``"sha256-tree"`` or ``"blake3"``.
        overwrite: Whether to replace a checkpoint of this prefix.

    Returns:
        The path of the metadata file.

    Raises:
        CheckpointNotFoundError: There is nothing to convert.
        CheckpointError: A file is not what it should be, a type has no counterpart, or the index
            and the files disagree, or files are of several sets: all cases are listed. Or there is
            such a checkpoint already.
        OSError: A file could not be read or written.

    Example:
        >>> import numpy as np
        >>> from shardproof.checkpoint import MultiShardLoader, MultiShardSaver
        >>> from shardproof.checkpoint import from_safetensors, to_safetensors
        >>> prefix = f"{output_dir}/step_4/model"
        >>> path = MultiShardSaver().save_shard(prefix, 0, {"bias": np.arange(3)})
        >>> path = MultiShardSaver().save_metadata(prefix, world_size=1, step=4)
        >>> file, index = to_safetensors(prefix, f"{output_dir}/downloaded")
        >>> path = from_safetensors(index, f"{output_dir}/again", step=4)
        >>> MultiShardLoader().load_shard(f"{output_dir}/again", 0)["bias"]
        array([0, 1, 2])
    """
    refuse_no_path(source=source)
    attempt = Attempt(algorithm)
    location = place_to_save(prefix, storage, step)
    files = _safetensors_files(source)
    clear_way(location, overwrite=overwrite)
    for rank, file in enumerate(files):
        with _safetensors.opened(file.path) as fd:
            tensors = [
                Tensor(stored.name, stored.dtype, stored.shape, partial(_pieces, file, fd, stored))
                for stored in file.tensors
            ]
            write_shard(location, rank, tensors, attempt, step=step, overwrite=overwrite)
    sharding = Sharding("unspecified", len(files), "")
    return apart(lambda _: make_checkpoint(location, sharding, attempt, step))


def _pieces(file: SafetensorsFile, fd: int, stored: TensorEntry) -> Iterator[bytes]:
    """Yield a tensor's bytes, and see that the file is the one whose header was read."""
    # Each piece in memory of its own: it may be written only after the next one has been read.
    at, end = stored.offset, stored.offset + stored.size
    while at < end and (piece := read_at(fd, min(_PIECE_BYTES, end - at), at)):
        yield piece
        at += len(piece)
    if at < end or mark_of(os.fstat(fd)) != file.stamp:
        problem = "it changed while it was converted: convert it when nothing writes to it"
        raise CheckpointError(problem, path=file.path)


def _safetensors_files(source: str | os.PathLike[str]) -> list[SafetensorsFile]:
    """Return the files of a source, sorted by name, each of them and all together proven."""
    path = os.path.abspath(source)
    if not is_directory(path):
        return _indexed(path) if path.endswith(".json") else [_safetensors.read_header(path)]
    names = sorted(os.listdir(path))
    indices = [name for name in names if name.endswith(_safetensors.INDEX_ENDING)]
    if len(indices) > 1:
        problem = "expected one index; give the one that is meant"
        _format.refuse(problem, map(quoted, indices), path=path)
    if indices:
        return _indexed(os.path.join(path, indices[0]))
    names = [name for name in names if name.endswith(_safetensors.ENDING)]
    if not names:
        problem = f"expected files that end with {_safetensors.ENDING}, found none"
        raise CheckpointNotFoundError(problem, path=path)
    files, problems = _read_each(path, names)
    # The numbers in the names of some files tell that there are others.
    numbers: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for match in filter(None, map(_NUMBERED.fullmatch, names)):
        numbers[match["stem"], match["count"]].add(int(match["number"]))
    for (stem, n_files), found in numbers.items():
        absent = (number for number in range(1, int(n_files) + 1) if number not in found)
        for number in islice(absent, _SHOWN):
            name = quoted(f"{stem}-{number:05d}-of-{n_files}{_safetensors.ENDING}")
            problems.append(f"{name}: expected it beside the others")
    _format.refuse("files that can't be converted", problems, path=path)
    return list(files.values())


def _read_each(
    directory: str, names: Sequence[str]
) -> tuple[dict[str, SafetensorsFile], list[str]]:
    """Return the files that can be read, by name, and why they or the others can't be converted."""
    files, problems = {}, []
    for name in names:
        try:
            files[name] = _safetensors.read_header(os.path.join(directory, name))
        except CheckpointError as error:
            indented = error.problem.replace("\n", "\n    ")
            problems.append(f"{quoted(name)}: {indented}")
    if len({file.of_set for file in files.values()}) > 1:
        problems.append("files of several sets: a conversion was not finished; do it again")
        for name, file in islice(files.items(), _SHOWN):
            of_set = f"of the set {quoted(file.of_set)}" if file.of_set else "it doesn't say which"
            problems.append(f"{quoted(name)}: {of_set}")
    return files, problems


def _indexed(path: str) -> list[SafetensorsFile]:
    with _safetensors.opened(path) as fd:
        size = os.fstat(fd).st_size
        _format.refuse_large(size, path=path)
        data = read_at(fd, size)
    index = _format.decode_json(data, _Index, path=path)
    names = sorted(set(index.weight_map.values()))
    refused = [] if names else ["expected at least one, found none"]
    refused += [f"{quoted(refusal.name)}: {refusal.reason}" for refusal in refusals(names)]
    deep = [quoted(name) for name in names if "/" in name.strip("/")]
    refused += [f"{name}: expected a file of the index's own directory" for name in deep]
    _format.refuse("files that it may not name", refused, path=path)
    files, problems = _read_each(os.path.dirname(path), names)
    inside = {name: {tensor.name for tensor in file.tensors} for name, file in files.items()}
    for tensor, name in index.weight_map.items():
        if name in inside and tensor not in inside[name]:
            problem = f"expected the tensor {quoted(tensor)}, found none of that name"
            problems.append(f"{quoted(name)}: {problem}")
    for name, tensors in inside.items():
        for tensor in sorted(tensors):
            if index.weight_map.get(tensor) != name:
                problem = f"found the tensor {quoted(tensor)}, which isn't indexed here"
                problems.append(f"{quoted(name)}: {problem}")
    total = sum(tensor.size for file in files.values() for tensor in file.tensors)
    if (stated := index.metadata.total_size) not in {None, total}:
        problems.append(f"total_size: expected {stated} bytes of tensors, found {total}")
    _format.refuse("the index and the files disagree", problems, path=path)
    return list(files.values())

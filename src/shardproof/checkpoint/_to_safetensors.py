"""Write a checkpoint as files of safetensors: the same bytes, proven while they are copied."""

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from shardproof._base import files, opening
from shardproof._base.arguments import checked
from shardproof._base.messages import listed, quoted, shown
from shardproof.checkpoint import _format, _safetensors
from shardproof.checkpoint._format import CheckpointMetadata, ShardEntry
from shardproof.checkpoint._safetensors import HeaderEntry
from shardproof.checkpoint.read._shard_reader import checksum_found, refuse_other
from shardproof.checkpoint.storage._filling import Scratch, Target
from shardproof.checkpoint.storage._location import Location, location_of
from shardproof.checkpoint.storage._reading import open_shard, read_metadata
from shardproof.checkpoint.storage._storage import CheckpointStorage
from shardproof.errors import CheckpointError

_ALREADY_THERE = "files are there already, and are replaced only by overwrite=True"
_MOST_OPEN = 256  # of 1024 that a process may have open in most places
_SYNC_BYTES = 2**26
_THEIRS = {ours: theirs for theirs, ours in _safetensors.TYPES.items()}


class ConvertedFile(NamedTuple):
    """The file that a shard becomes: its absolute path, and where in it each tensor goes."""

    shard: ShardEntry
    path: str
    header: bytes
    offsets: Mapping[str, int]


@checked
def to_safetensors(
    prefix: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    storage: CheckpointStorage | None = None,
    overwrite: bool = False,
) -> list[str]:
    """Write a checkpoint as files of safetensors, one for each rank, and their index.

    Each shard is proven by its checksum while it is copied, and no file has its name before 256 of
    them are. The index comes last. Each file says of which set it is one, in its ``__metadata__``:
    so what is left of a conversion that was killed is known for what it is, be it beside files of
    another one. It needs memory for the metadata and for a MiB.

    Args:
        prefix: Of the checkpoint.
        to: The directory where the files go; it is made if need be.
        storage: Where the checkpoint is; by default what the prefix looks like.
        overwrite: Whether to replace files of the same names. Their index is removed first; killed
            between two files, it leaves a directory that `from_safetensors` refuses, and so may two
            conversions into one directory at once. Without it one of them raises.

    Returns:
        The files' absolute paths in the order of ranks, and that of the index.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint, or a shard of it is gone.
        CheckpointError: It is not whole; two ranks have a tensor of the same name; a type or a name
            has no counterpart; a target is there already. All cases are listed.
        OSError: A file could not be written; where some have their names already, there is no
            index. Of an `UnsyncedError` that names the index all are there, but may not be after a
            power cut.

    Example:
        >>> import numpy as np
        >>> from shardproof.checkpoint import MultiShardSaver, to_safetensors
        >>> prefix = f"{output_dir}/step_3/model"
        >>> path = MultiShardSaver().save_shard(prefix, 0, {"bias": np.arange(3)})
        >>> path = MultiShardSaver().save_metadata(prefix, world_size=1, step=3)
        >>> file, index = to_safetensors(prefix, f"{output_dir}/release")
        >>> file.removeprefix(str(output_dir))
        '/release/model-00001-of-00001.safetensors'
    """
    opening.refuse_no_path(to=to)
    location = location_of(prefix, storage)
    metadata = read_metadata(location)
    n_files = len(metadata.shards)
    # The names that loaders of such sets expect; they count from 1.
    names = [f"model-{n + 1:05d}-of-{n_files:05d}{_safetensors.ENDING}" for n in range(n_files)]
    weight_map = _weight_map(metadata, names, location.metadata)
    directory = os.path.abspath(to)
    targets = [
        _lay_out(shard, os.path.join(directory, name), metadata.checksum)
        for shard, name in zip(metadata.shards, names, strict=True)
    ]
    index = os.path.join(directory, f"model{_safetensors.INDEX_ENDING}")
    paths = [*(target.path for target in targets), index]
    if not overwrite and (there := [path for path in paths if opening.is_there(path)]):
        raise _refusal(there, directory)
    files.make_directories(directory)
    files.sweep_leftovers(directory)
    total_size = sum(tensor.size for shard in metadata.shards for tensor in shard.tensors)
    said = {"metadata": {"total_size": total_size}, "weight_map": weight_map}
    try:
        for at in range(0, n_files, _MOST_OPEN):
            _write(location, targets[at : at + _MOST_OPEN], index, overwrite=overwrite)
        text = msgspec.json.format(msgspec.json.encode(said), indent=2) + b"\n"
        with files.being_written(index, replace=overwrite) as fd, files.telling_where(index):
            files.write_at(fd, text, 0)
    except FileExistsError as error:  # another conversion was faster
        raise _refusal([str(error.filename)], directory) from error
    return paths


def _weight_map(metadata: CheckpointMetadata, names: Sequence[str], path: str) -> dict[str, str]:
    """Return which tensor goes to which file; one file alone may have it."""
    problems = []
    ranks: defaultdict[str, list[int]] = defaultdict(list)
    for shard in metadata.shards:
        for tensor in shard.tensors:
            ranks[tensor.name].append(shard.rank)
            if tensor.dtype not in _THEIRS:
                problems.append(f"{quoted(tensor.name)}: found the type {tensor.dtype}")
            if tensor.name == _safetensors.METADATA:
                problem = "expected another name, which that format leaves free"
                problems.append(f"{quoted(tensor.name)}: {problem}")
    _format.refuse(_safetensors.UNCONVERTIBLE.format(", ".join(_THEIRS)), problems, path=path)
    shared = [
        f"{quoted(name)}: ranks {', '.join(map(str, found))}"
        for name, found in ranks.items()
        if len(found) > 1
    ]
    problem = "tensors that several ranks have, of which an index can name only one"
    _format.refuse(problem, shared, path=path)
    return {name: names[found[0]] for name, found in sorted(ranks.items())}


def _lay_out(shard: ShardEntry, path: str, of_set: str) -> ConvertedFile:
    """Return the file that a shard becomes."""
    # Some loaders take only files that say for whom they are, and every one takes this.
    fields: dict[str, object] = {_safetensors.METADATA: {"format": "pt", _safetensors.SET: of_set}}
    begins, at = {}, 0
    # As in files of safetensors' own, the types with the largest elements come first: so each
    # begins at a multiple of its elements' size, without which some readers can't take it.
    for tensor in sorted(shard.tensors, key=lambda one: (-_format.ITEM_SIZES[one.dtype], one.name)):
        begins[tensor.name], end = at, at + tensor.size
        fields[tensor.name] = HeaderEntry(_THEIRS[tensor.dtype], tensor.shape, (at, end))
        at = end
    text = msgspec.json.encode(fields)
    text += b" " * (-len(text) % 8)
    if len(text) > _safetensors.MAX_HEADER_BYTES:
        expected = f"expected a header of at most {_safetensors.MAX_HEADER_BYTES} bytes"
        problem = f"{expected}, found {len(text)}: it has too many tensors for one file"
        raise CheckpointError(problem, path=path)
    header = _safetensors.LENGTH.pack(len(text)) + text
    offsets = {name: len(header) + begin for name, begin in begins.items()}
    return ConvertedFile(shard, path, header, offsets)


def _refusal(paths: Sequence[str], directory: str) -> CheckpointError:
    return CheckpointError(listed(_ALREADY_THERE, [*map(shown, paths)]), path=directory)


def _write(
    location: Location, targets: Iterable[ConvertedFile], index: str, *, overwrite: bool
) -> None:
    """Write files, none of which has its name before all of them are proven."""
    with contextlib.ExitStack() as names:
        for entry, path, header, offsets in targets:
            fd = names.enter_context(files.being_written(path, replace=overwrite))
            with files.telling_where(path):
                files.write_at(fd, header, 0)
            places = {name: _written(fd, path, at) for name, at in offsets.items()}
            with open_shard(location, entry) as file:
                refuse_other(file, entry, checksum_found(file, entry, places))
            files.sync(fd)
        if overwrite:
            files.remove(index)  # or it would speak for some files of before and some of now


def _written(fd: int, path: str, offset: int) -> Target:
    """Return a place in a file as a target."""

    def write(piece: memoryview, at: int) -> None:
        begin = offset + at
        with files.telling_where(path):
            files.write_at(fd, piece, begin)
        if begin // _SYNC_BYTES != (begin + len(piece)) // _SYNC_BYTES:
            files.begin_to_sync(fd)

    return Scratch(write)

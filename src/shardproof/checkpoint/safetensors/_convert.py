"""Checkpoints to and from safetensors: the same bytes in other files, and proven on the way."""

import contextlib
import functools
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from shardproof._base import digest as _digest
from shardproof._base import files as _files
from shardproof._base import opening
from shardproof._base.arguments import checked
from shardproof._base.messages import listed, quoted, shown
from shardproof._base.paths import refuse_empty
from shardproof._base.work import apart
from shardproof.checkpoint.format._layout import header_size, metadata_name
from shardproof.checkpoint.format._metadata import CheckpointMetadata, ShardEntry, Sharding
from shardproof.checkpoint.load._shard_reader import (
    Reading,
    algorithm_of,
    prove_shard,
    refuse_other,
)
from shardproof.checkpoint.safetensors._headers import StoredTensor, opened
from shardproof.checkpoint.safetensors._layout import lay_out, refuse_unconvertible
from shardproof.checkpoint.safetensors._set import (
    SourceFile,
    file_name,
    index_name,
    pack_index,
    source_files,
    stamp_of,
)
from shardproof.checkpoint.save._attempt import Attempt
from shardproof.checkpoint.save._before_saving import refuse_name, refuse_step
from shardproof.checkpoint.save._commit import clear_way
from shardproof.checkpoint.save._saver import DigestName, make_checkpoint, now
from shardproof.checkpoint.save._shard_writer import write_shard
from shardproof.checkpoint.save._tensors import Tensor
from shardproof.checkpoint.storage._metadata_file import read_metadata
from shardproof.checkpoint.storage._open_shard import open_shard
from shardproof.checkpoint.storage._storage import CheckpointStorage, Place, place_of
from shardproof.errors import CheckpointError, UnsyncedError

__all__ = ["from_safetensors", "to_safetensors"]

_MOST_OPEN = 256  # of 1024 that a process may have open in most places
_PIECE_BYTES = 2**20
_SYNC_BYTES = 2**26


class _Target(NamedTuple):
    """A file that is to be written: its path, its first bytes, and where in it each tensor goes."""

    path: str
    header: bytes
    tensors: Sequence[StoredTensor]


@checked
def to_safetensors(
    prefix: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    storage: CheckpointStorage | None = None,
    overwrite: bool = False,
) -> list[str]:
    """Write a checkpoint as files of safetensors, one for each rank, and their index.

    Each shard is proven by its checksum while it is copied, and no file has its name before all of
    them are; so the shards of more than 256 ranks are read twice. The index comes last. Each file
    says of which set it is one, in its ``__metadata__``: so what is left of a conversion that was
    killed is known for what it is, be it beside files of an earlier one. It needs memory for the
    metadata and for a MiB.

    Args:
        prefix: Of the checkpoint.
        directory: Where the files go; it is made if need be.
        storage: Where the checkpoint is; by default what the prefix looks like.
        overwrite: Whether to replace files of the same names. Their index is removed first; killed
            between two files, it leaves a directory that `from_safetensors` refuses. Of several
            conversions into one directory at once, without it at most one makes an index, and with
            it none makes one of files that are not all its own; who is overtaken is told.

    Returns:
        The files' absolute paths in the order of ranks, and that of the index.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint, or a shard of it is gone.
        CheckpointError: It is not whole; two ranks have a tensor of the same name; a type or a name
            has no counterpart; a target is there already. All cases are listed. Or another
            checkpoint was converted into the directory meanwhile; there is no index of both.
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
    refuse_empty(prefix=prefix, directory=directory)
    place = place_of(prefix, storage)
    metadata = read_metadata(place)
    weight_map = _weight_map(metadata, place.address(metadata_name(place.name)))
    directory = os.path.abspath(directory)
    targets = list(_targets(metadata, directory))
    index = os.path.join(directory, index_name())
    paths = [*(target.path for target in targets), index]
    if not overwrite:
        _refuse_existing(paths, directory)
    _files.make_directories(directory)
    _files.sweep_leftovers(directory)
    jobs = list(zip(metadata.shards, targets, strict=True))
    if len(jobs) > _MOST_OPEN:
        _prove(place, metadata.shards)
    total_size = sum(tensor.size for target in targets for tensor in target.tensors)
    try:
        for at in range(0, len(jobs), _MOST_OPEN):
            _write(place, jobs[at : at + _MOST_OPEN], index, overwrite=overwrite)
        _make_index(index, pack_index(weight_map, total_size), targets)
    except FileExistsError as error:  # somebody else was faster
        path = str(error.filename)
        raise (_overtaken if overwrite else _already_there)([path], directory) from error
    return paths


def _being_named(path: str, *, overwrite: bool) -> contextlib.AbstractContextManager[int]:
    """Give the descriptor of a file that gets its name in the end, where it may if it is taken."""
    return (_files.being_written if overwrite else _files.being_published)(path)


def _weight_map(metadata: CheckpointMetadata, path: str) -> dict[str, str]:
    """Which tensor goes to which file; one file alone may have it."""
    refuse_unconvertible((tensor for shard in metadata.shards for tensor in shard.tensors), path)
    ranks: defaultdict[str, list[int]] = defaultdict(list)
    for shard in metadata.shards:
        for tensor in shard.tensors:
            ranks[tensor.name].append(shard.rank)
    shared = [
        f"{quoted(name)}: ranks {', '.join(map(str, found))}"
        for name, found in ranks.items()
        if len(found) > 1
    ]
    if shared:
        problem = "tensors that several ranks have, of which an index can name only one"
        raise CheckpointError(listed(problem, shared), path=path)
    n_files = len(metadata.shards)
    return {name: file_name(found[0], n_files) for name, found in ranks.items()}


def _targets(metadata: CheckpointMetadata, directory: str) -> Iterator[_Target]:
    for shard in metadata.shards:
        path = os.path.join(directory, file_name(shard.rank, len(metadata.shards)))
        yield _Target(path, *lay_out(shard.tensors, path, of_set=metadata.checksum))


def _refuse_existing(paths: Sequence[str], directory: str) -> None:
    there = [path for path in paths if opening.is_there(path)]
    if there:
        raise _already_there(there, directory)


def _already_there(paths: Sequence[str], directory: str) -> CheckpointError:
    problem = "files are there already, and are replaced only by overwrite=True"
    return CheckpointError(listed(problem, [*map(shown, paths)]), path=directory)


def _prove(place: Place, shards: Iterable[ShardEntry]) -> None:
    for entry in shards:
        with open_shard(place, entry) as file:
            prove_shard(file, entry)


def _write(
    place: Place, jobs: Iterable[tuple[ShardEntry, _Target]], index: str, *, overwrite: bool
) -> None:
    """Write files, none of which has its name before all of them are proven."""
    with contextlib.ExitStack() as last, contextlib.ExitStack() as names:
        for entry, target in jobs:
            fd = names.enter_context(_being_named(target.path, overwrite=overwrite))
            _copy(place, entry, target, fd)
            _files.sync(fd)
        if overwrite:
            _files.remove(index)  # or it would speak for some files of before and some of now
            last.callback(_files.remove, index)  # so would that of who was done meanwhile


def _make_index(path: str, data: bytes, targets: Sequence[_Target]) -> None:
    """Make the index, of files that are all those that were written here, before it and after."""
    _refuse_others(targets)
    try:
        with _files.being_published(path) as fd:
            _write_at(fd, path, [memoryview(data)], 0)
            made = _files.inode_of(os.fstat(fd))
    except UnsyncedError:  # it is there, and speaks for them all the same
        _look_again(path, made, targets)
        raise
    _look_again(path, made, targets)


def _look_again(path: str, made: _files.Inode, targets: Sequence[_Target]) -> None:
    """Take an index back whose files are not those that were written here any more."""
    try:
        _refuse_others(targets)
    except BaseException:
        _files.withdraw(path, made)
        raise


def _refuse_others(targets: Sequence[_Target]) -> None:
    """Raise a `CheckpointError` that lists the files that are other ones by now."""
    others = [target.path for target in targets if not _is_as_written(target)]
    if others:
        raise _overtaken(others, os.path.dirname(others[0]))


def _overtaken(paths: Sequence[str], directory: str) -> CheckpointError:
    problem = "files that somebody else has put there at the same time; convert it again"
    return CheckpointError(listed(problem, [*map(shown, paths)]), path=directory)


def _is_as_written(target: _Target) -> bool:
    """Whether a file is the one that was written here, or another's of the same checkpoint."""
    try:
        with opened(target.path) as fd:
            return opening.read_at(fd, len(target.header)) == target.header
    except CheckpointError:  # it is gone, or something else
        return False


def _copy(place: Place, entry: ShardEntry, target: _Target, fd: int) -> None:
    """Copy a shard's tensors to their places, and prove that they are those that were written."""
    offsets = {tensor.name: tensor.offset for tensor in target.tensors}
    _write_at(fd, target.path, [memoryview(target.header)], 0)
    with open_shard(place, entry) as file:
        reading = Reading(file, algorithm_of(file, entry))
        at = synced = header_size(entry.checksum)
        for tensor in entry.tensors:
            reading.skip(at, tensor.offset)
            at = tensor.offset + tensor.size
            pieces = reading.pieces(tensor.offset, at)
            _write_at(fd, target.path, pieces, offsets[tensor.name])
            if at - synced >= _SYNC_BYTES:
                _files.begin_to_sync(fd)
                synced = at
        refuse_other(file, entry, reading.found)


def _write_at(fd: int, path: str, pieces: Iterable[memoryview], offset: int) -> None:
    for piece in pieces:
        data = piece
        while data:
            with _files.telling_where(path):
                n = os.pwrite(fd, data, offset)
            data, offset = data[n:], offset + n


@checked
def from_safetensors(
    source: str | os.PathLike[str],
    prefix: str | os.PathLike[str],
    *,
    storage: CheckpointStorage | None = None,
    step: int = 0,
    digest: DigestName = "sha256",
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
        digest: By which it is to be proven: ``"sha256"``, ``"sha256-tree"`` or ``"blake3"``.
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
        >>> from shardproof.checkpoint import MultiShardLoader, MultiShardSaver, from_safetensors
        >>> prefix = f"{output_dir}/step_4/model"
        >>> path = MultiShardSaver().save_shard(prefix, 0, {"bias": np.arange(3)})
        >>> path = MultiShardSaver().save_metadata(prefix, world_size=1, step=4)
        >>> file, index = to_safetensors(prefix, f"{output_dir}/downloaded")
        >>> path = from_safetensors(index, f"{output_dir}/again", step=4)
        >>> MultiShardLoader().load_shard(f"{output_dir}/again", 0)["bias"]
        array([0, 1, 2])
    """
    refuse_empty(source=source, prefix=prefix)
    refuse_step(step)
    _digest.begin(digest, 0)  # one that is not installed is refused before any work
    place = place_of(prefix, storage)
    refuse_name(place)
    files = source_files(source)
    attempt = Attempt()
    clear_way(place, overwrite=overwrite)
    for rank, file in enumerate(files):
        with opened(file.path) as fd:
            tensors = _tensors(file, fd)
            write_shard(
                place,
                rank,
                tensors,
                digest=digest,
                step=step,
                attempt=attempt,
                overwrite=overwrite,
            )
    sharding = Sharding("unspecified", len(files), "")
    return apart(lambda _: make_checkpoint(place, step, sharding, now(), attempt, sync=True))


def _tensors(file: SourceFile, fd: int) -> list[Tensor]:
    return [
        Tensor(stored.name, stored.dtype, stored.shape, functools.partial(_read, file, fd, stored))
        for stored in file.tensors
    ]


def _read(file: SourceFile, fd: int, stored: StoredTensor) -> Iterator[memoryview]:
    """Yield a tensor's bytes, of the file whose header was read."""
    buffer = memoryview(bytearray(min(_PIECE_BYTES, stored.size)))
    at, end = stored.offset, stored.offset + stored.size
    while at < end:
        n = os.preadv(fd, [buffer[: end - at]], at)
        if not n:
            break
        yield buffer[:n]
        at += n
    if at < end or stamp_of(fd) != file.stamp:
        problem = "it changed while it was converted: convert it when nobody writes to it"
        raise CheckpointError(problem, path=file.path)

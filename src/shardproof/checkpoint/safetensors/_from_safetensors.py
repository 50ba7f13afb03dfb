"""Write files of safetensors as a checkpoint: the same bytes, and proven from then on."""

import functools
import os
from collections.abc import Iterator

from shardproof._base import digest as _digest
from shardproof._base.arguments import checked
from shardproof._base.paths import refuse_empty
from shardproof._base.work import apart
from shardproof.checkpoint.format._metadata import Sharding
from shardproof.checkpoint.safetensors._headers import StoredTensor, opened
from shardproof.checkpoint.safetensors._set import SafetensorsFile, safetensors_files, stamp_of
from shardproof.checkpoint.save._attempt import Attempt
from shardproof.checkpoint.save._before_saving import refuse_name, refuse_step
from shardproof.checkpoint.save._checkpoint import make_checkpoint, now
from shardproof.checkpoint.save._commit import clear_way
from shardproof.checkpoint.save._shard_writer import Algorithm, SaveOptions, write_shard
from shardproof.checkpoint.save._tensors import Tensor
from shardproof.checkpoint.storage._storage import CheckpointStorage, location_of
from shardproof.errors import CheckpointError

__all__ = ["from_safetensors"]

_PIECE_BYTES = 2**20


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
    refuse_empty(source=source, prefix=prefix)
    refuse_step(step)
    _digest.begin(algorithm, 0)  # one that is not installed is refused before any work
    location = location_of(prefix, storage)
    refuse_name(location)
    files = safetensors_files(source)
    attempt = Attempt()
    options = SaveOptions(attempt, algorithm, step=step, overwrite=overwrite)
    clear_way(location, overwrite=overwrite)
    for rank, file in enumerate(files):
        with opened(file.path) as fd:
            tensors = [
                Tensor(
                    tensor.name,
                    tensor.dtype,
                    tensor.shape,
                    functools.partial(_read, file, fd, tensor),
                )
                for tensor in file.tensors
            ]
            write_shard(location, rank, tensors, options)
    sharding = Sharding("unspecified", len(files), "")
    return apart(
        lambda _: make_checkpoint(
            location, sharding, attempt, step=step, timestamp=now(), sync=True
        )
    )


def _read(file: SafetensorsFile, fd: int, stored: StoredTensor) -> Iterator[memoryview]:
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

"""Read a shard into arrays, new ones or given, and prove it in the same pass over its bytes."""

import contextlib
import mmap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from shardproof._base.messages import quoted, shown
from shardproof.checkpoint import _format
from shardproof.checkpoint._format import ShardEntry, TensorEntry
from shardproof.checkpoint.read._outs import Out, is_tensor, numpy_dtype
from shardproof.checkpoint.storage._filling import Scratch, Segment, Target, fill, into
from shardproof.checkpoint.storage._local_storage import LocalFile
from shardproof.checkpoint.storage._location import Location
from shardproof.checkpoint.storage._reading import open_shard
from shardproof.checkpoint.storage._storage import StoredFile
from shardproof.errors import CheckpointError

Framework = Literal["numpy", "torch"]


def checksum_found(
    file: StoredFile,
    entry: ShardEntry,
    targets: Mapping[str, Target] | None = None,
    *,
    digest_threads: int | None = None,
) -> str:
    """Compute the checksum of a shard as its header states it; read tensors to targets by name."""
    if not entry.checksum:
        problem = (
            "it states no checksum, so that it can't be proven; MultiShardLoader(level="
            "'complete') takes it as it is"
        )
        raise CheckpointError(problem, path=file.path)
    algorithm = entry.checksum.rpartition(":")[0] or "sha256"
    segments, at, scratch = list[Segment](), _format.header_size(entry.checksum), Scratch()
    for tensor in entry.tensors:
        target = (targets or {}).get(tensor.name)
        if target is not None:
            segments += [Segment(at, tensor.offset - at, scratch), _segment(tensor, target)]
            at = tensor.offset + tensor.size
    segments.append(Segment(at, entry.file_size - at, scratch))
    return fill(file, segments, algorithm, digest_threads).removeprefix("sha256:")


def _segment(tensor: TensorEntry, target: Target) -> Segment:
    return Segment(tensor.offset, tensor.size, target)


def refuse_other(file: StoredFile, entry: ShardEntry, found: str) -> None:
    """Raise `CheckpointError` unless the data of a shard have the checksum that it states."""
    if found != entry.checksum:
        problem = f"expected data with the checksum {entry.checksum}, found {found}; restore it"
        raise CheckpointError(problem, path=file.path)


def _read_tensor(
    file: StoredFile, tensor: TensorEntry, target: Target, threads: int | None = None
) -> None:
    """Read one tensor, and prove it by its own digest."""
    found = fill(file, [_segment(tensor, target)], str(tensor.digest).partition(":")[0], threads)
    if found != tensor.digest:
        name = quoted(tensor.name)
        problem = f"tensor {name}: expected {tensor.digest}, found {found}; restore it"
        raise CheckpointError(problem, path=file.path)


def read_tensors(
    file: StoredFile,
    shard: ShardEntry,
    tensors: Sequence[TensorEntry],
    *,
    framework: Framework,
    prove: bool = True,
    alone: bool = False,
    out: Mapping[str, Out] | None = None,
    digest_threads: int | None = None,
) -> dict[str, Any]:
    """Read tensors of a shard, whose sizes are proven, by name: into ``out`` or new arrays."""
    # The shard's checksum proves them; or ``alone``, each its own digest, if all have one.
    given = out or {}
    arrays = {  # new ones of no more bytes than the file was seen to have
        t.name: given[t.name] if t.name in given else np.empty(t.shape, numpy_dtype(t.dtype))
        for t in tensors
    }
    with contextlib.ExitStack() as copies:
        targets = _targets(arrays, copies)
        if not prove:
            fill(file, [_segment(t, targets[t.name]) for t in tensors], None, digest_threads)
        elif alone and all(tensor.digest for tensor in tensors):
            for tensor in tensors:
                _read_tensor(file, tensor, targets[tensor.name], digest_threads)
        else:
            found = checksum_found(file, shard, targets, digest_threads=digest_threads)
            refuse_other(file, shard, found)
    return {t.name: _as_framework(arrays[t.name], t, framework) for t in tensors}


def mapped_tensors(
    location: Location,
    shard: ShardEntry,
    tensors: Sequence[TensorEntry],
    *,
    framework: Framework,
    prove: bool,
) -> dict[str, Any]:
    """Return read-only arrays whose memory is a file's; the file is open as long as they live."""
    with open_shard(location, shard) as file:
        if not isinstance(file, LocalFile):
            raise ValueError(f"mapped: expected a local file, found '{shown(file.path)}'")
        if prove and all(tensor.digest for tensor in tensors):
            for tensor in tensors:
                _read_tensor(file, tensor, Scratch())
        elif prove:
            refuse_other(file, shard, checksum_found(file, shard))
        memory = mmap.mmap(file.fd, shard.file_size, prot=mmap.PROT_READ)
    arrays = {}
    for tensor in tensors:
        array = np.empty(0, np.uint8)
        if tensor.size:
            array = np.frombuffer(memory, np.uint8, tensor.size, tensor.offset)
        array = array.view(numpy_dtype(tensor.dtype)).reshape(tensor.shape)
        arrays[tensor.name] = _as_framework(array, tensor, framework)
    return arrays


def _targets(outs: Mapping[str, Out], copies: contextlib.ExitStack) -> dict[str, Target]:
    """Return the bytes of arrays and tensors in C order as targets, by name."""
    tensors = {name: out for name, out in outs.items() if is_tensor(out)}
    targets = {
        name: into(out.reshape(-1).view(np.uint8).data)
        for name, out in outs.items()
        if name not in tensors
    }
    if tensors:
        from shardproof.checkpoint import _torch  # noqa: PLC0415 - there is a tensor

        found = copies.enter_context(_torch.Copies())
        targets |= {name: found.target(tensor) for name, tensor in tensors.items()}
    return targets


def _as_framework(out: Out, tensor: TensorEntry, framework: Framework) -> Any:
    """Return an array as the library that was asked for has it, in the same memory."""
    if framework == "numpy" or is_tensor(out):
        return out
    from shardproof.checkpoint import _torch  # noqa: PLC0415 - the caller asked for its tensors

    return _torch.to_torch(out, tensor.dtype)

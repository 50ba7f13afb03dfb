"""Checkpoints are loaded: a shard, all of them, or tensors from wherever they are."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from shardproof._base import fanout
from shardproof._base.arguments import checked
from shardproof._base.loop_threads import LoopThreads
from shardproof._base.messages import shown
from shardproof._base.work import apart, in_threads
from shardproof.checkpoint.format._metadata import CheckpointMetadata, ShardEntry, TensorEntry
from shardproof.checkpoint.load._destinations import fresh, given, view_of
from shardproof.checkpoint.load._mapped import mapped_tensors
from shardproof.checkpoint.load._shard_arrays import Framework, given_away, tensors_in
from shardproof.checkpoint.load._shard_reader import read_shard, read_tensor
from shardproof.checkpoint.load._tensor_index import Found, find
from shardproof.checkpoint.storage._metadata_file import read_metadata
from shardproof.checkpoint.storage._open_shard import open_shard
from shardproof.checkpoint.storage._storage import CheckpointStorage, Place, place_of

__all__ = ["MultiShardLoader"]

Array = np.ndarray[Any, np.dtype[Any]]
Item = TypeVar("Item")
Result = TypeVar("Result")


class MultiShardLoader:
    """Load checkpoints of many ranks, each byte proven before it is given away.

    Args:
        storage: Where they are; by default a directory, or for a prefix with ``://`` what fsspec
            opens.
        verify: Whether to prove what is read by its checksum. Without, only the metadata, sizes and
            headers are looked at.
        framework: ``"numpy"`` for arrays; ``"torch"`` for tensors of torch, which have the memory
            of those arrays. bfloat16 and float8, which numpy lacks, are arrays of ml_dtypes where
            that is installed, and unsigned integers of the same size where it is not.
        threads: How many shards are read at once; by default one for each processor.

    Raises:
        TypeError: An argument of the wrong type.
        ValueError: ``threads`` below 1.

    Example:
        >>> import numpy as np
        >>> from shardproof.checkpoint import MultiShardLoader, MultiShardSaver
        >>> prefix = f"{output_dir}/step_1/model"
        >>> path = MultiShardSaver().save_shard(prefix, 0, {"bias": np.arange(3)})
        >>> path = MultiShardSaver().save_metadata(prefix, world_size=1, step=1)
        >>> MultiShardLoader().load_shard(prefix, 0)["bias"]
        array([0, 1, 2])
    """

    @checked
    def __init__(
        self,
        storage: CheckpointStorage | None = None,
        *,
        verify: bool = True,
        framework: Framework = "numpy",
        threads: int | None = None,
    ) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"threads: expected 1 or more, found {threads}")
        self._storage, self._verify, self._framework = storage, verify, framework
        self._threads = threads or fanout.available_cpus()

    @checked
    def load_metadata(self, prefix: str | os.PathLike[str]) -> CheckpointMetadata:
        """Return what the metadata of a checkpoint says, once it obeys every law of the format.

        Raises:
            CheckpointNotFoundError: There is no checkpoint under this prefix.
            CheckpointError: Its metadata can't be read, or was changed.
        """
        return apart(lambda _: read_metadata(place_of(prefix, self._storage)))

    @checked
    def load_shard(self, prefix: str | os.PathLike[str], rank: int) -> dict[str, Any]:
        """Return the arrays of one rank's shard, by name, in the order in which they were saved.

        Raises:
            CheckpointNotFoundError: The checkpoint or the shard is not there.
            CheckpointError: It is not the shard that the metadata names, byte for byte.
            IndexError: There is no such rank.
        """
        return apart(lambda stop: self._load_shard(prefix, rank, stop))

    def _load_shard(
        self, prefix: str | os.PathLike[str], rank: int, stop: threading.Event | None
    ) -> dict[str, Any]:
        place = place_of(prefix, self._storage)
        metadata = read_metadata(place)
        if not 0 <= rank < metadata.world_size:
            expected = f"0 to {metadata.world_size - 1}"
            raise IndexError(f"rank: expected {expected}, found {rank}, in '{shown(place.path)}'")
        return self._read(place, metadata.shards[rank], stop)

    @checked
    def load_all_shards(self, prefix: str | os.PathLike[str]) -> list[dict[str, Any]]:
        """Return the arrays of every shard, in the order of ranks; raises as `load_shard`."""
        return apart(lambda stop: self._load_all_shards(prefix, stop))

    def _load_all_shards(
        self, prefix: str | os.PathLike[str], stop: threading.Event
    ) -> list[dict[str, Any]]:
        place = place_of(prefix, self._storage)
        shards = read_metadata(place).shards
        n_threads = max(1, fanout.available_cpus() // min(self._threads, len(shards)))
        return self._in_threads(
            lambda shard: self._read(place, shard, stop, n_threads), shards, stop
        )

    def _in_threads(
        self, work: Callable[[Item], Result], items: Sequence[Item], stop: threading.Event
    ) -> list[Result]:
        n_threads = min(self._threads, len(items))
        if n_threads < 2:
            return [*map(work, items)]
        name = "shardproof-load"
        return [*in_threads(work, items, n_threads=n_threads, name=name, stop=stop)]

    @checked
    def load_tensors(
        self,
        prefix: str | os.PathLike[str],
        names: Sequence[str] | None = None,
        *,
        out: Mapping[str, Array] | None = None,
        mapped: bool = False,
    ) -> dict[str, Any]:
        """Return tensors by name, from whichever shards they are in.

        So a checkpoint is loaded by another number of ranks than saved it. Only what is asked for
        is read, in threads where it is in several shards, and proven by its own digest; of a tensor
        that has none, its whole shard is proven.

        Args:
            prefix: The checkpoint's.
            names: Which; None for all.
            out: Arrays to read into, by name, of the same type and shape, in C order. Those that
                are not named here are made. After an error, what they hold is not told.
            mapped: Whether to map files into memory instead of reading them: read-only arrays,
                read when they are first used. **Should a file become shorter while it is mapped,
                using it ends the process (SIGBUS in mmap(2))**: no exception can tell. Only for
                local files that nobody changes.

        Raises:
            CheckpointNotFoundError: The checkpoint or a shard is not there.
            CheckpointError: A tensor is in no shard, or in several; or what is read is not what
                was saved.
            TypeError: An array of ``out`` has another type.
            ValueError: An array of ``out`` has another shape or order, or can't be written; or
                ``mapped`` together with ``out``, or of a storage that is not local.
        """
        if mapped and out:
            raise ValueError("expected mapped or out, found both")
        return apart(lambda stop: self._load_tensors(prefix, names, out or {}, mapped, stop))

    def _load_tensors(
        self,
        prefix: str | os.PathLike[str],
        names: Sequence[str] | None,
        out: Mapping[str, Array],
        mapped: bool,
        stop: threading.Event,
    ) -> dict[str, Any]:
        place = place_of(prefix, self._storage)
        found = find(place, read_metadata(place), names)

        def load(of_shard: tuple[ShardEntry, list[TensorEntry]]) -> dict[str, Array]:
            if mapped:
                return mapped_tensors(place, *of_shard, verify=self._verify, stop=stop)
            return self._read_some(place, *of_shard, out, stop)

        arrays: dict[str, Array] = {}
        for some in self._in_threads(load, [*found.by_shard()], stop):
            arrays |= some
        return {
            name: given_away(arrays[name], found.tensors[name], self._framework)
            for name in found.tensors
        }

    @checked
    def iter_tensors(
        self, prefix: str | os.PathLike[str], names: Sequence[str] | None = None
    ) -> Iterator[tuple[str, Any]]:
        """Yield names and tensors one after the other, none of which is kept.

        The order is that of the files. Arguments and errors are those of `load_tensors`.
        """
        place = place_of(prefix, self._storage)
        return self._iter_found(place, apart(lambda _: find(place, read_metadata(place), names)))

    def _iter_found(self, place: Place, found: Found) -> Iterator[tuple[str, Any]]:
        for shard, tensors in found.by_shard():
            for tensor in tensors:
                yield tensor.name, self._read_one(place, shard, tensor)

    def _read_one(self, place: Place, shard: ShardEntry, tensor: TensorEntry) -> Any:
        arrays = apart(lambda stop: self._read_some(place, shard, [tensor], {}, stop))
        return given_away(arrays.pop(tensor.name), tensor, self._framework)

    def _read_some(
        self,
        place: Place,
        shard: ShardEntry,
        tensors: Sequence[TensorEntry],
        out: Mapping[str, Array],
        stop: threading.Event | None,
    ) -> dict[str, Array]:
        with open_shard(place, shard) as file:  # whose size says how much memory is needed
            arrays = {
                tensor.name: given(out[tensor.name], tensor)
                if tensor.name in out
                else fresh(tensor)
                for tensor in tensors
            }
            if self._verify and all(tensor.digest for tensor in tensors):
                for tensor in tensors:
                    read_tensor(file, tensor, view_of(arrays[tensor.name]), stop=stop)
            else:
                views = {name: view_of(array) for name, array in arrays.items()}
                read_shard(file, shard, views, verify=self._verify, stop=stop)
        return arrays

    def _read(
        self,
        place: Place,
        shard: ShardEntry,
        stop: threading.Event | None,
        digest_threads: int | None = None,
    ) -> dict[str, Any]:
        with open_shard(place, shard) as file:
            return tensors_in(
                file,
                shard,
                framework=self._framework,
                verify=self._verify,
                stop=stop,
                digest_threads=digest_threads,
            )

    @checked
    async def load_metadata_async(self, prefix: str | os.PathLike[str]) -> CheckpointMetadata:
        """Do as `load_metadata` in a thread, which has ended when this returns."""
        return await LoopThreads().run(lambda _: self.load_metadata(prefix), "shardproof-load")

    @checked
    async def load_shard_async(self, prefix: str | os.PathLike[str], rank: int) -> dict[str, Any]:
        """Do as `load_shard` in a thread, which has ended when this returns or is cancelled."""
        return await LoopThreads().run(
            lambda stop: self._load_shard(prefix, rank, stop), "shardproof-load"
        )

    @checked
    async def load_all_shards_async(self, prefix: str | os.PathLike[str]) -> list[dict[str, Any]]:
        """Do as `load_all_shards` in a thread, which has ended when this returns."""
        return await LoopThreads().run(
            lambda stop: self._load_all_shards(prefix, stop), "shardproof-load"
        )

    @checked
    async def load_tensors_async(
        self,
        prefix: str | os.PathLike[str],
        names: Sequence[str] | None = None,
        *,
        out: Mapping[str, Array] | None = None,
    ) -> dict[str, Any]:
        """Do as `load_tensors` in a thread, which has ended when this returns."""
        return await LoopThreads().run(
            lambda stop: self._load_tensors(prefix, names, out or {}, False, stop),
            "shardproof-load",
        )

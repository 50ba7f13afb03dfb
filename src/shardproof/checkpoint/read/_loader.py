"""Load checkpoints: a shard, all of them, or tensors from wherever they are."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from shardproof._base import fanout
from shardproof._base.arguments import checked, count
from shardproof._base.fanout import in_threads
from shardproof._base.messages import quoted, quoted_first, shown
from shardproof._base.work import apart, in_thread
from shardproof.checkpoint._format import CheckpointMetadata, ShardEntry, TensorEntry
from shardproof.checkpoint.read._outs import Out, ShardOuts, check_shard_outs, checked_outs
from shardproof.checkpoint.read._shard_reader import Framework, mapped_tensors, read_tensors
from shardproof.checkpoint.storage._location import Location, location_of
from shardproof.checkpoint.storage._reading import open_shard, read_metadata
from shardproof.checkpoint.storage._storage import CheckpointStorage
from shardproof.errors import CheckpointError

Item = TypeVar("Item")
Result = TypeVar("Result")


class MultiShardLoader:
    """Load checkpoints of many ranks, each byte proven before it is given away.

    Args:
        storage: Where they are; by default a directory, or for a prefix with ``://`` what fsspec
            opens.
        level: ``"valid"`` proves what is read by its checksum. ``"complete"`` checks the
            metadata, sizes and headers only.
        framework: ``"numpy"`` for arrays; ``"torch"`` for tensors of torch, which have the memory
            of those arrays. bfloat16 and float8, which numpy lacks, are arrays of ml_dtypes where
            that is installed, and unsigned integers of the same size where it is not.
        workers: How many shards are read at once, in threads; by default one for each processor.

    Raises:
        TypeError: An argument of the wrong type.
        ValueError: ``workers`` below 1; or another level or framework.

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
        level: Literal["complete", "valid"] = "valid",
        framework: Framework = "numpy",
        workers: int | None = None,
    ) -> None:
        self._storage = storage
        self._how: dict[str, Any] = {"framework": framework, "prove": level == "valid"}
        self._workers = fanout.available_cpus() if workers is None else count("workers", workers, 1)

    @checked
    def load_metadata(self, prefix: str | os.PathLike[str]) -> CheckpointMetadata:
        """Return what the metadata of a checkpoint says, once it obeys every law of the format.

        Raises:
            CheckpointNotFoundError: There is no checkpoint under this prefix.
            CheckpointError: Its metadata can't be read, or was changed.
        """
        return apart(lambda _: read_metadata(location_of(prefix, self._storage)))

    load_metadata_async = in_thread(load_metadata)
    """Do as `load_metadata` in a thread, which has ended when this returns or is cancelled."""

    @checked
    def load_shard(
        self,
        prefix: str | os.PathLike[str],
        rank: int,
        *,
        out: Mapping[str, Out] | None = None,
    ) -> dict[str, Any]:
        """Return the arrays of one rank's shard, by name, in the order in which they were saved.

        Args:
            prefix: The checkpoint's.
            rank: Of the process that saved it.
            out: An array to read into for each tensor of the shard, by its name, or a tensor of
                torch, be it of the host, pinned, or of a CUDA device: of the same type and shape,
                in C order, each with memory of its own. By default arrays are made; memory that is
                in use is filled faster. **After an error they may hold a part of the shard, or
                bytes that are not proven: don't use them.**

        Raises:
            CheckpointNotFoundError: The checkpoint or the shard is not there.
            CheckpointError: It is not the shard that the metadata names, byte for byte.
            IndexError: There is no such rank.
            TypeError: Arrays of ``out`` have other types, or are none.
            ValueError: ``out`` lacks a tensor, names another, or an array of it has another shape
                or order, can't be written, or has memory in common with another one. None of them
                has been read into then.
        """

        def load(_: object) -> dict[str, Any]:
            location = location_of(prefix, self._storage)
            metadata = read_metadata(location)
            if not 0 <= rank < metadata.world_size:
                expected = f"0 to {metadata.world_size - 1}"
                where = f"in '{shown(location.path)}'"
                raise IndexError(f"rank: expected {expected}, found {rank}, {where}")
            shard = metadata.shards[rank]
            if out is not None:
                check_shard_outs(["out"], [out], [shard])
            return self._read(location, shard, shard.tensors, out=out)

        return apart(load)

    load_shard_async = in_thread(load_shard)
    """Do as `load_shard` in a thread, which has ended when this returns or is cancelled."""

    @checked
    def load_all_shards(
        self, prefix: str | os.PathLike[str], *, out: ShardOuts | None = None
    ) -> list[dict[str, Any]]:
        """Return the arrays of every shard, in the order of ranks; raises as `load_shard`.

        ``out`` has for each rank what `load_shard` takes. After an error none of them may be used.
        """

        def load(_: object) -> list[dict[str, Any]]:
            location = location_of(prefix, self._storage)
            shards = read_metadata(location).shards
            n_ranks = len(shards)
            if out is not None:
                if len(out) != n_ranks:
                    expected = f"arrays of {n_ranks} ranks"
                    raise ValueError(f"out: expected {expected}, found those of {len(out)}")
                check_shard_outs([f"out[{rank}]" for rank in range(n_ranks)], out, shards)
            outs, n = out or [{}] * n_ranks, fanout.threads_each(min(self._workers, n_ranks))

            def read(rank: int) -> dict[str, Any]:
                tensors = shards[rank].tensors
                return self._read(location, shards[rank], tensors, out=outs[rank], digest_threads=n)

            return self._in_threads(read, range(n_ranks))

        return apart(load)

    load_all_shards_async = in_thread(load_all_shards)
    """Do as `load_all_shards` in a thread, which has ended when this returns or is cancelled."""

    @checked
    def load_tensors(
        self,
        prefix: str | os.PathLike[str],
        names: Sequence[str] | None = None,
        *,
        out: Mapping[str, Out] | None = None,
        mapped: bool = False,
    ) -> dict[str, Any]:
        """Return tensors by name, from whichever shards they are in.

        So a checkpoint is loaded by another number of ranks than saved it. Only what is asked for
        is read, in threads where it is in several shards, and proven by its own digest; of a tensor
        that has none, its whole shard is proven.

        Args:
            prefix: The checkpoint's.
            names: Which; None for all.
            out: Arrays or tensors to read into, by name, as for `load_shard`. Those that are not
                named here are made. After an error, what they hold is not defined.
            mapped: Whether to map files into memory instead of reading them: read-only arrays,
                read when they are first used. **Should a file become shorter while it is mapped,
                using it ends the process (SIGBUS in mmap(2))**: no exception can tell. Only for
                local files that nothing changes.

        Raises:
            CheckpointNotFoundError: The checkpoint or a shard is not there.
            CheckpointError: A tensor is in no shard, or in several; or what is read is not what
                was saved.
            TypeError: An array of ``out`` has another type.
            ValueError: An array of ``out`` has another shape or order, can't be written, or has
                memory in common with another one that is read into; or ``mapped`` together with
                ``out``, or of a storage that is not local.
        """
        if mapped and out:
            raise ValueError("expected mapped or out, found both")

        def load(_: object) -> dict[str, Any]:
            location = location_of(prefix, self._storage)
            wanted, by_shard = _find_tensors(location, names)
            given = checked_outs(out or {}, wanted)

            def load_some(of_shard: tuple[ShardEntry, list[TensorEntry]]) -> dict[str, Any]:
                if mapped:
                    return mapped_tensors(location, *of_shard, **self._how)
                return self._read(location, *of_shard, out=given, alone=True)

            arrays: dict[str, Any] = {}
            for some in self._in_threads(load_some, by_shard):
                arrays |= some
            return {name: arrays[name] for name in wanted}

        return apart(load)

    load_tensors_async = in_thread(load_tensors)
    """Do as `load_tensors` in a thread, which has ended when this returns or is cancelled."""

    @checked
    def iter_tensors(
        self, prefix: str | os.PathLike[str], names: Sequence[str] | None = None
    ) -> Iterator[tuple[str, Any]]:
        """Yield names and tensors one after the other, none of which is kept.

        The order is that of the files. Arguments and errors are those of `load_tensors`.
        """
        location = location_of(prefix, self._storage)
        _, by_shard = apart(lambda _: _find_tensors(location, names))

        # Not in the generator, whose frame would keep the last array.
        def read_one(shard: ShardEntry, tensor: TensorEntry) -> Any:
            return apart(lambda _: self._read(location, shard, [tensor], alone=True))[tensor.name]

        return (
            (tensor.name, read_one(shard, tensor))
            for shard, tensors in by_shard
            for tensor in tensors
        )

    def _in_threads(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        n_threads = min(self._workers, len(items))
        return [*in_threads(work, items, n_threads=n_threads, name="shardproof-load")]

    def _read(
        self, location: Location, shard: ShardEntry, tensors: Sequence[TensorEntry], **how: Any
    ) -> dict[str, Any]:
        with open_shard(location, shard) as file:  # whose size says how much memory is needed
            return read_tensors(file, shard, tensors, **self._how, **how)


def _find_tensors(
    location: Location, names: Sequence[str] | None
) -> tuple[dict[str, TensorEntry], list[tuple[ShardEntry, list[TensorEntry]]]]:
    """Read metadata to find tensors: by name in the order asked for, and by shard in the file's."""
    shards = read_metadata(location).shards
    if isinstance(names, str):
        raise TypeError(f"names: expected a list of names, found {quoted(names)}")
    every = [tensor for shard in shards for tensor in shard.tensors]
    counts = Counter(tensor.name for tensor in every)
    wanted = dict.fromkeys(counts if names is None else names)
    unfit = {
        "in no shard": [name for name in wanted if not counts[name]],
        "in several shards": [name for name in wanted if counts[name] > 1],
    }
    if problems := [f"{title}: {quoted_first(found)}" for title, found in unfit.items() if found]:
        text = f"expected each tensor in one shard, found some {' and some '.join(problems)}"
        raise CheckpointError(text, path=location.metadata)
    of_name = {tensor.name: tensor for tensor in every}
    some = [(s, [tensor for tensor in s.tensors if tensor.name in wanted]) for s in shards]
    by_shard = [(shard, tensors) for shard, tensors in some if tensors]
    return {name: of_name[name] for name in wanted}, by_shard

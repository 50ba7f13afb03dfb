"""Shards of tokens one after the other: the next one is fetched while all ranks train on this."""

import asyncio
import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from shardproof._base.arguments import checked, count, rank_of
from shardproof._base.messages import printable, shown, told
from shardproof._base.work import LoopThreads, apart, closed_apart
from shardproof.datasets.tokens._comms import limits_of, patience, source_of
from shardproof.datasets.tokens._ranks import Follower, Leader, key_of_run
from shardproof.datasets.tokens._roles import OtherRank, RankZero
from shardproof.datasets.tokens._token_checks import ProofLevel, sequence_id
from shardproof.datasets.tokens._token_files import TokenFiles, TokenShard
from shardproof.datasets.tokens._tokens import SharedShardedDataset
from shardproof.errors import FetchError, FetchTimeoutError, ShardproofError
from shardproof.fetching.cache import Cache, PrefetchEvent, PrefetchStats, PrefetchTally
from shardproof.fetching.sources import Source
from shardproof.fetching.transfer import Limits

__all__ = ["ShardedDatasetManager", "SharedShardedDataset", "TokenFiles", "sequence_id"]

logger = logging.getLogger("shardproof.fetching")


class ShardedDatasetManager:
    """The dataset of the current shard of tokens, and the next one on its way.

    Rank 0 fetches; the others wait for its word, for a bounded time, and learn why if a shard
    can't be had. Every rank makes the same calls in the same order. A shard whose two files lie in
    the directory is taken as it is, if it passes the check; the source is asked only where it
    states digests. Else it is fetched whole, compared with what its source states, and checked,
    before its dataset becomes the active one. If that fails, the active dataset stays what it was,
    and `swap_datasets` may be called again.

    Args:
        sequence_length: Tokens of a sequence.
        rank: This process's number among those that share the directory of the shards.
        world_size: How many they are.
        comms: Where shards are fetched from: an address for `open_source`; a `Source`; or a
            function ``fetch(name, dest)``, plain or ``async``, that writes the file ``name`` to the
            path ``dest``, or raises. Only rank 0 uses it.
        token_dtype: Type of a token in the files.
        file_prefix: As for `SharedShardedDataset`.
        max_download_retries: Attempts for each file, in all.
        download_timeout: Seconds for one attempt, however slowly it goes.
        shards_path: Directory of the shards, which all ranks see; None for ``$DATASET_BINS_PATH``.
        ids_prefix: As for `SharedShardedDataset`.
        level: ``"complete"``, or ``"valid"`` to prove each sequence by its id before it is used.
        allow_length_mismatch: As for `SharedShardedDataset`.
        max_dataset_idx: Number of shards, after which shard 0 comes again; None for no end.
        cleanup: ``"auto"`` removes a shard that was fetched, once no rank uses it any more;
            ``"keep"`` removes nothing.
        wait_timeout: Most seconds that a rank waits for rank 0; None for twice the time that all
            attempts may take, and a minute.
        run_id: What no other run is called that uses the same directory, the same for all ranks. It
            lets a rank believe what a rank 0 said that ended before this rank began.
        limits: All that can be said of attempts, in place of ``max_download_retries`` and
            ``download_timeout``; also how soon a stall ends one. How far a function has
            come can't be seen: it never stalls.
        on_event: Called with each `PrefetchEvent`, from several threads.

    Attributes:
        active_dataset: The dataset of the current shard; None before `initialize_datasets`.
        upcoming_dataset: At rank 0, the task that prepares the next shard; it returns whether it
            succeeded. None at other ranks.
        shard_index: Number of the current shard.
        files: Which files the shards are, and what they must hold.

    Raises:
        ValueError: A number out of range, a prefix or address that is refused, no directory.
        TypeError: An argument of the wrong type.
        OSError: The directory can't be used.

    Example:
        >>> import asyncio
        >>> async def train(url, directory):
        ...     async with ShardedDatasetManager(4, 0, 1, url, shards_path=directory) as manager:
        ...         await manager.initialize_datasets(0)
        ...         for _ in range(3):
        ...             for sequence in manager.active_dataset:
        ...                 ...  # train
        ...             await manager.swap_datasets()
    """

    @checked
    def __init__(  # noqa: PLR0917 - the order of what this stands in for
        self,
        sequence_length: int,
        rank: int,
        world_size: int,
        comms: str | Source | Callable[[str, Path], object],
        token_dtype: npt.DTypeLike = np.uint32,
        file_prefix: str = "train",
        max_download_retries: int = 3,
        download_timeout: int | float = 600,
        *,
        shards_path: str | os.PathLike[str] | None = None,
        ids_prefix: str | None = None,
        level: ProofLevel = "complete",
        allow_length_mismatch: bool = False,
        max_dataset_idx: int | None = None,
        cleanup: Literal["auto", "keep"] = "auto",
        wait_timeout: int | float | None = None,
        run_id: str | None = None,
        limits: Limits | None = None,
        on_event: Callable[[PrefetchEvent], object] | None = None,
    ) -> None:
        self.rank, self.world_size = rank_of(rank, world_size)
        if max_dataset_idx is not None:
            count("max_dataset_idx", max_dataset_idx, 1)
        self.level, self.max_dataset_idx = level, max_dataset_idx
        self.active_dataset: SharedShardedDataset | None = None
        self.upcoming_dataset: asyncio.Task[bool] | None = None
        self.shard_index = 0
        self.files = TokenFiles(
            sequence_length=sequence_length,
            shards_path=shards_path,
            token_dtype=token_dtype,
            file_prefix=file_prefix,
            ids_prefix=ids_prefix,
            allow_length_mismatch=allow_length_mismatch,
        )
        self._n_calls = 0
        self._is_busy = self._is_closed = False
        self._pid = os.getpid()
        limits = limits_of(comms, limits, max_download_retries, download_timeout)
        self._cache = Cache(self.files.root, cleanup=cleanup)
        self._threads = LoopThreads()
        self._tally = PrefetchTally(on_event)
        cache, n_ranks = self._cache, self.world_size
        load = functools.partial(SharedShardedDataset.load, rank=self.rank, world_size=n_ranks)
        key = key_of_run(self.sequence_length, n_ranks, TokenShard(self.files, 0).names, run_id)
        self._part: RankZero | OtherRank
        if self.rank:
            follower = Follower(cache.root, key, self.rank, trusts=run_id is not None)
            # At level "complete": rank 0 has read every byte of the same files.
            self._part = OtherRank(cache, load, follower, patience(wait_timeout, limits))
        else:
            source = source_of(comms, cache.root, self._threads)
            leader = Leader(cache.root, key, n_ranks) if n_ranks > 1 else None
            load, owns = functools.partial(load, level=level), isinstance(comms, str)
            self._part = RankZero(cache, source, limits, load, leader, self._tally, owns)
        # A manager that no code closes ends with the process, and leaves nothing behind either.
        end = functools.partial(_end, self._pid, self._threads, self._part, self._cache)
        weakref.finalize(self, closed_apart, end)

    @property
    def sequence_length(self) -> int:
        """Tokens of a sequence."""
        return self.files.sequence_length

    @property
    def stats(self) -> PrefetchStats:
        """What it has cost and saved until now; at other ranks than 0, only the waits."""
        return self._tally.stats

    @checked
    def prepare_shard(self, shard_index: int) -> "asyncio.Task[bool]":
        """Begin to fetch the shard of that number in the background, if this is rank 0.

        Returns:
            A task that returns whether the shard is there, whole and proven; why not, is logged.
        """
        self._refuse_use()
        shard = TokenShard(self.files, shard_index)
        wanted = {self.shard_index, shard_index}  # of now: the task runs later

        def work(stop: threading.Event) -> None:
            self._part.let_go(wanted)
            try:
                self._part.prepare(shard, stop)
            finally:
                self._part.let_go(wanted)  # again: by now other ranks have left the last one too

        async def prepare() -> bool:
            try:
                await self._threads.run(work, f"shardproof-shard-{shard.index}")
            except (ShardproofError, OSError) as error:
                _log_failure(shard, error)
                return False
            return True

        return asyncio.create_task(prepare())

    @checked
    async def create_dataset(self, shard_index: int) -> SharedShardedDataset:
        """Return the dataset of the shard of that number: fetched by rank 0, checked by every rank.

        Raises:
            FetchError: It can't be fetched; the text names its files. At other ranks than 0: rank 0
                could not, or is gone, or was not heard of in time.
            ShardValidationError: What the source has is no shard of tokens.
            RuntimeError: Another call is under way, or the manager is closed.
        """
        return await self._opened(shard_index, time.monotonic())

    async def _opened(
        self, shard_index: int, began: float, *, is_prepared: bool = True
    ) -> SharedShardedDataset:
        self._refuse_use()
        shard = TokenShard(self.files, shard_index)
        self._n_calls += 1
        work = functools.partial(self._part.dataset, self._n_calls, shard)
        self._is_busy = True
        try:
            dataset, is_ready = await self._threads.run(work, f"shardproof-shard-{shard.index}")
        except FetchError as error:
            if self.rank:
                raise
            _log_failure(shard, error)
            kind = FetchTimeoutError if isinstance(error, FetchTimeoutError) else FetchError
            raise kind(f"{shard.label} can't be had: {told(error)}", path=shard.paths[0]) from error
        finally:
            self._is_busy = False
        seconds = time.monotonic() - began
        self._tally.opened(shard.names[0], seconds, is_ready=is_prepared and is_ready)
        return dataset

    @checked
    async def initialize_datasets(self, current_shard_index: int) -> None:
        """Make a shard the active one, and begin with the next one.

        Argument and errors are those of `create_dataset`; after one, what was active stays active.
        """
        self._activate(await self.create_dataset(current_shard_index), current_shard_index)

    async def swap_datasets(self) -> int:
        """Make the next shard the active one, and begin with the one after it.

        What failed in the background is tried once more now. Rank 0 removes the files of the
        shard that was active, once every rank has left it.

        Returns:
            The number of the shard that is active now.

        Raises:
            RuntimeError: No shard is active yet. Other errors are those of `create_dataset`: the
                active dataset stays what it was.
        """
        self._refuse_use()
        task = self.upcoming_dataset
        if task is None:
            raise RuntimeError("no shard is active yet: call initialize_datasets first")
        following, began = self._after(self.shard_index), time.monotonic()
        is_prepared = task.done()
        await asyncio.wait([task])  # which goes on if this wait is cancelled
        if task.cancelled() or task.exception() is not None or not task.result():
            logger.warning("Shard %d could not be prepared; trying once more", following)
        self._activate(await self._opened(following, began, is_prepared=is_prepared), following)
        return self.shard_index

    def _after(self, shard_index: int) -> int:
        following = shard_index + 1
        return following if self.max_dataset_idx is None else following % self.max_dataset_idx

    def _activate(self, dataset: SharedShardedDataset, shard_index: int) -> None:
        """Make a dataset the active one, without a wait: either all of it is done, or nothing."""
        self.active_dataset, self.shard_index = dataset, shard_index
        self.upcoming_dataset = self.prepare_shard(self._after(shard_index))
        logger.info("Shard %d is active, with %d sequences", shard_index, len(dataset))

    def _refuse_use(self) -> None:
        if self._is_closed:
            raise RuntimeError("this manager is closed")
        if self._is_busy:
            raise RuntimeError("another call is under way: await it first")

    def close(self) -> None:
        """End what is under way, join the threads, hold nothing; the active dataset stays open.

        The files of the active shard and of the next one stay, for the next run to begin with.
        """
        self._is_closed = True
        apart(lambda _: _end(self._pid, self._threads, self._part, self._cache))

    async def aclose(self) -> None:
        """Do the same from a coroutine, and end the task that prepares the next shard."""
        self._is_closed = True
        if self.upcoming_dataset is not None:
            self.upcoming_dataset.cancel()
            await asyncio.wait([self.upcoming_dataset])
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _log_failure(shard: TokenShard, error: Exception) -> None:
    causes = error.causes if isinstance(error, FetchError) else ()
    how = f"Failed to download shard {shard.index} after {len(causes)} attempts"
    if not causes:
        how = f"Failed to prepare shard {shard.index} ({told(error)})"
    logger.error("%s: %s, %s", printable(how), *map(shown, shard.paths))


def _end(pid: int, threads: LoopThreads, part: RankZero | OtherRank, cache: Cache) -> None:
    if os.getpid() != pid:  # what was forked from it has none of this
        return
    threads.end()
    part.close()
    cache.close()

"""Rank 0's part in a manager of token shards: it fetches, holds shards, and tells the others."""

import asyncio
import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Collection, Sequence

from shardproof._base.messages import told
from shardproof.datasets.tokens._comms import FunctionSource, states_no_digests
from shardproof.datasets.tokens._ranks import Leader, RankOutcome, cut_text
from shardproof.datasets.tokens._token_files import TokenShard
from shardproof.datasets.tokens._tokens import SharedShardedDataset
from shardproof.errors import ShardReadError, ShardValidationError
from shardproof.fetching.cache import Cache, CachedFetcher, PrefetchEvent, PrefetchTally
from shardproof.fetching.sources import Source
from shardproof.fetching.transfer import Limits

__all__ = ["Load", "RankZero"]

logger = logging.getLogger("shardproof.fetching")

Load = Callable[..., SharedShardedDataset]
"""Looks at a shard of some files and opens it, as `SharedShardedDataset.load` does."""


class RankZero:
    """Fetches shards, and tells the other ranks.

    Args:
        cache: The directory of the shards.
        source: Where they come from.
        limits: How long and how often to try.
        load: Looks at a shard and opens it.
        leader: How the others are told; None where there are none.
        tally: What it costs, and who is told of each thing that happens.
        owns_source: Whether the source is closed with this.
    """

    def __init__(
        self,
        cache: Cache,
        source: Source,
        limits: Limits,
        load: Load,
        leader: Leader | None,
        *,
        tally: PrefetchTally,
        owns_source: bool,
    ) -> None:
        self.source = source
        self._cache, self._limits, self._load, self._leader = cache, limits, load, leader
        self._tally, self._owns_source = tally, owns_source
        self._ready: dict[int, SharedShardedDataset] = {}
        self._held: dict[int, HeldShard] = {}
        self._leaving: dict[int, Sequence[str]] = {}

    def prepare(self, shard: TokenShard, stop: threading.Event) -> None:
        """Fetch a shard that will be wanted next, and look at it."""
        self._ready = {shard.index: self._fetched(shard, stop)}

    def dataset(
        self, call: int, shard: TokenShard, stop: threading.Event
    ) -> tuple[SharedShardedDataset, bool]:
        """Return the dataset of a shard that is wanted now, and whether it was there already.

        Whatever comes of it, the others are told.

        Raises:
            FetchError: It can't be fetched.
            ShardValidationError: The source's shard is not what it must be.
        """
        try:
            dataset = self._ready.pop(shard.index, None)
            is_ready = dataset is not None and None not in shard.marks()
            if dataset is None or not is_ready:  # or purged meanwhile
                dataset = self._fetched(shard, stop)
            marks = shard.marks()
            self._held[shard.index].call = call
        except BaseException as error:
            self._tell(RankOutcome(call, shard.index, problem=cut_text(told(error))))
            raise
        self._tell(RankOutcome(call, shard.index, marks=marks))
        return dataset, is_ready

    def _tell(self, outcome: RankOutcome) -> None:
        if self._leader is not None:
            self._leader.tell(outcome)

    def _fetched(self, shard: TokenShard, stop: threading.Event) -> SharedShardedDataset:
        self._release(shard.index)  # whatever is known of it may be out of date
        fetcher = CachedFetcher(self.source, self._cache, self._limits, self._tally)
        held = HeldShard(shard, self.source, self._cache, fetcher, self._load)
        self._held[shard.index] = held
        try:
            return held.dataset(stop)
        except BaseException as error:
            self._release(shard.index)
            if isinstance(error, ShardReadError | ShardValidationError):
                self._tally.tell(PrefetchEvent("failed", shard.names[0], problem=told(error)))
                for name in shard.names:  # the next attempt is to fetch it anew
                    with contextlib.suppress(OSError):
                        self._cache.distrust(name)
            raise

    def _release(self, index: int) -> None:
        held = self._held.pop(index, None)
        if held is not None:
            held.fetcher.close()

    def let_go(self, wanted: Collection[int]) -> None:
        """Hold only these shards, and those that a slower rank may be about to open; remove others.

        Only rank 0 removes shards, and goes on trying while others still read one.
        """
        slowest = self._leader.slowest() if self._leader is not None else None
        for index, held in tuple(self._held.items()):
            is_late = slowest is not None and held.call > slowest
            if index not in wanted and not is_late:
                self._leaving[index] = held.names
                self._release(index)
        for index, names in tuple(self._leaving.items()):
            if index in self._held or not any(map(self._stays, names)):
                del self._leaving[index]

    def _stays(self, name: str) -> bool:
        """Whether a shard of this package is still to be removed, since somebody reads it."""
        if self._cache.cleanup != "auto":
            return False
        if self._cache.discard(name):
            self._tally.tell(PrefetchEvent("removed", name))
            return False
        return self._cache.owns(name)

    def close(self) -> None:
        """Fetch and say nothing any more."""
        self._ready.clear()
        for index in tuple(self._held):
            self._release(index)
        if self._leader is not None:
            self._leader.close()
        if self._owns_source:
            self.source.close()

    def on_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take in which loop runs an asynchronous function."""
        if isinstance(self.source, FunctionSource):
            self.source.loop = loop


class HeldShard:
    """A shard that rank 0 holds, until its fetcher is closed.

    Attributes:
        call: Which call it was for, if it was for one yet.
        names: Of its files.
        fetcher: Brings them, and holds them.
    """

    def __init__(
        self, shard: TokenShard, source: Source, cache: Cache, fetcher: CachedFetcher, load: Load
    ) -> None:
        self.call = 0
        self.fetcher = fetcher
        self._shard, self._source, self._cache, self._load = shard, source, cache, load
        # The small one first: there may be no such shard.
        self.names = tuple(reversed(shard.names))

    def dataset(self, stop: threading.Event) -> SharedShardedDataset:
        """Return what lies there, if it is a whole shard; else what the source has.

        Raises:
            FetchError: It can't be fetched.
            ShardValidationError: It is not what it must be, or could not be looked at.
        """
        unknown = [name for name in self.names if self._is_unknown(name, stop)]
        self._bring([name for name in self.names if name not in unknown], stop)
        dataset = self._taken(unknown) if unknown else None
        if dataset is None:
            self._bring(unknown, stop)
            dataset = self._load(self._shard.files, self._shard.index)
        return dataset

    def _is_unknown(self, name: str, stop: threading.Event) -> bool:
        """Whether something lies there of which neither the cache nor the source can tell."""
        if not self._cache.is_unknown(name):
            return False
        if states_no_digests(self._source):
            return True
        file = self.fetcher.prepare(name, self._shard.index, stop)
        return file is None or file.digest is None

    def _bring(self, names: Sequence[str], stop: threading.Event) -> None:
        for name in names:
            brought = self.fetcher.bring(name, self._shard.index, stop)
            self.fetcher.tally.tell(brought.event)

    def _taken(self, unknown: Sequence[str]) -> SharedShardedDataset | None:
        """Return the dataset of what lies there, if it stands the look."""
        files, index = self._shard.files, self._shard.index
        marks = self._shard.marks()
        try:
            if len(unknown) == 2:
                dataset = self._load(files, index)
            else:
                # One is the source's: the other must be of the same shard, token for token.
                exact = dataclasses.replace(files, allow_length_mismatch=False)
                dataset = self._load(exact, index, level="valid")
        except ShardValidationError as error:
            if not all(finding.conclusive for finding in error.report.findings):
                raise
            logger.warning("What lies there is not taken for shard %d: %s", index, told(error))
            return None
        for name in unknown:  # not before: another process that fetches it must be able to move it
            self.fetcher.take(name)
        if marks != self._shard.marks():
            dataset.close()
            return None
        for name in unknown:
            self.fetcher.tally.tell(PrefetchEvent("found", name))
        return dataset

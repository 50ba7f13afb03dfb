"""The two parts in a manager of token shards: rank 0 fetches, the others wait for its word."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Collection
from typing import NamedTuple, NoReturn

from shardproof._base.messages import shown, told, traced
from shardproof.datasets.tokens._comms import FunctionSource
from shardproof.datasets.tokens._held_shard import HeldShard, Open, mark_at
from shardproof.datasets.tokens._ranks import Follower, Leader, RankOutcome, cut_text
from shardproof.datasets.tokens._token_shard import TokenShard
from shardproof.datasets.tokens._tokens import SharedShardedDataset
from shardproof.errors import FetchError, FetchTimeoutError, ShardReadError, ShardValidationError
from shardproof.fetching.cache import Cache, CachedFetcher, Lease, PrefetchEvent, PrefetchTally
from shardproof.fetching.sources import Source
from shardproof.fetching.transfer import Limits

__all__ = ["Had", "OtherRank", "RankRole", "RankZero"]

_POLL = 0.05
_VISIBLE_SECONDS = 60.0  # nfs(5): for so long may a directory look as it did before


class Had(NamedTuple):
    """A dataset, and whether it was there when it was asked for."""

    dataset: SharedShardedDataset
    is_ready: bool


class RankZero:
    """Fetches shards, and tells the other ranks.

    Args:
        cache: The directory of the shards.
        source: Where they come from.
        limits: How long and how often to try.
        open_: Looks at a shard and opens it.
        leader: How the others are told; None where there are none.
        tally: What it costs, and who is told of each thing that happens.
        owns_source: Whether to close it.
    """

    def __init__(
        self,
        cache: Cache,
        source: Source,
        limits: Limits,
        open_: Open,
        leader: Leader | None,
        *,
        tally: PrefetchTally,
        owns_source: bool,
    ) -> None:
        self.source = source
        self._cache, self._limits, self._open, self._leader = cache, limits, open_, leader
        self._tally, self._owns_source = tally, owns_source
        self._ready: dict[int, SharedShardedDataset] = {}
        self._held: dict[int, HeldShard] = {}
        self._leaving: dict[int, tuple[str, ...]] = {}

    def prepare(self, shard: TokenShard, stop: threading.Event) -> None:
        """Fetch a shard that will be wanted next, and look at it."""
        self._ready = {shard.index: self._fetched(shard, stop)}

    def dataset(self, call: int, shard: TokenShard, stop: threading.Event) -> Had:
        """Return the dataset of a shard that is wanted now; whatever comes of it, tell the others.

        Raises:
            FetchError: It can't be fetched.
            ShardValidationError: The source's shard is not what it must be.
        """
        try:
            dataset = self._ready.pop(shard.index, None)
            is_ready = dataset is not None and None not in map(mark_at, shard.paths)
            if dataset is None or not is_ready:  # or purged meanwhile
                dataset = self._fetched(shard, stop)
            marks = tuple(map(mark_at, shard.paths))
            self._held[shard.index].call = call
        except BaseException as error:
            self._tell(RankOutcome(call, shard.index, problem=cut_text(told(error))))
            raise
        self._tell(RankOutcome(call, shard.index, marks=marks))
        return Had(dataset, is_ready)

    def _tell(self, outcome: RankOutcome) -> None:
        if self._leader is not None:
            self._leader.tell(outcome)

    def _fetched(self, shard: TokenShard, stop: threading.Event) -> SharedShardedDataset:
        self._release(shard.index)  # whatever is known of it may be out of date
        fetcher = CachedFetcher(self.source, self._cache, self._limits, self._tally)
        held = HeldShard(shard, self.source, self._cache, fetcher, self._open)
        self._held[shard.index] = held
        try:
            return held.dataset(stop)
        except BaseException as error:
            self._release(shard.index)
            if isinstance(error, ShardReadError | ShardValidationError):
                self._tally.tell(PrefetchEvent("failed", shard.names[0], problem=told(error)))
                self._distrust(shard)
            raise

    def _release(self, index: int) -> None:
        held = self._held.pop(index, None)
        if held is not None:
            held.close()

    def _distrust(self, shard: TokenShard) -> None:
        """Whoever tries again is to fetch it anew."""
        for name in shard.names:
            with contextlib.suppress(OSError):
                self._cache.distrust(name)

    def let_go(self, wanted: Collection[int]) -> None:
        """Hold no other shards but what a slower rank may be about to open; remove what nobody has.

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


class OtherRank:
    """Waits for what rank 0 says.

    Args:
        cache: The directory of the shards.
        open_: Looks at a shard and opens it.
        follower: How rank 0 is heard.
        timeout: Most seconds to wait.
    """

    def __init__(self, cache: Cache, open_: Open, follower: Follower, timeout: float) -> None:
        self._cache, self._open, self._follower, self._timeout = cache, open_, follower, timeout
        self._leases: dict[int, dict[str, Lease]] = {}

    def prepare(self, shard: TokenShard, stop: threading.Event) -> None:
        """Do nothing: that is rank 0's part."""

    def dataset(self, call: int, shard: TokenShard, stop: threading.Event) -> Had:
        """Return the dataset of a shard when rank 0 has it.

        Raises:
            FetchError: Rank 0 says why it can't be had, or is gone, or at another shard.
            FetchTimeoutError: It says nothing for too long, or nobody could look at what it says.
            ShardValidationError: What is there is not what it must be.
        """
        held = self._leases.setdefault(shard.index, {})
        for name in shard.names:
            if name not in held:
                held[name] = self._cache.hold(name)
        outcome, is_ready = self._outcome(call, shard, stop)
        if outcome.problem is not None:
            raise FetchError(f"{_at_rank_0(shard)}: {outcome.problem}", path=shard.paths[0])
        if outcome.shard != shard.index:
            problem = f"rank 0 is at shard {outcome.shard}: all ranks must make the same calls"
            raise FetchError(f"{_at_rank_0(shard)}: {problem}", path=shard.paths[0])
        self._see(shard, outcome, stop)
        return Had(self._open(shard), is_ready)

    def _outcome(
        self, call: int, shard: TokenShard, stop: threading.Event
    ) -> tuple[RankOutcome, bool]:
        """What rank 0 says, and whether it was said already."""
        end, is_ready = time.monotonic() + self._timeout, True
        while True:
            try:
                outcome = self._follower.look(call)
            except FetchError as error:
                raise FetchError(
                    f"{_at_rank_0(shard)}: {told(error)}", path=shard.paths[0]
                ) from error
            if outcome is not None:
                return outcome, is_ready
            is_ready = False
            if time.monotonic() > end:
                self._refuse_silence(shard)
            if stop.wait(_POLL):
                raise FetchError(f"{_at_rank_0(shard)}: the wait was stopped")

    def _refuse_silence(self, shard: TokenShard) -> NoReturn:
        where, path = _at_rank_0(shard), shard.paths[0]
        unseen, seconds = self._follower.unseen, f"{self._timeout:.0f}s"
        if unseen is not None:
            problem = f"after {seconds}, this rank {unseen.problem}"
            raise FetchTimeoutError(f"{where}: {problem}", path=path) from traced(unseen.error)
        raise FetchTimeoutError(f"{where}: nothing was heard of it for {seconds}", path=path)

    def _see(self, shard: TokenShard, outcome: RankOutcome, stop: threading.Event) -> None:
        """Wait until this node sees the very files that rank 0 has."""
        end = time.monotonic() + min(_VISIBLE_SECONDS, self._timeout)
        for lease in self._leases[shard.index].values():
            lease.begin_reading()
        while (marks := tuple(map(mark_at, shard.paths))) != outcome.marks:
            if time.monotonic() > end or stop.wait(_POLL):
                problem = f"rank 0 has {outcome.marks} (size, time, inode), here are {marks}"
                raise FetchError(f"{_at_rank_0(shard)}: {problem}", path=shard.paths[0])

    def let_go(self, wanted: Collection[int]) -> None:
        """Hold no other shards."""
        for index in self._leases.keys() - set(wanted):
            for lease in self._leases.pop(index).values():
                lease.release()

    def close(self) -> None:
        """Hold nothing any more."""
        while self._leases:
            for lease in self._leases.popitem()[1].values():
                lease.release()

    def on_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do nothing: nothing is fetched here."""


RankRole = RankZero | OtherRank


def _at_rank_0(shard: TokenShard) -> str:
    tokens, ids = shard.paths
    return f"Shard {shard.index} ('{shown(tokens)}', '{shown(ids)}') can't be had from rank 0"

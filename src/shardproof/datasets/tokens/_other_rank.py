"""The other ranks' part in a manager of token shards: they wait for rank 0's word."""

import asyncio
import threading
import time
from collections.abc import Collection

from shardproof._base.messages import shown, told, traced
from shardproof.datasets.tokens._rank_zero import Load
from shardproof.datasets.tokens._ranks import Follower, RankOutcome
from shardproof.datasets.tokens._token_files import TokenShard
from shardproof.datasets.tokens._tokens import SharedShardedDataset
from shardproof.errors import FetchError, FetchTimeoutError
from shardproof.fetching.cache import Cache, Lease

__all__ = ["OtherRank"]

_POLL = 0.05
_VISIBLE_SECONDS = 60.0  # nfs(5): for so long may a directory look as it did before


class OtherRank:
    """Waits for what rank 0 says, for so many seconds at most, and opens the shards."""

    def __init__(self, cache: Cache, load: Load, follower: Follower, timeout: float) -> None:
        self._cache, self._load, self._follower, self._timeout = cache, load, follower, timeout
        self._leases: dict[int, dict[str, Lease]] = {}

    def prepare(self, shard: TokenShard, stop: threading.Event) -> None:
        """Do nothing: that is rank 0's part."""

    def dataset(
        self, call: int, shard: TokenShard, stop: threading.Event
    ) -> tuple[SharedShardedDataset, bool]:
        """Return the dataset of a shard when rank 0 has it, and whether it had it already.

        Raises:
            FetchError: Rank 0 says why it can't be had, or is gone, or at another shard.
            FetchTimeoutError: It says nothing for too long, or what it says could not be looked at.
            ShardValidationError: What is there is not what it must be.
        """
        held = self._leases.setdefault(shard.index, {})
        for name in shard.names:
            if name not in held:
                held[name] = self._cache.hold(name)
        outcome, is_ready = self._outcome(call, shard, stop)
        if outcome.problem is not None:
            raise _refusal(shard, outcome.problem)
        if outcome.shard != shard.index:
            problem = f"rank 0 is at shard {outcome.shard}: all ranks must make the same calls"
            raise _refusal(shard, problem)
        end = time.monotonic() + min(_VISIBLE_SECONDS, self._timeout)
        for lease in self._leases[shard.index].values():
            lease.begin_reading()
        # This node may be late to see the very files that rank 0 has.
        while (marks := shard.marks()) != outcome.marks:
            if time.monotonic() > end or stop.wait(_POLL):
                problem = f"rank 0 has {outcome.marks} (size, time, inode), here are {marks}"
                raise _refusal(shard, problem)
        return self._load(shard.files, shard.index), is_ready

    def _outcome(
        self, call: int, shard: TokenShard, stop: threading.Event
    ) -> tuple[RankOutcome, bool]:
        """Return what rank 0 says, and whether it was said already."""
        end, is_ready = time.monotonic() + self._timeout, True
        while True:
            try:
                outcome = self._follower.look(call)
            except FetchError as error:
                raise _refusal(shard, told(error)) from error
            if outcome is not None:
                return outcome, is_ready
            is_ready = False
            if time.monotonic() > end:
                unseen, seconds = self._follower.unseen, f"{self._timeout:.0f}s"
                if unseen is not None:
                    problem = f"after {seconds}, this rank {unseen.problem}"
                    raise _refusal(shard, problem, FetchTimeoutError) from traced(unseen.error)
                problem = f"nothing was heard of it for {seconds}"
                raise _refusal(shard, problem, FetchTimeoutError)
            if stop.wait(_POLL):
                raise _refusal(shard, "the wait was stopped")

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


def _refusal(shard: TokenShard, problem: str, kind: type[FetchError] = FetchError) -> FetchError:
    tokens, ids = shard.paths
    where = f"Shard {shard.index} ('{shown(tokens)}', '{shown(ids)}') can't be had from rank 0"
    return kind(f"{where}: {problem}", path=tokens)

"""What the ranks do for a manager of token shards: rank 0 fetches, the others wait for its word."""

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence

from shardproof._base.messages import told, traced
from shardproof.datasets.tokens._comms import FunctionSource
from shardproof.datasets.tokens._ranks import Follower, Leader, RankOutcome, could_not_look
from shardproof.datasets.tokens._token_files import TokenShard
from shardproof.datasets.tokens._tokens import SharedShardedDataset
from shardproof.errors import FetchError, FetchTimeoutError, ShardReadError
from shardproof.fetching.cache import Cache, CachedFetcher, Lease, PrefetchEvent, PrefetchTally
from shardproof.fetching.sources import FsspecSource, HttpSource, Source
from shardproof.fetching.transfer import Limits
from shardproof.report import ShardValidationError

logger = logging.getLogger("shardproof.fetching")

_POLL = 0.05
_VISIBLE_SECONDS = 60.0  # nfs(5): for so long may a directory look as it did before

Load = Callable[..., SharedShardedDataset]  # opens a shard, as `SharedShardedDataset.load` does


@dataclasses.dataclass(eq=False)
class RankZero:
    """Fetches shards, and tells the other ranks by a leader, where there are some."""

    cache: Cache
    source: Source
    limits: Limits
    load: Load
    leader: Leader | None
    tally: PrefetchTally
    owns_source: bool
    _ready: dict[int, SharedShardedDataset] = dataclasses.field(default_factory=dict)
    _held: dict[int, "HeldShard"] = dataclasses.field(default_factory=dict)
    _leaving: dict[int, Sequence[str]] = dataclasses.field(default_factory=dict)

    def prepare(self, shard: TokenShard, stop: threading.Event) -> None:
        """Fetch a shard that will be wanted next, and look at it."""
        self._ready = {shard.index: self._fetched(shard, stop)}

    def dataset(
        self, call: int, shard: TokenShard, stop: threading.Event
    ) -> tuple[SharedShardedDataset, bool]:
        """Return the dataset of a shard, and whether it was there; tell the other ranks."""
        try:
            dataset = self._ready.pop(shard.index, None)
            is_ready = dataset is not None and None not in shard.marks()
            if dataset is None or not is_ready:  # or purged meanwhile
                dataset = self._fetched(shard, stop)
            marks = shard.marks()
            self._held[shard.index].call = call
        except BaseException as error:
            if self.leader is not None:
                self.leader.tell(RankOutcome(call, shard.index, problem=told(error)))
            raise
        if self.leader is not None:
            self.leader.tell(RankOutcome(call, shard.index, marks=marks))
        return dataset, is_ready

    def _fetched(self, shard: TokenShard, stop: threading.Event) -> SharedShardedDataset:
        self._release(shard.index)  # whatever is known of it may be out of date
        fetcher = CachedFetcher(self.source, self.cache, self.limits, self.tally)
        held = self._held[shard.index] = HeldShard(shard, fetcher)
        try:
            return self._brought(held, stop)
        except BaseException as error:
            self._release(shard.index)
            if isinstance(error, ShardReadError | ShardValidationError):
                self.tally.tell(PrefetchEvent("failed", shard.names[0], problem=told(error)))
                for name in shard.names:  # the next attempt is to fetch it anew
                    with contextlib.suppress(OSError):
                        self.cache.distrust(name)
            raise

    def _brought(self, held: "HeldShard", stop: threading.Event) -> SharedShardedDataset:
        """Return what lies there, if it is a whole shard; else what the source has."""
        lies_there = all(map(self.cache.is_unknown, held.names))
        dataset = None if not lies_there or self._states_digests(held, stop) else self._taken(held)
        if dataset is None:
            for name in held.names:
                self.tally.tell(held.fetcher.bring(name, held.shard.index, stop).event)
            dataset = self.load(held.shard.files, held.shard.index)
        return dataset

    def _states_digests(self, held: "HeldShard", stop: threading.Event) -> bool:
        """Whether the source has digests, with which what lies there is compared."""
        if type(self.source) in {FsspecSource, FunctionSource, HttpSource}:  # never, unasked
            return False
        found = [held.fetcher.prepare(name, held.shard.index, stop) for name in held.names]
        return any(file is not None and file.digest is not None for file in found)

    def _taken(self, held: "HeldShard") -> SharedShardedDataset | None:
        """Return the dataset of what lies there, if it stands the check."""
        shard, marks = held.shard, held.shard.marks()
        try:
            dataset = self.load(shard.files, shard.index)
        except ShardValidationError as error:
            if not all(finding.conclusive for finding in error.report.findings):
                raise
            logger.warning(
                "What lies there is not taken for shard %d: %s", shard.index, told(error)
            )
            return None
        except ShardReadError:
            if marks == shard.marks():
                raise
            return None  # another process has moved it aside between the check and the opening
        for name in held.names:  # not before: another process that fetches it must be able to move
            held.fetcher.take(name)
        if marks != shard.marks():
            dataset.close()
            return None
        for name in held.names:
            self.tally.tell(PrefetchEvent("found", name))
        return dataset

    def _release(self, index: int) -> None:
        held = self._held.pop(index, None)
        if held is not None:
            held.fetcher.close()

    def let_go(self, wanted: Collection[int]) -> None:
        """Hold only these shards, and those that a slower rank may open yet; remove others."""
        slowest = self.leader.slowest() if self.leader is not None else None
        for index, held in tuple(self._held.items()):
            is_late = slowest is not None and held.call > slowest
            if index not in wanted and not is_late:
                self._leaving[index] = held.names
                self._release(index)
        for index, names in tuple(self._leaving.items()):
            if index in self._held or not any(map(self._stays, names)):
                del self._leaving[index]

    def _stays(self, name: str) -> bool:
        """Whether a file that was fetched is still to be removed, since a process reads it."""
        if self.cache.cleanup != "auto":
            return False
        if self.cache.discard(name):
            self.tally.tell(PrefetchEvent("removed", name))
            return False
        return self.cache.owns(name)

    def close(self) -> None:
        """Fetch and say nothing any more."""
        self._ready.clear()
        for index in tuple(self._held):
            self._release(index)
        if self.leader is not None:
            self.leader.close()
        if self.owns_source:
            self.source.close()


@dataclasses.dataclass(eq=False)
class HeldShard:
    """A shard that rank 0 holds, until its fetcher is closed."""

    shard: TokenShard
    fetcher: CachedFetcher
    call: int = 0  # for which it was, if it was for one yet

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its files, the small one first: there may be no such shard."""
        return self.shard.names[::-1]


@dataclasses.dataclass(eq=False)
class OtherRank:
    """Waits for what rank 0 says, for ``timeout`` seconds at most, and opens the shards."""

    cache: Cache
    load: Load
    follower: Follower
    timeout: float
    _leases: dict[int, dict[str, Lease]] = dataclasses.field(default_factory=dict)

    def prepare(self, shard: TokenShard, stop: threading.Event) -> None:
        """Do nothing: that is rank 0's part."""

    def dataset(
        self, call: int, shard: TokenShard, stop: threading.Event
    ) -> tuple[SharedShardedDataset, bool]:
        """Return the dataset of a shard when rank 0 has it, and whether it had it already."""
        held = self._leases.setdefault(shard.index, {})
        for name in shard.names:
            if name not in held:
                held[name] = self.cache.hold(name)
        outcome, is_ready = self._outcome(call, shard, stop)
        if outcome.problem is not None:
            raise _refusal(shard, outcome.problem)
        if outcome.shard != shard.index:
            problem = f"rank 0 is at shard {outcome.shard}: all ranks must make the same calls"
            raise _refusal(shard, problem)
        end = time.monotonic() + min(_VISIBLE_SECONDS, self.timeout)
        for lease in self._leases[shard.index].values():
            lease.begin_reading()
        # This node may be late to see the very files that rank 0 has.
        while (marks := shard.marks()) != outcome.marks:
            if time.monotonic() > end or stop.wait(_POLL):
                problem = f"rank 0 has {outcome.marks} (size, time, inode), here are {marks}"
                raise _refusal(shard, problem)
        return self.load(shard.files, shard.index), is_ready

    def _outcome(
        self, call: int, shard: TokenShard, stop: threading.Event
    ) -> tuple[RankOutcome, bool]:
        """Return what rank 0 says, and whether it was said already."""
        end, is_ready = time.monotonic() + self.timeout, True
        while True:
            try:
                outcome = self.follower.look(call)
            except FetchError as error:
                raise _refusal(shard, told(error)) from error
            if outcome is not None:
                return outcome, is_ready
            is_ready = False
            if time.monotonic() > end:
                unseen, seconds = self.follower.unseen, f"{self.timeout:.0f}s"
                if unseen is not None:
                    problem = f"after {seconds}, this rank {could_not_look(unseen)}"
                    raise _refusal(shard, problem, FetchTimeoutError) from traced(unseen)
                problem = f"nothing was heard of it for {seconds}"
                raise _refusal(shard, problem, FetchTimeoutError)
            if stop.wait(_POLL):
                raise _refusal(shard, "the wait was stopped")

    def let_go(self, wanted: Collection[int]) -> None:
        """Hold no other shards."""
        for index in self._leases.keys() - set(wanted):
            # A `close` in another thread may have come first.
            for lease in self._leases.pop(index, {}).values():
                lease.release()

    def close(self) -> None:
        self.let_go(())


def _refusal(shard: TokenShard, problem: str, kind: type[FetchError] = FetchError) -> FetchError:
    return kind(f"{shard.label} can't be had from rank 0: {problem}", path=shard.paths[0])

"""The two files of a shard, as rank 0 has them: those that lie there, or those of the source."""

import dataclasses
import logging
import os
import threading
from collections.abc import Callable, Sequence

from shardproof._base.messages import told
from shardproof.datasets.tokens._comms import states_no_digests
from shardproof.datasets.tokens._token_shard import TokenShard
from shardproof.datasets.tokens._tokens import SharedShardedDataset
from shardproof.errors import ShardValidationError
from shardproof.fetching.cache import Cache, CachedFetcher, Mark, PrefetchEvent, mark_of
from shardproof.fetching.sources import Source

__all__ = ["HeldShard", "Open", "mark_at"]

logger = logging.getLogger("shardproof.fetching")

Open = Callable[..., SharedShardedDataset]
"""Looks at a shard and opens it; ``level`` goes before the usual one."""


class HeldShard:
    """A shard that rank 0 holds, until it is closed.

    Args:
        shard: Which.
        source: Where it comes from.
        cache: Its directory.
        fetcher: Brings its files.
        open_: Looks at it and opens it.

    Attributes:
        call: Which call it was for, if it was for one yet.
    """

    def __init__(
        self, shard: TokenShard, source: Source, cache: Cache, fetcher: CachedFetcher, open_: Open
    ) -> None:
        self.call = 0
        self._shard, self._source, self._cache = shard, source, cache
        self._fetcher, self._open = fetcher, open_
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
            dataset = self._open(self._shard)
        return dataset

    def _is_unknown(self, name: str, stop: threading.Event) -> bool:
        """Whether something lies there of which neither the cache nor the source can tell."""
        if not self._cache.is_unknown(name):
            return False
        if states_no_digests(self._source):
            return True
        file = self._fetcher.prepare(name, self._shard.index, stop)
        return file is None or file.digest is None

    def _bring(self, names: Sequence[str], stop: threading.Event) -> None:
        for name in names:
            brought = self._fetcher.bring(name, self._shard.index, stop)
            self._fetcher.tally.tell(brought.event)

    def _taken(self, unknown: Sequence[str]) -> SharedShardedDataset | None:
        """The dataset of what lies there, if it stands the look."""
        marks = [mark_at(path) for path in self._shard.paths]
        try:
            dataset = self._open(self._shard) if len(unknown) == 2 else self._open_proven()
        except ShardValidationError as error:
            if not all(finding.conclusive for finding in error.report.findings):
                raise
            logger.warning(
                "What lies there is not taken for shard %d: %s", self._shard.index, told(error)
            )
            return None
        for name in unknown:  # not before: who fetches it at the same time must be able to move it
            self._fetcher.take(name)
        if marks != [mark_at(path) for path in self._shard.paths]:
            dataset.close()
            return None
        for name in unknown:
            self._fetcher.tally.tell(PrefetchEvent("found", name))
        return dataset

    def _open_proven(self) -> SharedShardedDataset:
        """One file is the source's: the other one must be of the same shard, token for token."""
        exact = dataclasses.replace(self._shard, allow_length_mismatch=False)
        return self._open(exact, level="valid")

    def close(self) -> None:
        """Hold nothing any more."""
        self._fetcher.close()


def mark_at(path: str | os.PathLike[str]) -> Mark | None:
    """Return what tells the file that is there from others; None if there is none."""
    try:
        return mark_of(os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return None

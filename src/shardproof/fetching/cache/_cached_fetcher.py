"""Bring one shard into the cache, and hold it there."""

import logging
import os
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from shardproof._base.messages import quoted, shown, told
from shardproof._base.work import Deadline, Stop, telling_of_stops
from shardproof.errors import FetchError
from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.cache._leases import Lease
from shardproof.fetching.cache._stats import PrefetchEvent, PrefetchTally
from shardproof.fetching.sources._source import RemoteFile, Source
from shardproof.fetching.transfer._attempts import Goal, Limits
from shardproof.fetching.transfer._fetch import fetch_to
from shardproof.fetching.transfer._kept import key_in, sweep_parts
from shardproof.fetching.transfer._requests import ask, tells_when_read

logger = logging.getLogger("shardproof.fetching")


class CachedShard(NamedTuple):
    """Where a shard is, and how it came there."""

    path: Path
    event: PrefetchEvent


class CachedFetcher:
    """Brings shards of one source into one cache, from any thread; ``tally`` adds up the costs."""

    def __init__(self, source: Source, cache: Cache, limits: Limits, tally: PrefetchTally) -> None:
        self.tally = tally
        self._source, self._cache, self._limits = source, cache, limits
        self._lock = threading.Lock()
        self._files: dict[str, RemoteFile] = {}
        self._leases: dict[str, Lease] = {}
        self._here: dict[str, tuple[int, int]] = {}

    def prepare(self, name: str, position: int, stop: threading.Event) -> RemoteFile | None:
        """Ask for a shard ahead of its turn; return what the source tells, if it can be asked."""
        if not self._is_told_later(name):
            with suppress(FetchError):
                return self._file(name, f"shard {position}", stop)
        return None

    def take(self, name: str) -> None:
        """Hold what lies under a shard's name, whatever it is, so that no process takes it away."""
        self._hold(name).begin_reading()

    def bring(self, name: str, position: int, stop: threading.Event) -> CachedShard:
        """Return where a shard is, whole, proven and held; fetch it if it isn't there."""
        label = f"shard {position}"
        try:
            return self._bring(name, label, self._hold(name), stop)
        except BaseException as error:
            self._let_go(name)
            if isinstance(error, FetchError) and not stop.is_set():
                n = len(error.causes)
                self.tally.add(n_attempts=n, n_failures=1, n_retries=max(0, n - 1))
                self.tally.tell(PrefetchEvent("failed", name, problem=told(error)))
            raise

    def is_unchanged(self, name: str) -> bool:
        """Return whether a shard is held, and as it was when it was brought."""
        with self._lock:
            lease = self._leases.get(name)
        return lease is not None and self._cache.is_unchanged(lease)

    def _is_told_later(self, name: str) -> bool:
        is_asked = name in self._files or self._cache.max_cache_bytes is not None
        return not is_asked and tells_when_read(self._source) and not self._cache.has(name)

    def _bring(self, name: str, label: str, lease: Lease, stop: threading.Event) -> CachedShard:
        if self._is_told_later(name):
            with self._cache.downloading(name, timeout=self._limits.timeout, stop=stop):
                if self._is_told_later(name):  # no other process has brought it
                    return self._fetched(RemoteFile(name), label, lease, stop)
        try:
            file = self._file(name, label, stop)
        except FetchError:
            path = self._cache.find(RemoteFile(name), lease, stop)
            if path is None or stop.is_set():
                self._tell_unknown(name)
                raise
            text = "The source can't be asked for %s; the proven copy is taken: %s"
            logger.warning(text, shown(label), shown(path))
        else:
            path = self._cache.find(file, lease, stop)
        if path is None:
            with self._cache.downloading(name, timeout=self._limits.timeout, stop=stop):
                # The process that held the lock may have brought it.
                path = self._cache.find(file, lease, stop)
                if path is None:
                    return self._fetched(file, label, lease, stop)
        return CachedShard(path, PrefetchEvent("found", name))

    def _fetched(
        self, file: RemoteFile, label: str, lease: Lease, stop: threading.Event
    ) -> CachedShard:
        name = file.name
        self._tell_unknown(name)
        if not self._cache.make_room(file.size or 0, lease):
            logger.warning(
                "There is no room for %s, since other processes hold what is in the cache",
                shown(label),
            )

        def count(n_bytes: int, size: int | None) -> None:
            self._here[name] = (n_bytes, size or n_bytes)

        fetched = fetch_to(
            self._source,
            name,
            os.fspath(lease.part),
            goal=self._goal(name, label),
            file=self._files.get(name),
            limits=self.tally.limits_for(file.size, self._limits),
            stop=stop,
            on_bytes=count,
            parts=self._cache.kept,
            is_asked=True,
        )
        self._files[name] = fetched.file
        digest, n, n_bytes = fetched.digest, fetched.n_attempts, fetched.n_bytes
        path = self._cache.place(fetched.path, fetched.file, lease, digest=digest, stop=stop)
        self.tally.add(n_attempts=n, n_retries=max(0, n - 1), n_bytes=n_bytes)
        self.tally.took(n_bytes, fetched.seconds)
        return CachedShard(path, PrefetchEvent("fetched", name, fetched.seconds, n_bytes))

    def _tell_unknown(self, name: str) -> None:
        """Log that what lies under a shard's name is not known to be the shard."""
        if self._cache.is_unknown(name):
            logger.warning(
                "'%s' lies there, but nothing is known of it: it is compared with what is fetched. "
                "'shardproof adopt' takes over what other tools fetched",
                shown(self._cache.path_of(name)),
            )

    def _file(self, name: str, label: str, stop: threading.Event) -> RemoteFile:
        """Return what the source says of a shard; it is asked once."""
        if name not in self._files:
            limits, goal = self._limits, self._goal(name, label)
            deadline = Deadline(limits.deadline, stop)
            with telling_of_stops(goal.path, goal.url):
                file = ask(self._source, name, goal=goal, limits=limits, deadline=deadline)
                self._files[name] = file
        return self._files[name]

    def _goal(self, name: str, label: str) -> Goal:
        return Goal(label, f"{self._source.url}/{name}", str(self._cache.path_of(name)))

    def sizes(self, names: Sequence[str]) -> list[int]:
        """Return how large shards are; raise ValueError if the source doesn't say."""
        files = [self._file(name, quoted(name), Stop()) for name in names]
        unknown = [quoted(file.name) for file in files if file.size is None]
        if unknown:
            problem = f"the source does not state the size of {', '.join(unknown[:5])}"
            raise ValueError(f"max_cache_bytes: a size limit needs sizes, and {problem}")
        return [file.size for file in files if file.size is not None]

    def progress(self, name: str) -> tuple[int, int]:
        """Return how many bytes of a shard are here, and of how many."""
        return self._here.get(name, (0, 0))

    def _hold(self, name: str) -> Lease:
        with self._lock:
            if name not in self._leases:
                self._leases[name] = self._cache.hold(name)
            return self._leases[name]

    def _let_go(self, name: str) -> None:
        with self._lock:
            lease = self._leases.pop(name, None)
            self._here.pop(name, None)
        if lease is not None:
            lease.release()

    def let_go(self, passed: Sequence[str], wanted: Collection[str]) -> None:
        """Hold nothing but what is wanted; the policy says what becomes of what was passed."""
        with self._lock:
            held = list(self._leases)
        for name in {*held, *passed}.difference(wanted):
            self._let_go(name)
            if self._cache.discard(name):
                self.tally.tell(PrefetchEvent("removed", name))
        if passed and self._cache.cleanup != "keep":
            sweep_parts(self._cache.kept, self._keys(passed).__contains__)

    def _keys(self, names: Iterable[str]) -> set[str]:
        """Return the names by which the parts of shards are known."""
        root, kept = self._cache.root, self._cache.kept
        return {key_in(kept, os.path.join(root, name)) for name in names}

    def sweep(self, wanted: Collection[str]) -> None:
        """Let go of what an earlier run has left, if the policy is not to keep it."""
        for name in self._cache.discard_others(wanted):
            self.tally.tell(PrefetchEvent("removed", name))
        keys, keeps = self._keys(wanted), self._cache.cleanup == "keep"
        sweep_parts(self._cache.kept, lambda key: key not in keys and not keeps)

    def close(self) -> None:
        """Hold nothing any more."""
        with self._lock:
            held = list(self._leases)
        with ExitStack() as stack:
            for name in held:
                stack.callback(self._let_go, name)

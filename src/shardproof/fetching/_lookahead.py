"""Bring the shards that are wanted in threads, those that are wanted first before the others."""

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path

from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.cache._cached_fetcher import CachedFetcher
from shardproof.fetching.sources._source import Source

_TICK = 0.1


class WantedShard:
    """A shard that is wanted: it comes, or is there, or can't be had."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stop = threading.Event()
        self.thread: int | None = None  # that brings it, once one does
        self.path: Future[Path] = Future()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is there or can't be had; return whether it is so."""
        return bool(wait([self.path], seconds).done)


class Lookahead:
    """Threads that bring shards into a cache, and close it where nobody else does any more."""

    def __init__(
        self,
        fetcher: CachedFetcher,
        cache: Cache,
        source: Source | None,
        positions: Mapping[str, int],
        most: int,
    ) -> None:
        self._fetcher, self._cache, self._source = fetcher, cache, source
        self._positions, self._most = positions, most
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._jobs: dict[str, WantedShard] = {}
        self._n_running = 0
        self._threads: list[threading.Thread] = []
        self._is_left = False
        self.is_closed = False

    def want(self, names: Sequence[str]) -> Mapping[str, WantedShard]:
        """Begin to bring these, in this order; return how it stands with each."""
        at_once = self._fetcher.tally.at_once(self._most)
        with self._changed:
            self._jobs = {name: self._jobs.get(name) or WantedShard(name) for name in names}
            while len(self._threads) < min(at_once, len(self._jobs)):
                name = f"shardproof-prefetch-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            self._changed.notify(max(0, at_once - self._n_running))
            return self._jobs

    def drop(self, *, but: Sequence[str] = ()) -> list[str]:
        """Bring no others than these; return the names of those that came, or were to come."""
        with self._changed:
            jobs = [self._jobs.pop(name) for name in list(self._jobs) if name not in but]
        for job in jobs:
            job.stop.set()
        for job in jobs:
            if job.thread not in {None, threading.get_ident()}:
                job.wait()
        return [job.name for job in jobs]

    def forget(self, name: str) -> None:
        """Bring a shard anew when it is wanted again."""
        with self._changed:
            self._jobs.pop(name, None)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                brought = self._fetcher.bring(job.name, self._positions[job.name], job.stop)
                self._fetcher.tally.tell(brought.event)
                job.path.set_result(brought.path)
            except BaseException as error:  # which the reader raises
                job.path.set_exception(error)
            with self._changed:
                self._n_running -= 1
        if self._is_left:
            self.close()

    def _next(self) -> WantedShard | None:
        """Return what is to be brought next; wait for it; None if nothing is any more."""
        with self._changed:
            while not (self.is_closed or self._is_left):
                # Those that hardly have to wait would only wait for each other.
                if self._n_running < self._fetcher.tally.at_once(self._most):
                    for job in self._jobs.values():
                        if job.thread is None:
                            job.thread = threading.get_ident()
                            self._n_running += 1
                            return job
                self._changed.wait(_TICK)
            return None

    def leave(self) -> None:
        """Let the threads close all soon; this takes no lock, and waits for nothing."""
        self._is_left = True
        if not self._threads and not self.is_closed:
            threading.Thread(target=self.close, name="shardproof-prefetch", daemon=True).start()

    def close(self) -> None:
        """End what is under way, join the threads, and hold nothing any more."""
        if os.getpid() != self._pid:  # what was forked from it has none of this
            return
        with self._changed:
            if self.is_closed:
                return
            self.is_closed = True
            self._changed.notify_all()
        with contextlib.ExitStack() as stack:  # each of them, whatever another one meets
            if self._source is not None:
                stack.callback(self._source.close)
            stack.callback(self._cache.close)
            stack.callback(self._fetcher.close)
            self.drop()
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join()

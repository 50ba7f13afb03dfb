"""Fetch the next shards in the background, so that each is there before it is needed."""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Literal, Self

from shardproof._base.arguments import checked, count
from shardproof._base.messages import joined, quoted
from shardproof._base.names import refusals
from shardproof._base.opening import refuse_no_path
from shardproof._base.progress import reporting
from shardproof._base.work import Closing, apart, close_at_exit, go_on, tell_done
from shardproof.errors import FetchError
from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.cache._cached_fetcher import CachedFetcher
from shardproof.fetching.cache._settings import cache_root, cleanup_policy
from shardproof.fetching.cache._stats import PrefetchEvent, PrefetchStats, PrefetchTally
from shardproof.fetching.sources._open import open_source
from shardproof.fetching.sources._source import Source
from shardproof.fetching.transfer._attempts import Limits

_MOST_THREADS = 4
_TICK = 0.1


class ShardPrefetcher(Closing):
    """Shards one after the other, each of them local, whole and proven before it is needed.

    While the reader is at one shard, the next ones come; what it has passed goes. A shard that
    can't be fetched in the background is fetched once more when the reader asks for it, and only
    then becomes its error. Several processes may share one cache: each shard is fetched once, and
    none is removed while a process holds it.

    Args:
        source: Where the shards are: a `Source`, or an address for `open_source`.
        names: The shards, in the order in which they will be read.
        cache_dir: The directory below which they come to lie, in a subtree of the source's own.
        lookahead: How many shards are brought ahead of the reader's; 0 for none.
        cleanup: ``"auto"``: only the current shard and those ahead stay; ``"keep"``: all stay.
            Where this and the limit are None: what ``HF_SHARD_CACHE_CLEANUP`` says, or ``"auto"``.
        max_cache_bytes: How many bytes of shards stay, those that were used last, in place of only
            those ahead; not with ``"keep"``, which removes nothing. None: no limit of this kind.
        split: A part of the cache's path, as in ``hf_shards/<repo_id>/<split>/<name>``.
        limits: How long and how often a download tries.
        on_event: Called with each `PrefetchEvent`, from several threads.
        progress: Whether to draw a bar while the reader waits, where there is a terminal.

    Raises:
        ValueError: Names that are refused; a number out of range; a size limit that does not hold
            ``lookahead`` + 1 shards, or that can't be judged since the source doesn't tell sizes.
        FetchError: The source doesn't tell the sizes that a size limit needs.

    Example:
        >>> from shardproof.testing.faults import serve_hub
        >>> with serve_hub({f"s/{n}.bin": b"%d" % n for n in range(3)}) as hub:
        ...     names = ["0.bin", "1.bin", "2.bin"]
        ...     with ShardPrefetcher(f"{hub.url}/s", names, output_dir) as prefetcher:
        ...         for path in prefetcher:
        ...             print(path.read_text())
        0
        1
        2
    """

    @checked
    def __init__(
        self,
        source: Source | str,
        names: Sequence[str],
        cache_dir: str | os.PathLike[str] = "data",
        *,
        lookahead: int = 1,
        cleanup: Literal["auto", "keep"] | None = None,
        max_cache_bytes: int | None = None,
        split: str | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        on_event: Callable[[PrefetchEvent], object] | None = None,
        progress: bool = False,
    ) -> None:
        refuse_no_path(cache_dir=cache_dir)
        names = [str.__str__(name) for name in names]  # of numpy, of an enumeration: as Python's
        refused = refusals(names)
        if refused:
            lines = [f"{quoted(name)} (entry {entry}): {why}" for entry, name, why in refused]
            raise ValueError(f"names that are refused ({len(refused)}): " + joined(lines))
        count("lookahead", lookahead)
        policy = cleanup_policy(cleanup, max_cache_bytes)
        self._names, self._lookahead, self._progress = names, lookahead, progress
        self._positions = {name: position for position, name in enumerate(names)}
        self._source = open_source(source) if isinstance(source, str) else source
        resource = getattr(self._source, "resource", None)
        known = resource if isinstance(resource, str) else None  # a user's may be anything
        root = cache_root(cache_dir, self._source.url, split, resource=known)
        cache = apart(lambda _: Cache(root, **policy._asdict()))
        self._fetcher = CachedFetcher(self._source, cache, limits, PrefetchTally(on_event))
        own = self._source if isinstance(source, str) else None
        most = max(1, min(lookahead, _MOST_THREADS))
        self._ahead = _Lookahead(self._fetcher, cache, own, self._positions, most)
        self._reader: int | None = None
        self._has_begun = False
        # One that is never closed is closed when it is collected, or the process ends.
        weakref.finalize(self, self._ahead.leave).atexit = False
        close_at_exit(self)
        if policy.max_cache_bytes is not None:
            sizes = apart(lambda _: self._fetcher.sizes(self._names))
            needed = sum(sorted(sizes)[-lookahead - 1 :])
            if policy.max_cache_bytes < needed:
                self.close()
                problem = f"the {lookahead + 1} largest shards take {needed} bytes together"
                limit = policy.max_cache_bytes
                raise ValueError(f"max_cache_bytes: {problem}, more than the limit of {limit}")

    @property
    def stats(self) -> PrefetchStats:
        """What it has cost and saved until now."""
        return self._fetcher.tally.stats

    def start(self) -> Self:
        """Begin with the first shards, before the reader asks for one; return this prefetcher."""
        self._refuse_use()
        if self._names:
            apart(lambda _: self._schedule(0))
        return self

    def wait_for(self, name: str) -> Path:
        """Return where a shard is, whole and proven; it stays until the next one is asked for.

        One that came before is looked at again, and brought again if another program has removed
        or changed it since. Only one thread at a time may wait, since what it asks for says what
        is held.

        Args:
            name: One of the names, in whatever order.

        Raises:
            ValueError: None of the names.
            FetchError: It could not be fetched, neither in the background nor now.
            RuntimeError: Another thread waits for a shard.
        """
        self._refuse_use()
        if name not in self._positions:
            expected = f"one of the {len(self._names)} shards"
            raise ValueError(f"name: expected {expected}, found {quoted(name)}")
        thread = threading.get_ident()
        if self._reader not in {None, thread}:
            problem = "another thread waits for a shard of this prefetcher"
            raise RuntimeError(f"{problem}: let one thread call wait_for, or make one in each")
        try:
            self._reader, name = thread, str.__str__(name)
            with reporting(self._progress, name, in_bytes=True) as show:
                # All of it in one thread: to start one takes longer than much of the rest.
                path, events = apart(lambda stop: self._opened(name, stop), show)
            for event in events:
                self._fetcher.tally.tell(event)
            return path
        finally:
            self._reader = None

    def _opened(self, name: str, stop: threading.Event) -> tuple[Path, list[PrefetchEvent]]:
        """Return where a shard is, once it is there, and what the reader's call has led to."""
        began = time.monotonic()
        job = self._schedule(self._positions[name])
        is_ready = job.path.done()
        while not wait([job.path], _TICK).done:
            go_on()
            tell_done(*self._fetcher.progress(name))
        events: list[PrefetchEvent] = []
        try:
            path = job.path.result()
            # Another program may have removed or changed it since it came.
            is_here = self._fetcher.is_unchanged(name)
        except FetchError:  # what failed in the background may succeed now
            self._ahead.forget(name)
            is_here = False
        if not is_here:
            brought = self._fetcher.bring(name, self._positions[name], stop)
            path, events = brought.path, [brought.event]
        is_ready, seconds = is_ready and not events, time.monotonic() - began
        self._fetcher.tally.add(n_opened=1, n_ready=is_ready, seconds_waited=seconds)
        return path, [*events, PrefetchEvent("opened", name, seconds)]

    def _schedule(self, position: int) -> "_WantedShard":
        """Let go of what is passed; then begin with what is wanted from here on."""
        wanted = self._names[position : position + self._lookahead + 1]
        self._fetcher.let_go(self._ahead.drop(but=wanted), wanted)
        if not self._has_begun:
            self._has_begun = True
            self._fetcher.sweep(wanted)
        return self._ahead.want(wanted)[self._names[position]]

    def _refuse_use(self) -> None:
        if self._ahead.is_closed:
            raise ValueError("this prefetcher is closed")
        if os.getpid() != self._ahead.pid:
            raise RuntimeError("a prefetcher does not survive a fork: make one in each process")

    def __iter__(self) -> Iterator[Path]:
        """Yield where each shard is, in the order of the names."""
        for name in self._names:
            yield self.wait_for(name)

    def close(self) -> None:
        """End what is under way, join the threads, hold nothing any more.

        The current shard and those ahead stay in the cache, for the next run to begin with.
        """
        if not self._ahead.is_closed and os.getpid() == self._ahead.pid:
            apart(lambda _: self._ahead.close())

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)  # a context that was not entered is not left
            self.start()
            stack.pop_all()
        return self


class _WantedShard:
    """A shard that is wanted: it comes, or is there, or can't be had."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stop = threading.Event()
        self.thread: int | None = None  # that brings it, once one does
        self.path: Future[Path] = Future()


class _Lookahead:
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
        self.pid = os.getpid()
        self._changed = threading.Condition()
        self._jobs: dict[str, _WantedShard] = {}
        self._n_running = 0
        self._threads: list[threading.Thread] = []
        self._is_left = False
        self.is_closed = False

    def want(self, names: Sequence[str]) -> Mapping[str, _WantedShard]:
        """Begin to bring these, in this order; return how it stands with each."""
        at_once = self._fetcher.tally.at_once(self._most)
        with self._changed:
            self._jobs = {name: self._jobs.get(name) or _WantedShard(name) for name in names}
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
                wait([job.path])
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

    def _next(self) -> _WantedShard | None:
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
        if os.getpid() != self.pid:  # what was forked from it has none of this
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

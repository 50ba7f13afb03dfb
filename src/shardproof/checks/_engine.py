"""Have the workers of an executor look at files, and do again what a lost worker had.

A batch is to keep its worker for half a second, on a cached local disk as on a slow network, so its
length follows the batches before. How many workers there are, no executor tells: it is estimated
from how long batches wait, and three times as many batches are sent at once.

What killed a worker may kill the next one: a memory limit, or one file. So what a lost worker had
is done again in processes of our own, never in the caller, and halved until the file is found.
"""

import dataclasses
import errno
import math
import os
import pickle
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from shardproof._base.fanout import Done
from shardproof._base.liveness import is_here, this_process
from shardproof._base.messages import WRONG_USAGE, quoted, told, traced, with_kind
from shardproof._base.mounts import machine_of
from shardproof._base.names import open_root, replaced
from shardproof._base.opening import closing_fd
from shardproof._base.own_processes import OwnProcesses, ProcessLostError
from shardproof._base.work import TICK, go_on
from shardproof.checks._look import Question, Said, look_at_all
from shardproof.errors import ManifestError
from shardproof.manifest import ExpectedFile
from shardproof.report import FindingKind

_SECONDS, _MOST_SECONDS = 0.5, 1.0  # that a batch is to take; after which the rest is given back
_BRIEF = 0.05  # seconds between two looks of a worker at its clock
_FIRST_WINDOW, _LEAST_WINDOW, _MOST_BATCHES, _MOST_FILES = 32, 4, 4096, 2**15
_PATIENCE = 600.0, 60.0  # seconds that an executor may say nothing: at first, and later
_SLOWEST, _UNKNOWN_BYTES = 10e6, 2**36  # bytes a second that whoever lives reads; of a file
_NOT_SENT = (*WRONG_USAGE, AttributeError, pickle.PickleError)


@runtime_checkable
class Executor(Protocol):
    """What works as a `concurrent.futures.Executor` does; nothing but ``submit`` is called."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Return a future with ``result``, ``cancel`` and ``add_done_callback``."""


class _FileBatch(NamedTuple):
    start: int
    stop: int
    n_lost: int = 0  # processes that ended at it
    is_own: bool = False  # whether it is sent to a process of our own
    at: float = 0.0  # when
    n_sent: int = 0  # unanswered then, with it


_Place = tuple[str, str, int, int, str]  # host and process of a caller; device, inode, machine


class Engine:
    """One call's batches: to be sent, sent, and answered before others that are to come first."""

    def __init__(
        self, executor: Executor, question: Question, dir_fd: int, files: Sequence[ExpectedFile]
    ) -> None:
        self._executor, self._own, self._is_dead = executor, OwnProcesses(), False
        self._question, self._place, self._files = question, _place_of(question.root, dir_fd), files
        self._length, self._window, self._n_begun, self._n_taken = 1, _FIRST_WINDOW, 0, 0
        self._again, self._sent = list[_FileBatch](), dict[Any, _FileBatch]()
        self._said, self._answered = dict[int, tuple[int, list[Said]]](), queue.SimpleQueue[Any]()
        self._heard, self._delay, self._n_again, self._reason = 0.0, math.inf, 0, ""

    def run(self, notes: list[str]) -> Done[Said]:
        """Yield how many files are done as they are, and what is said of them in their order."""
        try:
            while self._n_taken < len(self._files):
                go_on()
                while len(self._sent) < self._window and (batch := self._next()):
                    self._send(batch)
                try:
                    future = self._answered.get(timeout=TICK)
                except queue.Empty:
                    self._end_silence()
                    continue
                if sent := self._sent.pop(future, None):  # not given up before
                    yield self._take(sent, future), []
                while self._n_taken in self._said:
                    self._n_taken, said = self._said.pop(self._n_taken)
                    yield 0, said
        finally:  # without a wait for what has begun
            for future in reversed(self._sent):
                future.cancel()
            self._own.close()
        if self._reason:
            what = f"{self._n_again} of its batches" + " and all that was left" * self._is_dead
            who = "checked by processes of shardproof's own"
            notes.append(f"the executor lost workers ({self._reason}); {who}: {what}")

    def _next(self) -> _FileBatch | None:
        if self._again:
            return self._again.pop(0)
        start, n_left = self._n_begun, len(self._files) - self._n_begun
        if not n_left or len(self._said) >= _MOST_BATCHES:
            return None
        # The last ones are short, so that all workers end at once.
        self._n_begun += min(self._length, n_left // self._window + 1)
        return _FileBatch(start, self._n_begun)

    def _put_back(self, start: int, stop: int, length: int, n_lost: int = 0) -> None:
        for at in range(start, stop, length):
            self._again.append(_FileBatch(at, min(at + length, stop), n_lost))

    def _send(self, batch: _FileBatch) -> None:
        files, future = self._files[batch.start : batch.stop], cast("Any", None)
        task = _Task(_narrowed(self._question, {file.name for file in files}), self._place, files)
        if not (batch.n_lost or self._is_dead):
            try:
                future = self._executor.submit(task)
            except (BrokenExecutor, OSError) as error:  # "handle is closed" while a pool breaks
                self._is_dead, self._reason = True, self._reason or with_kind(error)
            except _NOT_SENT as error:
                raise self._not_sent(error) from traced(error)
        is_own = future is None
        future = self._own.submit(task) if is_own else future
        n_sent = len(self._sent) + 1
        self._sent[future] = batch._replace(is_own=is_own, at=time.monotonic(), n_sent=n_sent)
        future.add_done_callback(self._answered.put)

    def _not_sent(self, error: BaseException) -> ValueError:
        parts = quoted([part for part in self._question[2:4] if part], 200)  # the format's own
        return ValueError(f"executor: its workers can't take {parts}: {with_kind(error)}")

    def _take(self, batch: _FileBatch, future: Any) -> int:
        """Take an answer; return how many files are done by it."""
        try:
            n_done, said, seconds, error = future.result()
        except _NOT_SENT as problem:
            raise self._not_sent(problem) from traced(problem)
        except ProcessLostError as problem:
            return self._lose(batch, told(problem))
        except Exception as problem:
            if batch.is_own:  # it could not be begun, which says nothing of a file
                raise
            return self._lose(batch, with_kind(problem))
        if isinstance(error, MemoryError):
            return self._lose(batch, "no memory was left")
        if error is not None:
            raise error
        start, stop, *_ = batch
        self._said[start] = (start + n_done, said)
        self._length = max(1, min(int(n_done * _SECONDS / seconds), 4 * n_done, _MOST_FILES))
        if not batch.is_own:
            self._heard = time.monotonic()
            # By Little's law, so many were not waiting; three times as many keep all workers busy.
            waited = self._heard - batch.at
            self._delay = min(self._delay, waited - seconds)  # of the engine, when none is queued
            n_at_work = math.ceil(batch.n_sent * seconds / max(waited - self._delay, seconds))
            wanted = min(max(_LEAST_WINDOW, 3 * n_at_work), _MOST_BATCHES)
            self._window = (self._window + wanted + 1) // 2
        self._put_back(start + n_done, stop, self._length)
        return int(n_done)

    def _lose(self, batch: _FileBatch, reason: str) -> int:
        """Have a batch done again at which a process ended; return how many files are done then."""
        start, stop, n_lost, is_own, *_ = batch
        if n_lost and stop - start == 1:
            found = f"that it ends each process that reads it ({reason})"
            how = (FindingKind.UNREADABLE, "a readable file", found, errno.EOWNERDEAD)
            self._said[start] = (stop, [self._question.broken(self._files[start], *how)])
            return 1
        if not is_own:
            self._n_again, self._reason = self._n_again + 1, self._reason or reason
        n_files = stop - start
        self._put_back(start, stop, (n_files + 1) // 2 if is_own else n_files, n_lost + 1)
        return 0

    def _end_silence(self) -> None:
        """Give up an executor that has said nothing for long, such as one of a stopped process."""
        waiting = [(future, batch) for future, batch in self._sent.items() if not batch.is_own]
        if not waiting:
            return
        silence = time.monotonic() - max(self._heard, waiting[0][1].at)
        patience = _PATIENCE[self._heard > 0]
        if self._question.level == "valid" and silence > patience:
            some = (file for _, batch in waiting for file in self._files[batch.start : batch.stop])
            patience += max(_UNKNOWN_BYTES if f.size is None else f.size for f in some) / _SLOWEST
        if silence > patience:
            self._is_dead = True
            for future, batch in waiting:
                del self._sent[future]
                future.cancel()
                self._lose(batch, f"no answer for {silence:.0f} s")


def _narrowed(question: Question, names: set[str]) -> Question:
    """Return what a worker needs to know for some files, not for all."""

    def some(known: Any) -> Any:
        return type(known)((name, known[name]) for name in names & known.keys())

    prove = some(question.prove) if isinstance(question.prove, Mapping) else question.prove
    return question._replace(proofs=some(question.proofs), prove=prove)


def _place_of(root: str, dir_fd: int) -> _Place:
    status = os.fstat(dir_fd)
    return os.uname().nodename, this_process(), status.st_dev, status.st_ino, machine_of(root)


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class _Task:
    """What a worker is sent."""

    __name__ = "shardproof"  # for Dask's dashboard, which would name all the files
    question: Question
    place: _Place
    files: Sequence[ExpectedFile]

    def __dask_tokenize__(self) -> str:
        # Or Dask makes one of all files, and answers another task of the same from memory.
        return f"{id(self)}-{time.monotonic_ns()}"

    def __call__(self) -> tuple[int, list[Said], float, Exception | None]:
        """Look at as many files as a second allows: how many, what is said, how long it took."""
        begin = last = time.perf_counter()
        n_done, step, said = 0, 1, list[Said]()
        try:
            with closing_fd(_opened(self.question.root, *self.place)) as dir_fd:
                while n_done < len(self.files) and last - begin < _MOST_SECONDS:
                    some = self.files[n_done : n_done + step]
                    said += look_at_all(self.question, dir_fd, frozenset(), some)
                    n_done += len(some)
                    now = time.perf_counter()
                    step = min(2 * step, _MOST_FILES) if now - last < _BRIEF else max(1, step // 2)
                    last = now
            return n_done, said, max(last - begin, 1e-6), None
        except Exception as error:  # some of others' can't be unpickled, at which a pool breaks
            is_ours = type(error).__module__ in {"builtins", ManifestError.__module__}
            return n_done, said, 0.0, error if is_ours else RuntimeError(with_kind(error))


def _opened(root: str, host: str, process: str, *identity: int | str) -> int:
    """Open the directory of a caller, perhaps on another host, where devices have other numbers."""
    is_same_host = is_here(process)
    try:
        fd = open_root(root)
        pairs = [*zip(_place_of(root, fd)[2:], identity, strict=True)][not is_same_host :]
        if all(one == other or "" in {one, other} for one, other in pairs):
            return fd
        os.close(fd)
        raise replaced(root)
    except OSError as error:
        if is_same_host:
            raise
        found = getattr(error, "problem", told(error)).partition(".")[0]
        found = "there is another directory" if error.errno == errno.ESTALE else found
    hosts = f"on {quoted(os.uname().nodename)}, unlike on {quoted(host)} (this one)"
    problem = f"{hosts}: {found}: run workers where the path is the same"
    raise ManifestError(problem, path=root)

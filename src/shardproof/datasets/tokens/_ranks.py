"""What rank 0 tells the other ranks, through a file beside the shards: no network, no collective.

Rank 0 makes a directory ``.shardproof/ranks/<token>.<process>/`` and in it ``said.json``, which it
replaces whole when it has something to say, and every few seconds to show that it lives. A rank
believes a directory when its process is seen to live on the same machine, or when the file was
seen to change, or when both were given the same ``run_id``: it may be of yesterday's run.

Every other rank leaves an empty file ``<rank>.<call>`` there, for the call it is at. By then it
holds the shard of that call; so until it is there, rank 0 removes nothing of that or later calls.
"""

import contextlib
import hashlib
import logging
import os
import re
import secrets
import threading
import time

import msgspec

from shardproof._base import files, json
from shardproof._base.holds import Heartbeat, ObservedSilence
from shardproof._base.liveness import Mark, is_gone, is_here, this_process
from shardproof._base.messages import shown, told, traced
from shardproof.errors import FetchError, ManifestError
from shardproof.fetching.cache import STATE

logger = logging.getLogger("shardproof.fetching")

BEAT = 2.0  # seconds between two signs of life of rank 0

SILENCE = 150.0  # seconds until rank 0 is taken for dead: network file systems show changes late

_HOME, _RECORD = os.path.join(STATE, "ranks"), "said.json"
_MAX_BYTES = 2**16
_MAX_KEPT = 16
_AT = re.compile(r"([0-9]{1,9})\.([0-9]{1,18})")
_MAX_TEXT = 2000
_OLD = 30 * 86_400.0  # seconds, by whatever clocks: a rank 0 that lives writes every few


class RankOutcome(msgspec.Struct, frozen=True):
    """How it went with one shard."""

    call: int  # so many times rank 0 had been asked for a shard, with this one
    shard: int
    problem: str | None = None  # why it can't be had
    marks: tuple[Mark | None, ...] = ()  # of its files, if it is there


class _Record(msgspec.Struct):
    """What rank 0 says."""

    key: str  # of the run
    beat: int = 0  # so many signs of life until now
    outcomes: tuple[RankOutcome, ...] = ()  # the latest ones


def key_of_run(*parts: object) -> str:
    """Return a key that another run in the same directory does not have."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _process_of(name: str) -> str:
    return name.partition(".")[2].replace(",", "/")


class Leader:
    """Rank 0's side, in the directory ``root`` of the shards, for the run that ``key`` names."""

    def __init__(self, root: str, key: str, world_size: int, beat: float = BEAT) -> None:
        home = os.path.join(root, _HOME)
        files.make_directories(home)
        for name in os.listdir(home):
            # What was said by processes that surely run no more, or a month ago.
            path = os.path.join(home, name)
            with contextlib.suppress(OSError):
                if is_gone(_process_of(name)) or time.time() - os.stat(path).st_mtime > _OLD:
                    files.remove_tree(path)
        name = f"{secrets.token_hex(8)}.{this_process().replace('/', ',')}"
        self._directory = os.path.join(home, name)
        files.make_directories(self._directory)
        self._world_size = world_size
        self._record = _Record(key)
        self._lock = threading.Lock()
        self._write()
        self._heartbeat = Heartbeat(self._beat, beat, "shardproof-rank-0")

    def tell(self, outcome: RankOutcome) -> None:
        """Write down an outcome for the other ranks; of a long problem only the beginning."""
        problem = outcome.problem
        if problem is not None and len(problem) > _MAX_TEXT:
            outcome = msgspec.structs.replace(outcome, problem=f"{problem[:_MAX_TEXT]}...")
        with self._lock:
            self._record.outcomes = (*self._record.outcomes, outcome)[-_MAX_KEPT:]
            self._write()

    def slowest(self) -> int:
        """Return at which call the slowest of the other ranks is; 0 before its first."""
        calls = dict.fromkeys(range(1, self._world_size), 0)
        for match in filter(None, map(_AT.fullmatch, os.listdir(self._directory))):
            rank, call = int(match[1]), int(match[2])
            if rank in calls:
                calls[rank] = max(calls[rank], call)
        return min(calls.values())

    def _write(self) -> None:
        files.write_whole(os.path.join(self._directory, _RECORD), msgspec.json.encode(self._record))

    def _beat(self) -> bool:
        with self._lock:
            self._record.beat += 1
            try:
                self._write()
            except OSError as error:
                # The next one may succeed; if none does, the others take rank 0 for dead.
                logger.warning("No sign of life for the other ranks: %s", told(error))
        return True

    def close(self) -> None:
        """Say nothing any more; what was said stays, as others may not have read it yet."""
        self._heartbeat.stop()


def could_not_look(error: OSError) -> str:
    return f"could not check '{shown(str(error.filename))}': {error.strerror or told(error)}"


class Follower:
    """The side of another rank; ``trusts`` says that no other run has this key."""

    def __init__(self, root: str, key: str, rank: int, *, trusts: bool = False) -> None:
        self._home, self._key = os.path.join(root, _HOME), key
        self._rank, self._trusts = rank, trusts
        self.unseen: OSError | None = None  # what the latest look could not see
        self._leader: str | None = None
        self._told = 0
        self._silence: ObservedSilence[str, _Record] = ObservedSilence()

    def look(self, call: int) -> RankOutcome | None:
        """Return how it went with the shard of one call; None as long as that is not known."""
        self.unseen = None
        self._leader = self._leader or self._believed()
        if self._leader is None:
            return None
        if call != self._told:  # what can't be told costs room on the disk
            directory = os.path.join(self._home, self._leader)
            with contextlib.suppress(OSError):
                files.write_whole(os.path.join(directory, f"{self._rank}.{call}"), b"")
                files.remove(os.path.join(directory, f"{self._rank}.{self._told}"))
            self._told = call
        is_over = is_gone(_process_of(self._leader))  # before the file, which may be its last word
        record, silent = self._read(self._leader)
        for outcome in record.outcomes if record else ():
            if outcome.call == call:
                return outcome
        if record and record.outcomes and record.outcomes[-1].call > call:
            raise FetchError(f"rank 0 has gone on to shard {record.outcomes[-1].shard}")
        is_silent = silent > SILENCE
        if (is_over or is_silent) and self.unseen is not None:
            raise FetchError(could_not_look(self.unseen)) from traced(self.unseen)
        if is_over:
            raise FetchError("the process of rank 0 is gone, and did not say why")
        if is_silent:
            raise FetchError(f"rank 0 has shown no sign of life for {silent:.0f}s")
        return None

    def _believed(self) -> str | None:
        """Return the directory of this run's rank 0; None while none is there that is believed."""
        try:
            names = sorted(os.listdir(self._home))
        except FileNotFoundError:
            return None
        except OSError as error:  # which may pass
            self.unseen = error
            return None
        for name in names:
            before = self._silence.last(name)
            record, _ = self._read(name)
            if record is not None and record.key == self._key:
                process = _process_of(name)
                lives_here = is_here(process) and not is_gone(process)
                if self._trusts or lives_here or before not in (None, record):
                    return name
        return None

    def _read(self, name: str) -> tuple[_Record | None, float]:
        """Return what is said, and for how long nothing else was."""
        directory, record = os.path.join(self._home, name), None
        try:
            record = json.read(directory, _RECORD, _Record, max_bytes=_MAX_BYTES)
        except FileNotFoundError:  # not there yet
            pass
        except OSError as error:  # which may pass
            self.unseen, error.filename = error, os.path.join(directory, _RECORD)
        except ManifestError:  # nothing that rank 0 has written
            pass
        record = record or self._silence.last(name)
        return record, 0.0 if record is None else self._silence.seconds(name, record)

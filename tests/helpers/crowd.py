"""crowd.py ROOT LOCKS CACHE: processes that read, fetch, remove and are killed in one cache.

Prints how often a shard was read and removed, and one was lost that a reader held.
"""

import fcntl
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from shardproof import FetchError
from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.cache._places import key_of, place_of
from shardproof.fetching.sources._source import RemoteFile

PATIENCE = 60
ENOUGH = {"read": 40, "removed": 10, "killed": 6}
N_SHARDS, N_READERS, N_REMOVERS = 3, 6, 3
NAMES = [f"train/{number}.bin" for number in range(N_SHARDS)]


class NaiveCache(Cache):
    """Looks for leases, and then removes: the control."""

    def discard(self, name: str) -> bool:
        with place_of(self.root, name) as place:
            held = self._leases.holders(key_of(name), "lease")
            if place is None or held or not place.status():
                return False
            time.sleep(0.005)
            Path(place.path).unlink(missing_ok=True)
            return True


def data_of(name: str, identity: str) -> bytes:
    return f"{name} {identity} ".encode() * 50


def read(cache: Cache, luck: random.Random) -> str:
    """Hold one shard for a moment, and look again and again whether it is there."""
    name, identity = luck.choice(NAMES), luck.choice(["v1", "v1", "v1", "v2"])
    file = RemoteFile(name, len(data_of(name, identity)), identity)
    with cache.hold(name) as lease:
        path = cache.find(file, lease)
        if path is None:
            lease.part.write_bytes(data_of(name, identity))
            with cache.downloading(name, timeout=0.05):
                try:
                    path = cache.place(lease.part, file, lease)
                except FetchError:
                    return "refused"  # somebody reads another revision
        for _ in range(luck.randrange(1, 20)):
            try:
                if path.read_bytes() != data_of(name, identity):
                    return "lost"
            except FileNotFoundError:
                return "lost"
            time.sleep(0.0005)
    return "read"


def remove(cache: Cache, luck: random.Random) -> str:
    time.sleep(0.001)
    return "removed" if cache.discard(luck.choice(NAMES)) else "kept"


class Crowd:
    """Processes at one cache.

    Args:
        root: Where it is.
        kind: Its class.
    """

    def __init__(self, root: str, kind: type[Cache]) -> None:
        self.root, self.kind = root, kind
        self.log = Path(f"{root}.log")
        self.log.write_text("")
        self.stop = Path(f"{root}.stop")
        self.n_started = 0

    def start(self, act: Callable[[Cache, random.Random], str]) -> int:
        """Begin with a process that does one thing again and again; return its number."""
        self.n_started += 1
        if pid := os.fork():
            return pid
        code = 1
        try:
            self.work(act)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def work(self, act: Callable[[Cache, random.Random], str]) -> None:
        luck = random.Random(self.n_started)
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND)
        with self.kind(self.root) as cache:
            while not self.stop.exists():
                os.write(log, f"{act(cache, luck)}\n".encode())

    def counts(self) -> Counter[str]:
        return Counter(self.log.read_text().split())

    def run(self) -> Counter[str]:
        """Kill readers until enough has happened."""
        luck, end = random.Random(0), time.monotonic() + PATIENCE
        removers = [self.start(remove) for _ in range(N_REMOVERS)]
        readers = [self.start(read) for _ in range(N_READERS)]
        n_killed = 0
        while not self.is_enough(n_killed) and time.monotonic() < end:
            time.sleep(0.04)
            victim = luck.randrange(N_READERS)
            os.kill(readers[victim], signal.SIGKILL)
            os.waitpid(readers[victim], 0)
            readers[victim] = self.start(read)
            n_killed += 1
        self.stop.touch()
        for pid in (*readers, *removers):
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        return self.counts()

    def is_enough(self, n_killed: int) -> bool:
        counts = self.counts() + Counter(killed=n_killed)
        is_done = all(counts[what] >= n for what, n in ENOUGH.items())
        return counts["lost"] > 0 or (is_done and self.kind is not NaiveCache)


if __name__ == "__main__":
    if sys.argv[2] == "no-locks":
        fcntl.flock = lambda *_: None
    counts = Crowd(sys.argv[1], {"Cache": Cache, "NaiveCache": NaiveCache}[sys.argv[3]]).run()
    sys.stdout.write(f"{counts['read']} {counts['removed']} {counts['lost']}")

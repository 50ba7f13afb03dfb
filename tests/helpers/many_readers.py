"""many_readers.py URL CACHE N_READERS N_KILLED CLEANUP SHARD...: many share one cache."""

import collections
import hashlib
import os
import random
import signal
import sys
import time
import traceback

import httpx

from shardproof.fetching import HttpSource, Limits, ShardPrefetcher


def read_all(url: str, cache: str, cleanup: str, names: list[str]) -> int:
    with ShardPrefetcher(
        HttpSource(url), names, cache, cleanup=cleanup, limits=Limits(stall_timeout=60)
    ) as prefetcher:
        for name in names:
            data = prefetcher.wait_for(name).read_bytes()
            if hashlib.sha256(data).hexdigest() != name.rpartition("/")[2].removesuffix(".bin"):
                return 3
    return 0


def main() -> None:
    url, cache, n_readers, n_killed, cleanup, *names = sys.argv[1:]
    children = []
    for number in range(int(n_readers)):
        pid = os.fork()
        if not pid:
            code = 4
            try:
                random.seed(number)
                random.shuffle(names)
                code = read_all(url, cache, cleanup, names)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(pid)
    for pid in random.sample(children[len(children) // 2 :], int(n_killed)):
        time.sleep(random.uniform(0, 0.02))
        os.kill(pid, signal.SIGKILL)
    ends = collections.Counter(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)
    sys.stdout.write(f"{dict(ends)}\n")


if __name__ == "__main__":
    assert httpx  # is imported before the children are made
    main()

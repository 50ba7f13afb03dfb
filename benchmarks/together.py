"""What ranks that share one check cost, and save: file calls in all, and seconds.

::

    python benchmarks/together.py [--milliseconds N] [--rounds N] [--workers N]

A shim makes each metadata call under the directory take longer, and counts it (`slow.c`). Ranks are
processes with a pipe between each two. "loader": 16 of them open one loader of 2000 shards.
"check": 3 of them check 100 000 shards, and one alone, each by so many threads (`--workers`).
"""

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from _races import compiled
from validate import make_shards_dir

import shardproof
from shardproof import distributed


class PipeGroup:
    """An engine of a few lines: a pipe between every two ranks."""

    def __init__(self, rank: int, pipes: dict[int, Connection]) -> None:
        self.rank, self.size, self.host, self.pipes = rank, len(pipes) + 1, "here", pipes

    def send(self, data: bytes, to: int) -> None:
        """Send a message."""
        self.pipes[to].send_bytes(data)

    def receive(self, source: int, timeout: float) -> bytes | None:
        """Return the next message, if there is one in time."""
        pipe = self.pipes[source]
        return pipe.recv_bytes() if pipe.poll(timeout) else None


def play(what: str, path: str, n_ranks: str, n_workers: str) -> None:
    """Be all ranks, forked processes: each opens a loader, or checks; print the seconds."""
    size = int(n_ranks)
    _ = shardproof.validate, shardproof.OrderedDataLoader, distributed.validate  # imported here
    pipes: list[dict[int, Connection]] = [{} for _ in range(size)]
    for one, other in itertools.combinations(range(size), 2):
        pipes[one][other], pipes[other][one] = multiprocessing.Pipe()
    begin = time.perf_counter()
    pids = []
    for rank in range(size):
        pid = os.fork()
        if not pid:
            os.environ["SLOW_COUNTS"] += f".{rank}"
            group = PipeGroup(rank, pipes[rank]) if size > 1 else None
            take_part(what, path, group, int(n_workers) or None)
            sys.exit(0)
        pids.append(pid)
    if any(os.waitpid(pid, 0)[1] for pid in pids):
        raise SystemExit("a rank failed")
    print(time.perf_counter() - begin)


def take_part(what: str, path: str, group: Any, workers: int | None) -> None:
    if what == "loader":
        shardproof.OrderedDataLoader(path, layer=1, group=group)
    elif group is None:
        shardproof.validate(path, workers=workers).raise_for_findings()
    else:
        distributed.validate(path, group=group, workers=workers).raise_for_findings()


def measured(
    what: str, path: Path, n_ranks: int, n_workers: int, base: dict[str, str]
) -> tuple[float, int]:
    """Return the seconds, and the metadata calls of all ranks together."""
    counts = Path(base["SLOW_COUNTS"])
    asked = [what, str(path), str(n_ranks), str(n_workers)]
    command = [sys.executable, os.path.abspath(__file__), "--play", *asked]
    env = {**os.environ, **base}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    n_calls = 0
    for file in counts.parent.glob(f"{counts.name}.*"):
        n_calls += sum(json.loads(file.read_text()).values())
        file.unlink()
    return float(done.stdout), n_calls


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--milliseconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--workers", type=int, default=0, help="as many as a check takes by default"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        base = {
            "LD_PRELOAD": str(compiled("slow.c", place, "-shared", "-fPIC")),
            "SLOW_NANOSECONDS": str(round(options.milliseconds * 1e6)),
            "SLOW_COUNTS": str(place / "counts"),
        }
        for what, n_shards, n_ranks in (("loader", 2000, 16), ("check", 100_000, 3)):
            parent = place / what
            parent.mkdir()
            path = make_shards_dir(parent, n_shards).resolve()
            here = {**base, "SLOW_ROOT": str(path)}
            n = options.workers
            rounds = [
                (measured(what, path, 1, n, here), measured(what, path, n_ranks, n, here))
                for _ in range(options.rounds)
            ]
            calls = statistics.median(many[1] / one[1] for one, many in rounds)
            speed = statistics.median(one[0] / many[0] for one, many in rounds)
            alone, together = rounds[-1]
            print(f"{what}: {n_shards} shards, {n_ranks} ranks and one alone, the last round:")
            print(f"  {together[1]} and {alone[1]} calls, {together[0]:.2f} and {alone[0]:.2f} s")
            print(f"  medians: {calls:.2f}x the calls, {speed:.2f}x the speed")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        play(*sys.argv[2:])
    else:
        main()

"""What workers of an executor save, and what a million shards cost their caller.

::

    python benchmarks/engines.py [--mib MIB] [--files N] [--sizes N ...] [--json FILE]

`valid` reads every byte of a sealed directory that is in the page cache: in one thread, then by two
workers. Contenders that are not installed are left out. `growth` checks so many shards, of 16 bytes
each, by a process pool of two, in a process whose peak of memory is read in the end. The pools have
begun before anything is timed.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from _figures import Figure, Ruler, Section, figures, ratio_of
from _races import child, play_or, warm_race
from _report import parser, report
from staging import make_source
from validate import make_shards_dir

import shardproof

N_WORKERS = 2
MOST_MIB = 1200

Made = Callable[[contextlib.ExitStack], Any]


def pool(stack: contextlib.ExitStack) -> Any:
    context = multiprocessing.get_context("forkserver")
    return stack.enter_context(ProcessPoolExecutor(N_WORKERS, context))


def loky(stack: contextlib.ExitStack) -> Any:
    from loky import get_reusable_executor  # noqa: PLC0415 - only this child needs it

    return stack.enter_context(get_reusable_executor(N_WORKERS))


def dask(stack: contextlib.ExitStack) -> Any:
    from distributed import Client, LocalCluster  # noqa: PLC0415 - only this child needs it

    made: Any = LocalCluster
    how = {"n_workers": N_WORKERS, "threads_per_worker": 1, "dashboard_address": None}
    client: Any = Client
    return stack.enter_context(client(stack.enter_context(made(**how)))).get_executor()


ENGINES: dict[str, Made] = {"pool": pool, "loky": loky, "dask": dask}
MODULES = {"loky": "loky", "dask": "distributed"}


def play(engine: str, path: str) -> None:
    """Be a child: say "ready", then check once for each line, and print the seconds."""
    with contextlib.ExitStack() as stack:
        how: dict[str, Any] = {"workers": 1} if engine == "one" else {}
        if engine in ENGINES:
            executor = how["executor"] = ENGINES[engine](stack)
            for future in [executor.submit(time.sleep, 0.1) for _ in range(4 * N_WORKERS)]:
                future.result()
        print("ready", flush=True)
        for _ in sys.stdin:
            begin = time.perf_counter()
            found = shardproof.validate(path, level="valid", **how)
            assert found.ok
            assert not found.notes
            print(time.perf_counter() - begin, flush=True)


def valid(options: argparse.Namespace, place: Path) -> Section:
    source = make_source(place / "valid", options.files, options.mib)
    shardproof.seal(source)
    names = {"one thread": "one", "threads, by default": "threads"}
    names |= {
        f"{name}, {N_WORKERS} workers": name
        for name in ENGINES
        if name not in MODULES or is_installed(MODULES[name])
    }
    commands = [child(what, name, source) for what, name in names.items()]
    note = f"{options.mib} MiB in {options.files} files, by SHA-256; {options.rounds} rounds."
    section = Section('`validate(path, level="valid")`', note, "s")
    section.figures = figures(commands, warm_race(commands, options.rounds), 1.0)
    by_name = {figure.what: figure for figure in section.figures}
    section.rulers = [
        Ruler(f"one thread over {what}", 1.7, ratio_of(by_name, "one thread", what), at_least=True)
        for what in by_name
        if what.startswith("dask")
    ]
    return section


def is_installed(module: str) -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - for this only

    return find_spec(module) is not None


GROW = """
import json, resource, sys, time
sys.path.insert(0, sys.argv[2])
import contextlib, engines, shardproof
with contextlib.ExitStack() as stack:
    executor = engines.ENGINES[sys.argv[3]](stack)
    list(executor.map(abs, range(8)))
    begin = time.perf_counter()
    report = shardproof.validate(sys.argv[1], level="complete", executor=executor)
    seconds = time.perf_counter() - begin
assert report.ok and not report.notes, report
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([seconds, peak / 1024]))
"""


def growth(options: argparse.Namespace, place: Path) -> Section:
    sizes, found, peak = options.sizes, [], 0.0
    for n in sizes:
        path = make_shards_dir(place / f"growth-{n}", n)
        here = os.path.dirname(os.path.abspath(__file__))
        command = [sys.executable, "-c", GROW, path, here, options.engine]
        said = subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE).stdout
        seconds, peak = json.loads(said)
        found.append(seconds / n * 1e6)
        print(f"{n} shards: {seconds:.2f} s, {peak:.0f} MiB", file=sys.stderr, flush=True)
    what = f"`complete` over {options.engine}"
    section = Section("Growth over an executor", f"Of {sizes} shards each.", "us a shard")
    extra = {f"{n}": f"{each:.1f}" for n, each in zip(sizes, found, strict=True)}
    extra |= {"MiB at the last": f"{peak:.0f}"}
    section.figures = [Figure(what, found[-1:], found[:1], extra)]
    section.rulers = [
        Ruler(f"{what}: time a shard, last over first", 2.0, found[-1] / found[0]),
        Ruler(f"{what}: memory of the caller", MOST_MIB, peak, unit=" MiB"),
    ]
    return section


SECTIONS = {"valid": valid, "growth": growth}


def parse_arguments() -> argparse.Namespace:
    found = parser(__doc__, tuple(SECTIONS))
    found.add_argument("--mib", type=int, default=2048, help="size of the directory")
    found.add_argument("--files", type=int, default=256, help="in how many files")
    found.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    found.add_argument("--engine", choices=[*ENGINES], default="pool", help="of growth")
    found.add_argument("--rounds", type=int, default=5)
    return found.parse_args()


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    for name in options.only:
        yield SECTIONS[name](options, place)


if __name__ == "__main__":
    play_or(lambda: report(parse_arguments(), measured), play)

"""Random rows of few and of many shards, and small batches, beside C with as many threads.

::

    python benchmarks/loader_rows.py [--only random small] [--data DIR] [--json FILE]

As in `loaders.py`, contenders run in processes of their own, take turns, and time themselves right
after the same thing untimed. Takes about ten minutes, and 3 GiB of disk and of memory.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import loaders as bench
import numpy as np
from _figures import Figure, Ruler, Section, figures, ratio_of
from _loader_peers import Run, rate
from _races import NO_COMPILER, Command, child, compiled, play_or
from _races import warm_race as race
from _report import parser, report

from shardproof import Metadata
from shardproof.loaders import IndexedDataset

DATA_BYTES = 2**30
N_SHARDS = 8, 60, 256
AT_ONCE = 1024, 4096
BATCHES = 32, 256, 2048, 4096, 16384
N_RANDOM = 40 * 4096
UNIT = "1000 rows a second"
C = "C: `pread`"


# Contenders


def indexed(shards_dir: Path, at_once: str) -> Run:
    """Random rows of our dataset."""
    dataset = IndexedDataset(shards_dir, layer=0)
    batches = bench.random_rows(len(dataset), N_RANDOM).reshape(-1, int(at_once))
    return lambda: rate(len(dataset.__getitems__(rows)["act"]) for rows in batches)


def memmap_rows(shards_dir: Path, at_once: str, n_threads: str) -> Run:
    """Random rows from memory maps that stay, each thread a part of the batch."""
    maps = [np.memmap(file, np.float32, mode="r") for file in bench.shard_files(shards_dir)]
    acts = [each.reshape(-1, bench.D_MODEL) for each in maps]
    n_rows, n_parts = len(acts[0]), int(n_threads)
    rows = bench.random_rows(n_rows * len(acts), N_RANDOM).reshape(-1, int(at_once))
    executor = ThreadPoolExecutor(n_parts)

    def fill(batch: Any, numbers: Any) -> None:
        shard, place = numbers // n_rows, numbers % n_rows
        for number in np.unique(shard).tolist():
            here = np.flatnonzero(shard == number)
            batch[here] = acts[number][place[here]]

    def batch_of(numbers: Any) -> int:
        batch = np.empty((len(numbers), bench.D_MODEL), np.float32)
        list(executor.map(fill, np.array_split(batch, n_parts), np.array_split(numbers, n_parts)))
        return len(batch)

    return lambda: rate(map(batch_of, rows))


def ours(shards_dir: Path, kind: str, batch_size: str, workers: str) -> Run:
    """An epoch of one of our loaders."""
    options: dict[str, Any] = {"batch_size": int(batch_size), "workers": int(workers)}
    if kind == "permuted":
        kind, options["buffer_size"] = "shuffled", None
    loader = bench.loader_of(kind, shards_dir, **options)
    return lambda: rate(bench.counts_of(loader))


def memmap_batches(shards_dir: Path, batch_size: str) -> Run:
    """Copies of slices of memory maps, content tokens of as many examples as fill a batch, cut."""
    maps = [np.memmap(file, np.float32, mode="r") for file in bench.shard_files(shards_dir)]
    acts = [each.reshape(-1, bench.CONTENT + 1, bench.D_MODEL) for each in maps]
    size = int(batch_size)

    def counts() -> Iterator[int]:
        for each in acts:
            for example in each:
                for at in range(1, bench.CONTENT + 1, size):
                    yield len(np.array(example[at : at + size]))

    return lambda: rate(counts())


CONTENDERS: dict[str, Callable[..., Run]] = {
    "memcpy": bench.memcpy,
    "indexed": indexed,
    "memmap_rows": memmap_rows,
    "memmap_batches": memmap_batches,
    "ours": ours,
}


def play(contender: str, shards_dir: str, *arguments: str) -> None:
    """Be a child: say "ready", then measure once for each line and print the figure."""
    run = CONTENDERS[contender](Path(shards_dir), *arguments)
    print("ready", flush=True)
    for _ in sys.stdin:
        run()
        print(run(), flush=True)


# The sections


def data(place: Path, n_shards: int) -> Path:
    """Return a directory of so many shards, made unless it is there."""
    return bench.make_shards_dir(
        place / f"shards-{n_shards}", 1, DATA_BYTES, DATA_BYTES // n_shards
    )


def c_rows(place: Path, shards_dir: Path, n_threads: int, batch: int, run: int) -> list[Command]:
    """Return the ruler as a contender; nothing without a compiler."""
    if (loop := compiled("rows.c", place, "-pthread")) is None:
        return []
    order, n_rows = ("random", N_RANDOM) if run == 1 else ("files", N_RANDOM // batch * batch)
    argv = [loop, n_threads, bench.ROW_BYTES, batch, run, n_rows, order]
    files = bench.shard_files(shards_dir)
    what = f"{C}, {_threads(n_threads)}"
    return [Command(what, [*map(str, argv), *map(os.fspath, files)])]


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def random(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """Random rows of 8, 60 and 256 shards."""
    for n_shards in N_SHARDS:
        shards_dir = data(options.data or place, n_shards)
        for at_once in AT_ONCE:
            commands = [
                child("memcpy", "memcpy", shards_dir),
                *c_rows(place, shards_dir, 1, at_once, 1),
                *c_rows(place, shards_dir, 2, at_once, 1),
                child("`IndexedDataset`, 2 threads", "indexed", shards_dir, at_once),
                child("`np.memmap`, 1 thread", "memmap_rows", shards_dir, at_once, 1),
                child("`np.memmap`, 2 threads", "memmap_rows", shards_dir, at_once, 2),
            ]
            if at_once == max(AT_ONCE):
                what = "`ShuffledDataLoader`, `buffer_size=None`, 2 threads"
                commands.append(child(what, "ours", shards_dir, "permuted", at_once, 2))
            title = f"{at_once} random rows at a time, {n_shards} shards"
            yield _section(title, shards_dir, commands, options.rounds)


def small(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """Batches of 32 rows to 16 384, in order."""
    shards_dir = data(options.data or place, N_SHARDS[0])
    for batch in BATCHES:
        commands = [
            child("memcpy", "memcpy", shards_dir),
            *c_rows(place, shards_dir, 1, batch, min(batch, bench.CONTENT)),
            *c_rows(place, shards_dir, 2, batch, min(batch, bench.CONTENT)),
            child("`OrderedDataLoader`, 1 thread", "ours", shards_dir, "ordered", batch, 1),
            child("`OrderedDataLoader`, 2 threads", "ours", shards_dir, "ordered", batch, 2),
        ]
        if batch <= bench.CONTENT:
            commands.append(
                child("`np.memmap`, slices copied, 1 thread", "memmap_batches", shards_dir, batch)
            )
        yield _section(f"Batches of {batch} rows, in order", shards_dir, commands, options.rounds)


def _section(title: str, shards_dir: Path, commands: list[Command], rounds: int) -> Section:
    metadata = Metadata.load(shards_dir)
    n_rows = metadata.n_examples * bench.CONTENT
    note = f"{n_rows} rows of {bench.ROW_BYTES} bytes, in the page cache; {rounds} rounds."
    if not any(command.what.startswith(C) for command in commands):
        note += f" {C}: {NO_COMPILER}."
    values = figures(commands, race(commands, rounds), 1e-3)
    return Section(title, note, UNIT, values, _rulers(values))


def _rulers(values: list[Figure]) -> list[Ruler]:
    """Ours over the kernel's own, as many threads on both sides."""
    found = {figure.what: figure for figure in values}
    beside = f"{C}, 2 threads"
    ours_2 = [what for what in found if what.endswith("2 threads") and "D" in what]
    return [
        Ruler(f"{what} over {beside}", 0.8, ratio_of(found, what, beside), at_least=True)
        for what in ours_2
        if beside in found
    ]


MEASURES = {"random": random, "small": small}


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    for section in options.only:
        yield from MEASURES[section](options, place)


def main() -> None:
    found = parser(__doc__, tuple(MEASURES))
    found.add_argument("--data", type=Path, help="where the data is, or is made and left")
    found.add_argument("--rounds", type=int, default=5)
    options = found.parse_args()
    if options.data:
        options.data.mkdir(parents=True, exist_ok=True)
        options.dir = options.data
    report(options, measured)


if __name__ == "__main__":
    play_or(main, play)

"""Whether more of anything makes a loader slower: workers, batches, shards, layers, rows.

::

    python benchmarks/grid.py [--dir /dev/shm] [--rounds 5] [--only workers] [--json FILE]

Along each axis, everything else stays as it is by default. Each run is a process of its own, which
iterates once before it iterates against the clock; the runs of an axis take turns. A step is the
rate over that of the next smaller value.
"""

import argparse
import itertools
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _figures import Ruler, Section, figures, ratio_of
from _races import child, cold_race, play_or
from _report import parser, report
from loaders import loader_of, make_shards_dir

MIB = 2**20
AXES = ("workers", "batch", "shards", "layers", "rows")
WORKERS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32)
KINDS: dict[str, dict[str, Any]] = {
    "ordered": {},
    "shuffled": {},
    "permuted": {"buffer_size": None, "batch_size": 4096},
}
N_BYTES, SHARD_BYTES = 4096 * MIB, 256 * MIB
LIMIT = 0.85


def directory(
    place: Path, n_layers: int = 1, n_bytes: int = N_BYTES, shard: int = SHARD_BYTES
) -> Path:
    return make_shards_dir(place / f"{n_layers}-{n_bytes}-{shard}", n_layers, n_bytes, shard)


def points(axis: str, place: Path) -> Iterator[tuple[object, Path, dict[str, Any]]]:
    """Yield each value of an axis, the directory, and the options that differ."""
    usual, place = directory(place), place / "axis"
    match axis:
        case "workers":
            yield from ((n, usual, {"workers": n}) for n in WORKERS)
        case "batch":
            yield from ((n, usual, {"batch_size": n}) for n in (256, 1024, 4096, 16384, 65536))
        case "shards":
            for n in (1, 16, 64):
                yield n, usual if n == 16 else directory(place, shard=N_BYTES // n), {}
        case "layers":
            yield 1, usual, {}
            yield from ((n, directory(place, n_layers=n), {}) for n in (2, 4))
        case "rows":
            for n_bytes in (N_BYTES // 4, N_BYTES // 2):
                yield f"{n_bytes // MIB} MiB", directory(place, n_bytes=n_bytes), {}
            yield f"{N_BYTES // MIB} MiB", usual, {}


def sections(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    for axis in options.only:
        for kind in options.kinds:
            if axis == "batch" and kind == "permuted":
                continue  # whose batch size is its own
            yield section(axis, kind, options, place)
        shutil.rmtree(place / "axis", ignore_errors=True)


def section(axis: str, kind: str, options: argparse.Namespace, place: Path) -> Section:
    commands = [
        child(f"{axis} {value}", kind, path, *(f"{name}={given}" for name, given in more.items()))
        for value, path, more in points(axis, place)
    ]
    made = figures(commands, cold_race(commands, options.rounds), 1)
    names = {figure.what: figure for figure in made}
    steps = [
        Ruler(f"{kind}: {b.what} over {a.what}", LIMIT, ratio_of(names, b.what, a.what), True)
        for a, b in itertools.pairwise(made)
    ]
    worst = min(steps, key=lambda step: step.measured or 0.0)
    return Section(f"{kind}, by {axis}", f"{options.rounds} rounds.", "GB/s", made, [worst])


def play(kind: str, path: str, *options: str) -> None:
    """Be a child: answer with the rate of one iteration, after one that is not timed."""
    given = {name: int(value) for name, _, value in (text.partition("=") for text in options)}
    with loader_of(
        kind.replace("permuted", "shuffled"), Path(path), **(KINDS[kind] | given)
    ) as loader:
        print("ready", flush=True)
        input()
        iterate(loader)
        print(iterate(loader), flush=True)


def iterate(loader: Any) -> float:
    begin, n_bytes = time.perf_counter(), 0
    for batch in loader:
        n_bytes += batch["act"].nbytes
    return n_bytes / 1e9 / (time.perf_counter() - begin)


def main(arguments: Sequence[str] | None = None) -> None:
    found = parser(__doc__, AXES)
    found.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    found.add_argument("--rounds", type=int, default=5)
    report(found.parse_args(arguments), sections)


if __name__ == "__main__":
    play_or(main, play)

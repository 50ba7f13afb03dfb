"""Two checkouts side by side: what a change did to the speed of what people do most.

::

    python benchmarks/side_by_side.py BEFORE AFTER [--rounds N] [--only ROOM ...] [--dir DIR]

Each contender is played by two processes, one of each checkout, which take turns (A B A B ...),
after one round that is not counted; each times itself. The ratio is the median of the rounds'
ratios, "least" that of the shortest times. Give a checkout twice to see how much of it is noise.
"""

import argparse
import contextlib
import inspect
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from _races import Command, play_or, warm_race
from loaders import make_shards_dir as make_large_shards_dir
from prefetch import hub_of, make_file
from receipts import make_plan_dir
from validate import make_shards_dir

import shardproof

MIB = 2**20
N_FILES, N_RECEIPTS, LOADED_MIB, FETCHED_MIB = 10_000, 10_000, 256, 128

Run = Callable[[], object]


# What is compared. Each is given the place of its files, and a directory of its own to write in.


def look(place: Path, _: Path, level: shardproof.Level) -> Run:
    return lambda: shardproof.validate(place / "saev" / "shards" / "bench", level=level)


def epoch(place: Path, _: Path, kind: str, n_batches: str = "", n: str = "2") -> Run:
    loader_class = getattr(shardproof, kind)
    known = inspect.signature(loader_class).parameters
    workers = {"workers" if "workers" in known else "n_threads": int(n)}

    def run() -> None:
        loader = loader_class(place / "large", layer=0, batch_size=4096, **workers)
        for number, _ in enumerate(loader, start=1):
            if str(number) == n_batches:
                break

    return run


def examples(place: Path, _: Path) -> Run:
    dataset = shardproof.IndexedDataset(place / "large", layer=0)
    wanted = np.random.default_rng(0).integers(0, len(dataset), size=(64, 256))
    return lambda: [dataset.__getitems__(batch.tolist()) for batch in wanted]


def pending(place: Path, _: Path) -> Run:
    store = shardproof.ReceiptStore(place / "plan")
    return store.pending


def claims(place: Path, own: Path) -> Run:
    shutil.copytree(place / "few", own / "few")

    def run() -> None:
        for index in range(40):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(own / "few" / "receipts" / f"shard_{index:06d}.json")
        store = shardproof.ReceiptStore(own / "few")
        for claimed in store.claim_pending():
            with claimed:
                for kind in ("bin", "idx"):
                    claimed.output_path(kind).write_bytes(b"0123")

    return run


def saved(_: Path, own: Path, n_arrays: str, n_bytes: str) -> Run:
    arrays = {f"{i}": np.zeros(int(n_bytes) // 4, np.float32) for i in range(int(n_arrays))}
    saver = shardproof.MultiShardSaver()
    prefix = own / "step"

    def run() -> None:
        for rank in range(2):
            saver.save_shard(prefix, rank, arrays, overwrite=True)
        saver.save_metadata(prefix, world_size=2)

    return run


def loaded(place: Path, own: Path) -> Run:
    saved(place, own, "16", str(4 * MIB))()
    return lambda: shardproof.MultiShardLoader().load_all_shards(own / "step")


def fetched(_: Path, own: Path, url: str, n_files: str) -> Run:
    from shardproof import fetching as room  # noqa: PLC0415

    fetch = room.fetch_file

    def run() -> None:
        shutil.rmtree(own / "files", ignore_errors=True)
        (own / "files").mkdir()
        with contextlib.closing(room.open_source(f"{url}/data")) as source:
            for number in range(int(n_files)):
                fetch(source, f"{number}.bin", own / "files" / f"{number}.bin")

    return run


CONTENDERS: dict[str, tuple[str, Callable[..., Run], tuple[str, ...]]] = {
    "validate: present, 10 000 files": ("validate", look, ("present",)),
    "validate: complete, 10 000 files": ("validate", look, ("complete",)),
    "loaders: ordered, 256 MiB": ("loaders", epoch, ("OrderedDataLoader",)),
    "loaders: shuffled, 256 MiB": ("loaders", epoch, ("ShuffledDataLoader",)),
    "loaders: shuffled, first batch": ("loaders", epoch, ("ShuffledDataLoader", "1")),
    "loaders: shuffled, 4 workers": ("loaders", epoch, ("ShuffledDataLoader", "", "4")),
    "loaders: indexed, 64 batches of 256": ("loaders", examples, ()),
    "receipts: pending of 10 000": ("receipts", pending, ()),
    "receipts: 40 shards claimed and made": ("receipts", claims, ()),
    "checkpoint: 2 ranks of 64 MiB saved": ("checkpoint", saved, ("16", str(4 * MIB))),
    "checkpoint: 2 ranks of 4 KiB saved": ("checkpoint", saved, ("16", "256")),
    "checkpoint: 2 ranks of 64 MiB loaded": ("checkpoint", loaded, ()),
    "fetch: 64 files of 64 KiB": ("fetch", fetched, ("{few}", "64")),
    "fetch: one file of 128 MiB": ("fetch", fetched, ("{one}", "1")),
}
ROOMS = tuple(dict.fromkeys(room for room, _, _ in CONTENDERS.values()))


def play(what: str, place: str, own: str, *arguments: str) -> None:
    """Be a child: say "ready", then run once for each line and print the seconds that it took."""
    os.makedirs(own)
    logging.disable()
    run = CONTENDERS[what][1](Path(place), Path(own), *arguments)
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        run()
        print(time.perf_counter() - begin, flush=True)


@contextlib.contextmanager
def files_in(place: Path) -> Iterator[dict[str, str]]:
    """Make what is read, and serve what is fetched."""
    make_shards_dir(place, N_FILES)
    make_large_shards_dir(place / "large", 2, LOADED_MIB * MIB)
    make_plan_dir(place / "plan", N_RECEIPTS)
    make_plan_dir(place / "few", 40)
    few, one = {}, {"0.bin": place / "one.bin"}
    make_file(one["0.bin"], FETCHED_MIB * MIB)
    for number in range(64):
        few[f"{number}.bin"] = place / f"{number}.bin"
        make_file(few[f"{number}.bin"], 2**16)
    os.sync()
    with hub_of(few) as few_url, hub_of(one) as one_url:
        yield {"few": few_url, "one": one_url}


def main() -> None:
    """Compare, and print a table."""
    asked = argparse.ArgumentParser(description=inspect.cleandoc(__doc__ or "").partition("\n")[0])
    asked.add_argument("trees", nargs=2, type=Path, metavar="CHECKOUT")
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--only", nargs="+", choices=ROOMS, default=ROOMS)
    asked.add_argument("--dir", type=Path, help="where to make the files")
    options = asked.parse_args()
    print(f"{'milliseconds, median of ' + str(options.rounds):40}  before   after   ratio  least")
    with tempfile.TemporaryDirectory(prefix="shardproof-bench-", dir=options.dir) as name:
        place = Path(name).resolve()
        with files_in(place) as urls:
            for what, (room, _, arguments) in CONTENDERS.items():
                if room in options.only:
                    given = [argument.format(**urls) for argument in arguments]
                    compare(what, options, place, given)


def compare(what: str, options: argparse.Namespace, place: Path, given: list[str]) -> None:
    commands = []
    for side, tree in zip("ab", options.trees, strict=True):
        own = place / f"{side}-{what.replace(' ', '-')}"
        argv = [sys.executable, __file__, "--play", what, os.fspath(place), os.fspath(own), *given]
        commands.append(Command(what, argv, {"PYTHONPATH": os.fspath(tree.resolve() / "src")}))
    before, after = zip(*warm_race(commands, options.rounds), strict=True)
    ratio = statistics.median(b / a for a, b in zip(before, after, strict=True))
    medians = [1000 * statistics.median(seconds) for seconds in (before, after)]
    least = min(after) / min(before)
    print(f"{what:40} {medians[0]:7.1f} {medians[1]:7.1f} {ratio:7.2f} {least:6.2f}", flush=True)


if __name__ == "__main__":
    play_or(main, play)

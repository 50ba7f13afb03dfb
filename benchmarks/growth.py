"""What a hundred times as many shards cost: time for each of them, which should not grow.

::

    python benchmarks/growth.py [--only validation receipts ...] [--sizes 300 3000 30000]

Each row is one call of the library over a directory of so many shards (plans, claims, files), made
anew for each size. ``ratio`` is the time a shard of the last size over that of the first: 1 where
time is linear, 100 where it is the square. What comes before the first shard makes it less than 1.
"""

import argparse
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import receipts as receipts_bench
import validate as validate_bench
from _figures import Figure, Ruler, Section
from _report import parser, report

import shardproof
from shardproof import datasets, fetching, receipts, staging

Run = Callable[[], object]
Prepare = Callable[[Path, int], Run]

_ENOUGH = 5e6
"""Microseconds after which no larger size is tried."""

_MOST = 2.0
"""A ratio that is no growth: caches of the processor, and of the kernel, end somewhere."""


def saev(look: Callable[[Path], object], *, files: bool = True) -> Prepare:
    return lambda place, n: bound(look, validate_bench.make_shards_dir(place, n, files=files))


def bound(look: Callable[[Any], object], subject: object) -> Run:
    return lambda: look(subject)


def shard_info(look: Callable[[shardproof.ShardInfo, Path], object]) -> Prepare:
    def prepare(place: Path, n: int) -> Run:
        shards_dir = validate_bench.make_shards_dir(place, n)
        info = shardproof.ShardInfo.load(shards_dir)
        return lambda: look(info, shards_dir)

    return prepare


def broken(look: Callable[[shardproof.Report], object]) -> Prepare:
    def prepare(place: Path, n: int) -> Run:
        found = shardproof.validate(validate_bench.make_shards_dir(place, n, files=False))
        assert len(found.findings) == n
        return lambda: look(found)

    return prepare


def of_files(n: int) -> list[receipts.InputFile]:
    return [receipts.InputFile(path=f"{i}.txt", size=i + 1, local_path=None) for i in range(n)]


def new_store(place: Path, n: int) -> shardproof.ReceiptStore:
    plan = receipts.make_plan("corpus", of_files(n), n_shards=n)
    return receipts.open_run(place, datasets=["corpus"]).store(plan)


def of_inputs(place: Path, n: int) -> Run:
    make_files(place, n)
    return lambda: receipts.input_files(place)


def of_new_store(place: Path, n: int) -> Run:
    plan = receipts.make_plan("corpus", of_files(n), n_shards=n)
    run = receipts.open_run(place, datasets=["corpus"])
    return lambda: run.store(plan)


def of_done(look: Callable[[shardproof.ReceiptStore], object]) -> Prepare:
    def prepare(place: Path, n: int) -> Run:
        receipts_bench.make_plan_dir(place / "plan", n)
        return bound(look, shardproof.ReceiptStore(place / "plan"))

    return prepare


def of_undone(look: Callable[[shardproof.ReceiptStore], object]) -> Prepare:
    return lambda place, n: bound(look, new_store(place, n))


def of_claimed(look: Callable[[shardproof.ReceiptStore], object]) -> Prepare:
    """A worker that died left a claim of each shard."""

    def prepare(place: Path, n: int) -> Run:
        store = new_store(place, n)
        with store.claim(0) as work:
            (claim,) = (store.path / "claims").glob("*.json")
            text = json.loads(claim.read_bytes())
            work.mark_empty()
        here, _, _ = text["process"].rpartition("/")[0].rpartition("/")
        text["process"] = f"{here}/{2**22 - 1}/1"  # which runs no more
        for index in range(n):
            path = claim.parent / claim.name.replace("000000", f"{index:06d}", 1)
            path.write_text(json.dumps(text))
        return bound(look, store)

    return prepare


def claim_all(store: shardproof.ReceiptStore) -> None:
    for work in store.claim_pending():
        with work:
            work.mark_empty()


def claim_some(store: shardproof.ReceiptStore) -> None:
    """A hundredth of them, each as dear as all others make it."""
    some = max(1, store.n_shards // 100)
    for work, _ in zip(store.claim_pending(), range(some), strict=False):
        with work:
            work.mark_empty()


def is_each_completed(store: shardproof.ReceiptStore) -> None:
    assert sum(map(store.is_completed, range(store.n_shards))) >= store.n_shards - 5


def of_runs(place: Path, n: int) -> Run:
    for index in range(n):
        at = place / "runs" / f"{index:016x}" / "datasets" / "corpus" / f"{index:016x}"
        at.mkdir(parents=True)
        (at / "plan.json").write_text("{}")
    return lambda: list(receipts.plan_dirs(place))


def of_stage(*, again: bool) -> Prepare:
    def prepare(place: Path, n: int) -> Run:
        (to := place / "to").mkdir()
        shards_dir = validate_bench.make_shards_dir(place / "from", n)
        if again:
            staging.stage(shards_dir, to)
        return lambda: staging.stage(shards_dir, to)

    return prepare


def make_files(place: Path, n: int) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for index in range(n):
        (place / f"part-{index:06d}.jsonl").write_text('{"a": 1}\n')


def of_adopt(place: Path, n: int) -> Run:
    make_files(place / "files", n)
    return lambda: fetching.adopt(place / "files")


def of_prefetcher(**options: Any) -> Prepare:
    """All shards, of 9 bytes each, from a directory to a cache beside it."""

    def prepare(place: Path, n: int) -> Run:
        make_files(place / "files", n)
        names = sorted(os.listdir(place / "files"))
        given = {key: value(n) if callable(value) else value for key, value in options.items()}

        def run() -> None:
            source = f"file://{place}/files"
            with fetching.ShardPrefetcher(source, names, place / "cache", **given) as prefetcher:
                for _ in prefetcher:
                    pass

        return run

    return prepare


def of_rows(place: Path, n: int) -> Run:
    make_files(place / "files", n)
    paths = sorted(map(os.fspath, (place / "files").iterdir()))
    return lambda: datasets.resolve_resume_plan([(path, 10) for path in paths], 5 * n)


def of_loader(kind: Callable[..., Any], **options: Any) -> Prepare:
    """An epoch, of shards of one row each."""

    def prepare(place: Path, n: int) -> Run:
        loader = kind(validate_bench.make_shards_dir(place, n), layer=1, **options)
        return lambda: sum(len(batch["act"]) for batch in loader)

    return prepare


def of_rows_by_number(read: Callable[[shardproof.IndexedDataset, int], object]) -> Prepare:
    def prepare(place: Path, n: int) -> Run:
        dataset = shardproof.IndexedDataset(validate_bench.make_shards_dir(place, n), layer=1)
        return lambda: read(dataset, n)

    return prepare


GROUPS: dict[str, dict[str, Prepare]] = {
    "validation": {
        "`validate(path)`": saev(shardproof.validate),
        '`validate(path, level="complete")`': saev(
            lambda path: shardproof.validate(path, level="complete")
        ),
        "`validate(path)`, all missing": saev(shardproof.validate, files=False),
        "`str(report)`, all missing": broken(str),
        "`report.to_dict()`, all missing": broken(shardproof.Report.to_dict),
        "`ShardInfo.load(path)`": saev(shardproof.ShardInfo.load),
        "`shard_info.validate(path)`": shard_info(shardproof.ShardInfo.validate),
        "`shard_info.dump(path)`": shard_info(shardproof.ShardInfo.dump),
    },
    "receipts": {
        "`input_files(path)`": of_inputs,
        "`make_plan(...)`": lambda _, n: lambda: receipts.make_plan("c", of_files(n), n_shards=n),
        "`run.store(plan)`, new": of_new_store,
        "`store.pending()`": of_done(shardproof.ReceiptStore.pending),
        "`store.verdicts()`": of_done(shardproof.ReceiptStore.verdicts),
        "`store.pending()`, nothing begun": of_undone(shardproof.ReceiptStore.pending),
        "`store.is_completed(i)` of each": of_done(is_each_completed),
        "`store.claim_pending()`, all done one by one": of_undone(claim_all),
        "`claims_in(path)`, all claimed": of_claimed(lambda s: list(receipts.claims_in(s.path))),
        "`store.claim_pending()`, all claimed, a hundredth": of_claimed(claim_some),
        "`plan_dirs(path)` of so many runs": of_runs,
    },
    "loaders": {
        "`OrderedDataLoader(path)`": saev(lambda path: shardproof.OrderedDataLoader(path, layer=1)),
        "an epoch in order": of_loader(shardproof.OrderedDataLoader, batch_size=64),
        "an epoch shuffled": of_loader(shardproof.ShuffledDataLoader, batch_size=64),
        "an epoch permuted": of_loader(
            shardproof.ShuffledDataLoader, batch_size=64, buffer_size=None
        ),
        "`dataset[rows]`, all at once": of_rows_by_number(lambda rows, n: rows[range(n)]),
        "`dataset[row]`, each": of_rows_by_number(lambda rows, n: [rows[at] for at in range(n)]),
        "`dataset[rows]`, 1000 times": of_rows_by_number(
            lambda rows, n: [rows[range(at, n, 1000)] for at in range(min(n, 1000))]
        ),
    },
    "staging": {
        "`stage(path)`": of_stage(again=False),
        "`stage(path)` again": of_stage(again=True),
    },
    "fetching": {
        "`adopt(path)`": of_adopt,
        '`ShardPrefetcher(cleanup="keep")`': of_prefetcher(cleanup="keep"),
        '`ShardPrefetcher(cleanup="auto")`': of_prefetcher(cleanup="auto"),
        "`ShardPrefetcher(max_cache_bytes=...)` of all": of_prefetcher(
            max_cache_bytes=lambda n: 9 * (n + 2)
        ),
        "`ShardPrefetcher(max_cache_bytes=...)` of half": of_prefetcher(
            max_cache_bytes=lambda n: 9 * (n // 2)
        ),
    },
    "datasets": {"`resolve_resume_plan(shards)`": of_rows},
}


def seconds_of(prepare: Prepare, place: Path, n: int) -> float:
    """Time one call, the second of two directories: the first call of all imports."""
    place.mkdir()
    run = prepare(place, n)
    begin = time.perf_counter()
    run()
    seconds = time.perf_counter() - begin
    shutil.rmtree(place)
    return seconds


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    logging.getLogger("shardproof").addHandler(logging.NullHandler())
    sizes = options.sizes
    for group in options.only:
        note = f"Of {', '.join(map(str, sizes))} each; the median is over the sizes."
        section = Section(f"Growth: {group}", note, "us a shard")
        for what, prepare in GROUPS[group].items():
            seconds_of(prepare, place / "first", sizes[0])
            found = []
            for n in sizes:
                rounds = [seconds_of(prepare, place / "dir", n) for _ in range(options.rounds)]
                found.append(min(rounds) / n * 1e6)
                if found[-1] * n > _ENOUGH:
                    break
            extra = {f"{n}": f"{each:.1f}" for n, each in zip(sizes, found, strict=False)}
            section.figures.append(Figure(what, found[-1:], found[:1], extra))
            section.rulers.append(Ruler(what, _MOST, found[-1] / found[0]))
            print(what, extra, file=sys.stderr, flush=True)
        yield section


def main() -> None:
    found = parser(__doc__, tuple(GROUPS))
    found.add_argument("--sizes", type=int, nargs="+", default=[300, 3000, 30000])
    found.add_argument("--rounds", type=int, default=3)
    report(found.parse_args(), measured)


if __name__ == "__main__":
    main()

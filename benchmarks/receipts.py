"""What it costs to ask a plan of many shards what is left to do, beside the least it could cost.

::

    python benchmarks/receipts.py [--json FILE] [--markdown FILE]

Every contender runs in a process of its own and times itself; within a section they take turns
(A B C A B C ...). On the warm disk each looks at everything twice, and the second time counts:
virtual machines lend memory that was free for seconds to others, and fetch it back when it is
touched. In the end all of them must have named the same shards.
"""

import argparse
import functools
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from _figures import Ruler, Section, figures, ratio_of
from _races import NO_COMPILER, Command, child, cold_race, compiled, play_or, warm_race
from _report import parser, report

PLAN_HASH = "0123456789abcdef"
BIN, IDX = b"tokens of a shard\n", b"index\n"
OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
SECTIONS = ("warm", "purged", "slow")

Look = Callable[[], Sequence[int]]


# Contenders: each is prepared with a plan directory, and returns what is timed.


class _File(msgspec.Struct):
    path: str
    bytes: int


class _Receipt(msgspec.Struct):
    status: str
    plan_hash: str
    files: dict[str, _File] = {}


def bare_loop(plan_dir: Path) -> Look:
    """The same as the C loop, from Python; and the receipts are parsed."""
    n_shards = shards_of(plan_dir)
    plan_fd = os.open(plan_dir, os.O_RDONLY)
    receipts_fd = os.open(plan_dir / "receipts", os.O_RDONLY)
    decode = msgspec.json.Decoder(_Receipt).decode

    def is_done(name: str) -> bool:
        fd = os.open(name, OPEN_FLAGS, dir_fd=receipts_fd)
        data = os.read(fd, 4096)
        os.close(fd)
        receipt = decode(data)
        if receipt.status != "completed" or receipt.plan_hash != PLAN_HASH:
            return False
        for file in receipt.files.values():
            if os.stat(file.path, dir_fd=plan_fd).st_size != file.bytes:
                return False
        return True

    def look() -> list[int]:
        pending = []
        for index in range(n_shards):
            try:
                if is_done(f"shard_{index:06d}.json"):
                    continue
            except FileNotFoundError:
                pass
            pending.append(index)
        return pending

    return look


def plain_loop(plan_dir: Path) -> Look:
    """As one writes it: pathlib and json, one path after the other."""
    n_shards = shards_of(plan_dir)

    def is_done(path: Path) -> bool:
        if not path.exists():
            return False
        receipt = json.loads(path.read_text())
        if receipt["status"] != "completed" or receipt["plan_hash"] != PLAN_HASH:
            return False
        for file in receipt["files"].values():
            output = plan_dir / file["path"]
            if not output.exists() or output.stat().st_size != file["bytes"]:
                return False
        return True

    def look() -> list[int]:
        receipts = plan_dir / "receipts"
        return [i for i in range(n_shards) if not is_done(receipts / f"shard_{i:06d}.json")]

    return look


def pending(plan_dir: Path, workers: str = "") -> Look:
    import shardproof  # noqa: PLC0415 - only this child needs it

    store = shardproof.ReceiptStore(plan_dir)
    return functools.partial(store.pending, workers=int(workers) if workers else None)


def opened(plan_dir: Path) -> Look:
    """... and the plan is read each time."""
    import shardproof  # noqa: PLC0415

    return lambda: shardproof.ReceiptStore(plan_dir).pending()


CONTENDERS: dict[str, Callable[..., Look]] = {
    "bare": bare_loop,
    "plain": plain_loop,
    "pending": pending,
    "opened": opened,
}


def play(contender: str, n_times: str, found: str, plan_dir: str, *arguments: str) -> None:
    """Be a child: look so often for each line, print the seconds of the last time, then what."""
    logging.getLogger("shardproof").addHandler(logging.NullHandler())  # else it is written out
    look = CONTENDERS[contender](Path(plan_dir), *arguments)
    shards: Sequence[int] = []
    print("ready", flush=True)
    for _ in sys.stdin:
        seconds = 0.0
        for _ in range(int(n_times)):
            begin = time.perf_counter()
            shards = look()
            seconds = time.perf_counter() - begin
        print(seconds, flush=True)
    Path(found).write_text(json.dumps(list(shards)))


# The directories.


def make_plan_dir(plan_dir: Path, n_shards: int) -> list[int]:
    """Write a plan directory whose shards are done but for a few; return those."""
    receipts = plan_dir / "receipts"
    receipts.mkdir(parents=True)
    assignments = [{"shard_index": i, "files": [], "total_bytes": 0} for i in range(n_shards)]
    plan = {
        "version": "1.0",
        "created_at": "2026-01-01T00:00:00Z",
        "plan_hash": PLAN_HASH,
        "dataset_name": "bench",
        "num_shards": n_shards,
        "source_fingerprint": "sha256:" + "0" * 64,
        "config_hash": PLAN_HASH,
        "determinism_constraints": {},
        "resolved_tokenizer": {"type": "none"},
        "file_assignments": assignments,
        "pins": [],
    }
    (plan_dir / "plan.json").write_text(json.dumps(plan))
    plan_fd, receipts_fd = (os.open(path, os.O_RDONLY) for path in (plan_dir, receipts))
    for index in range(n_shards):
        name = f"shard_{index:06d}"
        write(plan_fd, f"{name}.bin", BIN)
        write(plan_fd, f"{name}.idx", IDX)
        write(receipts_fd, f"{name}.json", receipt_text(index))
    undone = dict(zip(range(n_shards // 10, n_shards, n_shards // 5), undo(plan_dir), strict=False))
    for index, take_back in undone.items():
        take_back(f"shard_{index:06d}")
    os.close(plan_fd)
    os.close(receipts_fd)
    os.sync()  # now, and not while the clocks run
    return list(undone)


def write(dir_fd: int, name: str, data: bytes) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=dir_fd)
    os.write(fd, data)
    os.close(fd)


def receipt_text(index: int, status: str = "completed") -> bytes:
    name = f"shard_{index:06d}"
    outputs = {"bin": BIN, "idx": IDX}
    receipt = {
        "status": status,
        "plan_hash": PLAN_HASH,
        "shard_index": index,
        "run_hash": PLAN_HASH,
        "dataset_name": "bench",
        "schema_version": 1,
        "started_at": 1700000000.25,
        "completed_at": 1700000001.75,
        "stats": {"num_sequences": 4, "num_tokens": 17},
        "files": {
            kind: {
                "path": f"{name}.{kind}",
                "bytes": len(data),
                "checksum": "sha256:" + f"{index:064x}",
            }
            for kind, data in outputs.items()
        },
    }
    return json.dumps(receipt, separators=(",", ":")).encode() + b"\n"  # as the store writes it


def undo(plan_dir: Path) -> Iterator[Callable[[str], Any]]:
    """What can be wrong with a shard that every contender sees."""
    receipts = plan_dir / "receipts"
    yield lambda name: (receipts / f"{name}.json").unlink()
    yield lambda name: (plan_dir / f"{name}.bin").unlink()
    yield lambda name: (plan_dir / f"{name}.idx").unlink()
    yield lambda name: (plan_dir / f"{name}.bin").write_bytes(BIN[:-1])
    yield lambda name: (receipts / f"{name}.json").write_bytes(
        receipt_text(int(name[-6:]), "started")
    )


def shards_of(plan_dir: Path) -> int:
    n_shards = json.loads((plan_dir / "plan.json").read_bytes())["num_shards"]
    assert isinstance(n_shards, int)
    return n_shards


# The sections.


def warm(options: argparse.Namespace, place: Path) -> Section:
    """A local disk whose inodes are all cached."""
    plan_dir, n_shards = place / "warm", options.receipts
    expected = make_plan_dir(plan_dir, n_shards)
    c_loop, ours = "C: read the receipt, stat two outputs", "`store.pending()`"
    slowest = "Python: pathlib and json"
    commands = [
        looking("Python: the same, msgspec, names relative to descriptors", "bare", 2, plan_dir),
        looking(slowest, "plain", 2, plan_dir),
        looking(ours, "pending", 2, plan_dir),
        looking("`store.pending(workers=1)`", "pending", 2, plan_dir, "1"),
        looking("`ReceiptStore(path).pending()`", "opened", 2, plan_dir),
    ]
    note = (
        f"{n_shards} receipts of {len(receipt_text(0))} bytes, each with two outputs of a few "
        f"bytes; {len(expected)} are not done; {options.rounds} rounds."
    )
    if loop := compiled("receipts.c", place):
        sizes = str(len(BIN)), str(len(IDX))
        found = os.fspath(place / "found-c")
        argv = [os.fspath(loop), os.fspath(plan_dir), str(n_shards), *sizes, found]
        commands.insert(0, Command(c_loop, argv, {"FOUND": found}))
    else:
        note += f" C loop: {NO_COMPILER}."
    section = Section("Warm local disk", note, "us a receipt")
    race = warm_race(commands, options.rounds)
    section.figures = figures(commands, race, 1e6 / n_shards)
    require_same(commands, expected)
    by_name = {figure.what: figure for figure in section.figures}
    section.rulers = [
        Ruler(f"{ours} over the C loop", 1.8, ratio_of(by_name, ours, c_loop)),
        Ruler(f"{slowest} over {ours}", 3, ratio_of(by_name, slowest, ours), at_least=True),
    ]
    return section


def purged(options: argparse.Namespace, place: Path) -> Section:
    """A warm disk whose outputs were removed, in part, since they are old."""
    plan_dir, n_shards = place / "purged", options.receipts // 10
    expected = set(make_plan_dir(plan_dir, n_shards))
    for index in range(0, n_shards, 10):
        (plan_dir / f"shard_{index:06d}.bin").unlink(missing_ok=True)
        expected.add(index)
    ours = "`store.pending()`"
    commands = [
        looking("Python: the same, msgspec, names relative to descriptors", "bare", 1, plan_dir),
        looking(ours, "pending", 1, plan_dir),
    ]
    note = f"{n_shards} receipts, of which {len(expected)} are not done; {options.rounds} rounds."
    section = Section("An output of each tenth shard is gone", note, "us a receipt")
    race = warm_race(commands, options.rounds)
    section.figures = figures(commands, race, 1e6 / n_shards)
    require_same(commands, sorted(expected))
    return section


def slow(options: argparse.Namespace, place: Path) -> Section:
    """A file system on which each metadata call takes a millisecond."""
    title = f"{options.milliseconds:g} ms for each metadata call"
    shim = compiled("slow.c", place, "-shared", "-fPIC")
    if shim is None:
        return Section(title, f"{NO_COMPILER}.", "ms for all")
    plan_dir, n_shards = place / "slow", options.slow_receipts
    expected = make_plan_dir(plan_dir, n_shards)
    loop, ours = "Python: one receipt after the other", "`store.pending()`"
    env = {
        "LD_PRELOAD": os.fspath(shim),
        "SLOW_ROOT": os.fspath(plan_dir),
        "SLOW_NANOSECONDS": str(round(options.milliseconds * 1e6)),
    }
    commands = [
        looking(loop, "bare", 1, plan_dir, **env),
        looking("`store.pending(workers=1)`", "pending", 1, plan_dir, "1", **env),
        looking(ours, "pending", 1, plan_dir, **env),
    ]
    commands = [
        Command(c.what, c.argv, {**c.env, "SLOW_COUNTS": os.fspath(place / f"counts{number}")})
        for number, c in enumerate(commands)
    ]
    note = (
        f"{n_shards} receipts, {len(expected)} are not done; {options.slow_rounds} rounds, each "
        "run in a new process."
    )
    race = cold_race(commands, options.slow_rounds)
    section = Section(title, note, "ms for all", figures(commands, race, 1e3))
    require_same(commands, expected)
    for figure, command in zip(section.figures, commands, strict=True):
        counts = json.loads(Path(command.env["SLOW_COUNTS"]).read_text())
        figure.extra["calls a receipt"] = f"{sum(counts.values()) / n_shards:.2f}"
    by_name = {figure.what: figure for figure in section.figures}
    faster = ratio_of(by_name, loop, ours)
    section.rulers = [Ruler(f"{loop} over {ours}", 30, faster, at_least=True)]
    return section


def looking(
    what: str, contender: str, n_times: int, plan_dir: Path, *arguments: str, **env: str
) -> Command:
    found = f"{plan_dir}-{contender}{''.join(arguments)}"
    env["FOUND"] = found
    return child(what, contender, n_times, found, plan_dir, *arguments, env=env)


def require_same(commands: Sequence[Command], expected: Sequence[int]) -> None:
    """End here unless every contender has found the shards that are not done, and only those."""
    for command in commands:
        found = json.loads(Path(command.env["FOUND"]).read_text())
        if found != expected:
            raise SystemExit(f"{command.what}: expected {expected}, found {found}")


def parse_arguments() -> argparse.Namespace:
    found = parser(__doc__, SECTIONS)
    found.add_argument("--receipts", type=int, default=100_000, help="on the warm disk")
    found.add_argument("--rounds", type=int, default=7, help="rounds on the warm disk")
    found.add_argument("--slow-receipts", type=int, default=2000, help="receipts with latency")
    found.add_argument("--slow-rounds", type=int, default=5, help="rounds with latency")
    found.add_argument("--milliseconds", type=float, default=1.0, help="latency of a call")
    return found.parse_args()


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    measure = {"warm": warm, "purged": purged, "slow": slow}
    for section in options.only:
        yield measure[section](options, place)


if __name__ == "__main__":
    play_or(lambda: report(parse_arguments(), measured), play)

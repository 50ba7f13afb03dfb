"""What it costs to stage a shards directory, beside plain copies of it.

::

    python benchmarks/staging.py [--mib MIB] [--files N] [--json FILE] [--markdown FILE]

Every contender runs in a process of its own and times itself; they take turns (A B C A B C ...).
The source is in the page cache. A copy is removed before the next one is made, which is not timed,
and in the end every copy must hold the source's bytes.
"""

import argparse
import contextlib
import filecmp
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from _figures import Ruler, Section, figures, ratio_of
from _races import child, play_or, warm_race
from _report import parser, report
from validate import make_shards_dir

BYTES_PER_VALUE = 4

Copy = Callable[[Path, Path], object]
"""Copies the source to a place, and is timed."""


def cp(source: Path, place: Path) -> None:
    subprocess.run(["cp", "-r", source, place / "copy"], check=True)


def copytree(source: Path, place: Path) -> None:
    shutil.copytree(source, place / "copy")


def stage(source: Path, place: Path, level: str = "complete") -> None:
    from shardproof.staging import stage as staged  # noqa: PLC0415 - only this child needs it

    staged(source, place, level=level)  # type: ignore[arg-type] # from the command line


CONTENDERS: dict[str, Copy] = {
    "cp": cp,
    "copytree": copytree,
    "stage": stage,
    "valid": functools.partial(stage, level="valid"),
    "again": stage,
}


def play(contender: str, source: str, place: str) -> None:
    """Be a child: say "ready", then copy once for each line and print the seconds that it took."""
    copy = CONTENDERS[contender]
    path = Path(place)
    print("ready", flush=True)
    for _ in sys.stdin:
        if contender != "again":
            remove(path)
        path.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        copy(Path(source), path)
        print(time.perf_counter() - begin, flush=True)
        require_same(Path(source), path)
        if contender != "again":
            remove(path)


def remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def require_same(source: Path, place: Path) -> None:
    """End here unless the copy has every file of the source, and its bytes."""
    (copy,) = [path.parent for path in place.rglob("shards.json")]
    names = os.listdir(source)
    if any(not filecmp.cmp(source / name, copy / name, shallow=False) for name in names):
        raise SystemExit(f"'{copy}' is no copy of '{source}'")


def make_source(parent: Path, n_files: int, mib: int) -> Path:
    """Write shards of random bytes, ``mib`` MiB in all."""
    shard_bytes = mib * 2**20 // n_files
    values = shard_bytes // (2 * BYTES_PER_VALUE)  # two tokens
    source = make_shards_dir(parent, n_files, d_model=values, files=False)
    metadata = json.loads((source / "metadata.json").read_text())
    metadata["content_tokens_per_example"], metadata["max_tokens_per_shard"] = 2, 2
    (source / "metadata.json").write_text(json.dumps(metadata, indent=2))
    block = os.urandom(2**20)
    for number in range(n_files):
        with open(source / f"acts{number:06}.bin", "wb") as file:
            left = 2 * values * BYTES_PER_VALUE
            while left:
                left -= file.write(block[:left])
    os.sync()  # now, and not while the clocks run
    return source


def staging(options: argparse.Namespace, place: Path) -> Section:
    """A directory whose files are all in the page cache."""
    source = make_source(place, options.files, options.mib)
    again, ours, plain = "`stage(...)` once more", "`stage(...)`", "`cp -r`"
    names = {
        plain: "cp",
        "`shutil.copytree`": "copytree",
        ours: "stage",
        '`stage(..., level="valid")`': "valid",
        again: "again",
    }
    commands = [child(what, name, source, place / f"to-{name}") for what, name in names.items()]
    note = (
        f"{options.mib} MiB in {options.files} files, in the page cache; {options.rounds} rounds. "
        "What is copied once more is there already, and only looked at."
    )
    section = Section("Staging", note, "s")
    section.figures = figures(commands, warm_race(commands, options.rounds), 1.0)
    by_name = {figure.what: figure for figure in section.figures}
    section.rulers = [
        Ruler(f"{ours} over {plain}", 1.25, ratio_of(by_name, ours, plain)),
        Ruler(f"{ours} over {again}", 20, ratio_of(by_name, ours, again), at_least=True),
    ]
    return section


def parse_arguments() -> argparse.Namespace:
    found = parser(__doc__)
    found.add_argument("--mib", type=int, default=2048, help="size of the directory")
    found.add_argument("--files", type=int, default=64, help="in how many files")
    found.add_argument("--rounds", type=int, default=5)
    return found.parse_args()


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    yield staging(options, place)


if __name__ == "__main__":
    play_or(lambda: report(parse_arguments(), measured), play)

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
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from validate import (
    Command,
    Ruler,
    Section,
    figures,
    machine,
    make_shards_dir,
    markdown,
    ratio_of,
    warm_race,
    write_markdown,
)

HERE = Path(__file__).resolve().parent
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


def child(what: str, contender: str, source: Path, place: Path) -> Command:
    argv = [sys.executable, os.fspath(HERE / "staging.py"), "--play", contender]
    return Command(what, [*argv, os.fspath(source), os.fspath(place)])


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--mib", type=int, default=2048, help="size of the directory")
    parser.add_argument("--files", type=int, default=64, help="in how many files")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where to make the directories")
    parser.add_argument("--json", metavar="FILE", help="all figures; - for standard output")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the tables")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse_arguments()
    log: TextIO = sys.stderr if options.json == "-" else sys.stdout
    with tempfile.TemporaryDirectory(prefix="shardproof-bench-", dir=options.dir) as name:
        place = Path(name).resolve()
        found = machine(place)
        sections = [staging(options, place)]
    text = markdown(found, sections)
    print(text, file=log)
    if options.json:
        data = {"machine": found, "sections": [section.to_dict() for section in sections]}
        raw = json.dumps(data, indent=2) + "\n"
        sys.stdout.write(raw) if options.json == "-" else Path(options.json).write_text(raw)
    if options.markdown:
        write_markdown(options.markdown, text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        play(*sys.argv[2:])
    else:
        main()

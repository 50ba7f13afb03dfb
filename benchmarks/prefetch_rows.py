"""What it costs to come back to row 1 000 000 of a parquet shard, beside reading row by row to it.

::

    python benchmarks/prefetch_rows.py [--json FILE] [--markdown FILE]

The shard is local and cached, so that a disk and a network count for nobody. Every contender runs
in a process of its own and times itself, from opening the shard to having the row; within a section
they take turns (A B C A B C ...). In the end all of them must have had the same row.
"""

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from _figures import Ruler, Section, figures, ratio_of
from _races import Command, child, play_or, warm_race
from _report import parser, report

SHARD = "train-00000.parquet"
GROUPS = (1000, 10_000, 2**20)

Row = dict[str, Any]
Reach = Callable[[], Row]


# Contenders: each is prepared with a directory and a number, and returns what is timed.


def plain(place: Path, row: int) -> Reach:
    """As one writes it: batches of pyarrow, rows of those, and a count."""

    def reach() -> Row:
        count = 0
        for batch in pq.ParquetFile(place / SHARD).iter_batches():
            for found in batch.to_pylist():
                if count == row:
                    return dict(found)
                count += 1
        raise IndexError(row)

    return reach


def slices(place: Path, row: int) -> Reach:
    """The same, but batches are passed over whole."""

    def reach() -> Row:
        left = row
        for batch in pq.ParquetFile(place / SHARD).iter_batches():
            if left < batch.num_rows:
                return dict(batch.slice(left, 1).to_pylist()[0])
            left -= batch.num_rows
        raise IndexError(row)

    return reach


def streaming(place: Path, row: int) -> Reach:
    """Streaming of the package datasets, with its skip."""
    import datasets  # noqa: PLC0415 - only this child needs it

    files = os.fspath(place / SHARD)

    def reach() -> Row:
        rows = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
        return dict(next(iter(rows.skip(row))))

    return reach


def _rows(place: Path) -> Any:
    from shardproof.datasets import hf_load_dataset_sharded  # noqa: PLC0415 - only this child

    return hf_load_dataset_sharded(
        "bench/rows", cache_dir=place / "cache", source=f"file://{place}", cleanup="keep"
    )


def resumed(place: Path, row: int) -> Reach:
    """Ours, by a state that was saved after the row before."""
    state = _rows(place).skip(row).state_dict()

    def reach() -> Row:
        with _rows(place) as rows:
            rows.load_state_dict(state)
            return dict(next(iter(rows)))

    return reach


def skipped(place: Path, row: int) -> Reach:
    """Ours, by a number of rows."""

    def reach() -> Row:
        with _rows(place).skip(row) as rows:
            return dict(next(iter(rows)))

    return reach


CONTENDERS = {
    "plain": plain,
    "slices": slices,
    "streaming": streaming,
    "resumed": resumed,
    "skipped": skipped,
}


def play(contender: str, found: str, place: str, row: str) -> None:
    """Be a child: reach the row once for each line, print the seconds; in the end, the row."""
    reach = CONTENDERS[contender](Path(place), int(row))
    last: Row = {}
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        last = reach()
        print(time.perf_counter() - begin, flush=True)
    Path(found).write_text(json.dumps(last))


# The shard.


def write_shard(place: Path, n_rows: int, group: int) -> None:
    """Write rows with a number and about 150 characters of text, none like another."""
    place.mkdir()
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    with pq.ParquetWriter(place / SHARD, schema) as writer:
        for start in range(0, n_rows, group):
            numbers = range(start, min(n_rows, start + group))
            texts = [f"{number * 2654435761 % 2**32:08x} " * 17 for number in numbers]
            table = pa.table({"id": pa.array(numbers, pa.int64()), "text": texts}, schema)
            writer.write_table(table, group)


def reach_row(options: argparse.Namespace, place: Path, group: int) -> Section:
    """One shard, whose row groups have a size."""
    here, n_rows = place / f"groups-{group}", options.row + options.row // 10
    write_shard(here, n_rows, group)
    by_row, ours = "pyarrow, row by row", "`load_state_dict(state)`"
    by_number = "`skip=`"
    commands = [
        reaching(by_row, "plain", here, options.row),
        reaching("pyarrow, batches passed over", "slices", here, options.row),
        reaching(ours, "resumed", here, options.row),
        reaching(by_number, "skipped", here, options.row),
    ]
    if importlib.util.find_spec("datasets"):
        command = reaching("datasets, `streaming=True`, `.skip()`", "streaming", here, options.row)
        commands.insert(2, command)
    size = (here / SHARD).stat().st_size
    note = (
        f"{n_rows} rows in row groups of {group}, {size / 2**20:.0f} MiB; to row {options.row}; "
        f"{options.rounds} rounds."
    )
    section = Section(f"Row groups of {group}", note, "ms to the row")
    section.figures = figures(commands, warm_race(commands, options.rounds), 1e3)
    require_same(commands, options.row)
    by_name = {figure.what: figure for figure in section.figures}
    if group <= n_rows // 10:
        section.rulers = [
            Ruler(f"{by_row} over {what}", 50, ratio_of(by_name, by_row, what), at_least=True)
            for what in (ours, by_number)
        ]
    return section


def reaching(what: str, contender: str, place: Path, row: int) -> Command:
    found = f"{place}-{contender}"
    env = {"FOUND": found, "HF_DATASETS_CACHE": f"{found}-cache", "HF_HUB_OFFLINE": "1"}
    return child(what, contender, found, place, row, env=env)


def require_same(commands: list[Command], row: int) -> None:
    """End here unless every contender had the row."""
    found = [json.loads(Path(command.env["FOUND"]).read_text()) for command in commands]
    for command, last in zip(commands, found, strict=True):
        if last != found[0] or last["id"] != row:
            raise SystemExit(f"{command.what}: expected row {row}, found {last}")


def parse_arguments() -> argparse.Namespace:
    found = parser(__doc__)
    found.add_argument("--row", type=int, default=10**6, help="which row")
    found.add_argument("--rounds", type=int, default=7)
    found.add_argument("--groups", type=int, nargs="+", default=GROUPS, help="rows of a row group")
    return found.parse_args()


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    for group in options.groups:
        yield reach_row(options, place, group)


if __name__ == "__main__":
    play_or(lambda: report(parse_arguments(), measured), play)

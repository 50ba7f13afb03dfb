"""Writes the tables of docs/distributed.md and docs/engines.md from what tests took down.

``SHARDPROOF_FAULTS=rows.jsonl pytest -m "" tests/test_engines.py``, the same for ``tests/cluster``,
then ``python -m tests.cluster.table rows.jsonl``.
"""

import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- rows of tests/cluster -->\n", "<!-- end of rows -->\n"
_WIDEST = 170


def table(lines: Iterable[str], *, of_ranks: bool) -> Iterator[str]:
    """The last line of each participant; those that saw the same share a row."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for each in map(json.loads, lines):
        if each["who"].startswith("rank") == of_ranks:
            rows[each["engine"], each["fault"], each["who"]] = each
    engines = [engine for engine, *_ in rows]
    by_engine = sorted(rows.values(), key=lambda row: engines.index(row["engine"]))
    yield "| Engine | Fault | Who | Saw | After |\n|---|---|---|---|--:|\n"
    for (engine, fault, saw), some in itertools.groupby(by_engine, _shown):
        found = [*some]
        who = ", ".join(each["who"] for each in found)
        seconds = max(each["seconds"] for each in found)
        yield f"| {engine} | {fault} | {who} | {saw} | {seconds:.1f} s |\n"


def _shown(row: dict[str, Any]) -> tuple[str, str, str]:
    saw = re.sub(r"'/\S*/([^/]+(?:/elsewhere)?)'", r"'.../\1'", row["saw"].replace("\n", "; "))
    saw = saw if len(saw) <= _WIDEST else f"{saw[:_WIDEST]}..."
    return row["engine"], row["fault"], saw.replace("|", "\\|")


def main(name: str) -> None:
    lines = Path(name).read_text().splitlines()
    for page in (DOCS / "distributed.md", DOCS / "engines.md"):
        before, _, rest = page.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        rows = "".join(table(lines, of_ranks=page.stem == "distributed"))
        page.write_text(f"{before}{BEGIN}{rows}{END}{after}")


if __name__ == "__main__":
    main(*sys.argv[1:])

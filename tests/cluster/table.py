"""Writes the table of docs/distributed.md from what tests took down.

``CLUSTER_ROWS=rows.jsonl pytest tests/cluster && python -m tests.cluster.table rows.jsonl``
"""

import json
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"
BEGIN, END = "<!-- rows of tests/cluster -->\n", "<!-- end of rows -->\n"


def table(lines: list[str]) -> str:
    """The rows, the last of each participant, in the order in which they came."""
    rows = {}
    for each in map(json.loads, lines):
        rows[each["engine"], each["fault"], each["participant"]] = each
    text = ["| Engine | Fault | Who | Saw | After |\n", "|---|---|---|---|--:|\n"]
    for (engine, fault, participant), row in rows.items():
        saw = row["saw"].replace("|", "\\|").replace("\n", "; ")
        text.append(f"| {engine} | {fault} | {participant} | {saw} | {row['seconds']:.1f} s |\n")
    return "".join(text)


def main(name: str) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = table(Path(name).read_text().splitlines())
    PAGE.write_text(f"{before}{BEGIN}{rows}{END}{after}")


if __name__ == "__main__":
    main(*sys.argv[1:])

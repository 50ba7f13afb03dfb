"""Write the table of docs/attacks.md from the figures of an exhaustive run.

``python tests/attacks/table.py FIGURES`` prints it; with ``--write`` it replaces the one in the
page.
"""

import argparse
import platform
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.attacks.tally import HARMS, read
from tests.helpers import ROOT

PAGE = ROOT / "docs" / "attacks.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"


def lines(figures: Path) -> Iterator[str]:
    yield "| attack | cases | " + " | ".join(HARMS) + " |"
    yield "|---|--:|" + "--:|" * len(HARMS)
    total: Counter[str] = Counter()
    for attack, counts in read(figures):
        total.update(counts)
        yield _line(attack, counts)
    yield _line("all", total)


def _line(attack: str, counts: Counter[str]) -> str:
    cells = [f"{counts[name]:,}".replace(",", " ") for name in ("cases", *HARMS)]
    return f"| {attack} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    kernel = f"Linux {platform.release()}, Python {platform.python_version()}"
    table = "\n".join([*lines(arguments.figures), "", f"({kernel}, {platform.machine()})", ""])
    if not arguments.write:
        sys.stdout.write(table)
        return
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{after}")


if __name__ == "__main__":
    main()

"""A plot beside each table of figures in the documentation.

::

    python benchmarks/plots.py

Each table of ``docs/benchmarks.md`` and ``docs/accelerator.md`` whose columns are median, minimum,
maximum and ratio gets bars, in ``docs/plots``; a line is the first row, with which all are
compared. A plot takes the colours of the reader's system, light or dark.
"""

import html
import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("benchmarks.md", "accelerator.md")
TABLE = re.compile(
    r"(?m)^\| (?P<unit>[^|\n]*) \| median \|.*\n\| ?-.*\n(?P<rows>(?:\|.*\n)+)"
    r"(?:\n!\[[^\n]*\]\(plots/[^\n]*\n)?"
)
BAR, GAP, LABELS, WIDTH = 16, 6, 400, 900
OURS = re.compile(
    r"shardproof|validate|^ours|stage\(|DataLoader|Dataset|fetch|pending|Prefetch|resolve_|healthy"
    r"|^all |, present$|, complete$|begin_|save_|load_"
)
OTHERS = re.compile(r"^saev:|^hf |safetensors|torch\.save|np\.|hf_hub")
STYLE = """<style>
svg { color: #1f2328; background: #fff; font: 12px sans-serif }
text { fill: currentColor } .other { fill: #9aa4b0 } .ours { fill: #1f77a8 }
line { stroke: currentColor }
@media (prefers-color-scheme: dark) {
svg { color: #e6e9ee; background: #1e2129 } .other { fill: #6b7684 } .ours { fill: #58b4e6 }
}
</style>"""


def plot(title: str, unit: str, rows: list[tuple[str, str]]) -> str:
    """Return labels and figures as horizontal bars, ours in a colour of their own."""
    height = 40 + len(rows) * (BAR + GAP)
    scale = (WIDTH - LABELS - 70) / max(float(figure) for _, figure in rows)
    x = LABELS + float(rows[0][1]) * scale
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    lines = [
        head,
        f"<title>{html.escape(title)}: {html.escape(unit)}</title>",
        STYLE,
        f'<text x="{LABELS}" y="20" font-weight="bold">{html.escape(unit)}</text>',
        *(_bar(number, *row, scale) for number, row in enumerate(rows)),
        f'<line x1="{x:.1f}" y1="28" x2="{x:.1f}" y2="{height}" stroke-dasharray="3"/>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _bar(number: int, label: str, figure: str, scale: float) -> str:
    top, length = 32 + number * (BAR + GAP), float(figure) * scale
    whose = "ours" if OURS.search(label) and not OTHERS.search(label) else "other"
    shown = label if len(label) <= 62 else f"{label[:61]}…"
    return (
        f'<text x="{LABELS - 8}" y="{top + 12}" text-anchor="end">{html.escape(shown)}</text>'
        f'<rect class="{whose}" x="{LABELS}" y="{top}" width="{length:.1f}" height="{BAR}"/>'
        f'<text x="{LABELS + length + 5:.1f}" y="{top + 12}">{figure}</text>'
    )


def plotted(page: str, text: str) -> tuple[str, dict[str, str]]:
    """Return a page with an image after each table, and the plots by their names."""
    plots: dict[str, str] = {}

    def place(table: re.Match[str]) -> str:
        title = re.findall(r"(?m)^#+ (.*)$", text[: table.start()])[-1]
        rows = [*_rows(table["rows"])]
        slug = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")[:40]
        name = f"{page.removesuffix('.md')}-{slug}"
        name += f"-{sum(other.startswith(name) for other in plots) + 1}.svg"
        plots[name] = plot(title, table["unit"].replace("`", ""), rows)
        body = table[0].partition("\n\n![")[0].rstrip("\n")
        return f"{body}\n\n![{title}, {table['unit']}](plots/{name})\n"

    return TABLE.sub(place, text), plots


def _rows(rows: str) -> Iterator[tuple[str, str]]:
    for row in rows.splitlines():
        label, figure, *_ = (cell.strip() for cell in row.strip("|").split("|"))
        yield re.sub(r"[`*]", "", label), figure.strip("*")


def main() -> None:
    """Write the pages and the plots."""
    (DOCS / "plots").mkdir(exist_ok=True)
    for page in PAGES:
        text, plots = plotted(page, (DOCS / page).read_text())
        (DOCS / page).write_text(text)
        for name, svg in plots.items():
            (DOCS / "plots" / name).write_text(svg)


if __name__ == "__main__":
    main()

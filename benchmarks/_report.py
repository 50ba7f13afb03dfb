"""The options of all benchmarks, and the tables that they print."""

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from _figures import Section

from shardproof._base.fanout import available_cpus

MARKERS = "<!-- figures -->\n", "<!-- end of figures -->"


def parser(description: str | None, sections: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return what knows the options that all benchmarks have."""
    found = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    found.add_argument("--dir", type=Path, help="where to make the files")
    found.add_argument("--json", metavar="FILE", help="all figures; - for standard output")
    found.add_argument("--markdown", type=Path, metavar="FILE", help="the tables")
    if sections:
        found.add_argument("--only", nargs="+", choices=sections, default=sections)
    return found


def report(
    options: argparse.Namespace,
    measure: Callable[[argparse.Namespace, Path], Iterable[Section]],
    versions: str = "",
) -> list[Section]:
    """Measure in a directory that goes then; print and write what the options ask for."""
    busy, sections = [os.getloadavg()[0]], []
    with tempfile.TemporaryDirectory(prefix="shardproof-bench-", dir=options.dir) as name:
        place = Path(name).resolve()
        found = machine(place)
        found["versions"] += versions
        # Children start as they do for users, from byte code; which is not left in the checkout.
        os.environ["PYTHONDONTWRITEBYTECODE"] = ""
        os.environ["PYTHONPYCACHEPREFIX"] = os.fspath(place / "pycache")
        for section in measure(options, place):
            sections.append(section)
            busy.append(os.getloadavg()[0])
    found["load"] = ", ".join(f"{value:.1f}" for value in busy)
    text = markdown(found, sections)
    log: TextIO = sys.stderr if options.json == "-" else sys.stdout
    print(text, file=log)
    if options.json:
        data = {"machine": found, "sections": [section.to_dict() for section in sections]}
        raw = json.dumps(data, indent=2) + "\n"
        sys.stdout.write(raw) if options.json == "-" else Path(options.json).write_text(raw)
    if options.markdown:
        write_markdown(options.markdown, text)
    return sections


def machine(place: Path) -> dict[str, str]:
    versions = [f"{name} {_version(name)}" for name in ("shardproof", "msgspec", "numpy")]
    memory_kb = int(_first(r"MemTotal:\s*(\d+)", "/proc/meminfo") or 0)
    return {
        "cpu": _first(r"model name\s*:\s*(.*)", "/proc/cpuinfo") or platform.machine(),
        "cores": str(available_cpus()),
        "memory": f"{memory_kb / 2**20:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(place),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": ", ".join(versions),
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(importlib.import_module(name), "__version__", "unknown"))


def _first(pattern: str, path: str) -> str | None:
    found = re.search(pattern, Path(path).read_text())
    return found[1] if found else None


def _file_system(place: Path) -> str:
    device = place.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    return _first(rf"(?m)^\d+ \d+ {number} .* - (\S+)", "/proc/self/mountinfo") or "unknown"


def markdown(found: Mapping[str, str], sections: Sequence[Section]) -> str:
    described = (
        f"{found['cpu']}, {found['cores']} cores, {found['memory']}, {found['kernel']}, "
        f"{found['file system']}; {found['python']}, {found['versions']}."
    )
    busy = f"Load average before and after each section: {found['load']}."
    texts = [described, *map(_section, sections), _rulers(sections), busy]
    return "\n\n".join(texts) + "\n"


def _section(section: Section) -> str:
    lines = [f"### {section.title}", "", section.note]
    if not section.figures:
        return "\n".join(lines)
    extras = list(dict.fromkeys(key for figure in section.figures for key in figure.extra))
    head = [section.unit, "median", "min", "max", "ratio", *extras]
    lines += ["", _row(head), _row(["---", *["---:"] * (len(head) - 1)])]
    for figure in section.figures:
        numbers = [figure.median, min(figure.values), max(figure.values)]
        extra = [figure.extra.get(key, "") for key in extras]
        lines.append(_row([figure.what, *map(_number, numbers), f"{figure.ratio:.2f}", *extra]))
    return "\n".join(lines)


def _rulers(sections: Sequence[Section]) -> str:
    head = ["", "aim", "measured", ""]
    lines = ["### Aims", "", _row(head), _row(["---", "---:", "---:", "---"])]
    for section in sections:
        for ruler in section.rulers:
            aim = f"{'at least' if ruler.at_least else 'at most'} {ruler.limit:g}{ruler.unit}"
            measured = "-" if ruler.measured is None else f"{ruler.measured:.2f}{ruler.unit}"
            verdict = {True: "reached", False: "missed", None: "not measured"}[ruler.kept]
            lines.append(_row([f"{section.title}: {ruler.what}", aim, measured, verdict]))
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def write_markdown(path: Path, text: str) -> None:
    """Write the text, or put it between the markers of a page that has them."""
    begin, end = MARKERS
    if path.exists() and begin in (page := path.read_text()):
        before, _, rest = page.partition(begin)
        text = f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}"
    path.write_text(text)

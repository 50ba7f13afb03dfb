"""All benchmarks as one suite.

::

    python -m benchmarks                             # what there is
    python -m benchmarks loaders --rounds 3          # run it, and compare with its last record
    python -m benchmarks loaders --record            # and keep it as the record
    python -m benchmarks loaders --json              # as JSON on standard output

Everything else is passed on to the script. A record is ``benchmarks/<name>.json``: the machine, and
each section with its limits, its contenders and its aims, all of one run. Seconds of two machines
say nothing; ratios to the first contender of a section, which is its limit, do.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def scripts() -> dict[str, str]:
    """Return the benchmarks that write their figures as JSON, each with its first line."""
    texts = {path.stem: path.read_text() for path in sorted(HERE.glob("[!_]*.py"))}
    return {
        name: (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        for name, text in texts.items()
        if "from _report import" in text
    }


def ratios(record: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Return the ratio of each contender of each section."""
    return {
        (section["title"], contender["what"]): contender["ratio"]
        for section in record["sections"]
        for contender in section["contenders"]
    }


def compared(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each contender of both: its ratio now, its ratio then."""
    here, there = (f"{m['cpu']}, {m['cores']} cores" for m in (now["machine"], then["machine"]))
    yield f"now: {here}; then: {there}"
    before = ratios(then)
    for (title, what), ratio in ratios(now).items():
        if (title, what) in before:
            yield f"{title}: {what}: {ratio:.2f}, was {before[title, what]:.2f}"


def measured(name: str, arguments: list[str]) -> dict[str, Any]:
    """Run a benchmark, whose tables go to standard error, and return its figures."""
    with tempfile.TemporaryDirectory() as place:
        figures = Path(place) / "figures.json"
        command = [sys.executable, str(HERE / f"{name}.py"), *arguments, "--json", str(figures)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        found: dict[str, Any] = json.loads(figures.read_text())
    return found


def main() -> None:
    """Run one benchmark, or say which there are."""
    known = scripts()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run a benchmark.")
    parser.add_argument("name", nargs="?", choices=known)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--record", action="store_true", help="keep them as the last record")
    options, arguments = parser.parse_known_args()
    if options.name is None:
        print("\n".join(f"{name:15} {line}" for name, line in known.items()))
        return
    found = measured(options.name, arguments)
    record = HERE / f"{options.name}.json"
    lines = [*compared(json.loads(record.read_text()), found)] if record.exists() else ["no record"]
    print("\n".join(lines), file=sys.stderr)
    if options.json:
        print(json.dumps({**found, "compared": lines}, indent=2))
    if options.record:
        record.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()

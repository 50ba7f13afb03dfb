"""Write the golden directories anew, each by the library that people have it from.

::

    python tests/goldens/write.py CASE... --to tests/goldens

Run it with an interpreter that has the library; without a case it writes those whose libraries are
there. ``VERSIONS.json`` gets a line for each. What is written is small: some KB.
"""

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path

from writers import CASES, CHECKOUTS


def write_case(name: str, to: Path) -> None:
    case = CASES[name]
    writer = case.writer()
    if writer is None:
        raise SystemExit(f"{name}: what writes it is not there")
    with tempfile.TemporaryDirectory(prefix="goldens-") as place:
        made = Path(place, name)
        made.mkdir()
        case.write(made)
        shutil.rmtree(to / name, ignore_errors=True)
        shutil.copytree(made, to / name, symlinks=True)
    path = to / "VERSIONS.json"
    versions = json.loads(path.read_text()) if path.is_file() else {}
    versions[name] = writer
    path.write_text(json.dumps(dict(sorted(versions.items())), indent=2) + "\n")


def main() -> None:
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    found.add_argument("cases", nargs="*", choices=[[], *CASES], metavar="CASE")
    found.add_argument("--to", type=Path, default=Path(__file__).parent)
    for name in CHECKOUTS:
        option = f"--{name.replace('.', '')}"
        found.add_argument(option, dest=name, type=Path, metavar="CHECKOUT")
    options = found.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    CHECKOUTS.update({name: getattr(options, name) for name in CHECKOUTS})
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    for name in options.cases or [name for name, case in CASES.items() if case.writer()]:
        write_case(name, options.to)
        print(name)


if __name__ == "__main__":
    main()

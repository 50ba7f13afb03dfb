"""Write the golden directories anew, each by the library that people have it from.

::

    python tests/goldens/write.py CASE... --to tests/goldens

Run it with an interpreter that has the library; without a case it writes those whose libraries are
there. ``VERSIONS.json`` gets a line for each. What is written is small: some KB.
"""

import json
import shutil
import tempfile
from pathlib import Path

from writers import CASES, asked


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
    names, to = asked(__doc__, CASES, Path(__file__).parent)
    to.mkdir(parents=True, exist_ok=True)
    for name in names:
        write_case(name, to)
        print(name)


if __name__ == "__main__":
    main()

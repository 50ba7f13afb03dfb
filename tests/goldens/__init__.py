"""Directories that the real libraries wrote; `write.py` writes them anew."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
_INSIDE = {"hf-cache": "models--org--tiny", "hf-cache-dataset": "datasets--org--rows"}


class Golden(NamedTuple):
    name: str
    writer: str  # the package that wrote it, with its version
    path: Path

    def copy(self, to: Path) -> Path:
        inside = _INSIDE.get(self.name, "")
        whole = self.path.parent if inside else self.path
        shutil.copytree(whole, to / self.name, symlinks=True)
        return to / self.name / inside


def goldens(base: Path = HERE) -> list[Golden]:
    versions = json.loads((base / "VERSIONS.json").read_text())
    return [
        Golden(name, writer.partition(",")[0], base / name / _INSIDE.get(name, ""))
        for name, writer in versions.items()
    ]


GOLDENS = goldens()


def golden(name: str) -> Golden:
    [found] = [each for each in GOLDENS if each.name == name]
    return found

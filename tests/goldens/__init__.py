"""Directories that the real libraries wrote; `write.py` writes them anew."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

__all__ = ["GOLDENS", "Golden", "goldens"]

HERE = Path(__file__).parent
_INSIDE = {"hf-cache": "models--org--tiny", "hf-cache-dataset": "datasets--org--rows"}


class Golden(NamedTuple):
    """One of them."""

    name: str
    writer: str  # the package that wrote it, with its version
    path: Path

    def copy(self, to: Path) -> Path:
        """Copy it, and return where it is to be validated."""
        inside = _INSIDE.get(self.name, "")
        whole = self.path.parent if inside else self.path
        shutil.copytree(whole, to / self.name, symlinks=True)
        return to / self.name / inside


def goldens(base: Path = HERE) -> list[Golden]:
    """Return all that are below a directory."""
    versions = json.loads((base / "VERSIONS.json").read_text())
    return [
        Golden(name, writer.partition(",")[0], base / name / _INSIDE.get(name, ""))
        for name, writer in versions.items()
    ]


GOLDENS = goldens()


def golden(name: str) -> Golden:
    """Return the one of a name."""
    [found] = [each for each in GOLDENS if each.name == name]
    return found

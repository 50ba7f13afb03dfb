"""What a fetch may leave beside its file: a part from which the next one goes on."""

import os
import re
from pathlib import Path

PART = re.compile(r"\.shardproof-[0-9a-f]{16}\.[0-9a-f]{16}\.[^.]*\.part")
LEFT = re.compile(r"\.shardproof-[0-9a-f]{16}\.[0-9a-f]{16}\.left\.part")
PARTS = f".shardproof-{os.geteuid()}.parts"
"""The directory in which they are, beside the file."""


def parts_in(directory: str | os.PathLike[str]) -> list[Path]:
    """Return the parts of files in a directory, whoever writes them."""
    found = [*Path(directory).iterdir(), *Path(directory).glob(f"{PARTS}/*")]
    return [path for path in found if PART.fullmatch(path.name)]


def beside_parts(directory: str | os.PathLike[str]) -> set[str]:
    """Return what is there but parts of no writer from which somebody could go on."""
    there = {path.name for path in Path(directory).iterdir() if not _is_left(path)}
    inside = list(Path(directory).glob(f"{PARTS}/*"))
    return there - {PARTS} if inside and all(map(_is_left, inside)) else there


def _is_left(path: Path) -> bool:
    if not LEFT.fullmatch(path.name) or sorted(os.listdir(path)) != ["data", "record"]:
        return False
    return (path / "record").read_bytes().count(b"\n") >= 2

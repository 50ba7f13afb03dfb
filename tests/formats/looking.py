"""What tests of formats ask of a directory, and the archives that several of them hold."""

import io
import os
import tarfile
from pathlib import Path

from shardproof import Level, validate
from tests.goldens import GOLDENS


def found_in(path: Path, level: Level = "complete") -> list[tuple[str, str]]:
    """Each finding: its kind, and the name of the file."""
    return [(each.kind.value, each.path.name) for each in validate(path, level=level).findings]


def said_of(path: Path) -> list[tuple[str, str]]:
    """Each finding: what was expected and found."""
    return [(each.expected, each.found) for each in validate(path, level="complete").findings]


def of_golden(name: str, to: Path) -> Path:
    """A copy of a golden directory."""
    return next(golden for golden in GOLDENS if golden.name == name).copy(to)


def archive(n_samples: int, n_bytes: int = 3000, kinds: tuple[str, ...] = ("jpg", "cls")) -> bytes:
    """A tar archive as WebDataset's writer makes it: a time of a member is no whole number."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w|") as stream:
        for name in (f"{i:06d}.{kind}" for i in range(n_samples) for kind in kinds):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = n_bytes, 1e9 + 0.5
            stream.addfile(info, io.BytesIO(os.urandom(n_bytes)))
    return file.getvalue()

"""Directories put behind an address of fsspec's memory, which is the smallest of all stores."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec


@contextlib.contextmanager
def in_memory(directory: Path) -> Iterator[str]:
    """Yield the address of a copy of a directory: of its files, since a store keeps no folders."""
    memory, name = fsspec.filesystem("memory"), uuid.uuid4().hex
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            memory.pipe(f"/{name}/{path.relative_to(directory)}", path.read_bytes())
    try:
        yield f"memory://{name}"
    finally:
        with contextlib.suppress(FileNotFoundError):
            memory.rm(f"/{name}", recursive=True)


def contents_of(address: str) -> dict[str, bytes]:
    """Return the bytes of each file below an address."""
    memory, root = fsspec.filesystem("memory"), f"/{address.partition('://')[2]}"
    return {name.removeprefix(f"{root}/"): memory.cat(name) for name in memory.find(root)}

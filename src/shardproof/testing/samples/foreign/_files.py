"""How whole files are written and found by their names, whatever is in them."""

import hashlib
import re
from pathlib import Path

from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples._states import apply_states

_NUMBER = re.compile(r"[0-9]+")


def made_bytes(layout: Layout, index: int, n_bytes: int) -> bytes:
    """Return bytes of which no two shards, and no two seeds, have the same."""
    text = f"shard {index}, seed {layout.seed}"
    return hashlib.shake_128(text.encode()).digest(n_bytes)


def index_of(layout: Layout, name: str, *, first: int = 0) -> int:
    """Return which shard has a name; not by a list of all names, since each asks for its bytes."""
    number = _NUMBER.search(name.rpartition("/")[2])
    index = int(number[0]) - first if number else -1
    if not 0 <= index < layout.n_shards or layout.shard_name(index) != name:
        raise unknown(layout, name)
    return index


def unknown(layout: Layout, name: str) -> ValueError:
    """Return the error of a name that no file has."""
    known = [*layout.file_names, *layout.manifest_names]
    some = known if len(known) < 9 else [*known[:3], "...", *known[-3:]]
    return ValueError(f"name: expected one of {', '.join(some)}, found {name!r}")


def write_flat(layout: Layout, to: Path) -> Path:
    """Write all files into one directory, called as the format is, and return it."""
    root = to / layout.format.name
    root.mkdir(parents=True)
    for name in (*layout.file_names, *layout.manifest_names):
        (root / name).write_bytes(layout.read_bytes(name))
    apply_states([root / name for name in layout.shard_names], layout.states)
    return root

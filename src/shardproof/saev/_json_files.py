"""The two files that say what a directory of saev holds, read and written."""

import os
from typing import Annotated, Any

import msgspec

from shardproof._base import files, json
from shardproof._base.messages import quoted
from shardproof.errors import ManifestNotFoundError

__all__ = [
    "LABELS_FILE",
    "MAX_COUNT",
    "METADATA_FILE",
    "SHARDS_FILE",
    "AnyPath",
    "Count",
    "Positive",
    "dump",
    "read_bytes",
]

METADATA_FILE = "metadata.json"
SHARDS_FILE = "shards.json"
LABELS_FILE = "labels.bin"

MAX_COUNT = 2**53
"""Exact in every JSON reader (RFC 8259, section 6)."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]

AnyPath = str | os.PathLike[str]


def dump(value: Any, shards_dir: AnyPath, name: str) -> None:
    """Write one of them, whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    files.sweep_leftovers(shards_dir)
    files.write_whole(os.path.join(shards_dir, name), text)


def read_bytes(root: str, name: str) -> bytes:
    """Return the text of one of them; where it is missing, the error says what is there instead."""
    try:
        return json.read_bytes(root, name, max_bytes=json.MAX_BYTES)
    except ManifestNotFoundError as error:
        if error.path == root:
            raise
        names = sorted(os.listdir(root))
        acts = [each for each in names if each.startswith("acts") and each.endswith(".bin")]
        there = [f"{len(acts)} acts*.bin (the first is {quoted(acts[0])})"] if acts else []
        there += [each for each in (SHARDS_FILE, METADATA_FILE, LABELS_FILE) if each in names]
        holds = ", ".join(there) or "no acts*.bin file and no metadata.json"
        advice = _ADVICE[name] if there else "nothing in it looks like saev's: is the path right?"
        problem = f"there is no such file. The directory holds {holds}; {advice}"
        raise ManifestNotFoundError(problem, path=os.path.join(root, name)) from error


_ADVICE = {
    SHARDS_FILE: "saev writes it after each shard, so the directory is half-written, partly purged "
    "or from an older protocol: make the shards again, or restore the file",
    METADATA_FILE: "saev writes it before the first shard, so it was deleted since: restore the "
    "file, or make the shards again",
}

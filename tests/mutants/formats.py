"""A format of a screenful, and the mistakes that people make in one.

A directory of it has an ``index.json``: an object with a list of shards, each with file and bytes.
``Form()`` is right. With a `Bug` it is wrong in one way.
"""

import enum
import json
import os
import pickle
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from shardproof._base import json as _json
from shardproof._base.opening import Read
from shardproof.errors import ManifestError
from shardproof.manifest import ExpectedFile, Manifest, Mismatch
from shardproof.testing import Layout

INDEX = "index.json"


class Bug(enum.StrEnum):
    """What is wrong, and in the value why it is tempting."""

    CLAIMS_ALL = "some other format will refuse it"
    CLAIMS_NOTHING = "only a directory with all its shards is one"
    MARKS = "a marker makes the next look faster"
    LISTS = "what is there is what is promised"
    FORGETS = "the last entry has no comma after it"
    TWICE = "entries are added where they are parsed"
    NO_SIZES = "sizes are in the index: readers know them"
    ROUNDS = "sizes in kB"
    RELATIVE = "paths as the caller gave them"
    OPENS = "a look into each shard, to be sure"
    PYTHON_JSON = "json.load is what everybody uses"
    NAMES = "names are text"
    RAISES_KEY_ERROR = "entry['file'] will be there"
    BARE = "whoever reads the error knows the path"
    BLOCKS = "open() without O_NONBLOCK"
    HIDES_EIO = "an index that can't be read is a broken one"
    PICKLES = "a field of the index holds an object"
    KEEPS_OPEN = "the operating system closes descriptors"


class Entry(msgspec.Struct):
    file: str
    bytes: int
    config: str = ""


class Index(msgspec.Struct):
    shards: list[Entry]


def write_dir(value: Layout, base: Path) -> Path:
    base.mkdir()
    for name in value.file_names:
        (base / name).write_bytes(value.read_bytes(name))
    config = pickle.dumps(threading.RLock).hex()
    entries = [
        {"file": name, "bytes": value.shard_bytes, "config": config} for name in value.file_names
    ]
    (base / INDEX).write_text(json.dumps({"shards": entries}))
    return base


def probe(promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    head = read(1)
    return None if head else Mismatch(expected="a first byte", found=f"none in {size} bytes")


class Form:
    def __init__(self, bug: Bug | None = None) -> None:
        self._bug = bug

    def recognizes(self, root: str) -> bool:
        if self._bug is Bug.MARKS:
            Path(root, ".seen").touch()
        if self._bug is Bug.CLAIMS_NOTHING:
            return os.path.exists(os.path.join(root, "acts000000.bin"))
        return self._bug is Bug.CLAIMS_ALL or os.path.lexists(os.path.join(root, INDEX))

    def read_manifest(self, root: str) -> Any:
        entries = self._entries(root)
        files = [ExpectedFile(name=entry.file, size=self._size(entry)) for entry in entries]
        if self._bug is Bug.LISTS:
            files = [file for file in files if os.path.exists(os.path.join(root, file.name))]
        if self._bug is Bug.FORGETS:
            del files[-1]
        if self._bug is Bug.TWICE:
            files += files[:1]
        if self._bug is Bug.OPENS:
            for file in files:
                Path(root, file.name).read_bytes()
        if self._bug is Bug.PICKLES:
            for entry in entries:
                pickle.loads(bytes.fromhex(entry.config))
        shown = Path(os.path.relpath(root)) if self._bug is Bug.RELATIVE else Path(root)
        if self._bug in {Bug.NAMES, Bug.TWICE}:
            return SimpleNamespace(root=shown, source=shown / INDEX, files=files, probe=probe)
        return Manifest(root=shown, path=shown / INDEX, format="test", files=files, probe=probe)

    def _size(self, entry: Entry) -> int | None:
        if self._bug is Bug.NO_SIZES:
            return None
        return entry.bytes // 1000 * 1000 if self._bug is Bug.ROUNDS else entry.bytes

    def _entries(self, root: str) -> list[Entry]:
        path = Path(root, INDEX)
        if self._bug is Bug.KEEPS_OPEN and path.exists():
            os.open(path, os.O_RDONLY)
        if self._bug is Bug.BLOCKS:
            os.close(os.open(path, os.O_RDONLY))
        if self._bug is Bug.PYTHON_JSON:
            return self._read_trustingly(path)
        if self._bug is Bug.RAISES_KEY_ERROR:
            return [Entry(e["file"], e["bytes"]) for e in json.loads(path.read_bytes())["shards"]]
        try:
            return _json.read(root, INDEX, Index).shards
        except ManifestError as error:
            if self._bug is Bug.BARE:
                raise ManifestError("not readable", path="index.json") from error
            raise
        except OSError as error:
            if self._bug is Bug.HIDES_EIO:
                raise ManifestError("not readable", path=path) from error
            raise

    def _read_trustingly(self, path: Path) -> list[Entry]:
        try:
            value = json.loads(path.read_bytes())
            return [Entry(entry["file"], entry["bytes"]) for entry in value["shards"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ManifestError(str(error), path=path) from error

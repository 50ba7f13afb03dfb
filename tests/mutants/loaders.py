"""A loader of a screenful, and the mistakes that people make in one.

``Loader(path)`` is right: it delivers a row of float32 after the other. With a `Bug` it is wrong in
one way; with ``taken_for`` it takes shards of one kind for those of another. `Usual` is how people
write one over `np.memmap`.
"""

import enum
import json
import math
import mmap
import os
import random
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.mutants.validators import find_problems, shape_of


class Bug(enum.StrEnum):
    """What is wrong, and in the value why it is tempting."""

    NOTHING = "an iterator that was used up by the first look at it"
    NO_DIRECTORY = "RuntimeError is for all that can't go on"
    LATE = "validate when the first batch is asked for"
    NEVER = "the files will be there"
    NO_DAMAGE = "a shard with anything wrong is left out, and the run goes on"
    FIRST_ONLY = "the first problem is enough to stop"
    VALUE_ERROR = "ValueError is for all that is wrong"
    STR_ONLY = "path + '/shards.json'"
    MAPS = "mmap is fastest"
    STOPS = "a short read is the end of the file"
    KEEPS_PROCESS = "a worker that ends some time by itself"
    CACHES = "an index beside the shards makes the next start faster"
    SHARES = "one buffer for all loaders"
    EMPTY_IS_FINE = "no shards, no samples, no problem"
    EIO_IS_MISSING = "what can't be opened isn't there"
    ANONYMOUS = "the error of the read says what is wrong"
    BLAMES_ALL = "the error lists all files, to be sure"
    GLOBAL_RANDOM = "random.shuffle"
    IGNORES_SEED = "Random(0)"
    HASHES = "set() is in no order: good enough"
    LOSES = "the shuffle draws with replacement"
    RESTARTS = "the state is the number of shards that were finished"
    OFF_BY_ONE = "the sample at hand belongs to the next run"
    DENIED_IS_MISSING = "except (FileNotFoundError, PermissionError)"
    STATS = "os.path.exists is what everybody writes"
    EMPTY_IS_MISSING = "0 bytes are as good as none"
    EXITS = "sys.exit says it too"
    WAITS = "a missing shard is on its way"
    WRONG_SHARD = "shards are counted from 1"
    HALF_BATCH = "the last batch is shorter, as ever"
    LEFTOVERS = "glob('acts*.bin*')"
    DELETES = "what is broken is made anew: away with it"
    UNWRITTEN = "it has its size"


_TAKEN_FOR = {
    Bug.DENIED_IS_MISSING: ("unreadable", "missing"),
    Bug.EIO_IS_MISSING: ("unreadable", "missing"),
    Bug.EMPTY_IS_MISSING: ("empty", "missing"),
}
_shared: dict[str, list[str]] = {}


class Loader:
    def __init__(
        self,
        path,
        seed: int | None = None,
        bug: Bug | None = None,
        taken_for: tuple[str, str] | None = None,
    ) -> None:
        self._bug, self._seed, self._taken = bug, seed, 0
        self._taken_for = dict([taken_for or _TAKEN_FOR.get(bug, ("", ""))])
        if bug is Bug.STR_ONLY and not isinstance(path, str):
            raise TypeError("path: expected str")
        self._path = Path(os.path.abspath(path))
        if bug not in {Bug.LATE, Bug.NEVER, Bug.NO_DAMAGE}:
            self._validate()
        self._names = self._read_names()
        if bug is Bug.NO_DAMAGE:
            damaged = {path.name for _, path in find_problems(self._path, "complete")}
            self._names = [name for name in self._names if name not in damaged]
        if bug is Bug.EMPTY_IS_FINE and not self._names:
            return
        self._row_bytes = 4 * json.loads((self._path / "metadata.json").read_text())["d_model"]
        if bug is Bug.SHARES:
            _shared["names"] = [str(self._path / name) for name in self._names]
        if bug is Bug.CACHES:
            (self._path / "index.cache").touch()
        if bug is Bug.KEEPS_PROCESS:
            self._worker = subprocess.Popen(["sleep", "30"])

    def _read_names(self) -> list[str]:
        manifest = self._path / "shards.json"
        if not manifest.exists():
            if self._bug is Bug.EMPTY_IS_FINE and self._path.is_dir():
                return []
            kind = RuntimeError if self._bug is Bug.NO_DIRECTORY else FileNotFoundError
            raise kind(f"expected a shards directory: {self._path}")
        if self._bug is Bug.LEFTOVERS:
            return sorted(path.name for path in self._path.glob("acts*.bin*"))
        return [entry["name"] for entry in json.loads(manifest.read_text())]

    def _validate(self) -> None:
        self._read_names()
        if not (self._path / "shards.json").exists():
            return
        problems = find_problems(self._path, "complete")
        if self._bug is Bug.FIRST_ONLY:
            problems = problems[:1]
        if self._bug is Bug.HALF_BATCH:
            problems = [problem for problem in problems if problem[0] != "size"]
        if self._bug is Bug.UNWRITTEN:
            problems = [problem for problem in problems if problem[0] != "unwritten"]
        while self._bug is Bug.WAITS and any(kind == "missing" for kind, _ in problems):
            threading.Event().wait(0.1)
        if self._bug is Bug.DELETES:
            for path in [path for _, path in problems if os.path.lexists(path)]:
                path.rmdir() if path.is_dir() else Path(os.path.realpath(path)).unlink(
                    missing_ok=True
                )
        if problems:
            raise self._refusal(problems)

    def _refusal(self, problems: list[tuple[str, Path]]) -> Exception:
        said = [(self._said(kind, path), self._named(path)) for kind, path in problems]
        if self._bug is Bug.BLAMES_ALL:
            said = [(said[0][0], str(self._path / name)) for name in self._read_names()]
        text = "damaged shards:" + "".join(f"\n  {kind}: {name}" for kind, name in said)
        if self._bug is Bug.EXITS:
            sys.exit(text)
        if self._bug is Bug.VALUE_ERROR:
            return ValueError(text)
        missing = any(kind == "missing" for kind, _ in said)
        return FileNotFoundError(text) if missing else OSError(text)

    def _said(self, kind: str, path: Path) -> str:
        if self._bug is Bug.STATS and not os.path.exists(path):
            return "missing"
        return self._taken_for.get(kind, kind)

    def _named(self, path: Path) -> str:
        if self._bug is Bug.WRONG_SHARD:
            names = self._read_names()
            return str(self._path / names[names.index(path.name) - 1])
        return str(path)

    def __iter__(self) -> Iterator[array]:
        if self._bug is Bug.LATE:
            self._validate()
        rows = self._rows() if self._bug is not Bug.NOTHING else iter(())
        if self._seed is not None:
            rows = iter(self._shuffled(list(rows)))
        for number, row in enumerate(rows):
            if number >= self._taken:
                self._taken = number + 1
                yield row

    def _shuffled(self, rows: list[array]) -> list[array]:
        if self._bug is Bug.GLOBAL_RANDOM:
            random.shuffle(rows)
        elif self._bug is Bug.HASHES:
            rows = [
                rows[i] for i in sorted(range(len(rows)), key=lambda i: hash(os.urandom(4)) + i)
            ]
        elif self._bug is Bug.LOSES:
            rows = random.Random(self._seed).choices(rows, k=len(rows))
        else:
            random.Random(0 if self._bug is Bug.IGNORES_SEED else self._seed).shuffle(rows)
        return rows

    def state_dict(self) -> dict[str, int]:
        taken = self._taken
        if self._bug is Bug.RESTARTS:
            taken -= taken % 20
        return {"taken": taken + (self._bug is Bug.OFF_BY_ONE)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._taken = state["taken"]

    def _rows(self) -> Iterator[array]:
        names = _shared["names"] if self._bug is Bug.SHARES else self._names
        for name in names:
            data = self._read(self._path / name)
            for start in range(0, len(data) - self._row_bytes + 1, self._row_bytes):
                yield array("f", data[start : start + self._row_bytes])
            if self._bug is Bug.HALF_BATCH and len(data) % self._row_bytes:
                yield array("f", data[start:].ljust(2 * self._row_bytes)[: self._row_bytes - 4])
                raise OSError(f"{self._path / name}: the end is not there")

    def _read(self, path: Path) -> bytes:
        if self._bug is Bug.MAPS:
            with open(path, "rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            return self._read_all(path)
        except OSError as error:
            where = "" if self._bug is Bug.ANONYMOUS else f"{path}: "
            raise OSError(error.errno, f"{where}{error.strerror or error}") from error

    def _read_all(self, path: Path) -> bytes:
        fd = os.open(path, os.O_RDONLY)
        try:
            size = self._size()
            data = os.read(fd, size)
            while len(data) < size and self._bug not in {Bug.STOPS, Bug.HALF_BATCH, Bug.LEFTOVERS}:
                chunk = os.read(fd, size - len(data))
                if not chunk:
                    raise OSError(f"expected {size} bytes, found {len(data)}")
                data += chunk
            return data
        finally:
            os.close(fd)

    def _size(self) -> int:
        return 4 * math.prod(shape_of(self._path))


class Usual:
    """An `np.memmap` for each shard, made when it is opened, and a batch after the other."""

    def __init__(self, path) -> None:
        shards = json.loads(Path(path, "shards.json").read_text())
        shape = shape_of(Path(path))
        self._counts = [shard["n_examples"] for shard in shards]
        self._maps = [
            np.memmap(Path(path) / shard["name"], np.float32, mode="r", shape=shape)
            for shard in shards
        ]

    def __iter__(self) -> Iterator[np.ndarray]:
        for count, acts in zip(self._counts, self._maps, strict=True):
            yield from np.array(acts[:count])

"""A validator of a screenful, and the mistakes that people make in one.

``find_problems(path, level)`` is right. With a `Bug` it is wrong in one way.
"""

import enum
import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path


class Bug(enum.StrEnum):
    """What is wrong, and in the value why it is tempting."""

    EXISTS_ONLY = "os.path.exists is what everybody writes"
    RELATIVE = "the path as the caller gave it"
    PREFIX = "inside is what begins with the root's path"
    REFUSES_LINKS = "links are dangerous, all of them"
    SWALLOWS_EIO = "the file system hiccups sometimes: go on"
    EIO_IS_MISSING = "what can't be opened isn't there"
    LOOP_IS_MISSING = "an OSError means missing"
    BLOCKS = "open() without O_NONBLOCK"
    SHORTER_ONLY = "longer files hold all that is needed"
    TEMPORARY = "acts*.bin*: any name that begins alike"
    REMEMBERS = "a directory whose time did not change did not change"
    COMPLETE_ONLY = "sizes belong to level complete, and to no other"
    EMPTY_FIRST = "0 bytes are empty, whatever the file is"
    LEAKS = "a descriptor that is not closed"
    MARKS = "a marker in the directory, that it was validated"
    STOPS_EARLY = "two missing shards are enough: the rest is not looked at"


_remembered: dict = {}


def find_problems(path, level: str, bug: Bug | None = None) -> list[tuple[str, Path]]:
    root = Path(path) if bug is Bug.RELATIVE else Path(os.path.abspath(path))
    key = str(root), level, root.stat().st_mtime_ns
    if bug is Bug.REMEMBERS and key in _remembered:
        return _remembered[key]
    problems = list(_problems(root, level, bug))
    if bug is Bug.MARKS:
        (root / ".validated").touch()
    _remembered[key] = problems
    return problems


def _problems(root: Path, level: str, bug: Bug | None) -> Iterator[tuple[str, Path]]:
    names = [entry["name"] for entry in json.loads((root / "shards.json").read_text())]
    n_missing = 0
    for name in names:
        kind = _kind(root, name, level, bug)
        if kind:
            yield kind, root / name
        n_missing += kind == "missing"
        if bug is Bug.STOPS_EARLY and n_missing == 2:
            return


def _kind(root: Path, name: str, level: str, bug: Bug | None) -> str | None:
    path = root / name
    if bug is Bug.TEMPORARY and not os.path.lexists(path) and list(root.glob(name + "*")):
        return None
    try:
        return _look(root, path, level, bug)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        if error.errno == errno.EIO and bug is Bug.SWALLOWS_EIO:
            return None
        if error.errno == errno.EIO and bug is Bug.EIO_IS_MISSING:
            return "missing"
        if error.errno == errno.ELOOP and bug is Bug.LOOP_IS_MISSING:
            return "missing"
        return "unreadable"


def _look(root: Path, path: Path, level: str, bug: Bug | None) -> str | None:
    if bug is Bug.EXISTS_ONLY:
        return None if path.exists() else "missing"
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        if bug is Bug.REFUSES_LINKS or not _is_inside(
            root, Path(os.path.realpath(path, strict=True)), bug
        ):
            return "not-regular"
        status = os.stat(path)
    if bug is Bug.EMPTY_FIRST and not status.st_size:
        return "empty"
    is_fifo = bug is Bug.BLOCKS and stat.S_ISFIFO(status.st_mode)
    if not (is_fifo or stat.S_ISREG(status.st_mode)):
        return "not-regular"
    if not status.st_size and bug is not Bug.BLOCKS:
        return "empty"
    fd = os.open(path, os.O_RDONLY)
    if bug is not Bug.LEAKS:
        os.close(fd)
    return _size(root, path, status, level, bug) if level != "present" else None


def _is_inside(root: Path, target: Path, bug: Bug | None) -> bool:
    if bug is Bug.PREFIX:
        return str(target).startswith(os.path.realpath(root))
    return target.is_relative_to(os.path.realpath(root))


def _size(
    root: Path, path: Path, status: os.stat_result, level: str, bug: Bug | None
) -> str | None:
    if bug is Bug.COMPLETE_ONLY and level != "complete":
        return None
    expected = 4 * math.prod(shape_of(root))
    is_longer = status.st_size > expected and bug is not Bug.SHORTER_ONLY
    return "size" if is_longer or status.st_size < expected else _unwritten(root, path, status)


def shape_of(root: Path) -> tuple[int, int, int]:
    """Examples of a shard, rows of an example, values of a row."""
    metadata = json.loads((root / "metadata.json").read_text())
    tokens = metadata["content_tokens_per_example"] + metadata["cls_token"]
    per_example = tokens * len(metadata["layers"])
    return metadata["max_tokens_per_shard"] // per_example, per_example, metadata["d_model"]


def _unwritten(root: Path, path: Path, status: os.stat_result) -> str | None:
    shards = json.loads((root / "shards.json").read_text())
    n_examples = {shard["name"]: shard["n_examples"] for shard in shards}
    return "unwritten" if not status.st_blocks and n_examples.get(path.name) else None

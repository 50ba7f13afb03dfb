"""A function that writes a file whole or not at all, and the mistakes that people make in one.

``write(path, data)`` is right. With a `Bug` it is wrong in one way.
"""

import contextlib
import enum
import os
import threading
import uuid
from pathlib import Path


class Bug(enum.StrEnum):
    """What is wrong, and in the value why it is tempting."""

    IN_PLACE = "open(path, 'wb').write(data)"
    REMOVES_FIRST = "the old file is removed before the new one is moved in"
    NO_SYNC = "the kernel will write it some time"
    NO_DIRECTORY_SYNC = "the file is synced, what else?"
    SYNCS_TOO_LATE = "fsync after the rename does as well"
    ONE_TEMPORARY_NAME = "path + '.tmp' is good enough"
    SAME_SUFFIX = "tmp-acts000000.bin"
    LEAVES_TEMPORARY = "no cleanup after an error"
    SWALLOWS = "an error is logged, and the run goes on"
    SHORT_WRITE = "os.write writes all of it"
    LEAKS = "a descriptor that is not closed after an error"
    STUMBLES = "a leftover of a dead run in the way"
    WRITES_LATER = "a thread writes in the background, and nobody waits for it"
    REFUSES_EMPTY = "no data is no file"


def write(path, data: bytes, bug: Bug | None = None) -> None:
    path = Path(path)
    if bug is Bug.REFUSES_EMPTY and not data:
        return
    if bug is Bug.IN_PLACE:
        _write_in_place(path, data)
    elif bug is Bug.WRITES_LATER:
        threading.Timer(0.2, _write, (path, data, None)).start()
    elif bug is Bug.SWALLOWS:
        with contextlib.suppress(OSError):
            _write(path, data, bug)
    else:
        _write(path, data, bug)


def _write_in_place(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    _sync(path.parent)


def _write(path: Path, data: bytes, bug: Bug | None) -> None:
    temporary = path.with_name(_temporary_name(path, bug))
    try:
        _fill(temporary, data, bug)
        if bug is Bug.REMOVES_FIRST:
            path.unlink(missing_ok=True)
        os.replace(temporary, path)
        if bug is Bug.SYNCS_TOO_LATE:
            _sync(path)
    except BaseException:
        if bug is not Bug.LEAVES_TEMPORARY:
            temporary.unlink(missing_ok=True)
        raise
    if bug is not Bug.NO_DIRECTORY_SYNC:
        _sync(path.parent)


def _temporary_name(path: Path, bug: Bug | None) -> str:
    if bug in {Bug.ONE_TEMPORARY_NAME, Bug.STUMBLES}:
        return path.name + ".tmp"
    if bug is Bug.SAME_SUFFIX:
        return f"tmp-{uuid.uuid4().hex}-{path.name}"
    return f".{path.name}-{uuid.uuid4().hex}.tmp"


def _fill(temporary: Path, data: bytes, bug: Bug | None) -> None:
    exclusive = 0 if bug is Bug.ONE_TEMPORARY_NAME else os.O_EXCL
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | exclusive | os.O_CLOEXEC)
    try:
        written = os.write(fd, data)
        while written < len(data) and bug is not Bug.SHORT_WRITE:
            written += os.write(fd, data[written:])
        if bug not in {Bug.NO_SYNC, Bug.SYNCS_TOO_LATE}:
            os.fsync(fd)
    except BaseException:
        if bug is not Bug.LEAKS:
            os.close(fd)
        raise
    os.close(fd)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

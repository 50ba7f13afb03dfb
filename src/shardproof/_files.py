"""Write whole or not at all; sweep leftovers.

The only module that renames, fsyncs or unlinks. The order is the one that rename(2) and fsync(2)
ask for: unique temporary file in the target's own directory, write, fsync, close, replace, fsync
the directory. A reader sees the old bytes or the new ones; after a crash so does the next run.
"""

import contextlib
import os
import re
import secrets
import socket
import zlib
from collections.abc import Iterator

__all__ = ["sweep_leftovers", "write_whole"]

_LEFTOVER = re.compile(r"\.shardproof-(?P<host>[0-9a-f]{8})-(?P<pid>[0-9]+)-[0-9a-f]{16}\.tmp")


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Make ``path`` hold ``data``, or leave it as it was.

    Raises:
        OSError: It could not be written; ``path`` is as before and nothing is left beside it. A
            failed fsync is final: a retry may succeed and the data be lost all the same (fsync(2)).
    """
    directory = os.path.dirname(os.path.abspath(path))
    temporary = os.path.join(directory, _temporary_name())
    try:
        _write_and_sync(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        _unlink_if_there(temporary)
        raise
    _sync_directory(directory)


def _write_and_sync(path: str, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def _unlink_if_there(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _temporary_name() -> str:
    return f".shardproof-{_host()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"


def _host() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def sweep_leftovers(directory: str | os.PathLike[str]) -> list[str]:
    """Remove temporary files of this package whose writer is dead; return their names.

    Only a writer of this host can be known to be dead; another host's leftovers stay.
    """
    leftovers = sorted(_dead_leftovers(directory))
    for name in leftovers:
        _unlink_if_there(os.path.join(directory, name))
    return leftovers


def _dead_leftovers(directory: str | os.PathLike[str]) -> Iterator[str]:
    for name in os.listdir(directory):
        match = _LEFTOVER.fullmatch(name)
        if match and match["host"] == _host() and not _is_alive(int(match["pid"])):
            yield name


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True

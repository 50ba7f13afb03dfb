"""A shards directory on the disk of the node that reads it: copied once, whole and proven.

The copy is in ``<to>/shardproof-<uid>/<name>-<hash>``, where every process of the node and every
later job on it finds it. The hash is of the source's real path and of its manifest.
"""

import contextlib
import errno
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from shardproof import _files
from shardproof._arguments import checked
from shardproof._names import file_type
from shardproof._paths import refuse_empty
from shardproof._progress import bar
from shardproof._work import apart, to_waiter
from shardproof.report import Level
from shardproof.staging._job import StageJob, StageSource

__all__ = ["stage"]

logger = logging.getLogger("shardproof.staging")

_THREADS = 8


@checked
def stage(
    shards_dir: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    *,
    level: Level = "complete",
    workers: int | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> Path:
    """Copy a shards directory to the disk of this node, and return where it is, proven.

    Every process of a node may call it at once: they share the work and the copy. What an earlier
    job copied is used again, file by file, if neither the source's file nor the copy has changed
    since. Nothing is ever removed.

    Args:
        shards_dir: The shards directory, of any format that `shardproof.validate` knows.
        to: An existing directory on a local disk; None for ``$TMPDIR``, or ``/tmp`` where that is
            not set.
        level: How hard to look at source and copy; see `shardproof.validate`. A digest that the
            manifest states is compared at every level while a file is copied. At ``"valid"`` every
            byte of the copy is read back, and compared to what was copied even where the manifest
            states no digest.
        workers: How many files to copy at once; None for 8.
        progress: True for a bar on standard error, shown on a terminal after one second; or a
            callable that gets how many files are there, and of how many.

    Returns:
        Absolute path of the copy, a shards directory of its own.

    Raises:
        ShardValidationError: The source doesn't keep its promises; nothing of that was copied.
        ManifestError: The source's promise can't be read.
        ShardReadError: The source changed while it was copied.
        OSError: The disk is too small, or full; the directory of the copies belongs to another
            user; the file system failed. What was copied until then is used next time.
        ValueError: An empty path; ``workers`` below 1.
        TypeError: An argument of the wrong type, or an unknown level.

    Example:
        >>> output_dir.mkdir()
        >>> path = stage(shards_dir, output_dir)
        >>> path.parent.parent == output_dir.resolve(), (path / "shards.json").exists()
        (True, True)
    """
    refuse_empty(shards_dir=shards_dir, to=to)
    if workers is not None and workers < 1:
        raise ValueError(f"workers: expected 1 or more, found {workers}")
    shown = bar("files") if progress is True else contextlib.nullcontext(progress or None)
    with shown as on_progress:
        return apart(
            lambda _: _staged(shards_dir, to, level, workers or _THREADS, to_waiter(on_progress))
        )


def _staged(
    shards_dir: str | os.PathLike[str],
    to: str | os.PathLike[str] | None,
    level: Level,
    workers: int,
    on_progress: Callable[[int, int], None] | None,
) -> Path:
    source = StageSource.read(os.path.realpath(shards_dir))
    place = _prepared(source, os.path.realpath(to if to is not None else tempfile.gettempdir()))
    job = StageJob(source, place, level, workers, on_progress)
    with contextlib.closing(job.files):
        return job.run()


def _prepared(source: StageSource, to: str) -> str:
    """Make the directory of the copy, and those in it."""
    if not os.path.isdir(to):
        problem = "expected an existing directory on a local disk"
        raise NotADirectoryError(errno.ENOTDIR, problem, to)
    base = os.path.join(to, f"shardproof-{os.geteuid()}")
    place = os.path.join(base, source.name)
    folders = {os.path.dirname(file.name) for file in source.files} - {""}
    inside = sorted({part for folder in folders for part in _and_above(folder)})
    for directory in (base, place, *(os.path.join(place, part) for part in inside)):
        _make_own(directory)
        if directory != base:
            _files.sweep_leftovers(directory)
    return place


def _and_above(folder: str) -> Iterator[str]:
    parts = folder.split("/")
    return ("/".join(parts[:n]) for n in range(1, len(parts) + 1))


def _make_own(path: str) -> None:
    """Make a directory for this user alone; refuse what another one may have put there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    found = file_type(status.st_mode)
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if found == "directory" and status.st_uid == os.geteuid() and not mode & 0o077:
        return
    problem = (
        f"expected a directory of uid {os.geteuid()} with mode 700, found a {found} of uid "
        f"{status.st_uid} with mode {mode:o}; remove it, or stage to another directory"
    )
    raise PermissionError(errno.EPERM, problem, path)

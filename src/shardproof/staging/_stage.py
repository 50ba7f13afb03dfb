"""A shards directory on the disk of the node that reads it: copied once, whole and proven.

The copy is in ``<to>/shardproof-<uid>/<name>-<hash>``, where every process of the node and every
later job on it finds it. The hash is of the source's real path and of its manifest. The directory
has this name only when the whole copy is there and proven; until then ``.unfinished`` follows.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from shardproof import formats
from shardproof._base.arguments import checked, count
from shardproof._base.opening import real_path, refuse_empty
from shardproof._base.progress import bar
from shardproof._base.work import apart, to_waiter
from shardproof.checks import OnProgress
from shardproof.errors import ShardproofError
from shardproof.report import Level
from shardproof.staging._job import StageJob
from shardproof.staging._place import CopyDirectory
from shardproof.staging._source import StageSource

__all__ = ["stage"]

_THREADS = 8


@checked
def stage(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    *,
    level: Level = "complete",
    workers: int | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> Path:
    """Copy a shards directory to the disk of this node, and return where it is, proven.

    Every process of a node may call it at once: they share the work and the copy. What an earlier
    job copied is used again, file by file, if neither the source's file nor the copy has changed
    since. Nothing that is whole is ever removed, but for receipts that it copied and the source no
    longer has. The directory has its name only when all of it is there and proven.

    Args:
        path: The shards directory, of any format that `shardproof.validate` knows; or the prefix
            of a checkpoint, and then nothing else in its directory is copied.
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
        Absolute path of the copy: a shards directory of its own, or a prefix in one.

    Raises:
        ShardValidationError: The source doesn't keep its promises; nothing of that was copied.
        ManifestError: The source's promise can't be read.
        ShardReadError: The source changed while it was copied.
        OSError: The disk is too small, or full; the directory of the copies belongs to another
            user; somebody added to what the copy promises; the file system failed, be it only in a
            look. What was copied is used next time.
        ValueError: An empty path; an unknown level; ``workers`` below 1.
        TypeError: An argument of the wrong type.

    Example:
        >>> output_dir.mkdir()
        >>> copy = stage(shards_dir, output_dir)
        >>> copy.parent.parent == output_dir.resolve(), (copy / "shards.json").exists()
        (True, True)
    """
    refuse_empty(path=path, to=to)
    n_threads = _THREADS if workers is None else count("workers", workers, 1)
    shown = bar("files") if progress is True else contextlib.nullcontext(progress or None)
    with shown as on_progress:
        return apart(lambda _: _staged(path, to, level, n_threads, to_waiter(on_progress)))


def _staged(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str] | None,
    level: Level,
    threads: int,
    on_progress: OnProgress | None,
) -> Path:
    """Make the copy, or mend it, until this process or another one has finished it."""
    source = StageSource.read(formats.locate(path))
    # Jobs put their files there; no other disk is tried if that one is full or gone.
    here = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - in it, a directory of mode 700
    directory = CopyDirectory(real_path(here if to is None else to), source.name, source.folders)
    while True:
        try:
            directory.prepare()
            job = StageJob(source, directory.place, level, threads, on_progress)
            with contextlib.closing(job.files):
                job.run()
                if directory.finish(job.files):
                    return Path(source.at(directory.final))
        except (OSError, ShardproofError):
            if not directory.is_finished_by_others():
                raise

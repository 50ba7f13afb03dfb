"""A shards directory on the disk of the node that reads it: copied once, whole and proven.

The copy is in ``<to>/shardproof-<uid>/<name>-<hash>``, where every process of the node and every
later job on it finds it. The hash is of the source's real path and of its manifest. The directory
has this name only when the whole copy is there and proven; until then ``.unfinished`` follows.
"""

import contextlib
import errno
import functools
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shardproof import formats
from shardproof._base import files as _files
from shardproof._base.arguments import checked, count
from shardproof._base.names import file_type
from shardproof._base.opening import is_directory, is_there, real_path, refuse_empty
from shardproof._base.progress import reporting
from shardproof._base.work import apart
from shardproof.errors import ShardproofError
from shardproof.remote import mounted
from shardproof.report import Level
from shardproof.staging._copy import StagedCopy
from shardproof.staging._source import StageSource

__all__ = ["stage"]

_THREADS = 8
_UNFINISHED = ".unfinished"


@checked
def stage(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    *,
    level: Level = "complete",
    workers: int | None = None,
    progress: bool | Callable[[int, int], None] = False,
    group: Any = None,
) -> Path:
    """Copy a shards directory to the disk of this node, and return where it is, proven.

    Every process of a node may call it at once: one copies, and the others wait for it. What an
    earlier job copied is used again, file by file, if neither the source's file nor the copy has
    changed since. Nothing that is whole is ever removed, but for receipts that it copied and the
    source no longer has. The directory has its name only when all of it is there and proven.

    Args:
        path: The shards directory, of any format that `shardproof.validate` knows, or its address,
            such as ``s3://bucket/folder``; or the prefix of a checkpoint on a disk, and then
            nothing else in its directory is copied.
        to: An existing directory on a local disk; None for ``$TMPDIR``, or ``/tmp`` where that is
            not set.
        level: How thoroughly both are checked; see `shardproof.validate`. A digest that the
            manifest states is compared at every level while a file is copied. At ``"valid"`` every
            byte of the copy is read back, and compared to what was copied even where the manifest
            states no digest.
        workers: How many files to copy at once; None for 8.
        progress: True for a bar on standard error, shown on a terminal after one second; or a
            callable that gets how many files are there, and of how many.
        group: The ranks that stage at once, as for `shardproof.distributed.validate`: one of each
            host copies, and the others get the path of its copy.

    Returns:
        Absolute path of the copy: a shards directory of its own, or a prefix in one.

    Raises:
        ShardValidationError: The source is not what its manifest expects; nothing was copied.
        ManifestError: The source's manifest can't be read.
        ShardReadError: The source changed while it was copied.
        FetchError: A file of a bucket could not be fetched; with the cause of each attempt.
        OSError: The disk is too small, or full; the directory of the copies belongs to another
            user; files were added to the copy's manifest; the file system failed, be it only in
            a check. What was copied is used next time.
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
    if group is not None:
        from shardproof.distributed.calls import called, one_answer  # noqa: PLC0415 - rarely used

        find = functools.partial(stage, path, to, level=level, workers=workers, progress=progress)
        asked = called("stage", path, level=level)
        return Path(one_answer(group, asked, lambda: os.fspath(find()), each_host=True))

    def work(_: object) -> Path:
        with mounted(path) as place:
            return _staged(StageSource.read(formats.locate(place)), to, level, n_threads)

    with reporting(progress, "files") as show:
        return apart(work, show)


def _staged(
    source: StageSource, to: str | os.PathLike[str] | None, level: Level, threads: int
) -> Path:
    """Make the copy, or mend it, until this process or another one has finished it."""
    # Jobs put their files there; no other disk is tried if that one is full or gone.
    here = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - in it, a directory of mode 700
    directory = CopyDirectory(real_path(here if to is None else to), source.name, source.folders)
    while True:
        try:
            directory.prepare()
            StagedCopy(source, directory.place, level, threads).make()
            directory.finish()
            return Path(source.at(directory.final))
        except (OSError, ShardproofError):
            if not directory.is_finished_by_others():
                raise


class CopyDirectory:
    """Where a copy is made, ``place``, which all processes share, and its name when whole."""

    def __init__(self, to: str, name: str, folders: Sequence[str]) -> None:
        if not is_directory(to):
            problem = "expected an existing directory on a local disk"
            raise NotADirectoryError(errno.ENOTDIR, problem, to)
        base = os.path.join(to, f"shardproof-{os.geteuid()}")
        self.final = os.path.join(base, name)
        self.place = self._unfinished = self.final + _UNFINISHED
        self._folders = folders
        _make_own(base)

    def prepare(self) -> None:
        """Make the directory to work in, and those in it."""
        self.place = self._unfinished
        if not is_there(self.final):
            _make_own(self._unfinished)
        if is_there(self.final):
            self.place = self.final
            # A process still at work there finds it gone, and then finds the finished copy.
            with contextlib.suppress(OSError):  # it costs room, no more
                _files.remove_tree(self._unfinished)
        for directory in (self.place, *(os.path.join(self.place, name) for name in self._folders)):
            _make_own(directory)
            _files.sweep_leftovers(directory)

    def is_finished_by_others(self) -> bool:
        """Whether another process finished the copy while this one was at it."""
        return self.place != self.final and is_there(self.final)

    def finish(self) -> None:
        """Give a proven copy its name; an `OSError` where another process was faster."""
        if self.place != self.final:
            _files.move(self.place, self.final)


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

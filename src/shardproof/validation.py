"""The one verb: detect the format, read the manifest, check it, report."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

from shardproof import formats, remote
from shardproof._base.addresses import NOT_ELSEWHERE, is_address, path_of, remote_at
from shardproof._base.arguments import checked, count
from shardproof._base.messages import shown
from shardproof._base.names import open_root, replaced
from shardproof._base.opening import closing_fd, found_at, refuse_empty
from shardproof._base.progress import reporting
from shardproof._base.work import apart
from shardproof.checks import Executor, Links, check, proofs_of
from shardproof.promises import promise_of
from shardproof.report import MOST_KEPT, FindingKind, Level, Report

__all__ = ["validate"]


_NO_DIGEST = "no digest is right: is the list by another algorithm? Then call it x.sha3-256, say"


@checked
def validate(
    path: str | os.PathLike[str],
    *,
    level: Level = "present",
    format: str | None = None,  # noqa: A002 - the word of the command, and of the report
    links: Links = "inside",
    against: str | os.PathLike[str] | None = None,
    strict: bool = False,
    quick: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool | Callable[[int, int], None] = False,
    _check: Callable[..., Report] | None = None,
) -> Report:
    """Check every file that the manifest of a shards directory lists, and report what is wrong.

    Args:
        path: The shards directory; or its address, such as ``s3://bucket/folder``, as text: it is
            listed once, and read in parts; or the prefix of a checkpoint whose metadata file is
            there, and then nothing else in its directory is checked. An empty text is refused:
            mostly a variable is not set.
        level: ``"present"``: each listed file exists, is a regular file, is not empty and opens.
            ``"complete"``: also has the size and structure that the manifest implies.
            ``"valid"``: also has the digest that the manifest states.
        format: Name of the format, one of `formats.names`, where the directory does not tell it, or
            tells two.
        links: ``"follow"`` for files that are symbolic links out of the directory, such as to the
            storage of a project. By default such a link is a finding that says where it leads;
            formats that keep their bytes elsewhere, as DVC does, have theirs followed there.
        against: A manifest from elsewhere, in place of the directory's own: ``hf://`` or another
            address whose files are listed; a list of digests, as ``sha256sum`` writes it, or its
            address; another directory, whose sizes count, and with ``valid`` its bytes. A public
            key or a certificate, in PEM, for the directory's own manifest if its owner signed it:
            then whatever was not signed is a finding.
        strict: Whether files that no manifest lists are findings; of a directory, not of a prefix,
            beside which other checkpoints lie.
        quick: Whether files that are as they were when the directory was sealed, by size, times and
            inode, are passed over at ``"valid"``; the report says how many.
        workers: How many threads check files. By default one where the file system answers in
            microseconds, up to 64 where it does not, and one per processor to read every byte.
        executor: A `concurrent.futures.Executor` whose workers check the files instead: a process
            pool, one of Dask, loky or MPI, or what has the same ``submit``. Each worker needs
            shardproof, and the directory under the same path. Batches are sent from a thread of
            this call, and what has not begun is cancelled when it ends; the executor stays open.
            What a lost worker had is checked again, and the report's ``notes`` say so.
        progress: True for a bar on standard error, shown on a terminal after one second; or a
            callable that gets how many files are done, and of how many.

    Returns:
        The report: findings raise no error. ``report.ok`` is the verdict,
        ``report.raise_for_findings()`` the assertion.

    Raises:
        ManifestNotFoundError: There is no shards directory, or no object below an address; also a
            `FileNotFoundError`.
        ManifestPermissionError: It may not be read; also a `PermissionError`.
        ManifestError: Its manifest can't be read.
        OSError: The file system failed before any file could be checked (EIO, ESTALE, ...), or a
            store could not be asked (EIO); or the directory was replaced meanwhile (ESTALE).
        TypeError: An argument of the wrong type.
        ValueError: An empty path; an unknown level or format; ``workers`` below 1, or together with
            ``executor``; ``strict`` of a prefix; ``quick`` or ``executor`` with an address; an
            address whose files can't be listed.

    Example:
        >>> import shardproof
        >>> report = shardproof.validate(shards_dir)
        >>> report.ok, report.n_files
        (True, 3)
    """
    refuse_empty(path=path, against=against)
    if workers is not None:
        count("workers", workers, 1)
        if executor is not None:
            raise ValueError("expected workers or executor, found both")
    if is_address(path) and (quick or executor is not None):
        raise ValueError(f"{'quick' if quick else 'executor'}: {NOT_ELSEWHERE}")
    form = None if format is None else formats.get(format)

    def checked_by(**how: Any) -> Report:
        with contextlib.ExitStack() as stack:
            located = formats.locate(stack.enter_context(remote.mounted(path)))
            if strict and located.path != located.root:
                problem = f"expected a directory, found the prefix '{shown(located.path)}'"
                raise ValueError(f"strict: {problem}: other checkpoints may lie beside it")
            stack.enter_context(_held(located.root))
            promise = promise_of(located.path, form=form, against=against, level=level)
            how["beside"] = promise.beside if strict else None
            how["proofs"] = proofs_of(os.fspath(promise.manifest.root)) if quick else None
            how |= {"level": level, "links": links, "most": MOST_KEPT, "is_told": True}
            report = (_check or check)(promise.manifest, **how)
            is_list = against is not None or report.format == formats.LISTS
            if is_list and report.counts == {FindingKind.DIGEST: report.n_files} != {}:
                report = dataclasses.replace(report, notes=(*report.notes, _NO_DIGEST))
            place = remote_at(located.root)
            notes = (*report.notes, *(place.directory.notes() if place else ()))
        return dataclasses.replace(report, path=path_of(located.path), notes=notes)

    with reporting(progress, "shards") as show:
        return apart(lambda _: checked_by(workers=workers, executor=executor), show)


@contextlib.contextmanager
def _held(root: str) -> Iterator[None]:
    """Hold a directory open while it is checked, so that no other directory gets its number."""
    if remote_at(root) is not None:  # of which every file is the one that was listed
        yield
        return
    with closing_fd(open_root(root)) as fd:
        before = os.fstat(fd)
        try:
            yield
        finally:  # an error may be about the other one, which has its name, or had meanwhile
            after = found_at(root)
            if not after or not os.path.samestat(after, before) or _has_moved(before, after):
                raise replaced(root)


def _has_moved(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether a directory was renamed, and back: its status changed, and nothing in it did."""
    # So it was seen on ext4 and tmpfs; kernels before 6.13 don't tell within some milliseconds.
    # `touch -a` and setxattr(2) can't be told from a move: then another check is needed.
    is_same = (before.st_mtime_ns, before.st_mode) == (after.st_mtime_ns, after.st_mode)
    is_same = is_same and (before.st_uid, before.st_gid) == (after.st_uid, after.st_gid)
    return is_same and before.st_ctime_ns != after.st_ctime_ns

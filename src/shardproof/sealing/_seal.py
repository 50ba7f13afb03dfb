"""The verb: look whether a directory is whole, read its files, write the list."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from shardproof import formats
from shardproof._base import digest, digest_lists, fanout, files
from shardproof._base.arguments import checked, count
from shardproof._base.liveness import stamp_of
from shardproof._base.names import open_inside, open_root
from shardproof._base.opening import files_below, is_there, refuse_empty
from shardproof._base.progress import bar
from shardproof._base.proofs import Journal, proofs_of
from shardproof._base.work import apart, go_on, to_waiter
from shardproof.checks import check
from shardproof.errors import ManifestNotFoundError, SealError
from shardproof.manifest import Manifest, PromisedFile

__all__ = ["Seal", "SealAlgorithm", "seal"]

SealAlgorithm = Literal["sha256", "sha512", "blake3", "xxh3-128"]
"""Algorithms of which a list can be made; ``blake3`` where it is installed."""

OnProgress = Callable[[int, int], object]


@dataclasses.dataclass(frozen=True, slots=True)
class Seal:
    """What was written down about a directory.

    Attributes:
        path: Absolute path of the directory.
        list_path: The list; ``sha256sum -c`` accepts it, or what else has its name.
        algorithm: By which the digests are.
        n_files: How many files the list has.
        added: Those that it did not have before, in the list's order.
        n_resumed: How many of them were read by an earlier attempt that did not end.
    """

    path: Path
    list_path: Path
    algorithm: str
    n_files: int
    added: tuple[str, ...]
    n_resumed: int = 0


@checked
def seal(
    path: str | os.PathLike[str],
    *,
    algorithm: SealAlgorithm = "sha256",
    format: str | None = None,  # noqa: A002 - as of validate
    update: bool = False,
    workers: int | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> Seal:
    """Write down the digests of a directory's files, so that from then on `validate` proves them.

    The list, such as ``SHA256SUMS``, is written when all files are read, whole or not at all; a
    seal that was killed goes on from the journal beside it. A directory with findings at
    ``complete`` is refused: nobody should bless what is torn. What is sealed are the shards that
    its format promises; of a directory of no format, all files but hidden ones. The manifest file
    is not, since it changes when shards are added.

    Args:
        path: The directory.
        algorithm: ``"sha256"`` for ``sha256sum -c``; ``"blake3"`` for ``b3sum -c`` (``pip install
            shardproof[blake3]``); ``"xxh3-128"`` for ``xxh128sum -c``, against accidents only.
        format: Name of its format, where the directory does not tell it.
        update: Add files that the list does not have. Those that it has keep their digests,
            whatever their bytes are now: nothing is ever blessed twice.
        workers: How many files are read at once; by default one for each processor.
        progress: As for `validate`.

    Raises:
        ShardValidationError: The directory is not whole.
        SealError: It is sealed already; or a file changed while it was read.
        ManifestError: What it promises can't be read.
        ValueError: An algorithm that is not installed.
        OSError: A file could not be read, or the list not be written.

    Example:
        >>> import shardproof
        >>> sealed = shardproof.seal(shards_dir)
        >>> sealed.list_path.name, sealed.n_files
        ('SHA256SUMS', 3)
        >>> str(shardproof.validate(shards_dir, level="valid"))[:15]
        'valid: 3 of 3 f'
    """
    refuse_empty(path=path)
    if workers is not None:
        count("workers", workers, 1)
    digest.begin(algorithm, 0)  # which may not be installed
    form = None if format is None else formats.get(format)
    chosen = bar("seal") if progress is True else contextlib.nullcontext(progress or None)
    with chosen as told:

        def work(_: object) -> Seal:
            plan = _plan(formats.locate(path).path, form, algorithm, update=update)
            return _seal(plan, workers, to_waiter(told))

        return apart(work)


class _SealPlan(NamedTuple):
    """What is to be read, and what is written down already."""

    root: str
    list_name: str
    algorithm: str
    before: Mapping[str, str]
    added: Sequence[str]


def _plan(root: str, form: formats.Format | None, algorithm: str, *, update: bool) -> _SealPlan:
    list_name = digest_lists.NAMES[algorithm]
    is_sealed = is_there(os.path.join(root, list_name))
    if is_sealed and not update:
        problem = "it is sealed already: --update adds files; to seal it anew, remove the list"
        raise SealError(problem, path=os.path.join(root, list_name))
    names = _whole_files(root, form)
    before = dict(digest_lists.read(root, list_name)) if is_sealed else {}
    added = [name for name in names if name not in before]
    return _SealPlan(root, list_name, algorithm, before, added)


def _seal(plan: _SealPlan, workers: int | None, on_progress: OnProgress | None) -> Seal:
    with Journal(plan.root, plan.list_name) as journal:
        reader = _SealReader(plan, journal)
        found = dict(reader.all(plan.added, workers, on_progress))
    pairs = dict(plan.before) | found
    lines = [digest_lists.format_line(name, text) for name, text in pairs.items()]
    list_path = os.path.join(plan.root, plan.list_name)
    files.write_whole(list_path, b"".join(lines))
    return Seal(
        path=Path(plan.root),
        list_path=Path(list_path),
        algorithm=plan.algorithm,
        n_files=len(lines),
        added=tuple(plan.added),
        n_resumed=len(reader.resumed),
    )


def _whole_files(root: str, form: formats.Format | None) -> Sequence[str]:
    """Return the names of what is to be sealed.

    Raises:
        ShardValidationError: It is not whole.
    """
    with contextlib.suppress(ManifestNotFoundError):
        form = form or formats.detect(root)
    if form is None or form.name == formats.LISTS:
        manifest = _of_any_files(root)
    else:
        manifest = formats.read_manifest(form, root)
    check(manifest, level="complete").raise_for_findings()
    return [file.name for file in manifest.files]


def _of_any_files(root: str) -> Manifest:
    names = [name for name in files_below(root) if not digest_lists.is_list(os.path.basename(name))]
    if not names:
        raise ManifestNotFoundError("there is nothing to seal: no file in it", path=root)
    promised = [PromisedFile(name=name) for name in names]
    return Manifest(root=Path(root), path=Path(root), format="files", files=promised)


class _SealReader:
    """Reads files, and takes down what they hash to; what the journal has is not read again."""

    def __init__(self, plan: _SealPlan, journal: Journal) -> None:
        self._root, self._algorithm, self._journal = plan.root, plan.algorithm, journal
        self._known = proofs_of(plan.root, plan.list_name)
        self._threads = fanout.threads_each(len(plan.added))
        self.resumed: list[str] = []

    def all(
        self, names: Sequence[str], workers: int | None, on_progress: OnProgress | None
    ) -> Iterator[tuple[str, str]]:
        """Yield each name with its digest, in order."""
        dir_fd = open_root(self._root)
        n_done, n_threads = 0, workers or fanout.available_cpus()
        try:
            work = functools.partial(self._some, dir_fd)
            with contextlib.closing(fanout.over_threads(work, names, n_threads, chunk=1)) as runs:
                for n_read, pairs in runs:
                    yield from pairs
                    n_done += n_read
                    if on_progress is not None:
                        on_progress(n_done, len(names))
        finally:
            os.close(dir_fd)

    def _some(self, dir_fd: int, names: Sequence[str]) -> list[tuple[str, str]]:
        return [(name, self._one(dir_fd, name)) for name in names]

    def _one(self, dir_fd: int, name: str) -> str:
        fd = open_inside(name, root=self._root, dir_fd=dir_fd)
        try:
            before = os.fstat(fd)
            known = self._known.get(name)
            if known is not None and known.stands_for(before, self._algorithm):
                self.resumed.append(name)
                return known.digest
            size, algorithm, threads = before.st_size, self._algorithm, self._threads
            found = digest.of_file(fd, algorithm, size, threads=threads, go_on=go_on)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        if stamp_of(after) != stamp_of(before):
            path = os.path.join(self._root, name)
            raise SealError("it changed while it was read: wait for its writer", path=path)
        self._journal.note(name, str(found), before)
        return str(found)

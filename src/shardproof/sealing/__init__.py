"""Seal a directory: write down the digests of its files once, so that `valid` proves them."""

import contextlib
import dataclasses
import errno
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from shardproof import formats
from shardproof._base import digest, digest_lists, files, json
from shardproof._base.addresses import NOT_ELSEWHERE, RemotePlace, is_address, path_of, remote_at
from shardproof._base.arguments import checked, count
from shardproof._base.liveness import stamp_of
from shardproof._base.names import open_root
from shardproof._base.opening import closing_fd, is_there, refuse_empty
from shardproof._base.progress import reporting
from shardproof._base.work import apart
from shardproof.checks import Executor, FileRead, check, journal, journal_name, proofs_of
from shardproof.errors import SealError, SourceError
from shardproof.manifest import Manifest
from shardproof.remote import mounted
from shardproof.report import MOST_KEPT
from shardproof.sealing._contents import contents_of, manifest_of

__all__ = ["Seal", "SealAlgorithm", "seal"]

SealAlgorithm = Literal["sha256", "sha512", "blake3", "xxh3-128"]
"""Algorithms of which a list can be made; ``blake3`` where it is installed."""

_CHANGED = "it changed while it was read: wait for its writer"


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
        left_out: What else lies there, and why the list does not have it; a hidden folder as one.
    """

    path: Path
    list_path: Path
    algorithm: str
    n_files: int
    added: tuple[str, ...]
    n_resumed: int = 0
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)


@checked
def seal(
    path: str | os.PathLike[str],
    *,
    algorithm: SealAlgorithm = "sha256",
    format: str | None = None,  # noqa: A002 - as of validate
    update: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> Seal:
    """Write down the digests of a directory's files, so that from then on `validate` proves them.

    The list, such as ``SHA256SUMS``, is written when all files are read, whole or not at all; a
    seal that was killed goes on from the journal beside it. A directory with findings at
    ``complete`` is refused: nobody should bless what is torn. What is sealed are the shards that
    its manifest lists; of a directory of no format, all files but hidden ones. The manifest file
    is not, since it changes when shards are added.

    In a bucket, digests by the same algorithm that the store states are believed, and all else is
    read. The list is written by one request. There is no journal: a seal that was killed begins
    anew.

    Args:
        path: The directory, or its address: ``s3://bucket/folder``.
        algorithm: ``"sha256"`` for ``sha256sum -c``; ``"blake3"`` for ``b3sum -c`` (``pip install
            'shardproof[blake3]'``); ``"xxh3-128"`` for ``xxh128sum -c``, against accidents only.
        format: Name of its format, where the directory does not tell it.
        update: Add files that the list does not have. Those that it has keep their digests,
            whatever their bytes are now: nothing is ever blessed twice.
        workers: How many files are read at once; by default one for each processor.
        executor: Whose workers read the files instead; see `validate`. They read only: this process
            alone writes.
        progress: As for `validate`.

    Raises:
        ShardValidationError: The directory is not whole.
        SealError: It is sealed already; or a file changed while it was read; or nothing can be
            written there, as to ``hf://``.
        ManifestError: Its manifest can't be read.
        ValueError: An algorithm that is not installed; ``workers`` together with ``executor``.
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
        if executor is not None:
            raise ValueError("expected workers or executor, found both")
    if executor is not None and is_address(path):
        raise ValueError(f"executor: {NOT_ELSEWHERE}")
    how = {"workers": workers, "executor": executor}
    digest.begin(algorithm, 0)  # which may not be installed
    form = None if format is None else formats.get(format)
    with reporting(progress, "seal") as show:

        def work(_: object) -> Seal:
            with mounted(path) as place:
                root = formats.locate(place).path
                # What is written lies in the directory that was read.
                with closing_fd(open_root(root)) as dir_fd:
                    return _seal(root, dir_fd, form, algorithm, update=update, **how)

        return apart(work, show)


def _seal(
    root: str, dir_fd: int, form: formats.Format | None, algorithm: str, *, update: bool, **how: Any
) -> Seal:
    if (place := remote_at(root)) is None:
        files.sweep_leftovers(dir_fd)
    elif not hasattr(place.directory.source, "put"):
        problem = "nothing is written there: seal a copy on a disk, and upload the list"
        raise SealError(problem, path=root)
    list_name = digest_lists.NAMES[algorithm]
    list_path = os.path.join(root, list_name)
    if not update:
        _refuse_sealed(list_path)
    here, stated, wrong = contents_of(root)
    manifest = manifest_of(root, form, here, stated, wrong)
    check(manifest, level="complete", most=MOST_KEPT, **how).raise_for_findings()
    listed = digest_lists.read(root, list_name) if is_there(list_path) else []
    before = {name for name, _ in listed}
    ours = {*before, *(f.name for f in manifest.files), list_name, journal_name(list_name)}
    others = ((name, why) for name, why in here.items() if name not in ours)
    left_out = {name: why or "not in the manifest" for name, why in others}
    added = [file for file in manifest.files if file.name not in before]
    manifest = dataclasses.replace(manifest, files=added, contradictions=tuple)  # looked at above
    digests, n_resumed = _digests_of(manifest, algorithm, dir_fd, **how)
    data = b"".join(digest_lists.format_line(name, text) for name, text in digests.items())
    if before:
        whole = json.read_bytes(root, list_name, max_bytes=2**28)
        data = whole.removesuffix(b"\n") + b"\n" + data
        again = {name for name, _ in digest_lists.parse(data, path=list_path)}
        if not again.issuperset((*digests, *before)):
            problem = "no line can be added to it: write it anew, in plain UTF-8"
            raise SealError(problem, path=list_path)
    else:
        _refuse_sealed(list_path)  # by another one, meanwhile
    if place is None:
        files.write_whole(list_path, data, dir_fd=dir_fd)
    else:
        names = [*digests, list_name] if before else digests
        _put(place, list_path, data, replace=bool(before), names=names)
    return Seal(
        path=path_of(root),
        list_path=path_of(list_path),
        algorithm=algorithm,
        n_files=len(before) + len(digests),
        added=tuple(digests),
        n_resumed=n_resumed,
        left_out=left_out,
    )


def _refuse_sealed(list_path: str) -> None:
    if is_there(list_path):
        problem = "it is sealed already: --update adds files; to seal it anew, remove the list"
        raise SealError(problem, path=list_path)


def _put(
    place: RemotePlace, list_path: str, data: bytes, *, replace: bool, names: Iterable[str]
) -> None:
    """Write the list by one request, if the files are as they were when they were read."""
    from shardproof.fetching import transfer  # noqa: PLC0415 - HTTP clients take long

    directory, name = place.directory, os.path.join(place.name, os.path.basename(list_path))
    if changed := directory.changed(os.path.join(place.name, each) for each in names):
        raise SealError(_CHANGED, path=os.path.join(directory.root, changed[0]), has_changed=True)
    try:
        transfer.put(directory.source, name, data, replace=replace)
    except SourceError as error:
        if not isinstance(error.__cause__, FileExistsError):
            problem = f"the list could not be written: {error.problem}"
            raise OSError(errno.EIO, problem, list_path) from error
        # A client asks again where an answer got lost: then the list is there, and ours.
        if transfer.read_range(directory.source, name) != data:
            problem = "another process has written it meanwhile: look, and seal again"
            raise SealError(problem, path=list_path) from error


def _digests_of(
    manifest: Manifest, algorithm: str, dir_fd: int, **how: Any
) -> tuple[Mapping[str, str], int]:
    """Return what each file hashes to, and how many of them an earlier attempt has read."""
    root, list_name = os.fspath(manifest.root), digest_lists.NAMES[algorithm]
    digests, resumed = dict.fromkeys((file.name for file in manifest.files), ""), list[str]()

    def note(read: FileRead) -> None:
        if stamp_of(read.after) != stamp_of(read.before):
            raise SealError(_CHANGED, path=os.path.join(root, read.name), has_changed=True)
        if read.is_known:
            resumed.append(read.name)
        else:
            note_down(read)
        digests[read.name] = str(read.found[algorithm, 0])

    noted = contextlib.nullcontext(lambda *_: None)  # a bucket keeps no journal
    is_here = remote_at(root) is None
    with journal(root, list_name, dir_fd=dir_fd) if is_here else noted as note_down:
        how |= {"proofs": proofs_of(root, list_name), "algorithm": algorithm, "note": note}
        check(manifest, level="valid", most=MOST_KEPT, is_told=True, **how).raise_for_findings()
    return digests, len(resumed)

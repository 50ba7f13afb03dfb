"""The promise of a directory, with the digests of the lists that lie in it: its seal."""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from shardproof._base import digest, digest_lists
from shardproof._base.proofs import SealedProof, proofs_of
from shardproof.errors import ManifestError
from shardproof.formats._format import Format
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile, RefusedEntry

__all__ = ["LISTS", "parts_of", "proofs_in", "read_manifest"]

LISTS = "digests"
"""Name of the format of a directory that has nothing but such lists."""


def read_manifest(form: Format, path: str) -> Manifest:
    """Return what a directory promises, with the digests that lists in it state.

    Raises:
        ManifestError: What it promises can't be read, or such a list can't; or nothing is promised
            yet, since no shard is made.
        OSError: The file system failed.
    """
    manifest = Manifest.without_refused(form.read_manifest, path)
    root = os.fspath(manifest.root)
    lists = () if form.name == LISTS else digest_lists.seals_in(root)
    wrong: list[ManifestError] = []
    sealed = digest_lists.stated_by(root, lists, wrong)
    if manifest.n_to_make and not (manifest.files or manifest.damaged or sealed):
        problem = f"no shard is completed: expected some of {manifest.n_to_make}, make them first"
        raise ManifestError(problem, path=manifest.path)
    if not sealed:
        return manifest
    known = {file.name for file in manifest.files}
    files = [_with_digest(file, sealed.get(file.name, ())) for file in manifest.files]
    files += [
        PromisedFile.by_digest(name, digest.best(texts))
        for name, texts in sealed.items()
        if name not in known
    ]

    def contradictions() -> Iterator[Contradiction]:
        yield from manifest.contradictions()
        yield from _disagreements(manifest.files, sealed)

    damaged = [*manifest.damaged, *(RefusedEntry.of(error, root) for error in wrong)]
    changed = {"files": files, "contradictions": contradictions, "damaged": damaged}
    changed["path"] = Path(root, *lists[:1])  # what is refused now is in a list
    merged = Manifest.without_refused(dataclasses.replace, manifest, **changed)
    return dataclasses.replace(merged, path=manifest.path)


def parts_of(form: Format) -> tuple[str, ...]:
    """Return patterns of what may lie beside promised files: their promise, a seal, a journal."""
    lists = [name for each in digest_lists.NAMES.values() for name in (each, f".{each}.journal")]
    return (form.manifest_file, *form.further_parts, *form.beside, *lists)


def proofs_in(manifest: Manifest) -> dict[str, SealedProof]:
    """Return what the journals of seals tell of files that a directory promises."""
    root, proofs = os.fspath(manifest.root), dict[str, SealedProof]()
    for name in digest_lists.NAMES.values():
        proofs.update(proofs_of(root, name))
    return proofs


def _with_digest(file: PromisedFile, sealed: Sequence[str]) -> PromisedFile:
    """Add the digest that proves most to a promise, where it has none, or one that is weaker."""
    known = [] if file.digest is None or file.digest_from else [file.digest]
    text = digest.best([*known, *sealed])
    if not sealed or text is None or text == file.digest:
        return file
    return msgspec.structs.replace(file, digest=text, digest_from=0)


def _disagreements(
    files: Sequence[PromisedFile], sealed: Mapping[str, Sequence[str]]
) -> Iterator[Contradiction]:
    own = {
        file.name: str(digest.parse(file.digest))
        for file in files
        if file.digest is not None and not file.digest_from and file.name in sealed
    }
    stated = {name: [own[name], *texts] if name in own else texts for name, texts in sealed.items()}
    for name, known, other in digest_lists.disagreements(stated):
        yield Contradiction(name, Mismatch(expected=known, found=f"{other}, in a list"))

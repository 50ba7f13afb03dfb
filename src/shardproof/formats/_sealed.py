"""The promise of a directory, with the digests of the lists that lie in it: its seal."""

import dataclasses
import fnmatch
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from shardproof._base import digest, digest_lists
from shardproof._base.opening import mode_of
from shardproof._base.proofs import SealedProof, proofs_of
from shardproof.errors import ManifestError
from shardproof.formats._format import Format
from shardproof.manifest import Manifest, PromisedFile, RefusedEntry

LISTS = "digests"
"""Name of the format of a directory that has nothing but such lists."""


def read_manifest(form: Format, path: str, *, lists: bool = False) -> Manifest:
    """Return what a directory promises, and its seal; with what other lists in it state of that."""
    manifest = Manifest.without_refused(form.read_manifest, path)
    if form.name == LISTS:
        return manifest
    root, wrong = os.fspath(manifest.root), list[ManifestError]()
    seals = seals_in(root)
    sealed = digest_lists.stated_by(root, seals, wrong) if seals else {}
    if manifest.n_to_make and not (manifest.files or manifest.damaged or sealed):
        problem = f"no shard is completed: expected some of {manifest.n_to_make}, make them first"
        raise ManifestError(problem, path=manifest.path)
    found, parts = list[str](), (*seals, form.manifest_file, *form.further_parts)
    if lists:  # which it takes a listing to find
        found = digest_lists.lists_in(root)
    others = sorted({*found}.difference(*(fnmatch.filter(found, each) for each in parts)))
    stated = digest_lists.stated_by(root, others, wrong) if others else {}
    if not (sealed or stated):
        return manifest
    known = {file.name for file in manifest.files}
    listed_only = (_listed_only(*each) for each in sealed.items() if each[0] not in known)
    files = [
        with_digests(
            file, [(text, 0) for some in (sealed, stated) for text in some.get(file.name, ())]
        )
        for file in (*manifest.files, *listed_only)
    ]
    damaged = [*manifest.damaged, *(RefusedEntry.of(error, root) for error in wrong)]
    make = functools.partial(dataclasses.replace, manifest, files=files, damaged=damaged)
    return Manifest.without_refused(make, listed_in=Path(root, *seals[:1]))


def seals_in(root: str) -> list[str]:
    """Return the names of those lists in a directory that are called as a seal's are."""
    return [name for name in digest_lists.NAMES.values() if mode_of(os.path.join(root, name))]


def parts_of(form: Format) -> tuple[str, ...]:
    """Return patterns of what may lie beside promised files: their promise, a seal, a journal."""
    lists = [name for each in digest_lists.NAMES.values() for name in (each, f".{each}.journal")]
    return (form.manifest_file, *form.further_parts, *form.beside, *lists)


def proofs_in(manifest: Manifest) -> Mapping[str, SealedProof]:
    """Return what the journals of seals tell of files that a directory promises."""
    return proofs_of(os.fspath(manifest.root), *digest_lists.NAMES.values())


def with_digests(file: PromisedFile, stated: Sequence[tuple[str, int]]) -> PromisedFile:
    """Return a promise with further digests, of the whole file first; what proves most leads."""
    both = [*stated, *file.digests]
    whole = [(text, 0) for text in digest.provable(text for text, begin in both if not begin)]
    every = [*whole, *dict.fromkeys(each for each in both if each[1])]
    if not stated or not every:
        return file
    (text, begin), *further = every
    return msgspec.structs.replace(file, digest=text, digest_from=begin, further=tuple(further))


def _listed_only(name: str, texts: Sequence[str]) -> PromisedFile:
    made = PromisedFile.by_digest(name, *digest.provable(texts))
    return msgspec.structs.replace(made, is_listed_only=True)

"""How a manifest is read: with the digests of lists beside it, or as the owner of a key signed it.

A list of digests that lies in a directory is its seal, or its manifest where nothing else is. A
signature counts only if it is by the key that the user has; then no list beside it does.
"""

import contextlib
import dataclasses
import fnmatch
import functools
import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shardproof._base import digest, digest_lists, json
from shardproof._base.addresses import path_of, remote_at
from shardproof._base.names import opened
from shardproof._base.opening import is_regular, mode_of, permission_denied, real_path
from shardproof.errors import ManifestError, ManifestNotFoundError, ManifestPermissionError
from shardproof.formats._format import Format, SignerKey
from shardproof.formats._weak import WEAK, agrees
from shardproof.manifest import ExpectedFile, Manifest, RefusedEntry

LISTS = "digests"  # name of the format of a directory that has nothing but such lists
_MAX_BYTES = 2**16
_BEGIN = re.compile(rb"(?m)^-----BEGIN (?:CERTIFICATE|(?:[A-Z]+ )*(?:PUBLIC|PRIVATE) KEY)-----")


def read_manifest(form: Format, path: str, *, lists: bool = False) -> Manifest:
    """Return the manifest of a directory and its seal, and what other lists in it state of it."""
    if form.only_here and remote_at(path) is not None:
        problem = f"a directory of the format {form.name} can't be checked in a bucket"
        raise ManifestError(f"{problem}: {form.only_here}", path=path)
    manifest = Manifest.without_refused(form.read_manifest, path)
    if form.name == LISTS:
        return manifest
    root, remarks = os.fspath(manifest.root), digest_lists.Remarks([], [])
    seals = seals_in(root)
    sealed = digest_lists.stated_by(root, seals, remarks) if seals else {}
    if manifest.n_to_make and not (manifest.files or manifest.damaged or sealed):
        problem = f"no shard is completed: expected some of {manifest.n_to_make}, make them first"
        raise ManifestError(problem, path=manifest.path)
    parts = (*seals, form.manifest_file, *form.further_parts)
    found = digest_lists.lists_in(root) if lists else []  # which takes a listing
    others = sorted({*found}.difference(*(fnmatch.filter(found, each) for each in parts)))
    stated = digest_lists.stated_by(root, others, remarks) if others else {}
    if not (sealed or stated):
        return manifest
    known = {file.name for file in manifest.files}
    listed_only = (
        msgspec.structs.replace(expected_by(name, texts), is_listed_only=True)
        for name, texts in sealed.items()
        if name not in known
    )
    files = [
        with_digests(
            file, [(text, 0) for some in (sealed, stated) for text in some.get(file.name, ())]
        )
        for file in (*manifest.files, *listed_only)
    ]
    damaged = [*manifest.damaged, *(RefusedEntry.of(error, root) for error in remarks.wrong)]
    about = {"files": files, "damaged": damaged, "notes": [*manifest.notes, *remarks.notes]}
    make = functools.partial(dataclasses.replace, manifest, **about)
    return Manifest.without_refused(make, listed_in=path_of(root, *seals[:1]))


def seals_in(root: str) -> list[str]:
    """Return the names of those lists in a directory that are called as a seal's are."""
    return [name for name in digest_lists.NAMES.values() if mode_of(os.path.join(root, name))]


def recognizes(path: str) -> bool:
    """Whether a directory has a list of digests, or what can be none; see `LISTS`."""
    return bool(digest_lists.lists_in(path) or seals_in(path))


def read_lists(path: str) -> Manifest:
    """Return what the lists in a directory promise, as sha256sum and its kin write them."""
    lists = digest_lists.lists_in(path)
    if not lists:
        raise ManifestNotFoundError("there is no list of digests, such as SHA256SUMS", path=path)
    remarks = digest_lists.Remarks([], [])
    stated = digest_lists.stated_by(path, lists, remarks)
    if not stated:
        raise ManifestError("expected a digest of a file, found none", path=path_of(path, lists[0]))
    return Manifest.at(path, lists[0], LISTS, **fields_of(stated, remarks, path))


def fields_of(
    stated: Mapping[str, Sequence[str]], remarks: digest_lists.Remarks, root: str
) -> dict[str, Any]:
    """Return the fields of a manifest of which lists are all that is expected."""
    files = [expected_by(name, texts) for name, texts in stated.items()]
    without = [text for file in files if not file.digests for text in stated[file.name]]
    unknown = sorted({text.partition(":")[0] for text in without} - {"size"})
    why = dict.fromkeys(unknown, "can't be verified here")
    why |= dict.fromkeys(WEAK.intersection(unknown), "is weak: it detects accidents, no more")
    return {
        "files": files,
        "damaged": [RefusedEntry.of(error, root) for error in remarks.wrong],
        "prove": functools.partial(agrees, stated) if not WEAK.isdisjoint(unknown) else None,
        "notes": [*remarks.notes, *map(" ".join, why.items())],
    }


def expected_by(name: str, texts: Sequence[str]) -> ExpectedFile:
    """Return what lists state of a file: the digests that can be proven, and its size."""
    file = ExpectedFile.by_digest(name, *digest.provable(texts))
    sizes = [int(text[5:]) for text in texts if text.startswith("size:")]
    sizes += [0] * ("crc32:00000000" in texts)  # that of an empty file
    return msgspec.structs.replace(file, size=sizes[0]) if sizes else file


def begin_of(root: str, name: str, n_bytes: int) -> bytes:
    """Return the first bytes of a file of a directory; none where it is not there, or no file."""
    with opened(name, root) as file:
        return b"" if file is None else file(n_bytes)


def parts_of(form: Format, root: str) -> tuple[str, ...]:
    """Return patterns of what may lie beside expected files: their promise, a seal, a journal."""
    found = digest_lists.lists_in(root) if form.name == LISTS else ()
    lists = [name for each in digest_lists.NAMES.values() for name in (each, f".{each}.journal")]
    own = (form.manifest_file, *form.further_parts, *form.beside)
    return (*own, *lists, *map(glob.escape, found))


def with_digests(file: ExpectedFile, stated: Sequence[tuple[str, int]]) -> ExpectedFile:
    """Return a promise with further digests, of the whole file first; what proves most leads."""
    both = [*stated, *file.digests]
    whole = [(text, 0) for text in digest.provable(text for text, begin in both if not begin)]
    every = [*whole, *dict.fromkeys(each for each in both if each[1])]
    if not stated or not every:
        return file
    (text, begin), *further = every
    return msgspec.structs.replace(file, digest=text, digest_from=begin, further=tuple(further))


def key_at(address: str) -> SignerKey | None:
    """Return the public key or the certificate in PEM that is in a file; None for all else."""
    if "://" in address or not is_regular(address):
        return None
    folder, name = os.path.split(real_path(address))
    try:
        text = json.read_bytes(folder, name, max_bytes=_MAX_BYTES)
    except ManifestError:
        return None
    return SignerKey(os.path.join(folder, name), text) if _BEGIN.search(text) else None


def read_signed(form: Format, path: str, key: SignerKey) -> Manifest:
    """Return the manifest of a directory, if a key's owner signed it; no list beside it counts."""
    if form.read_signed is None:
        problem = (
            f"expected a signed manifest, since a key is given; the format {form.name} has none"
        )
        raise ManifestError(problem, path=path)
    return form.read_signed(path, key)


@contextlib.contextmanager
def permissions_told(path: str) -> Iterator[None]:
    """Raise what may not be listed below a directory as what it means for the promise."""
    try:
        yield
    except ManifestPermissionError:
        raise
    except PermissionError as error:
        raise ManifestPermissionError(permission_denied(), path=error.filename or path) from error

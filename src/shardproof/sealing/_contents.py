"""What lies in a directory that is to be sealed, and what is stated of it already."""

import codecs
import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from shardproof import formats
from shardproof._base import digest, digest_dialects, digest_lists
from shardproof._base.addresses import is_address
from shardproof._base.fanout import in_threads
from shardproof._base.names import opened, spelled
from shardproof._base.opening import Read, is_never_a_shard, tree
from shardproof.checks import check
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.manifest import ExpectedFile, Manifest, Mismatch, Prove, RefusedEntry
from shardproof.probes.impostors import is_text

Reasons = Mapping[str, str | None]
"""Of each file why it is left out where no format says what is to be sealed; None if it is not."""

Stated = dict[str, list[tuple[str, int]]]
"""The digests that are stated of files, each with where its bytes begin."""

_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_DIGITS = re.compile(rb"[0-9A-Fa-f]{8}")
_AT_ONCE = 32  # files of a bucket whose first bytes are looked at
_LISTED, _HEAD_BYTES, _MAX_LIST_BYTES = "a list of digests", 4096, 256 * 2**20


def contents_of(root: str) -> tuple[Reasons, Stated, list[ManifestError]]:
    """Return what lies in a directory and below, what lists state of it, and their wrong lines."""
    files: dict[str, str | None] = {}
    stated, remarks = Stated(), digest_lists.Remarks([], [])
    for here, folders, names in tree(root):
        hidden = list(filter(is_never_a_shard, folders))
        folders[:] = [name for name in folders if name not in hidden]
        lists, below = digest_lists.lists_in(here), here[len(root) + 1 :]
        for name in [*(f"{name}/" for name in hidden), *names]:
            why = _LISTED if name in lists else None
            if is_never_a_shard(name.rstrip("/")):
                why = "hidden" if name.startswith(".") else "never expected"
            files[os.path.join(below, name)] = why
    unlisted = [name for name, why in files.items() if why is None]
    look = functools.partial(_entries_of, root, files=files)
    n_threads = _AT_ONCE if is_address(root) else 1  # a disk answers faster than threads begin
    heads = in_threads(look, unlisted, n_threads=n_threads, name="shardproof-seal")
    stating = {name: found for name, found in zip(unlisted, heads, strict=True) if found}
    for name, why in files.items():
        entries = digest_lists.read(root, name, remarks) if why == _LISTED else ()
        for file, text in stating.get(name, entries):
            meant = _meant(root, name, file, files)
            if meant is None and why and "/" in name:  # it is gone
                meant = os.path.normpath(os.path.join(os.path.dirname(name), file))
            if meant and meant != name and not meant.startswith(("/", "../")):
                proofs = [(each, 0) for each in digest.provable([text])]
                stated.setdefault(meant, []).extend(proofs)
    return files, stated, remarks.wrong


def _entries_of(root: str, name: str, files: Reasons) -> Sequence[tuple[str, str]]:
    """Return what a file of any name states, if at its beginning it names a file that is here."""
    with opened(name, root) as file:
        size = 0 if file is None else file.status.st_size
        if file is None or size > _MAX_LIST_BYTES:
            return ()
        head = file(_HEAD_BYTES)
        if not (head.startswith(_WIDE) or (_DIGITS.search(head) and b"\0" not in head)):
            return ()  # as nearly every shard
        whole = len(head) if len(head) == size else head.rfind(b"\n")
        begin, _ = digest_dialects.parsed(head[:whole], name)
        is_one = any(_meant(root, name, file, files) for file, _ in begin)
        return digest_dialects.parsed(file(size), name)[0] if is_one else ()


def _meant(root: str, lister: str, name: str, files: Reasons) -> str | None:
    """Return which file a list names: from its folder, the root, or by the end of a whole path."""
    folder, base = os.path.split(lister)
    if (direct := os.path.join(folder, name)) in files:
        return direct
    last = os.path.basename(name)
    ways = [direct, name, name.rpartition(f"/{os.path.basename(root)}/")[2]]
    ways += [os.path.join(folder, last)] * base.startswith(f"{last}.")
    found = (os.path.normpath(way).removeprefix(f"{root}/") for way in ways)
    return next((each for each in found if each in files), None)


def manifest_of(
    root: str,
    form: formats.Format | None,
    files: Reasons,
    stated: Stated,
    wrong: Sequence[ManifestError],
) -> Manifest:
    """Return what is to be sealed, with all that is stated of it; what is below has to be whole."""
    with contextlib.suppress(ManifestNotFoundError):
        form = form or formats.detect(root)
    manifest = (
        formats.read_manifest(form, root) if form else Manifest.at(root, "", formats.LISTS, ())
    )
    promised = {file.name: file for file in manifest.files}
    proves = dict[str, list[tuple[Prove, ExpectedFile]]]()
    for other in (manifest, *_others(root, manifest.format, files)):
        below = os.path.relpath(other.root, manifest.root)
        for file in other.files:
            name = os.path.normpath(f"{below}/{file.name}")
            if file.digests:
                stated.setdefault(name, []).extend(file.digests)
            if other.prove:
                proves.setdefault(name, []).append((other.prove, file))
    if manifest.format == formats.LISTS:
        names = [name for name, why in files.items() if why is None]
        names = spelled(names, {*promised, *stated}, root) + sorted(stated.keys() - files.keys())
        promised = {
            name: ExpectedFile(name=name, size=_none(root, name)) for name in names
        } | promised
    if not promised:
        raise ManifestNotFoundError("there is nothing to seal: no file in it", path=root)

    damaged = dict.fromkeys([*manifest.damaged, *(RefusedEntry.of(each, root) for each in wrong)])
    make = functools.partial(dataclasses.replace, manifest, damaged=[*damaged])
    return Manifest.without_refused(
        make,
        files=[
            formats.with_digests(file, stated[name]) if name in stated else file
            for name, file in promised.items()
        ],
        prove=_Proves(proves) if proves else None,
    )


class _Proves(dict[str, list[tuple[Prove, ExpectedFile]]]):
    """The checksums in the files, by all that is promised of each; a worker is sent a part."""

    def __call__(self, file: ExpectedFile, read: Read, size: int) -> Mismatch | bool:
        said = (each(of, read, size) for each, of in self.get(file.name, ()))
        return next((each for each in said if isinstance(each, Mismatch)), False)


def _none(root: str, name: str) -> int | None:
    """Return 0 for what may well be empty: a text, such as labels of an image without any."""
    if not (is_text(name) or name.endswith(("_SUCCESS", "__init__.py"))):
        return None
    with opened(name, root) as file:
        return 0 if file is not None and not file.status.st_size else None


def _others(root: str, own: str, files: Reasons) -> Iterator[Manifest]:
    """Yield what else is promised, here and below; where all of that is sealed, it is whole."""
    seen, folders = {(root, own)}, {os.path.dirname(f"{root}/{name}".rstrip("/")) for name in files}
    tops = {name.partition("/")[0] for name in files if "/" in name and own == formats.LISTS}
    for here in (here for top in sorted(tops) for here in formats.find(os.path.join(root, top))):
        for form in formats.claims(here):
            if form.name != formats.LISTS:  # which are read
                manifest = formats.read_manifest(form, here)
                check(manifest, level="complete").raise_for_findings()
                seen.add((here, form.name))
                yield manifest
    for here in sorted(folders):
        for form in formats.stating(here):
            if (here, form.name) not in seen:
                yield Manifest.without_refused(form.read_manifest, here)

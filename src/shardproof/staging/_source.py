"""What is staged: a promise, all that it consists of, and all that it promises."""

import dataclasses
import errno
import fnmatch
import hashlib
import os
import re
from collections.abc import Collection, Mapping, Sequence

from shardproof import formats
from shardproof._base import files as _files
from shardproof._base import json
from shardproof._base.messages import listed, quoted
from shardproof._base.opening import names_in
from shardproof.checks import check
from shardproof.errors import ManifestError, ShardReadError
from shardproof.formats.signs import METADATA
from shardproof.manifest import Manifest, Mismatch, PromisedFile
from shardproof.report import Level, Report
from shardproof.staging._copies import OURS
from shardproof.staging._proofs import telling_whole

_SHOWN_NAME = 100
_STAGED = ("saev", "receipts", "checkpoint")
"""Formats of whose promise every file is known: without one of them, a copy could not be read."""

_CHANGED = "it changed while it was staged: stage it when no process writes to it"
_STRANGE = (
    "expected a copy that promises what its source does, found files of a promise that `stage` did "
    "not put there ({}); remove them, or stage to another directory. The first is"
)


@dataclasses.dataclass(frozen=True, slots=True)
class StageSource:
    """A shards directory that is to be copied.

    Attributes:
        root: Its real absolute path.
        prefix: Name of the only checkpoint of it that is copied; empty where all of it is.
        form: Its format.
        manifest: What it promises.
        listing: Name of the file that lists the shards; of several the first.
        stated: The bytes of that file, and of all others of the directory that state the promise.
        parts: Every other file that the promise consists of.
        promised: Every file that is promised.
        folders: Every directory below it that they are in; those of the promise, be they empty.
    """

    root: str
    prefix: str
    form: formats.Format
    manifest: Manifest
    listing: str
    stated: Mapping[str, bytes]
    parts: Sequence[PromisedFile]
    promised: Sequence[PromisedFile]
    folders: Collection[str]

    @classmethod
    def read(cls, located: formats.Located) -> "StageSource":
        """Return what there is to copy; raises as `shardproof.validate` does."""
        root = located.root
        form = formats.detect(located.path)
        if form.name not in _STAGED:
            problem = f"only directories of {', '.join(_STAGED)} are staged, this is one of"
            raise ManifestError(f"{problem} {form.name}: copy it and validate the copy", path=root)
        prefix = "" if located.path == root else os.path.basename(located.path)
        names = _parts_of(form, root, prefix)
        with telling_whole(root):
            manifest = form.read_manifest(located.path)
        # A copy has files of its own, which tell what of it is proven.
        ours = [
            quoted(file.name)
            for file in manifest.files
            if file.name.partition("/")[0] in OURS
            or _files.is_temporary(os.path.basename(file.name))
        ]
        if ours:
            problem = listed("names that a copy has for files of its own", ours)
            raise ManifestError(problem, path=manifest.path)
        # Listed again: a part that came while the promise was read would not be copied.
        if not names or _parts_of(form, root, prefix) != names:
            raise ShardReadError(_CHANGED, path=manifest.path)
        stated = {name: _read(root, name) for name in names if "/" not in name}
        listing = min(fnmatch.filter(names, form.manifest_file))
        promised = {file.name: file for file in manifest.files if file.name != listing}
        parts = [name for name in names if name != listing and name not in promised]
        files = [PromisedFile(name=name) for name in parts], list(promised.values())
        folders = {os.path.dirname(name) for name in (*form.further_parts, *parts, *promised)}
        source = cls(root, prefix, form, manifest, listing, stated, *files, folders)
        source.refuse_change()
        return source

    @property
    def name(self) -> str:
        """The name of the directory of its copy."""
        path = self.at(self.root)
        digest = hashlib.blake2b(os.fsencode(path), digest_size=8)
        for name, data in self.stated.items():
            digest.update(b"\0%b\0%d\0%b" % (os.fsencode(name), len(data), data))
        shown = re.sub(r"[^0-9A-Za-z_.\-]", "_", os.path.basename(path))[:_SHOWN_NAME]
        return f"{shown}-{digest.hexdigest()}"

    def at(self, root: str) -> str:
        """Return the path by which this, or its copy in a directory, is known to its format."""
        return os.path.join(root, self.prefix) if self.prefix else root

    def is_listed_in(self, root: str) -> bool:
        """Whether the list of shards is in the copy, as it was read."""
        return _read(root, self.listing) == self.stated[self.listing]

    def refuse_change(self) -> None:
        """Raise if what states the promise is not what was read."""
        for name, data in self.stated.items():
            if _read(self.root, name) != data:
                raise ShardReadError(_CHANGED, path=os.path.join(self.root, name))

    def surplus_in(self, root: str) -> list[str]:
        """Return names of files of which a copy's promise would consist too, but not this one's."""
        files = {file.name for file in (*self.parts, *self.promised)}
        names = _parts_of(self.form, root, self.prefix)
        return [name for name in names if name not in {self.listing, *files}]

    def refuse_other(self, copy: Manifest, strange: Sequence[str] = ()) -> None:
        """Raise if a copy does not promise what this promised when it was read.

        ``strange`` are the names of files of its promise that `stage` did not put there.
        """
        if list(copy.files) == list(self.manifest.files):
            return
        if strange:
            path = os.path.join(copy.root, strange[0])
            raise FileExistsError(errno.EEXIST, _STRANGE.format(len(strange)), path)
        raise ShardReadError(_CHANGED, path=self.manifest.path)

    def check(self, names: Collection[str], level: Level) -> Report:
        """Look at some of its files; digests are compared later, when they are copied."""
        copied = {*names, self.listing}
        files = [file for file in self.manifest.files if file.name in copied]
        looked = dataclasses.replace(self.manifest, files=files)
        many = 2 * len(files) >= len(self.manifest.files)
        at = "complete" if level == "valid" else level
        return check(looked, level=at, list_first=many)

    def check_copy(self, copy: Manifest, files: Sequence[PromisedFile], level: Level) -> Report:
        """Look at all files of a copy; the format's probe knows only those that are promised."""
        parts, known = {file.name for file in self.parts}, copy.probe

        def probe(file: PromisedFile, fd: int, size: int) -> Mismatch | None:
            return None if known is None or file.name in parts else known(file, fd, size)

        looked = dataclasses.replace(copy, files=files, probe=probe if known else None)
        return check(looked, level=level)


def _parts_of(form: formats.Format, root: str, prefix: str) -> list[str]:
    """Return the names of all files that a promise consists of, sorted."""
    if prefix:
        return [prefix + METADATA]
    names: set[str] = set()
    for pattern in {form.manifest_file, *form.further_parts}:
        if "*" not in pattern:
            names.add(pattern)  # of a file that must be there
            continue
        folder, base = os.path.split(pattern)
        found = fnmatch.filter(names_in(os.path.join(root, folder)), base)
        names.update(os.path.join(folder, name) for name in found)
    return sorted(names)


def _read(root: str, name: str) -> bytes:
    with telling_whole(root, name):
        return json.read_bytes(root, name, max_bytes=json.MAX_BYTES)

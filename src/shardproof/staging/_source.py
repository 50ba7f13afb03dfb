"""What is staged: a manifest, all that it consists of, and all that it lists."""

import contextlib
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
from shardproof._base.addresses import remote_at
from shardproof._base.messages import listed, quoted
from shardproof._base.opening import names_in
from shardproof.checks import check
from shardproof.errors import ManifestError, ShardReadError
from shardproof.formats.signs import METADATA
from shardproof.manifest import ExpectedFile, Manifest
from shardproof.report import Level, Report
from shardproof.staging._proofs import PROOFS

LOCK = ".shardproof-stage.lock"
_SHOWN_NAME = 100
_STAGED: tuple[str, ...] = ("saev", "receipts", "checkpoint")
"""Formats of whose manifest every file is known: without one of them, a copy could not be read."""

_CHANGED = "it changed while it was staged: stage it when no process writes to it"
_STRANGE = (
    "expected a copy with the manifest of its source, found {} manifest files that `stage` did not "
    "put there; remove them, or stage to another directory. The first is"
)


@dataclasses.dataclass(frozen=True, slots=True)
class StageSource:
    """A shards directory that is to be copied."""

    root: str
    prefix: str  # of the only checkpoint that is copied; empty where all of the directory is
    form: formats.Format
    manifest: Manifest
    listing: str  # the file that lists the shards; of several the first
    stated: Mapping[str, bytes]  # the manifest's files that lie in the directory itself
    parts: Sequence[ExpectedFile]  # its other files
    promised: Sequence[ExpectedFile]  # what it lists

    @classmethod
    def read(cls, located: formats.Located) -> "StageSource":
        """Return what there is to copy; raises as `shardproof.validate` does."""
        root = located.root
        form = formats.detect(located.path)
        where, staged = "", _STAGED
        if remote_at(root) is not None:  # where receipts and checkpoints can't be checked
            where, staged = " from a bucket", _STAGED[:1]
        if form.name not in staged:
            problem = f"only directories of {', '.join(staged)} are staged{where}, this is one of"
            raise ManifestError(f"{problem} {form.name}: copy it and validate the copy", path=root)
        prefix = "" if located.path == root else os.path.basename(located.path)
        names = _parts_of(form, root, prefix)
        manifest = form.read_manifest(located.path)
        if ours := [quoted(file.name) for file in manifest.files if _is_ours(file.name)]:
            problem = listed("names that a copy has for files of its own", ours)
            raise ManifestError(problem, path=manifest.path)
        if not names:
            raise ShardReadError(_CHANGED, path=manifest.path)
        stated = {name: _read(root, name) for name in names if "/" not in name}
        listing = min(fnmatch.filter(names, form.manifest_file))
        promised = {file.name: file for file in manifest.files if file.name != listing}
        parts = [  # whose structure is none of a shard
            ExpectedFile(name=name, is_listed_only=True)
            for name in names
            if name != listing and name not in promised
        ]
        return cls(root, prefix, form, manifest, listing, stated, parts, [*promised.values()])

    @property
    def files(self) -> list[ExpectedFile]:
        """Every file to copy but the listing, in the order in which they get their names."""
        return [*self.promised, *self.parts]

    @property
    def folders(self) -> list[str]:
        """Every folder that the files are in, each before those in it."""
        names = {os.path.dirname(file.name) for file in self.files}
        names |= {os.path.dirname(pattern) for pattern in self.form.further_parts}  # be they empty
        parts = [name.split("/") for name in names if name]
        return sorted({"/".join(part[:n]) for part in parts for n in range(1, len(part) + 1)})

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

    def write_listing(self, root: str) -> None:
        """Write the list of a copy's shards, last of all: without it, it is no shards directory."""
        with contextlib.suppress(ManifestError, OSError):
            if _read(root, self.listing) == self.stated[self.listing]:
                return
        _files.write_whole(os.path.join(root, self.listing), self.stated[self.listing])

    def refuse_change(self) -> None:
        """Raise if the manifest is not what was read."""
        for name, data in self.stated.items():
            if _read(self.root, name) != data:
                raise ShardReadError(_CHANGED, path=os.path.join(self.root, name))

    def surplus_in(self, root: str) -> list[str]:
        """Return names of files that belong to the manifest of a copy, but not to this one."""
        known = {self.listing, *(file.name for file in self.files)}
        return [name for name in _parts_of(self.form, root, self.prefix) if name not in known]

    def check(self, names: Collection[str], level: Level) -> Report:
        """Check some of its files; digests are compared later, when they are copied."""
        files = [file for file in self.manifest.files if file.name in {*names, self.listing}]
        some = dataclasses.replace(self.manifest, files=files)
        many = 2 * len(files) >= len(self.manifest.files)
        return check(some, level="complete" if level == "valid" else level, list_first=many)

    def check_copy(
        self, root: str, files: Sequence[ExpectedFile], strange: Sequence[str], level: Level
    ) -> Report:
        """Check all files of a copy, with what is known of them, as its readers will."""
        path = self.at(root)
        copy = formats.detect(path).read_manifest(path)
        if list(copy.files) != list(self.manifest.files):
            if strange:
                first = os.path.join(root, strange[0])
                raise FileExistsError(errno.EEXIST, _STRANGE.format(len(strange)), first)
            raise ShardReadError(_CHANGED, path=self.manifest.path)
        return check(dataclasses.replace(copy, files=files), level=level)


def _is_ours(name: str) -> bool:
    in_root, base = name.partition("/")[0], os.path.basename(name)
    return in_root in {LOCK, PROOFS} or _files.is_temporary(base)


def _parts_of(form: formats.Format, root: str, prefix: str) -> list[str]:
    """Return the names of all files that a manifest consists of, sorted."""
    if prefix:
        return [prefix + METADATA]
    names: set[str] = set()
    for pattern in {form.manifest_file, *form.further_parts}:
        folder, base = os.path.split(pattern)
        found = [base]  # of a file that must be there
        if "*" in pattern:
            found = fnmatch.filter(names_in(os.path.join(root, folder)), base)
        names.update(os.path.join(folder, name) for name in found)
    return sorted(names)


def _read(root: str, name: str) -> bytes:
    return json.read_bytes(root, name, max_bytes=json.MAX_BYTES)

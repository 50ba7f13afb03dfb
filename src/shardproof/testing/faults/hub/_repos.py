"""Repositories of files as git and git-lfs know them: blobs, pointers, commits, branches."""

import dataclasses
import hashlib
import json
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from shardproof.testing.faults.hub._answers import Content

_SMALL = {"", ".csv", ".json", ".md", ".py", ".toml", ".txt", ".yaml", ".yml"}


@dataclasses.dataclass(frozen=True, slots=True)
class File:
    """A file of a repository."""

    content: Content
    pointer: bytes | None  # what git holds in place of a large file's bytes
    blob_id: str  # the SHA-1 by which git knows what it holds

    @classmethod
    def of(cls, path: str, content: Content, lfs: bool | None) -> "File":
        """Make one; where ``lfs`` is None, its suffix says whether it is large."""
        if lfs is None:
            lfs = posixpath.splitext(path)[1].lower() not in _SMALL
        if not lfs:
            return cls(content, None, _blob_id(content))
        pointer = (
            "version https://git-lfs.github.com/spec/v1\n"
            f"oid sha256:{content.sha256}\nsize {content.size}\n"
        ).encode()
        return cls(content, pointer, _blob_id(Content.of(pointer)))

    @property
    def etag(self) -> str:
        """As the Hub gives it: the SHA-256 of a large file, the git blob id of a small one."""
        return self.blob_id if self.pointer is None else self.content.sha256


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """The files of a repository at one time, and the listings that were made of them."""

    sha: str
    files: Mapping[str, File]
    listings: dict[tuple[str, bool], list[dict[str, Any]]] = dataclasses.field(default_factory=dict)


class Repo:
    """One repository; what is put between two requests makes one commit of a branch."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind  # "datasets" or "models"
        self.name = name  # "owner/name"
        self.token: str | None = None  # what a client must show to get a file
        self._branches: dict[str, dict[str, File]] = {"main": {}}
        self._heads: dict[str, Commit] = {}
        self._commits: dict[str, Commit] = {}

    def put(self, path: str, file: File, revision: str) -> None:
        """Add or replace a file of a branch."""
        self._branches.setdefault(revision, {})[path] = file
        self._heads.pop(revision, None)

    def commit(self, revision: str) -> Commit | None:
        """Return the commit that a branch or a whole SHA-1 names."""
        if revision in self._branches and revision not in self._heads:
            files = dict(self._branches[revision])
            blobs = sorted((path, file.blob_id) for path, file in files.items())
            sha = sha1(json.dumps([self.kind, self.name, blobs]).encode())
            self._heads[revision] = self._commits.setdefault(sha, Commit(sha, files))
        return self._heads.get(revision) or self._commits.get(revision)

    def place(self, path: str, revision: str) -> str:
        """Return where a server has a file, without the slash at the start."""
        prefix = "" if self.kind == "models" else f"{self.kind}/"
        return f"{prefix}{self.name}/resolve/{quote(revision, safe='')}/{quote(path)}"

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield each file of each branch: its path, and where a server has it."""
        for revision, files in self._branches.items():
            for path in files:
                yield path, self.place(path, revision)

    def heads(self) -> Iterator[tuple[str, str]]:
        """Yield name and SHA-1 of each branch."""
        for name in list(self._branches):
            if commit := self.commit(name):
                yield name, commit.sha


def sha1(data: bytes) -> str:
    """Return the digest in hexadecimal."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def _blob_id(content: Content) -> str:
    digest = hashlib.sha1(b"blob %d\0" % content.size, usedforsecurity=False)
    for block in content.blocks(0, content.size):
        digest.update(block)
    return digest.hexdigest()

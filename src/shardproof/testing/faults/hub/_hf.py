"""Repositories as git has them, and what the Hugging Face Hub answers to calls that read them.

Sources: the Hub's API page (https://huggingface.co/docs/hub/api), and what `huggingface_hub` 0.30
to 2.4 asks for and reads.
"""

import dataclasses
import difflib
import hashlib
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qs, quote, urlencode

from shardproof.testing.faults.hub._answers import (
    Answer,
    Content,
    Header,
    Incoming,
    answer,
    answer_file,
)

RepoType = Literal["dataset", "model"]

Json = dict[str, Any]
Query = Mapping[str, Sequence[str]]

_KINDS = {"datasets", "models"}
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_PAGE = 1000  # entries of a listing in one answer, as from the Hub
_DATE = "2024-01-01T00:00:00.000Z"
_SAME_OF_ALL = {"private": False, "disabled": False, "downloads": 0, "likes": 0, "tags": []}
_SAME_OF_ALL |= {"lastModified": _DATE, "createdAt": _DATE}
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
        self._branches.setdefault(revision, {})[path] = file
        self._heads.pop(revision, None)

    def commit(self, revision: str) -> Commit | None:
        """Return the commit that a branch or a whole SHA-1 names."""
        if revision in self._branches and revision not in self._heads:
            files = dict(self._branches[revision])
            blobs = sorted((path, file.blob_id) for path, file in files.items())
            sha = _sha1(json.dumps([self.kind, self.name, blobs]).encode())
            self._heads[revision] = self._commits.setdefault(sha, Commit(sha, files))
        return self._heads.get(revision) or self._commits.get(revision)

    def place(self, path: str, revision: str) -> str:
        """Return where a server has a file, without the slash at the start."""
        prefix = "" if self.kind == "models" else f"{self.kind}/"
        return f"{prefix}{self.name}/resolve/{quote(revision, safe='')}/{quote(path)}"

    def names(self) -> Iterator[str]:
        """Yield every name of each file, by which faults and requests may call it."""
        for revision, files in self._branches.items():
            for path in files:
                yield from (path, f"{self.kind}/{self.name}/{path}", self.place(path, revision))

    def heads(self) -> Iterator[tuple[str, str]]:
        found = ((name, self.commit(name)) for name in self._branches)
        yield from ((name, commit.sha) for name, commit in found if commit)


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def _blob_id(content: Content) -> str:
    digest = hashlib.sha1(b"blob %d\0" % content.size, usedforsecurity=False)
    for block in content.blocks(0, content.size):
        digest.update(block)
    return digest.hexdigest()


class Found(NamedTuple):
    """The right answer to a request, and the names by which a fault may mean the request."""

    answer: Answer
    names: tuple[str, ...]  # the path of the request first; attempts are counted for the last one
    file: str | None = None  # the name under which what it asks for was put, if that is a file


class RepoRequest(NamedTuple):
    """A request about a commit of a repository and a path in it."""

    incoming: Incoming
    query: Query  # what follows the question mark
    repo: Repo
    commit: Commit
    path: str  # of a file or a directory; empty for the root
    hosts: tuple[str, str]  # where the hub is, and where it has large files


class Repos:
    """All repositories of a hub, which is at one of two hosts and has large files at the other."""

    def __init__(self, hosts: tuple[str, str]) -> None:
        self._hosts = hosts
        self._repos: dict[tuple[str, str], Repo] = {}

    def repo(self, repo_type: str, name: str) -> Repo:
        """Return a repository, which is made where there is none."""
        key = _key(repo_type, name)
        return self._repos.setdefault(key, Repo(*key))

    def known(self, repo_type: str, name: str) -> Repo:
        """Return a repository that has files; of another, say which is nearest."""
        kind, _ = key = _key(repo_type, name)
        if repo := self._repos.get(key):
            return repo
        near = nearest(f"{kind}/{name}", ("/".join(each) for each in self._repos))
        raise ValueError(f"repo: expected one that has files, found '{kind}/{name}'; {near}")

    def names(self) -> Iterator[str]:
        """Yield those of all repositories."""
        for repo in self._repos.values():
            yield from repo.names()

    def find(self, incoming: Incoming, parts: list[str], query: Query) -> Found | None:
        """Answer a request that the Hub would understand; give None for others."""
        path = "/".join(parts)
        if len(parts) > 2 and parts[0] in {"api", "cdn"} and parts[1] in _KINDS:
            area, kind, *rest = parts
        elif "resolve" in parts[1:]:
            kind, *rest = parts if parts[0] in _KINDS else ["models", *parts]
            area = ""
        else:
            return None
        repo = self._repos.get((kind, "/".join(rest[:2]))) or self._repos.get((kind, rest[0]))
        if repo is None:
            return Found(_refuse(404, "RepoNotFound", "Repository not found."), (path,))
        asked = rest[repo.name.count("/") + 1 :]
        operation, revision, *inner = [*asked, *["revision", "main"][len(asked) :]]
        commit = repo.commit(revision)
        if commit is None:
            return Found(_refuse(404, "RevisionNotFound", "Revision not found."), (path,))
        call = RepoRequest(incoming, query, repo, commit, "/".join(inner), self._hosts)
        file = call.path if operation == "resolve" and call.path in commit.files else None
        act = _OPERATIONS.get((area, operation))
        right = act(call) if act else _refuse(404, "", "Nothing is here.")
        if file is None or (right.status == 302 and incoming.method == "GET"):
            return Found(right, (path,), file)  # a redirect only leads to the GET that counts
        return Found(right, (path, file, f"{kind}/{repo.name}/{file}"), file)


def _key(repo_type: str, name: str) -> tuple[str, str]:
    kind = f"{repo_type}s"
    if kind not in _KINDS:
        raise ValueError(f"repo_type: expected 'dataset' or 'model', found {repo_type!r}")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"repo: expected 'owner/name', found {name!r}")
    return kind, name


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which of those that there are is most like a name that is none of them."""
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0)
    return f"the nearest is {near[0]!r}" if near else "nothing was put there yet"


def _refuse(status: int, code: str, message: str, *headers: Header) -> Answer:
    """Answer an error as the Hub says it: the client reads its kind from the header."""
    body = json.dumps({"error": message}).encode()
    said = [("X-Error-Message", message), *headers]
    if code:
        said.append(("X-Error-Code", code))
    return answer(status, body, *said, content_type="application/json")


def _json(value: object, *headers: Header) -> Answer:
    return answer(200, json.dumps(value).encode(), *headers, content_type="application/json")


def _resolve(call: RepoRequest) -> Answer:
    commit = ("X-Repo-Commit", call.commit.sha)
    shown = call.incoming.headers.get("authorization")
    if call.repo.token is not None and shown != f"Bearer {call.repo.token}":
        text = "Access to this repository is restricted."
        return _refuse(403 if shown else 401, "GatedRepo", text)
    file = call.commit.files.get(call.path)
    if file is None:
        return _refuse(404, "EntryNotFound", "Entry not found.", commit)
    if file.pointer is None:
        return _give(call)
    cdn = f"{call.hosts[1]}/cdn/{call.repo.kind}/{call.repo.name}/resolve/{call.commit.sha}"
    return answer(
        302,
        b"",
        ("Location", f"{cdn}/{quote(call.path)}"),
        ("X-Linked-Etag", f'"{file.etag}"'),
        ("X-Linked-Size", str(file.content.size)),
        commit,
    )


def _give(call: RepoRequest) -> Answer:
    file = call.commit.files.get(call.path)
    if file is None:
        return answer(404, b"Nothing is here.\n")
    name = quote(posixpath.basename(call.path))
    shown = f"inline; filename*=UTF-8''{name}; filename=\"{name}\";"
    headers = (("X-Repo-Commit", call.commit.sha), ("Content-Disposition", shown))
    return answer_file(call.incoming, file.content, file.etag, *headers)


def _info(call: RepoRequest) -> Answer:
    siblings: list[Json] = [{"rfilename": path} for path in sorted(call.commit.files)]
    if _is_true(call.query.get("blobs")):
        for sibling in siblings:
            file = call.commit.files[sibling["rfilename"]]
            sibling |= {"size": file.content.size, "blobId": file.blob_id, **_lfs("sha256", file)}
    return _json(
        _SAME_OF_ALL
        | {
            "_id": _sha1(call.repo.name.encode())[:24],
            "id": call.repo.name,
            "author": call.repo.name.rpartition("/")[0] or None,
            "sha": call.commit.sha,
            "gated": "manual" if call.repo.token else False,
            "siblings": siblings,
        }
    )


def _tree(call: RepoRequest) -> Answer:
    recursive = _is_true(call.query.get("recursive"))
    known = call.commit.listings
    if (call.path, recursive) not in known:
        known[call.path, recursive] = list(_entries(call.commit.files, call.path, recursive))
    entries = known[call.path, recursive]
    if call.path and not entries:
        return _refuse(404, "EntryNotFound", "Entry not found.")
    cursor = call.query.get("cursor", ["0"])[0]
    if not re.fullmatch("[0-9]{1,9}", cursor):
        return _refuse(400, "", "Invalid cursor.")
    first, following = int(cursor), int(cursor) + _PAGE
    more = _last_commit(call, call.query)
    page = [entry | more for entry in entries[first:following]]
    if following >= len(entries):
        return _json(page)
    place = call.incoming.target.partition("?")[0]
    query = urlencode({**call.query, "cursor": following}, doseq=True)
    return _json(page, ("Link", f'<{call.hosts[0]}{place}?{query}>; rel="next"'))


def _entries(files: Mapping[str, File], under: str, recursive: bool) -> Iterator[Json]:
    prefix = f"{under}/" if under else ""
    seen: set[str] = set()
    for path in sorted(files):
        if not path.startswith(prefix):
            continue
        *folders, _ = path.removeprefix(prefix).split("/")
        for depth in range(1, len(folders) + 1 if recursive else min(2, len(folders) + 1)):
            folder = prefix + "/".join(folders[:depth])
            if folder not in seen:
                seen.add(folder)
                yield _entry(folder)
        if recursive or not folders:
            yield _entry(path, files[path])


def _paths_info(call: RepoRequest) -> Answer:
    try:
        form = parse_qs(call.incoming.body.decode(), max_num_fields=10**4)
    except ValueError:
        return _refuse(400, "", "Invalid form.")
    files, more = call.commit.files, _last_commit(call, form)
    found = [
        _entry(path, files.get(path)) | more
        for path in form.get("paths", [])
        if path in files or any(name.startswith(f"{path}/") for name in files)
    ]
    return _json(found)


def _entry(path: str, file: File | None = None) -> Json:
    """Return what a listing says of a file, or, where there is none, of a folder."""
    if file is None:
        return {"type": "directory", "path": path, "size": 0, "oid": _sha1(f"tree {path}".encode())}
    said = {"type": "file", "path": path, "size": file.content.size, "oid": file.blob_id}
    return said | _lfs("oid", file)


def _lfs(digest: str, file: File) -> Json:
    """Return what an entry says of a large file besides; ``digest`` is the name of its SHA-256."""
    if file.pointer is None:
        return {}
    size, pointer_size = file.content.size, len(file.pointer)
    return {"lfs": {digest: file.content.sha256, "size": size, "pointerSize": pointer_size}}


def _last_commit(call: RepoRequest, asked: Query) -> Json:
    """Return what an entry says besides, for a request that asks for the last commit."""
    if not _is_true(asked.get("expand")):
        return {}
    return {"lastCommit": {"id": call.commit.sha, "title": "put", "date": _DATE}}


def _refs(call: RepoRequest) -> Answer:
    heads = [
        {"name": name, "ref": f"refs/heads/{name}", "targetCommit": sha}
        for name, sha in call.repo.heads()
    ]
    return _json({"branches": heads, "converts": [], "tags": [], "pullRequests": []})


def _commits(call: RepoRequest) -> Answer:
    authors = [{"user": "shardproof"}]
    said = {"id": call.commit.sha, "title": "put", "message": "", "date": _DATE, "authors": authors}
    return _json([said])


_OPERATIONS: dict[tuple[str, str], Callable[[RepoRequest], Answer]] = {
    ("", "resolve"): _resolve,
    ("cdn", "resolve"): _give,
    ("api", "revision"): _info,
    ("api", "tree"): _tree,
    ("api", "paths-info"): _paths_info,
    ("api", "refs"): _refs,
    ("api", "commits"): _commits,
}


def _is_true(values: Sequence[str] | None) -> bool:
    return values is not None and values[0].lower() in {"1", "true"}

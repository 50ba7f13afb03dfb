"""What the Hugging Face Hub answers to the calls that read its repositories.

Sources: the Hub's API page (https://huggingface.co/docs/hub/api), and what `huggingface_hub` 0.30
to 2.4 asks for and reads.
"""

import difflib
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qs, quote, urlencode

from shardproof.testing.faults.hub._answers import Answer, Header, Incoming, answer, answer_file
from shardproof.testing.faults.hub._repos import Commit, File, Repo, sha1

__all__ = ["Found", "RepoType", "Repos", "nearest"]

RepoType = Literal["dataset", "model"]

Json = dict[str, Any]
Query = Mapping[str, Sequence[str]]

_AREAS = {"api", "cdn"}
_KINDS = {"datasets", "models"}
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_PAGE = 1000  # entries of a listing in one answer, as from the Hub
_DATE = "2024-01-01T00:00:00.000Z"


class Found(NamedTuple):
    """The right answer to a request, and by what names the script may call the request.

    Attributes:
        answer: The answer.
        names: The path of the request first; attempts are counted for the last one.
        file: The name under which what it asks for was put; None if it asks for no file.
    """

    answer: Answer
    names: tuple[str, ...]
    file: str | None = None


class Call(NamedTuple):
    """A request about a commit of a repository and a path in it.

    Attributes:
        incoming: The request.
        query: What follows the question mark.
        repo: The repository.
        commit: The commit.
        path: The path of a file or a directory; empty for the root.
        hosts: Where the hub is, and where it has large files.
    """

    incoming: Incoming
    query: Query
    repo: Repo
    commit: Commit
    path: str
    hosts: tuple[str, str]


class Repos:
    """All repositories of a hub.

    Args:
        hosts: Where the hub is, and where it has large files; no slash at the end.
    """

    def __init__(self, hosts: tuple[str, str]) -> None:
        self._hosts = hosts
        self._repos: dict[tuple[str, str], Repo] = {}

    def repo(self, repo_type: str, name: str) -> Repo:
        """Return a repository, which is made where there is none.

        Raises:
            ValueError: No repository can be called so.
        """
        key = _key(repo_type, name)
        return self._repos.setdefault(key, Repo(*key))

    def known(self, repo_type: str, name: str) -> Repo:
        """Return a repository into which something was put.

        Raises:
            ValueError: There is none; the nearest is told.
        """
        kind, _ = key = _key(repo_type, name)
        if repo := self._repos.get(key):
            return repo
        near = nearest(f"{kind}/{name}", ("/".join(each) for each in self._repos))
        raise ValueError(f"repo: expected one that has files, found '{kind}/{name}'; {near}")

    def names(self) -> Iterator[str]:
        """Yield every name of every file, by which faults and requests may call it."""
        for (kind, name), repo in self._repos.items():
            for path, place in repo.names():
                yield from (path, f"{kind}/{name}/{path}", place)

    def find(self, incoming: Incoming, parts: list[str], query: Query) -> Found | None:
        """Answer a request that the Hub would understand; give None for others.

        Args:
            incoming: The request.
            parts: What stands between the slashes of its path, decoded.
            query: What follows the question mark.
        """
        place = _place(parts)
        if place is None:
            return None
        area, kind, rest = place
        path = "/".join(parts)
        repo = self._repos.get((kind, "/".join(rest[:2]))) or self._repos.get((kind, rest[0]))
        if repo is None:
            return Found(_refuse(404, "RepoNotFound", "Repository not found."), (path,))
        operation, revision, *inner = _completed(rest[repo.name.count("/") + 1 :])
        act = _OPERATIONS.get((area, operation), _nothing)
        commit = repo.commit(revision)
        if commit is None:
            return Found(_refuse(404, "RevisionNotFound", "Revision not found."), (path,))
        call = Call(incoming, query, repo, commit, "/".join(inner), self._hosts)
        file = call.path if operation == "resolve" and call.path in commit.files else None
        right = act(call)
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


def _place(parts: list[str]) -> tuple[str, str, list[str]] | None:
    """Tell area, kind of repository and what follows; None for a path that is not the Hub's."""
    if len(parts) > 2 and parts[0] in _AREAS and parts[1] in _KINDS:
        return parts[0], parts[1], parts[2:]
    if "resolve" not in parts[1:]:
        return None
    return ("", parts[0], parts[1:]) if parts[0] in _KINDS else ("", "models", parts)


def _completed(rest: list[str]) -> list[str]:
    """What follows a repository, with what is meant where nothing is said."""
    return [*rest, *["revision", "main"][len(rest) :]]


def _refuse(status: int, code: str, message: str, *headers: Header) -> Answer:
    """An error as the Hub says it: the client reads its kind from the header."""
    body = json.dumps({"error": message}).encode()
    said = [("X-Error-Message", message), *headers]
    if code:
        said.append(("X-Error-Code", code))
    return answer(status, body, *said, content_type="application/json")


def _tell(value: object, *headers: Header) -> Answer:
    return answer(200, json.dumps(value).encode(), *headers, content_type="application/json")


def _nothing(_: Call) -> Answer:
    return _refuse(404, "", "Nothing is here.")


def _resolve(call: Call) -> Answer:
    commit = ("X-Repo-Commit", call.commit.sha)
    if refusal := _refuse_stranger(call):
        return refusal
    file = call.commit.files.get(call.path)
    if file is None:
        return _refuse(404, "EntryNotFound", "Entry not found.", commit)
    if file.pointer is None:
        return _file_answer(call, file)
    cdn = f"{call.hosts[1]}/cdn/{call.repo.kind}/{call.repo.name}/resolve/{call.commit.sha}"
    return answer(
        302,
        b"",
        ("Location", f"{cdn}/{quote(call.path)}"),
        ("X-Linked-Etag", f'"{file.etag}"'),
        ("X-Linked-Size", str(file.content.size)),
        commit,
    )


def _refuse_stranger(call: Call) -> Answer | None:
    shown = call.incoming.headers.get("authorization")
    if call.repo.token is None or shown == f"Bearer {call.repo.token}":
        return None
    return _refuse(403 if shown else 401, "GatedRepo", "Access to this repository is restricted.")


def _large_file(call: Call) -> Answer:
    file = call.commit.files.get(call.path)
    return _file_answer(call, file) if file else answer(404, b"Nothing is here.\n")


def _file_answer(call: Call, file: File) -> Answer:
    name = quote(posixpath.basename(call.path))
    shown = f"inline; filename*=UTF-8''{name}; filename=\"{name}\";"
    headers = (("X-Repo-Commit", call.commit.sha), ("Content-Disposition", shown))
    return answer_file(call.incoming, file.content, file.etag, *headers)


def _info(call: Call) -> Answer:
    blobs = _is_true(call.query.get("blobs"))
    siblings = [
        {"rfilename": path} | (_sibling(file) if blobs else {})
        for path, file in sorted(call.commit.files.items())
    ]
    return _tell(
        {
            "_id": sha1(call.repo.name.encode())[:24],
            "id": call.repo.name,
            "author": call.repo.name.rpartition("/")[0] or None,
            "sha": call.commit.sha,
            "lastModified": _DATE,
            "createdAt": _DATE,
            "private": False,
            "gated": "manual" if call.repo.token else False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "siblings": siblings,
        }
    )


def _sibling(file: File) -> Json:
    told: Json = {"size": file.content.size, "blobId": file.blob_id}
    if file.pointer is not None:
        told["lfs"] = {
            "sha256": file.content.sha256,
            "size": file.content.size,
            "pointerSize": len(file.pointer),
        }
    return told


def _tree(call: Call) -> Answer:
    recursive = _is_true(call.query.get("recursive"))
    known = call.commit.listings
    if (call.path, recursive) not in known:
        known[call.path, recursive] = list(_entries(call.commit, call.path, recursive))
    entries = known[call.path, recursive]
    if call.path and not entries:
        return _refuse(404, "EntryNotFound", "Entry not found.")
    cursor = call.query.get("cursor", ["0"])[0]
    if not re.fullmatch("[0-9]{1,9}", cursor):
        return _refuse(400, "", "Invalid cursor.")
    first, following = int(cursor), int(cursor) + _PAGE
    page = [_dated(entry, call) for entry in entries[first:following]]
    if following >= len(entries):
        return _tell(page)
    place = call.incoming.target.partition("?")[0]
    query = urlencode({**call.query, "cursor": following}, doseq=True)
    return _tell(page, ("Link", f'<{call.hosts[0]}{place}?{query}>; rel="next"'))


def _entries(commit: Commit, under: str, recursive: bool) -> Iterator[Json]:
    prefix = f"{under}/" if under else ""
    told: set[str] = set()
    for path in sorted(commit.files):
        if not path.startswith(prefix):
            continue
        *folders, _ = path.removeprefix(prefix).split("/")
        for depth in range(1, len(folders) + 1 if recursive else min(2, len(folders) + 1)):
            folder = prefix + "/".join(folders[:depth])
            if folder not in told:
                told.add(folder)
                yield _folder_entry(folder)
        if recursive or not folders:
            yield _file_entry(path, commit.files[path])


def _file_entry(path: str, file: File) -> Json:
    size = file.content.size
    told: Json = {"type": "file", "path": path, "size": size, "oid": file.blob_id}
    if file.pointer is not None:
        pointer_size = len(file.pointer)
        told["lfs"] = {"oid": file.content.sha256, "size": size, "pointerSize": pointer_size}
    return told


def _folder_entry(path: str) -> Json:
    return {"type": "directory", "path": path, "size": 0, "oid": sha1(f"tree {path}".encode())}


def _dated(entry: Json, call: Call) -> Json:
    """An entry with its last commit, if the request wants to know that."""
    if not _is_true(call.query.get("expand")):
        return entry
    return entry | {"lastCommit": {"id": call.commit.sha, "title": "put", "date": _DATE}}


def _paths_info(call: Call) -> Answer:
    try:
        form = parse_qs(call.incoming.body.decode(), max_num_fields=10**4)
    except ValueError:
        return _refuse(400, "", "Invalid form.")
    asked = call._replace(query=form)
    return _tell(
        [_dated(entry, asked) for path in form.get("paths", []) for entry in _at(asked, path)]
    )


def _at(call: Call, path: str) -> list[Json]:
    if path in call.commit.files:
        return [_file_entry(path, call.commit.files[path])]
    inside = any(name.startswith(f"{path}/") for name in call.commit.files)
    return [_folder_entry(path)] if inside else []


def _refs(call: Call) -> Answer:
    heads = [
        {"name": name, "ref": f"refs/heads/{name}", "targetCommit": sha}
        for name, sha in call.repo.heads()
    ]
    return _tell({"branches": heads, "converts": [], "tags": [], "pullRequests": []})


def _commits(call: Call) -> Answer:
    commit = {"id": call.commit.sha, "title": "put", "message": "", "date": _DATE}
    return _tell([commit | {"authors": [{"user": "shardproof"}]}])


_OPERATIONS: dict[tuple[str, str], Callable[[Call], Answer]] = {
    ("", "resolve"): _resolve,
    ("cdn", "resolve"): _large_file,
    ("api", "revision"): _info,
    ("api", "tree"): _tree,
    ("api", "paths-info"): _paths_info,
    ("api", "refs"): _refs,
    ("api", "commits"): _commits,
}


def _is_true(values: Sequence[str] | None) -> bool:
    return values is not None and values[0].lower() in {"1", "true"}

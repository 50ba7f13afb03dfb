"""The Hugging Face Hub as a source: one revision of one repository."""

import contextlib
import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from shardproof._base import json
from shardproof._base.arguments import checked
from shardproof._base.messages import quoted, told
from shardproof._base.work import begin_in_forks
from shardproof.errors import ManifestError, RevisionError, SourceError
from shardproof.fetching.sources._http import Web, is_sendable
from shardproof.fetching.sources._source import (
    Cancellation,
    ReadRequest,
    RemoteFile,
    Response,
    SendRequest,
    SourceContext,
)
from shardproof.fetching.sources._urls import bare, shown

_TIMEOUT = 30.0
_STEP = 0.05  # seconds between two questions whether to wait on
_MAX_PAGE_BYTES = 64 * 2**20
_MAX_PAGES = 10_000
_MAX_ENTRIES = 1_000_000  # in all pages, half a KiB each; the hub advises to have 100 000 at most
_MAX_TEXT = 256 * 2**20  # characters in all of their paths, and in what leads from page to page

Result = TypeVar("Result")

_BlobId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]


class _RepoInfo(msgspec.Struct):
    sha: _BlobId


class _Lfs(msgspec.Struct):  # of a large file
    oid: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _TreeEntry(msgspec.Struct):
    """One line of the hub's listing."""

    type: str
    path: str
    oid: _BlobId
    size: Annotated[int, msgspec.Meta(ge=0, lt=10**18)] = 0
    lfs: _Lfs | None = None


class HubSource(SourceContext):
    """The files of a repository of the Hugging Face Hub, as they are at one commit.

    The commit is found out once, when it is first needed: what is fetched an hour later is of the
    same one. Large files are proven by the SHA-256, small ones by the git blob id, that the hub
    states. Token and endpoint are those of `huggingface_hub`: ``HF_TOKEN``, ``HF_ENDPOINT``, or
    what ``hf auth login`` has kept; the token goes to no other host.

    Args:
        repo_id: ``"org/name"``.
        repo_type: What it is.
        revision: Branch, tag or commit; None for the default branch.
        subfolder: Only what is below it; names are relative to it.
        token: To use instead, without blanks around it; a blank one is for none at all.
        endpoint: To use instead.

    Raises:
        ImportError: `huggingface_hub` is not installed: ``pip install 'shardproof[hf]'``.
        ValueError: A token that can't be sent, or a name that no repository has.

    Example:
        >>> from shardproof.testing.faults import serve_hub
        >>> with serve_hub() as hub:
        ...     _ = hub.put("data/0.bin", b"1234", repo="org/name")
        ...     source = HubSource("org/name", endpoint=hub.url)
        ...     file, = source.files()
        ...     source.close()
        >>> file.name, file.size, file.digest[:15]
        ('data/0.bin', 4, 'sha256:03ac6742')
    """

    @checked
    def __init__(
        self,
        repo_id: str,
        *,
        repo_type: Literal["dataset", "model"] = "dataset",
        revision: str | None = None,
        subfolder: str = "",
        token: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        try:
            # All that is used: in a thread nothing is to be imported.
            from huggingface_hub import HfApi, constants, hf_hub_url, utils  # noqa: PLC0415
        except ImportError as error:
            problem = "the Hugging Face Hub needs huggingface_hub: pip install 'shardproof[hf]'"
            raise ImportError(problem) from error

        if set(repo_id) & set("?#"):  # the hub would be asked of another one
            raise ValueError("repo_id: expected 'org/name', found '?' or '#' in it")
        token = None if token is None else token.strip()  # those of files have blanks around them
        if token is not None and not is_sendable(token):
            raise ValueError("token: expected visible ASCII characters, found others in it")
        self.repo_id, self.repo_type, self.revision = repo_id, repo_type, revision
        self._folder = f"{subfolder.strip('/')}/" if subfolder.strip("/") else ""
        self._api: HfApi = HfApi(endpoint=endpoint, token=False if token == "" else token)
        self._address, self._constants = hf_hub_url, constants
        build_headers = utils.build_hf_headers  # type: ignore[attr-defined]
        self._begin()
        begin_in_forks(self._begin)
        self._commit: str | None = None
        self._known: dict[str, RemoteFile] = {}
        self._listed: tuple[RemoteFile, ...] | None = None
        self._web = Web(lambda: build_headers(token=self._api.token))

    def _begin(self) -> None:
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """``hf://datasets/org/name[@revision][/subfolder]``."""
        kind = "datasets/" if self.repo_type == "dataset" else ""
        revision = f"@{self.revision.replace('/', '%2F')}" if self.revision else ""
        return shown(f"hf://{kind}{self.repo_id}{revision}/{self._folder}".rstrip("/"))

    @property
    def commit(self) -> str:
        """The commit whose files these are.

        Raises:
            RevisionError: The hub shows no such repository or revision.
            SourceError: The hub doesn't tell.
        """
        return self._found_commit(_TIMEOUT, None)

    def _found_commit(self, timeout: float, cancellation: Cancellation | None) -> str:
        while not self._lock.acquire(timeout=_STEP):
            if cancellation is not None:
                cancellation.raise_if_cancelled()
        try:
            if self._commit is None:
                self._commit = self._ask_commit(timeout, cancellation)
            return self._commit
        finally:
            self._lock.release()

    def files(self, send: SendRequest | None = None) -> Sequence[RemoteFile]:
        """Return what is there, from one listing that is kept.

        Args:
            send: Makes each request, of which there are several: tries again where that helps.

        Raises:
            RevisionError: The hub shows no such repository or revision.
            SourceError: The hub doesn't tell.
        """
        send = send or (lambda request: request(_TIMEOUT, None))
        if self._commit is None:
            self._commit = send(self._ask_commit)
        if self._listed is None:
            self._listed = tuple(self._list(self._commit, send))
            self._known.update({file.name: file for file in self._listed})
        return self._listed

    def _ask_commit(self, timeout: float, cancellation: Cancellation | None) -> str:
        revision = "" if self.revision is None else f"/revision/{quote(self.revision, safe='')}"
        try:
            info, _ = self._page(f"{self._api_url}{revision}", _RepoInfo, timeout, cancellation)
        except SourceError as error:
            if error.kind != "refused":
                raise
            raise RevisionError(error.problem, kind="refused") from error
        return info.sha

    def _list(self, commit: str, send: SendRequest) -> Iterator[RemoteFile]:
        tree = f"{self._api_url}/tree/{commit}/{quote(self._folder)}".rstrip("/")
        page = f"{tree}?recursive=true&expand=false"
        seen, n_entries, n_text = {page}, 0, 0
        while len(seen) <= _MAX_PAGES:
            entries: list[_TreeEntry]
            entries, following = send(functools.partial(self._page, page, list[_TreeEntry]))
            n_entries += len(entries)
            n_text += sum(len(entry.path) for entry in entries) + len(following or "")
            if n_entries > _MAX_ENTRIES or n_text > _MAX_TEXT:
                break
            yield from (self._file(entry) for entry in entries if entry.type == "file")
            if following is None:
                return
            try:
                is_of_hub = urlsplit(tree)[:2] == urlsplit(following)[:2]
            except ValueError:  # what is no address is nowhere
                is_of_hub = False
            # A page that leads back would lead on for ever, and the token is for the hub alone.
            if following in seen or not is_of_hub:
                problem = f"the hub's listing of '{shown(self.url)}' leads to {quoted(following)}"
                raise SourceError(problem, kind="unusable")
            page = following
            seen.add(page)
        many = f"more than {_MAX_ENTRIES} files, or names too long, or {_MAX_PAGES} pages"
        problem = f"the hub's listing of '{shown(self.url)}' has {many}"
        raise SourceError(problem, kind="unusable")

    @property
    def _api_url(self) -> str:
        return f"{self._api.endpoint}/api/{self.repo_type}s/{self.repo_id}"

    def _page(
        self,
        address: str,
        kind: type[Result],
        timeout: float,
        cancellation: Cancellation | None,
        form: Mapping[str, str] | None = None,
    ) -> tuple[Result, str | None]:
        """Ask once: `huggingface_hub` would wait and try again by rules of its own."""
        if self._constants.HF_HUB_OFFLINE:
            problem = "HF_HUB_OFFLINE is set, so that the hub is not asked"
            raise SourceError(problem, kind="unusable")
        silent = f"the Hub does not list '{shown(self.url)}'"
        try:
            body, following = self._web.text(
                address, _MAX_PAGE_BYTES, form=form, timeout=timeout, cancellation=cancellation
            )
            return json.decode(body, kind, path=bare(address)), following
        except ManifestError as error:
            raise SourceError(f"{silent}: {told(error)}") from error
        except SourceError as error:
            problem = f"{silent}: {error.problem}"
            raise SourceError(problem, kind=error.kind, retry_after=error.retry_after) from error

    def _file(self, entry: _TreeEntry) -> RemoteFile:
        name = entry.path.removeprefix(self._folder)
        if entry.lfs is None:
            return RemoteFile(name, entry.size, entry.oid, f"git-sha1:{entry.oid}", has_ranges=True)
        sha256 = entry.lfs.oid
        return RemoteFile(name, entry.size, sha256, f"sha256:{sha256}", has_ranges=True)

    def stat(
        self, name: str, *, timeout: float, cancellation: Cancellation | None = None
    ) -> RemoteFile:
        """Return what the hub states of a file: size and digest."""
        if name not in self._known:
            address = f"{self._api_url}/paths-info/{self._found_commit(timeout, cancellation)}"
            form = {"paths": self._folder + name, "expand": "false"}
            entries, _ = self._page(address, list[_TreeEntry], timeout, cancellation, form)
            found = [self._file(entry) for entry in entries if entry.type == "file"]
            self._known.update({file.name: file for file in found if file.name == name})
        if name not in self._known:
            problem = f"'{shown(self.url)}' has no file {quoted(name, 255)} at {self.commit}"
            raise SourceError(problem, kind="refused")
        return self._known[name]

    def read(
        self, request: ReadRequest, cancellation: Cancellation | None = None
    ) -> contextlib.AbstractContextManager[Response]:
        """Open a file or a part of it; see `Source.read`."""
        address = self._address(
            self.repo_id,
            self._folder + request.name,
            repo_type=self.repo_type,
            revision=self._found_commit(request.timeout, cancellation),
            endpoint=self._api.endpoint,
        )
        return self._web.read(address, request, cancellation)

    def close(self) -> None:
        """Close the connections."""
        self._web.close()

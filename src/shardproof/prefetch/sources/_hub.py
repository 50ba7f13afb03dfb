"""The Hugging Face Hub as a source: one revision of one repository."""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from shardproof._arguments import checked
from shardproof.errors import SourceError
from shardproof.prefetch.sources._source import Cut, Delivery, RemoteFile
from shardproof.prefetch.sources._web import Web

__all__ = ["HubSource"]

Result = TypeVar("Result")


class HubSource:
    """The files of a repository of the Hugging Face Hub, as they are at one commit.

    The commit is found out once, when it is first needed: what is fetched an hour later is of the
    same one. Large files are proven by the SHA-256, small ones by the git blob id, that the hub
    states. Token and endpoint are those of `huggingface_hub`: ``HF_TOKEN``, ``HF_ENDPOINT``, or
    what ``hf auth login`` has kept; the token goes to no other host.

    Args:
        repo_id: ``"org/name"``.
        repo_type: What it is.
        revision: Branch, tag or commit; None for the default branch.
        folder: Only what is below it; names are relative to it.
        token: To use instead.
        endpoint: To use instead.

    Raises:
        ImportError: `huggingface_hub` is not installed: ``pip install shardproof[hf]``.

    Example:
        >>> from shardproof.testing.hub import serve_hub
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
        folder: str = "",
        token: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        try:
            from huggingface_hub import HfApi, hf_hub_url  # noqa: PLC0415 - an extra
        except ImportError as error:
            problem = "the Hugging Face Hub needs huggingface_hub: pip install shardproof[hf]"
            raise ImportError(problem) from error
        self.repo_id, self.repo_type, self.revision = repo_id, repo_type, revision
        self._folder = f"{folder.strip('/')}/" if folder.strip("/") else ""
        self._api: HfApi = HfApi(endpoint=endpoint, token=token)
        self._address = hf_hub_url
        self._lock = threading.Lock()
        self._commit: str | None = None
        self._known: dict[str, RemoteFile] = {}
        self._listed: tuple[RemoteFile, ...] | None = None
        self._web = Web(self._headers)

    @property
    def url(self) -> str:
        """``hf://datasets/org/name[@revision][/folder]``."""
        kind = "datasets/" if self.repo_type == "dataset" else ""
        revision = f"@{self.revision.replace('/', '%2F')}" if self.revision else ""
        return f"hf://{kind}{self.repo_id}{revision}/{self._folder}".rstrip("/")

    @property
    def commit(self) -> str:
        """The commit whose files these are.

        Raises:
            SourceError: The hub doesn't tell.
        """
        with self._lock:
            if self._commit is None:
                self._commit = str(self._asked(self._ask_for_commit))
            return self._commit

    def _ask_for_commit(self) -> str | None:
        info = self._api.repo_info(
            self.repo_id, repo_type=self.repo_type, revision=self.revision, timeout=30
        )
        return info.sha

    def files(self) -> Sequence[RemoteFile]:
        """Return what is there, from one listing that is kept.

        Raises:
            SourceError: The hub doesn't tell.
        """
        commit = self.commit
        if self._listed is None:
            self._listed = tuple(self._asked(lambda: self._list(commit)))
            self._known.update({file.name: file for file in self._listed})
        return self._listed

    def _list(self, commit: str) -> list[RemoteFile]:
        entries = self._api.list_repo_tree(
            self.repo_id,
            self._folder.rstrip("/") or None,
            recursive=True,
            revision=commit,
            repo_type=self.repo_type,
        )
        return [self._file(entry) for entry in entries if hasattr(entry, "blob_id")]

    def _file(self, entry: Any) -> RemoteFile:
        name = str(entry.path).removeprefix(self._folder)
        sha256 = entry.lfs.sha256 if entry.lfs else None
        digest = f"sha256:{sha256}" if sha256 else f"git-sha1:{entry.blob_id}"
        return RemoteFile(name, int(entry.size), sha256 or entry.blob_id, digest, ranges=True)

    def stat(self, name: str, *, timeout: float, cut: Cut | None = None) -> RemoteFile:
        """Return what the hub states of a file: size and digest."""
        if name not in self._known:
            commit = self.commit
            entries = self._asked(
                lambda: self._api.get_paths_info(
                    self.repo_id,
                    [self._folder + name],
                    revision=commit,
                    repo_type=self.repo_type,
                )
            )
            files = [self._file(entry) for entry in entries if hasattr(entry, "blob_id")]
            self._known.update({file.name: file for file in files})
        if name not in self._known:
            raise SourceError(f"'{self.url}' has no file '{name}' at {self.commit}", again="once")
        return self._known[name]

    def read(
        self,
        name: str,
        *,
        start: int = 0,
        stop: int | None = None,
        known: RemoteFile | None = None,
        timeout: float,
        cut: Cut | None = None,
    ) -> contextlib.AbstractContextManager[Delivery]:
        """Open a file or a part of it; see `Source.read`."""
        address = self._address(
            self.repo_id,
            self._folder + name,
            repo_type=self.repo_type,
            revision=self.commit,
            endpoint=self._api.endpoint,
        )
        return self._web.read(address, name, start, stop, known, timeout=timeout, cut=cut)

    def _headers(self) -> Mapping[str, str]:
        from huggingface_hub import utils  # noqa: PLC0415 - an extra

        headers: dict[str, str] = utils.build_hf_headers(token=self._api.token)  # type: ignore[attr-defined]
        return headers

    def close(self) -> None:
        """Close the connections."""
        self._web.close()

    def _asked(self, ask: Callable[[], Result]) -> Result:
        """Return the hub's answer; its client's errors become ours."""
        try:
            return ask()
        except Exception as error:
            status = getattr(getattr(error, "response", None), "status_code", 500)
            lines = str(error).strip().splitlines()
            problem = f"the hub does not tell of '{self.url}' ({type(error).__name__})"
            is_refused = isinstance(status, int) and 400 <= status < 500 and status != 429
            raise SourceError(
                f"{problem}: {lines[0] if lines else 'no more is known'}",
                again="once" if is_refused else "yes",
            ) from error

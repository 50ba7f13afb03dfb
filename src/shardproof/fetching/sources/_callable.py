"""A function of the user's own as a source."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from shardproof._base import files
from shardproof._base.arguments import checked
from shardproof._base.messages import quoted
from shardproof._base.opening import is_regular, refuse_no_path
from shardproof.errors import SourceError
from shardproof.fetching.sources._source import (
    Cancellation,
    ReadRequest,
    RemoteFile,
    Response,
    SourceContext,
)

_BLOCK = 2**20


class CallableSource(SourceContext):
    """Files that a function fetches: a transport of your own.

    The function is called in a thread. One that doesn't return in time is left behind, since
    nothing can end it: it needs a time limit of its own. What it brings goes through a temporary
    directory, so that it can be proven before it has its name.

    Args:
        fetch: ``fetch(name, dest)`` writes the file of this name to the path ``dest``, where
            nothing is yet, or raises.
        files: What there is: names, or more where more is known.
        name: What messages and the cache's directories call it.
        scratch: A directory for what is on its way; the system's by default.

    Raises:
        ValueError: A name that no directory could have.

    Example:
        >>> def fetch(name, dest):
        ...     dest.write_bytes(b"1234")
        >>> source = CallableSource(fetch, ["0.bin"], name="lab-store")
        >>> source.url
        'own://lab-store'
    """

    @checked
    def __init__(
        self,
        fetch: Callable[[str, Path], object],
        files: Sequence[str | RemoteFile] = (),
        *,
        name: str = "default",
        scratch: str | os.PathLike[str] | None = None,
    ) -> None:
        refuse_no_path(scratch=scratch)
        if not name or not set(name.lower()) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-"):
            raise ValueError(f"name: expected letters, digits, '.', '_', '-', found {quoted(name)}")
        self.url = f"own://{name}"
        self._fetch = fetch
        self._scratch = scratch
        self._files = [RemoteFile(file) if isinstance(file, str) else file for file in files]

    def files(self) -> Sequence[RemoteFile]:
        """Return what was said to be there."""
        return tuple(self._files)

    def stat(
        self, name: str, *, timeout: float, cancellation: Cancellation | None = None
    ) -> RemoteFile:
        """Return what was said of the file, if anything was."""
        return next((file for file in self._files if file.name == name), RemoteFile(name))

    @contextlib.contextmanager
    def read(
        self, request: ReadRequest, cancellation: Cancellation | None = None
    ) -> Iterator[Response]:
        """Fetch the whole file, whichever bytes of it are requested."""
        directory = tempfile.mkdtemp(prefix="shardproof-", dir=self._scratch)
        try:
            path = Path(directory, "shard")
            self._fetch(request.name, path)
            if not is_regular(path):
                raise SourceError(f"the function has written no file for {quoted(request.name)}")
            size = path.stat().st_size
            with open(path, "rb", buffering=0) as file:
                chunks = iter(lambda: file.read(_BLOCK), b"")
                yield Response(RemoteFile(request.name, size), 0, size, chunks, has_ranges=False)
        finally:
            try:
                files.remove_tree(directory)
            except OSError:  # nothing else removes it, and what failed once may work now
                files.remove_tree(directory)

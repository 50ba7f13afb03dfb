"""The server as tests see it: what it serves, what it does wrong, what it was asked."""

import contextlib
import fnmatch
import math
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qs, quote, unquote

from shardproof.testing.faults.hub._answers import Content, Incoming, Wire, answer, answer_file
from shardproof.testing.faults.hub._faults import OTHER_HOST, Fault, Rule, Script, known_fault
from shardproof.testing.faults.hub._harms import Case, harmed
from shardproof.testing.faults.hub._hf import Found, Repos, RepoType, nearest
from shardproof.testing.faults.hub._log import HubRequest, Log, Tally, without_secrets
from shardproof.testing.faults.hub._repos import File
from shardproof.testing.faults.hub._server import Server

__all__ = ["Hub", "serve_hub"]

_ORIGIN = re.compile(r"\Ahttps?://[^/?]*", re.IGNORECASE)


class Hub:
    """A hub that is running; made by `serve_hub`.

    Attributes:
        url: Where it is, ``http://127.0.0.1:<port>``: what ``HF_ENDPOINT`` and ``endpoint=`` take.
        cdn_url: Where it leads those who ask for a large file of a repository: another port, so
            that a client which keeps its token to itself on the way to another host does so here.
    """

    def __init__(self, *, rate: float | None, latency: float) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, Content] = {}
        self._script = Script()
        self._log = Log()
        self._server = Server(self._respond, rate=rate, latency=latency)
        self.url, self.cdn_url = (f"http://127.0.0.1:{port}" for port in self._server.ports)
        self._repos = Repos((self.url, self.cdn_url))

    def put(
        self,
        path: str,
        content: bytes | os.PathLike[str],
        *,
        repo: str | None = None,
        repo_type: RepoType = "dataset",
        revision: str = "main",
        lfs: bool | None = None,
    ) -> str:
        """Serve these bytes, or this file of the disk, under a name; until it is put again.

        A file is read through once, for its digest, and again whenever it is sent. If it has
        changed on disk by then, the hub answers 500.

        Args:
            path: The name, with slashes between its parts.
            content: The bytes, or where they are.
            repo: ``"owner/name"`` of a repository, as on the Hugging Face Hub; None for a plain
                file, which is found right below `url`.
            repo_type: What the repository is.
            revision: The branch. What is put between two requests makes one commit; files of older
                commits stay where they were.
            lfs: Whether the file is large to git: if so, the hub leads to `cdn_url` instead of
                giving it, and its entity tag is its SHA-256 instead of a git blob id. None: as
                its suffix says, which is small for .csv .json .md .py .toml .txt .yaml .yml and
                for none.

        Returns:
            Where it is found.

        Raises:
            TypeError: A content that is neither bytes nor a path.
            ValueError: A name that no file of a repository can have, or no regular file at the
                path, or a revision or ``lfs`` without ``repo``.
            OSError: The file could not be read.

        Example:
            >>> from urllib.request import urlopen
            >>> with serve_hub() as hub:
            ...     url = hub.put("a/b.bin", b"1234")
            ...     urlopen(url).read()
            b'1234'
        """
        _refuse_name("path", path)
        _refuse_name("revision", revision)
        held = Content.of(content)
        if repo is None:
            if (revision, lfs) != ("main", None):
                raise ValueError("revision, lfs: only a file of a repository has them, give repo=")
            with self._lock:
                self._files[path] = held
            return f"{self.url}/{quote(path)}"
        file = File.of(path, held, lfs)
        with self._lock:
            place = self._repos.repo(repo_type, repo)
            place.put(path, file, revision)
        return f"{self.url}/{place.place(path, revision)}"

    def fault(
        self,
        pattern: str,
        fault: Fault | str,
        *,
        times: int | None = None,
        after: int = 0,
        method: str | None = "GET",
        at: int | None = None,
        retry_after: str | None = None,
        interval: float | None = None,
    ) -> None:
        """Let something go wrong from now on, for requests that would go well.

        Attempts are counted for each file, whatever its revision. An attempt that suffers from one
        fault is not seen by those that were given later, so ``times=1`` given for several faults
        makes them happen one after the other. The answer by which a repository leads to a large
        file is no attempt to GET it; the one that follows is.

        Args:
            pattern: For the name under which a file was put, for that name behind
                ``datasets/owner/name/`` or ``models/owner/name/``, or for the path of the request;
                ``*`` is for any characters, slashes too (`fnmatch`).
            fault: What goes wrong, or its name.
            times: How many attempts at each file suffer; None for all.
            after: How many attempts at each file go well before.
            method: What the request must do; None for anything.
            at: How many bytes of the body come before the harm; None for half of them. For
                ``reset-in-body``, ``truncated``, ``truncated-without-length``, ``chunked-cut``,
                ``chunked-bad-size``, ``bit-flip``, ``stall-in-body``.
            retry_after: The value of the Retry-After header; None for ``"0"``. For ``status-429``
                and ``status-503``.
            interval: Seconds between two bytes; None for 0.2. For ``drip``.

        Raises:
            TypeError: A number that is none.
            ValueError: An unknown fault, an option that it does not have, a value out of range, a
                pattern that fits no file that was put; the nearest is told.

        Example:
            >>> from urllib.request import urlopen
            >>> with serve_hub() as hub:
            ...     url = hub.put("a/b.bin", b"1234")
            ...     hub.fault("*.bin", "bit-flip", times=1)
            ...     urlopen(url).read(), urlopen(url).read()
            (b'1224', b'1234')
        """
        rule = Rule(
            pattern=pattern,
            fault=known_fault(fault),
            times=times,
            after=after,
            method=method,
            at=at,
            retry_after=retry_after,
            interval=interval,
        )
        with self._lock:
            self._refuse_what_fits_nothing(pattern)
            self._script.add(rule)

    def _refuse_what_fits_nothing(self, pattern: str) -> None:
        # Requests that are for no file: what they may ask for is not known.
        of_requests = pattern.startswith(("api/", "cdn/")) or "/resolve/" in pattern
        if of_requests or fnmatch.fnmatchcase("api/", pattern):
            return
        names = {*self._files, *self._repos.names()}
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            near = nearest(pattern, names)
            raise ValueError(f"pattern: expected one that fits a file, found {pattern!r}; {near}")

    def heal(self) -> None:
        """Let nothing go wrong any more; answers that are under way stay as they are."""
        with self._lock:
            self._script.clear()

    def gate(self, repo: str, token: str, *, repo_type: RepoType = "dataset") -> None:
        """Give the files of a repository only to clients that show this token, 401 to others.

        Its listings stay open to everybody, as those of a gated repository are.

        Args:
            repo: ``"owner/name"``.
            token: What clients must show: ``Authorization: Bearer <token>``.
            repo_type: What the repository is.

        Raises:
            TypeError: A token that is no str.
            ValueError: Nothing was put into a repository of this name; the nearest is told.
        """
        if not isinstance(token, str):
            raise TypeError(f"token: expected a str, found {type(token).__name__}")
        with self._lock:
            self._repos.known(repo_type, repo).token = token

    @property
    def requests(self) -> tuple[HubRequest, ...]:
        """The log: every request so far, in the order in which they came.

        A request is here before the first byte of its answer is sent, and whoever has received an
        answer as a whole finds all its bytes counted.
        """
        return self._log.read()

    def requests_for(
        self, pattern: str, *, method: str | None = None, fault: Fault | str | None = None
    ) -> tuple[HubRequest, ...]:
        """Return the part of the log that is about these files.

        Args:
            pattern: For the name under which a file was put, or for the path of the request.
            method: What the request did; None for anything.
            fault: What it suffered; None for anything and nothing.

        Raises:
            ValueError: An unknown fault.

        Example:
            >>> from urllib.request import Request, urlopen
            >>> with serve_hub() as hub:
            ...     url = hub.put("a/b.bin", b"1234")
            ...     urlopen(Request(url, headers={"Range": "bytes=2-"})).read()
            ...     [request.headers["range"] for request in hub.requests_for("*.bin")]
            b'34'
            ['bytes=2-']
        """
        suffered = None if fault is None else known_fault(fault)
        return tuple(
            request
            for request in self._log.read()
            if request.is_for(pattern)
            and method in {None, request.method}
            and suffered in {None, request.fault}
        )

    def _respond(self, incoming: Incoming) -> tuple[Wire, Tally]:
        started = time.monotonic()
        target = _ORIGIN.sub("", incoming.target)
        path, _, query = target.partition("?")
        parts = [unquote(part) for part in path.lstrip("/").split("/")]
        with self._lock:
            found = self._find(incoming, parts, query)
            rule = self._script.next(found.names, incoming, found.answer)
        elsewhere = f"http://{OTHER_HOST}:{self._server.ports[0]}/{target.lstrip('/')}"
        wire = (
            harmed(Case(found.answer, incoming, rule, elsewhere)) if rule else found.answer.wire()
        )
        request = HubRequest(
            method=incoming.method,
            path="/".join(parts),
            file=found.file,
            host=incoming.headers.get("host", ""),
            headers=without_secrets(incoming),
            connection=incoming.connection,
            started=started,
            fault=rule.fault if rule else None,
            status=wire.status,
        )
        return wire, self._log.add(request)

    def _find(self, incoming: Incoming, parts: list[str], query: str) -> Found:
        path = "/".join(parts)
        if incoming.method not in {"GET", "HEAD"} and "paths-info" not in parts:
            return Found(answer(405, b"", ("Allow", "GET, HEAD")), (path,))
        if path in self._files:
            content = self._files[path]
            return Found(answer_file(incoming, content, content.sha256), (path,), path)
        found = self._repos.find(incoming, parts, _query(query))
        return found or Found(answer(404, b"Nothing is here.\n"), (path,))


@contextlib.contextmanager
def serve_hub(
    files: Mapping[str, bytes | os.PathLike[str]] | None = None,
    *,
    rate: float | None = None,
    latency: float = 0.0,
) -> Iterator[Hub]:
    """Run a hub on 127.0.0.1, at a port that is free, for as long as the context lasts.

    On leaving it, every connection ends at once, whatever its client or the hub waits for, and
    every thread and descriptor is gone.

    Args:
        files: Plain files to begin with, as `Hub.put` takes them.
        rate: Bytes a second on each connection; None for no limit.
        latency: Seconds before each answer.

    Yields:
        The hub.

    Raises:
        TypeError: A rate or a latency that is no number, or a content of another type.
        ValueError: A rate that is not above 0, a latency below 0, or a wrong name.
        OSError: There is no loopback, or a file could not be read.

    Example:
        >>> from urllib.request import urlopen
        >>> with serve_hub({"a/b.bin": b"1234"}) as hub:
        ...     urlopen(f"{hub.url}/a/b.bin").read()
        ...     hub.requests[0].bytes_sent
        b'1234'
        4
    """
    _refuse_number("latency", latency)
    if rate is not None:
        _refuse_number("rate", rate)
        if not rate:
            raise ValueError("rate: expected bytes a second, found 0; None is for no limit")
    hub = Hub(rate=rate, latency=latency)
    try:
        for path, content in (files or {}).items():
            hub.put(path, content)
        hub._server.start()
        yield hub
    finally:
        hub._server.close()


def _query(text: str) -> Mapping[str, list[str]]:
    try:
        return parse_qs(text, max_num_fields=100)
    except ValueError:
        return {}


def _refuse_name(what: str, name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{what}: expected a str, found {type(name).__name__}")
    parts = name.split("/")
    if not name.isprintable() or not {"", ".", ".."}.isdisjoint(parts):
        raise ValueError(f"{what}: expected a name like 'data/train-00000.bin', found {name!r}")


def _refuse_number(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what}: expected a number, found {type(value).__name__}")
    if not 0 <= value < math.inf:
        raise ValueError(f"{what}: expected a finite number, 0 or more, found {value}")

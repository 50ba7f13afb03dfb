"""A server on the loopback that serves shards, and does to their downloader what networks do.

It answers as a web server does, with ranges, entity tags and connections that are kept, and, for
files that are put into a repository, as the Hugging Face Hub does.
"""

import contextlib
import dataclasses
import fnmatch
import os
import re
import threading
import time
import types
from collections.abc import Iterator, Mapping
from typing import Unpack
from urllib.parse import parse_qs, quote, unquote

from shardproof.testing.faults.hub._answers import Content, Incoming, Wire, answer, answer_file
from shardproof.testing.faults.hub._faults import OTHER_HOST, FaultOptions, HubFault, Rule
from shardproof.testing.faults.hub._hf import File, Found, Repos, RepoType, nearest
from shardproof.testing.faults.hub._server import Server, Tally
from shardproof.testing.samples._keywords import expect, expect_number, one_of, refuse_unknown

__all__ = ["Hub", "HubFault", "HubRequest", "serve_hub"]

_ORIGIN = re.compile(r"\Ahttps?://[^/?]*", re.IGNORECASE)
_SECRET = {"authorization", "cookie", "proxy-authorization"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HubRequest:
    """One request in a hub's log.

    Attributes:
        method: ``"GET"``, ``"HEAD"``, ...
        path: The decoded path, without the slash at its start and without the query.
        file: The name under which what it asks for was put; None if it asks for no file.
        host: What the client calls the server: the Host header.
        headers: All of them, names in lower case. Of credentials there is only that they were
            there: Authorization, Cookie and Proxy-Authorization are ``"(withheld)"``.
        connection: The number of its connection, from 1.
        started: When it came, by `time.monotonic`.
        fault: What it suffered, if anything.
        status: The status of the answer; None if there was no status line.
        bytes_sent: Bytes of the body that were sent when the log was read.
    """

    method: str
    path: str
    file: str | None
    host: str
    headers: Mapping[str, str]
    connection: int
    started: float
    fault: HubFault | None
    status: int | None
    bytes_sent: int = 0


class Hub:
    """A hub that is running; made by `serve_hub`.

    Attributes:
        url: Where it is, ``http://127.0.0.1:<port>``: what ``HF_ENDPOINT`` and ``endpoint=`` take.
        cdn_url: Where it leads a request for a large file of a repository: another port, so that a
            client which keeps its token to itself on the way to another host does so here.
    """

    def __init__(self, *, rate: float | None, latency: float) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, Content] = {}
        self._rules: list[Rule] = []
        self._log: list[tuple[HubRequest, Tally]] = []
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
        """Serve bytes, or a file of the disk, under a name until it is put again; return its URL.

        Args:
            path: The name, with slashes between its parts.
            content: The bytes, or where they are; such a file must not change meanwhile.
            repo: ``"owner/name"`` of a repository, as on the Hugging Face Hub; None for a plain
                file, which is found right below `url`.
            repo_type: What the repository is.
            revision: The branch. What is put between two requests makes one commit; files of older
                commits stay where they were.
            lfs: Whether the file is large to git: if so, the hub leads to `cdn_url` instead of
                giving it, and its entity tag is its SHA-256 instead of a git blob id. None: as
                its suffix says, which is small for .csv .json .md .py .toml .txt .yaml .yml and
                for none.

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

    def fault(self, match: str, fault: HubFault | str, **options: Unpack[FaultOptions]) -> None:
        """Plan what goes wrong from now on, with requests that would go well.

        Attempts are counted for each file, whatever its revision (docs/loopback-hub.md). One that
        suffers from one fault is not seen by those that were given later, so ``times=1`` given for
        several faults makes them happen one after the other.

        Args:
            match: A pattern for the name under which a file was put, for that name behind
                ``datasets/owner/name/`` or ``models/owner/name/``, or for the path of the request;
                ``*`` is for any characters, slashes too (`fnmatch`).
            fault: What goes wrong, or its name.
            **options: All may be left out.
                nth: The first attempt at each file that suffers, counted from 1.
                times: How many suffer, one after the other; None for all from then on.
                method: What the request must do; ``"GET"`` by default, None for anything.
                at: How many bytes of the body come before the harm; None for half of them. For
                ``reset-in-body``, ``truncated``, ``truncated-without-length``,
                ``chunked-truncated``, ``chunked-bad-size``, ``flipped``, ``stall-in-body``.
                retry_after: The value of the Retry-After header; None for ``"0"``. For
                ``status-429`` and ``status-503``.
                interval: Seconds between two bytes; None for 0.2. For ``drip``.

        Raises:
            TypeError: A number that is none, or an option that no fault has.
            ValueError: An unknown fault, an option that it does not have, a value out of range, a
                pattern that fits no file that was put; the error names the nearest.

        Example:
            >>> from urllib.request import urlopen
            >>> with serve_hub() as hub:
            ...     url = hub.put("a/b.bin", b"1234")
            ...     hub.fault("*.bin", "flipped", times=1)
            ...     urlopen(url).read(), urlopen(url).read()
            (b'1224', b'1234')
        """
        refuse_unknown("fault", options, FaultOptions.__optional_keys__)
        rule = Rule(match=match, fault=one_of("fault", fault, HubFault), **options)
        # Requests that are for no file: what they may ask for is not known.
        is_of_requests = match.startswith(("api/", "cdn/")) or "/resolve/" in match
        with self._lock:
            names = {*self._files, *self._repos.names()}
            known = (fnmatch.fnmatchcase(name, match) for name in ("api/", *names))
            if not (is_of_requests or any(known)):
                near = nearest(match, names)
                raise ValueError(f"match: expected one that fits a file, found {match!r}; {near}")
            self._rules.append(rule)

    def heal(self) -> None:
        """End every planned fault; answers that are under way stay as they are."""
        with self._lock:
            self._rules.clear()

    def gate(self, repo: str, token: str, *, repo_type: RepoType = "dataset") -> None:
        """Give the files of a repository only to clients that show this token, 401 to others.

        Its listings stay open, as those of a gated repository are.

        Args:
            repo: ``"owner/name"``.
            token: What clients must show: ``Authorization: Bearer <token>``.
            repo_type: What the repository is.

        Raises:
            TypeError: A token that is no str.
            ValueError: No repository of this name has a file; the error names the nearest.
        """
        expect("token", token, str)
        with self._lock:
            self._repos.known(repo_type, repo).token = token

    @property
    def requests(self) -> tuple[HubRequest, ...]:
        """The log: every request so far, in the order in which they came."""
        with self._lock:
            lines = list(self._log)
        return tuple(dataclasses.replace(line, bytes_sent=tally.sent) for line, tally in lines)

    def requests_for(
        self, match: str, *, method: str | None = None, fault: HubFault | str | None = None
    ) -> tuple[HubRequest, ...]:
        """Return the part of the log that is about these files.

        Args:
            match: A pattern for the name under which a file was put, or for the path of the
                request.
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
        suffered = None if fault is None else one_of("fault", fault, HubFault)
        return tuple(
            request
            for request in self.requests
            if any(fnmatch.fnmatchcase(name or "", match) for name in (request.path, request.file))
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
            # An attempt is seen by the rules in their order, up to the first that spoils it.
            meeting = (r for r in self._rules if r.meets(found.names, incoming, found.answer))
            rule = next(meeting, None)
        elsewhere = f"http://{OTHER_HOST}:{self._server.ports[0]}/{target.lstrip('/')}"
        right = found.answer
        wire = rule.harmed(right, incoming, elsewhere) if rule else right.wire()
        # A test prints the log, and no token must get there.
        headers = {
            name: "(withheld)" if name in _SECRET else value
            for name, value in incoming.headers.items()
        }
        request = HubRequest(
            method=incoming.method,
            path="/".join(parts),
            file=found.file,
            host=incoming.headers.get("host", ""),
            headers=types.MappingProxyType(headers),
            connection=incoming.connection,
            started=started,
            fault=rule.fault if rule else None,
            status=wire.status,
        )
        tally = Tally()
        with self._lock:
            self._log.append((request, tally))
        return wire, tally

    def _find(self, incoming: Incoming, parts: list[str], query: str) -> Found:
        path = "/".join(parts)
        if incoming.method not in {"GET", "HEAD"} and "paths-info" not in parts:
            return Found(answer(405, b"", ("Allow", "GET, HEAD")), (path,))
        if path in self._files:
            content = self._files[path]
            return Found(answer_file(incoming, content, content.sha256), (path,), path)
        try:
            asked: Mapping[str, list[str]] = parse_qs(query, max_num_fields=100)
        except ValueError:
            asked = {}
        found = self._repos.find(incoming, parts, asked)
        return found or Found(answer(404, b"Nothing is here.\n"), (path,))


@contextlib.contextmanager
def serve_hub(
    files: Mapping[str, bytes | os.PathLike[str]] | None = None,
    *,
    rate: float | None = None,
    latency: float = 0.0,
) -> Iterator[Hub]:
    """Run a hub on 127.0.0.1, at a free port, for as long as the context lasts.

    On leaving it, every connection ends at once, whatever its client or the hub waits for, and
    every thread and descriptor is gone.

    Args:
        files: Plain files to begin with, as `Hub.put` takes them.
        rate: Bytes a second on each connection; None for no limit.
        latency: Seconds before each answer.

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
    expect_number("latency", latency)
    if rate is not None:
        expect_number("rate", rate)
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


def _refuse_name(what: str, name: str) -> None:
    expect(what, name, str)
    if not name.isprintable() or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise ValueError(f"{what}: expected a name like 'data/train-00000.bin', found {name!r}")

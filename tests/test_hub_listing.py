"""The hub's listing: many pages, which all together have an end."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attacks.raw_server import RawServer, Request, Step

from shardproof import SourceError
from shardproof.prefetch import HubSource

SHA = "f" * 40


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def entry(path: str, kind: str = "file") -> dict[str, Any]:
    return {"type": kind, "path": path, "oid": SHA, "size": 4}


def page(value: object, following: str = "") -> bytes:
    body = json.dumps(value).encode()
    link = f'Link: <{following}>; rel="next"\r\n' if following else ""
    return f"HTTP/1.1 200 OK\r\n{link}Content-Length: {len(body)}\r\n\r\n".encode() + body


@contextlib.contextmanager
def listing(
    entries: Callable[[int], list[dict[str, Any]]], n_pages: int = 1000, query: str = ""
) -> Iterator[tuple[HubSource, RawServer]]:
    """Yield a source whose hub has so many pages of entries, and that hub."""

    def respond(request: Request) -> Iterator[Step]:
        if "/tree/" not in request.target:
            yield page({"sha": SHA})
        else:
            nth = int(request.target.partition("page=")[2].partition("&")[0] or 0)
            tree = request.target.partition("?")[0]
            to = f"http://{request.headers['host']}{tree}?page={nth + 1}&{query}"
            yield page(entries(nth), to if nth + 1 < n_pages else "")
        yield "keep"

    with RawServer(respond) as server:
        source = HubSource("org/name", endpoint=f"http://127.0.0.1:{server.port}")
        with contextlib.closing(source):
            yield source, server


def limit(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    monkeypatch.setattr(f"shardproof.prefetch.sources._hub.{name}", value)


def test_as_many_files_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, "_MAX_ENTRIES", 20)
    with listing(lambda nth: [entry(f"{nth}/{n}") for n in range(10)], n_pages=2) as (source, _):
        assert len(source.files()) == 20


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_more_in_all_pages(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    limit(monkeypatch, "_MAX_ENTRIES", 29)
    refused = pytest.raises(SourceError, match="has more than 29 files")
    with (
        listing(lambda nth: [entry(f"{nth}/{n}", kind) for n in range(10)]) as (source, server),
        refused as caught,
    ):
        source.files()
    assert caught.value.again == "no"
    assert len(server.requests) == 1 + 3


def test_names_that_are_too_long_together(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, "_MAX_TEXT", 10_000)
    refused = pytest.raises(SourceError, match="or names too long")
    with listing(lambda nth: [entry(f"{nth}/{'x' * 4000}")]) as (source, server), refused:
        source.files()
    assert len(server.requests) == 1 + 3


def test_empty_pages_whose_addresses_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, "_MAX_TEXT", 10_000)
    refused = pytest.raises(SourceError, match="or names too long")
    with listing(lambda _: [], query="x" * 4000) as (source, server), refused:
        source.files()
    assert len(server.requests) == 1 + 3


def test_empty_pages_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, "_MAX_PAGES", 5)
    refused = pytest.raises(SourceError, match="or 5 pages")
    with listing(lambda _: []) as (source, server), refused:
        source.files()
    assert len(server.requests) == 1 + 5


def test_what_was_not_asked_for_is_not_kept() -> None:
    def respond(request: Request) -> Iterator[Step]:
        others = [entry(f"{n}") for n in range(1000)]
        yield page(others if request.method == "POST" else {"sha": SHA})
        yield "keep"

    with RawServer(respond) as server:
        source = HubSource("org/name", endpoint=f"http://127.0.0.1:{server.port}")
        with contextlib.closing(source):
            assert source.stat("7", timeout=10).size == 4
            assert list(source._known) == ["7"]

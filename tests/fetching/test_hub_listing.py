"""A listing, in many pages or folders, has an end, and goes on no longer than it is wanted."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import fsspec
import pytest

from shardproof import FetchError, FetchTimeoutError, SourceError
from shardproof._base.work import Deadline, Stop, is_main
from shardproof.datasets.rows import _listings
from shardproof.fetching import CallableSource, FsspecSource, HubSource, Limits, RemoteFile, adopt
from shardproof.fetching.sources._source import Cancellation
from shardproof.fetching.transfer._requests import listed
from tests.attacks.raw_server import RawServer, Request, Step

SHA = "f" * 40


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch) -> None:
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
    monkeypatch.setattr(f"shardproof.fetching.sources._hub.{name}", value)


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_more_files_than_may_be(monkeypatch, kind) -> None:
    limit(monkeypatch, "_MAX_ENTRIES", 20)
    with listing(lambda nth: [entry(f"{nth}/{n}") for n in range(10)], n_pages=2) as (source, _):
        assert len(source.files()) == 20
    limit(monkeypatch, "_MAX_ENTRIES", 29)
    with listing(lambda nth: [entry(f"{nth}/{n}", kind) for n in range(10)]) as (source, server):
        with pytest.raises(SourceError, match="has more than 29 files") as caught:
            source.files()
        assert (caught.value.kind, len(server.requests)) == ("unusable", 1 + 3)


@pytest.mark.parametrize(
    ("name", "most", "text", "n_pages"),
    [("_MAX_TEXT", 10_000, "or names too long", 3), ("_MAX_PAGES", 5, "or 5 pages", 5)],
)
@pytest.mark.parametrize("n_entries", [0, 1])
def test_names_addresses_or_pages_without_end(
    monkeypatch, name, most, text, n_pages, n_entries
) -> None:
    limit(monkeypatch, name, most)
    long = "x" * 4000
    entries = [entry(long)] * n_entries
    with listing(lambda _: entries, query="" if n_entries else long) as (source, server):
        with pytest.raises(SourceError, match=text):
            source.files()
        assert len(server.requests) <= 1 + n_pages


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


class Folders(fsspec.AbstractFileSystem):
    """A server on which each folder has some files, and another folder, without end."""

    protocol = "folders"
    n_listed = 0

    def ls(self, path: str, detail: bool = True, **_: object) -> list[dict[str, Any]]:
        self.n_listed += 1
        self.listed()
        files = [{"name": f"{path}/{n}", "type": "file", "size": 4} for n in range(9)]
        return [{"name": f"{path}/d", "type": "directory", "size": 0}, *files]

    def listed(self) -> None:
        """Tell that a folder was asked for."""


@pytest.fixture
def folders() -> FsspecSource:
    fsspec.register_implementation("folders", Folders, clobber=True)
    return FsspecSource("folders://root")


@pytest.mark.parametrize(("name", "most"), [("_MAX_ENTRIES", 100), ("_MAX_TEXT", 3000)])
def test_folders_in_folders_without_end(folders, monkeypatch, name, most) -> None:
    monkeypatch.setattr(f"shardproof.fetching.sources._fsspec.{name}", most)
    with pytest.raises(
        SourceError, match=r"'folders://root' has more than .* names too long"
    ) as got:
        folders.files()
    assert got.value.kind == "unusable"
    assert folders._fs.n_listed < 20


def test_nobody_lists_them_who_is_wanted_no_more(folders, monkeypatch) -> None:
    cancellation = Cancellation()
    monkeypatch.setattr(
        Folders, "listed", lambda fs: cancellation.cancel() if fs.n_listed == 5 else None
    )
    with pytest.raises(SourceError, match="no longer wanted"):
        folders.files(cancellation)
    assert folders._fs.n_listed == 5


def test_a_listing_of_folders_ends_when_it_takes_too_long(folders, monkeypatch) -> None:
    monkeypatch.setattr(Folders, "listed", lambda _: time.sleep(0.01))
    limits = Limits(attempts=1, timeout=0.5, max_backoff=0)
    with pytest.raises(FetchTimeoutError, match="failed to download the listing"):
        listed(folders, limits, Deadline(None, Stop()), "memory")
    assert "shardproof-ask" not in {thread.name for thread in threading.enumerate()}


def test_pages_that_come_quickly_may_take_longer_than_one_of_them_may(tmp_path) -> None:
    def entries(nth: int) -> list[dict[str, Any]]:
        time.sleep(0.12)
        return [entry(str(nth))]

    (tmp_path / "7").write_bytes(b"12345")
    limits = Limits(attempts=1, stall_timeout=1.0)
    with listing(entries, n_pages=10) as (source, _):
        (finding,) = adopt(tmp_path, source, limits=limits).findings
    assert (finding.expected, finding.found) == ("4 bytes", "5 bytes")


def test_pages_without_end_are_asked_for_no_longer_than_they_are_wanted(tmp_path) -> None:
    def entries(nth: int) -> list[dict[str, Any]]:
        if nth == 5:
            cancellation.cancel()
        return [entry(str(nth))]

    cancellation = Cancellation()
    with listing(entries, n_pages=10**9) as (source, server):
        with pytest.raises(FetchError, match="stopped"):
            adopt(tmp_path, source, cancellation=cancellation)
        assert "shardproof-ask" not in {thread.name for thread in threading.enumerate()}
        assert len(server.requests) < 20


def test_no_interrupt_reaches_what_asks_for_a_dataset(monkeypatch) -> None:
    """A second one, while the first is cleared up, would leave a thread behind that asks on."""

    def seen(*_: object) -> Sequence[RemoteFile]:
        were_main.append(is_main())
        return ()

    were_main: list[bool] = []
    monkeypatch.setattr(_listings, "listed", seen)
    source = CallableSource(lambda *_: None)
    assert _listings.ask_listing(source, Limits(), with_card=False).files == ()
    assert were_main == [False]

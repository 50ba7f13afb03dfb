"""Sources: what they tell, what they give, and what they keep to themselves."""

import errno
import hashlib
import importlib
import logging
import os
import re
import sys
import threading
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem, get_loop
from fsspec.implementations.memory import MemoryFileSystem

from shardproof import FetchError, RevisionError, SourceError
from shardproof.fetching import (
    CallableSource,
    FetchResult,
    FsspecSource,
    HttpSource,
    HubSource,
    Limits,
    ReadRequest,
    RemoteFile,
    Source,
    fetch_file,
    open_source,
)
from shardproof.fetching.sources._checksums import stated_in
from shardproof.fetching.sources._http import is_page, seconds_to_wait
from shardproof.fetching.sources._open import is_repository, split_name
from shardproof.fetching.sources._urls import bare
from shardproof.testing.faults import FileSystemFaults
from tests.helpers.forking import ended, forked
from tests.helpers.hub_sources import repository

SECRET = "s3cr3t"
LIMITS = Limits(max_backoff=0.01, stall_timeout=0.3)


def fetch(source: Source, name: str, path: Path, limits: Limits = LIMITS) -> FetchResult:
    try:
        return fetch_file(source, name, path / name, limits=limits)
    finally:
        source.close()


@pytest.fixture
def everything_logged(caplog) -> Callable[[], str]:
    caplog.set_level(logging.DEBUG)
    return lambda: "\n".join(record.getMessage() for record in caplog.records)


class TestHttp:
    def test_secrets_of_an_address_are_in_no_message_and_in_no_log(
        self, shard_hub, tmp_path, everything_logged
    ) -> None:
        shard_hub.put("a/0.bin", b"1234")
        shard_hub.fault("a/0.bin", "status-503")
        place = shard_hub.url.removeprefix("http://")
        source = HttpSource(f"http://user:{SECRET}@{place}/a?signature={SECRET}#{SECRET}")

        with pytest.raises(FetchError) as caught:
            fetch(source, "0.bin", tmp_path)

        assert SECRET not in str(caught.value)
        assert SECRET not in repr(caught.value.__cause__)
        assert SECRET not in everything_logged()
        assert SECRET not in source.url
        assert shard_hub.requests[0].headers["authorization"] == "(withheld)"

    def test_a_query_goes_with_each_request(self, shard_hub, tmp_path) -> None:
        shard_hub.put("a b/ü?.bin", b"1234")

        fetched = fetch(HttpSource(f"{shard_hub.url}/a%20b/?key=1"), "ü?.bin", tmp_path)

        assert fetched.path.read_bytes() == b"1234"

    @pytest.mark.parametrize("url", ["ftp://host/a", "http://", "/a/b", "http:///a"])
    def test_what_is_no_web_server_is_refused(self, url) -> None:
        with pytest.raises(ValueError, match=r"expected http\(s\)://host"):
            HttpSource(url)

    @pytest.mark.parametrize("port", ["65536", "-1", "x\x1b", "1" * 5000])
    def test_a_port_that_none_has_is_refused(self, port) -> None:
        with pytest.raises(ValueError, match="expected a port up to 65535 in 'http://host:") as e:
            HttpSource(f"http://user:{SECRET}@host:{port}/a?{SECRET}")
        assert SECRET not in str(e.value)
        assert "\x1b" not in str(e.value)


class TestHub:
    @pytest.fixture(autouse=True)
    def source(self, shard_hub) -> Iterator[HubSource]:
        files = {"data/0.bin": b"large", "README.md": b"# small"}
        with repository(shard_hub, files) as source:
            yield source

    @pytest.mark.parametrize("name", ["data/0.bin", "README.md"])
    def test_wrong_bytes_are_refused(self, name, source, shard_hub, tmp_path) -> None:
        shard_hub.fault(name, "flipped")

        with pytest.raises(FetchError, match="expected the digest"):
            fetch(source, name, tmp_path)

        assert not (tmp_path / name).exists()

    def test_it_stays_at_one_commit(self, source, shard_hub, tmp_path) -> None:
        before = source.files()

        shard_hub.put("data/0.bin", b"newer", repo="org/name")

        assert fetch(source, "data/0.bin", tmp_path).path.read_bytes() == b"large"
        assert source.files() == before

    def test_a_token_is_for_the_hub_alone(self, shard_hub, tmp_path, everything_logged) -> None:
        shard_hub.gate("org/name", f"hf_{SECRET}")

        with HubSource("org/name", endpoint=shard_hub.url, token=f"hf_{SECRET}") as source:
            fetch(source, "data/0.bin", tmp_path)

        asked = {(r.host, "authorization" in r.headers) for r in shard_hub.requests}
        hub, cdn = (url.removeprefix("http://") for url in (shard_hub.url, shard_hub.cdn_url))
        assert asked == {(hub, True), (cdn, False)}
        assert SECRET not in everything_logged()

    def test_a_wrong_token_is_told(self, shard_hub, tmp_path) -> None:
        shard_hub.gate("org/name", f"hf_{SECRET}")

        other = HubSource("org/name", endpoint=shard_hub.url, token="hf_other")
        with pytest.raises(FetchError, match="credentials are missing, wrong or not enough"):
            fetch(other, "data/0.bin", tmp_path)

    def test_folder_revision_and_address(self, shard_hub) -> None:
        shard_hub.put("data/0.bin", b"1", repo="org/name", revision="v1")
        source = HubSource("org/name", endpoint=shard_hub.url, revision="v1", subfolder="data/")

        assert [file.name for file in source.files()] == ["0.bin"]
        assert source.url == "hf://datasets/org/name@v1/data"
        source.close()

    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_a_repository_that_is_not_there(self, method, shard_hub) -> None:
        source = HubSource("org/none", endpoint=shard_hub.url)

        with pytest.raises(SourceError, match=r"does not list .hf://datasets/org/none") as caught:
            source.files() if method == "GET" else source.stat("x", timeout=1)

        assert caught.value.kind == "refused"
        source.close()

    @pytest.mark.parametrize("ask", [HubSource.files, lambda source: source.commit])
    def test_a_revision_that_is_not_there(self, ask, shard_hub, tmp_path) -> None:
        with HubSource("org/name", revision="v9", endpoint=shard_hub.url) as source:
            with pytest.raises(RevisionError, match="RevisionNotFound") as caught:
                ask(source)
            assert caught.value.kind == "refused"
            with pytest.raises(FetchError, match="RevisionNotFound") as failed:
                fetch(source, "data/0.bin", tmp_path)
        assert isinstance(failed.value.__cause__, RevisionError)

    def test_a_hub_that_is_out_of_order_is_asked_again_for_the_revision(
        self, source, shard_hub
    ) -> None:
        shard_hub.fault("api/datasets/org/name", "status-503", times=1, method=None)
        with pytest.raises(SourceError, match="503") as caught:
            source.files()
        assert not isinstance(caught.value, RevisionError)
        assert source.files()

    def test_a_file_that_is_not_there(self, source, tmp_path) -> None:
        with pytest.raises(FetchError, match=r"has no file 'x' at [0-9a-f]{40}"):
            fetch(source, "x", tmp_path)


class TestFsspec:
    @pytest.mark.parametrize("bad", ["in/a/b", "in/a", "in"])
    def test_what_cannot_be_listed_is_not_left_out(self, tmp_path, make_shard_faults, bad) -> None:
        for name in ("a/b/0.bin", "a/1.bin"):
            (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "in" / name).write_bytes(b"1234")
        source = FsspecSource(f"file://{tmp_path}/in")
        assert [file.name for file in source.files()] == ["a/1.bin", "a/b/0.bin"]

        for number in (errno.EIO, errno.EACCES):
            make_shard_faults(tmp_path).fail("scandir", number, match=bad, times=1)
            with pytest.raises(OSError, match=re.escape(os.strerror(number))):
                source.files()
        assert FsspecSource(f"file://{tmp_path}/nothing").files() == ()

    def test_a_link_is_what_it_leads_to(self, tmp_path, caplog) -> None:
        (tmp_path / "blobs/more").mkdir(parents=True)
        (tmp_path / "blobs/b1").write_bytes(b"1234")
        (tmp_path / "in").mkdir()
        for name, target in (("0.bin", "b1"), ("gone", "b2"), ("folder", "more")):
            (tmp_path / "in" / name).symlink_to(f"../blobs/{target}")
        source = FsspecSource(f"file://{tmp_path}/in")

        found = source.files()

        assert [(file.name, file.size) for file in found] == [("0.bin", 4), ("gone", None)]
        assert found[0].identity == source.stat("0.bin", timeout=1).identity
        assert "folder" in caplog.text

    def test_nobody_knows_the_size_of_what_cannot_be_looked_at(self, tmp_path, monkeypatch) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "b1").write_bytes(b"1234")
        (tmp_path / "in/0.bin").symlink_to("../b1")
        source, real = FsspecSource(f"file://{tmp_path}/in"), os.stat

        def stat(path, *args, **options):
            if os.path.basename(path) == "0.bin" and options.get("follow_symlinks", True):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return real(path, *args, **options)

        monkeypatch.setattr(os, "stat", stat)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            source.files()

    def test_a_file_that_changes_meanwhile_is_read_anew(self, tmp_path, monkeypatch) -> None:
        memory = fsspec.filesystem("memory")
        memory.pipe("/changing/0.bin", b"old")
        give = type(memory).cat_file

        def give_and_change(self: object, path: str, **span: int) -> bytes:
            data = give(self, path, **span)
            if data == b"old":
                memory.pipe("/changing/0.bin", b"new")
            return data

        monkeypatch.setattr(type(memory), "cat_file", give_and_change)

        fetched = fetch(FsspecSource("memory://changing"), "0.bin", tmp_path)

        assert fetched.path.read_bytes() == b"new"
        assert fetched.n_attempts == 2

    def test_what_is_not_there_and_what_is_no_file(self, tmp_path) -> None:
        (tmp_path / "in/sub").mkdir(parents=True)
        source = FsspecSource(f"file://{tmp_path}/in")

        with pytest.raises(FetchError, match="FileNotFoundError"):
            fetch(source, "none", tmp_path)
        with pytest.raises(FetchError, match="is a directory"):
            fetch(source, "sub", tmp_path)

    def test_an_unknown_scheme(self) -> None:
        with pytest.raises(ValueError, match="nonsense"):
            open_source("nonsense://a/b")

    @pytest.mark.parametrize(
        ("url", "module"),
        [
            ("s3://bucket/a", "s3fs"),
            ("sftp://host/a", "paramiko"),
            ("simplecache::gs://bucket/a", "gcsfs"),
        ],
    )
    def test_a_missing_package_names_what_to_install(self, url, module, monkeypatch) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        scheme = url.partition("://")[0].rpartition(":")[2]
        registry = importlib.import_module("fsspec.registry")._registry
        monkeypatch.delitem(registry, scheme, raising=False)
        monkeypatch.delitem(sys.modules, f"fsspec.implementations.{scheme}", raising=False)

        match = rf"^\w+:// needs a package that is missing: .*\b{module}\b.* \(import of {module} "
        with pytest.raises(ImportError, match=match):
            open_source(url)

    @pytest.mark.parametrize(
        ("url", "text"),
        [
            ("zip://x/y", "'zip://x/y' can't be opened: "),
            ("ftp://127.0.0.1:1/y", "can't be opened: ConnectionRefusedError: "),
        ],
    )
    def test_what_a_constructor_raises_is_a_fetch_error(self, url, text, tmp_path) -> None:
        with pytest.raises(FetchError, match=re.escape(text)) as caught:
            fetch(open_source(url), "0.bin", tmp_path)

        assert isinstance(caught.value.__cause__, SourceError)
        assert caught.value.__cause__.__cause__ is not None
        assert len(str(caught.value).splitlines()) == 2


class TestCallable:
    def test_what_it_raises_is_a_reason_to_try_again(self, tmp_path) -> None:
        calls = []

        def flaky(name: str, dest: Path) -> None:
            calls.append(name)
            if len(calls) < 3:
                raise RuntimeError("the lab's store is busy")
            dest.write_bytes(b"1234")

        assert fetch(CallableSource(flaky), "0.bin", tmp_path).n_attempts == 3

    @pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
    def test_what_ends_a_program_is_told_at_once(self, kind, tmp_path) -> None:
        def tool(name: str, dest: Path) -> None:
            raise kind("the lab's store is gone")

        with pytest.raises(FetchError, match=f"{kind.__name__}: the lab's store is gone"):
            fetch(CallableSource(tool), "0.bin", tmp_path)

    def test_so_it_is_where_a_source_of_ones_own_is_asked(self, tmp_path) -> None:
        class Tool(CallableSource):
            def stat(self, name: str, **_: object) -> RemoteFile:
                sys.exit("the lab's store is gone")

        with pytest.raises(FetchError, match="SystemExit: the lab's store is gone"):
            fetch(Tool(lambda name, dest: None), "0.bin", tmp_path)

    def test_writing_nothing_is_an_error(self, tmp_path) -> None:
        with pytest.raises(FetchError, match="has written no file"):
            fetch(CallableSource(lambda name, dest: None), "0.bin", tmp_path)

    def test_what_it_brought_that_nobody_could_look_at_is_not_taken_for_nothing(
        self, tmp_path
    ) -> None:
        source = CallableSource(lambda name, dest: dest.write_text(name), scratch=tmp_path)
        with FileSystemFaults(tmp_path) as fs:
            fs.fail("stat", errno.EIO, match="*/shard")
            with pytest.raises(OSError, match="Input/output error"), source.read(ReadRequest("a")):
                pass

    def test_one_that_hangs_is_left_behind(self, tmp_path) -> None:
        goes_on = threading.Event()
        source = CallableSource(lambda name, dest: goes_on.wait())
        limits = Limits(timeout=0.1, attempts=1)

        with pytest.raises(TimeoutError, match="not done after"):
            fetch(source, "0.bin", tmp_path, limits)

        goes_on.set()
        assert not list(tmp_path.iterdir())

    def test_a_name_that_no_directory_could_have(self) -> None:
        with pytest.raises(ValueError, match="expected letters"):
            CallableSource(lambda name, dest: None, name="../x")


@pytest.mark.parametrize(
    ("url", "kind", "shown"),
    [
        ("hf://datasets/o/n@v1/a/b", HubSource, "hf://datasets/o/n@v1/a/b"),
        ("hf://datasets/o/n@refs%2Fpr%2F1", HubSource, "hf://datasets/o/n@refs%2Fpr%2F1"),
        ("hf://o/n", HubSource, "hf://o/n"),
        ("https://h/a?q", HttpSource, "https://h/a"),
        ("memory://a", FsspecSource, "memory://a"),
    ],
)
def test_an_address_becomes_a_source(url, kind, shown) -> None:
    source = open_source(url)

    assert isinstance(source, kind)
    assert isinstance(source, Source)
    assert source.url == shown


@pytest.mark.parametrize("url", ["a/b", "", "hf://n", "hf://datasets/n"])
def test_an_address_that_is_none(url) -> None:
    with pytest.raises(ValueError, match="url: expected"):
        open_source(url)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="is refused"):
        fetch_file(CallableSource(lambda *_: None), "a/../b", tmp_path / "x")


class Says:
    """A hub's answers to a source, which a test has written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: tuple[str, str | None]) -> None:
        self.asked: list[str] = []
        left = list(answers)

        def text(
            _: object, address: str, *_limits: object, **_more: object
        ) -> tuple[bytes, str | None]:
            self.asked.append(address)
            body, following = left.pop(0) if len(left) > 1 else left[0]
            return body.encode(), following

        monkeypatch.setattr("shardproof.fetching.sources._http.Web.text", text)


SHA = "f" * 40
ENTRY = f'{{"type": "file", "path": "0.bin", "oid": "{SHA}", "size": 4}}'


def info(sha: str = SHA) -> tuple[str, None]:
    return f'{{"sha": "{sha}"}}', None


class TestMalformedAnswers:
    """What a hub says wrong is a refusal that says where and what, never a ValueError."""

    def source(self) -> HubSource:
        return HubSource("org/name", endpoint="http://127.0.0.1:1", token="")

    @pytest.mark.parametrize("answer", ["", '{"sha": "../x"}', "[" * 9999])
    def test_of_a_repository(self, monkeypatch, answer) -> None:
        Says(monkeypatch, (answer, None))
        with pytest.raises(SourceError, match="the Hub does not list 'hf://datasets/org/name'"):
            self.source().files()

    @pytest.mark.parametrize("wrong", [("4,", "-1,"), (SHA, "x"), ('"file"', "1")])
    def test_of_files(self, monkeypatch, tmp_path, wrong) -> None:
        listing = f"[{ENTRY.replace('4}', '4,}').replace(*wrong).replace(',}', '}')}]", None
        Says(monkeypatch, info(), listing)
        with pytest.raises(SourceError, match=r"the Hub does not list .*/tree/"):
            self.source().files()
        Says(monkeypatch, info(), listing)
        with pytest.raises(FetchError, match=r"the Hub does not list .*/paths-info/"):
            fetch(self.source(), "0.bin", tmp_path, Limits(attempts=1))
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "following",
        [
            "http://[::1",
            "http://127.0.0.1:2/x",
            "https://127.0.0.1:1/x",
            "/x",
            "\x1b]0;x\x07",
            f"http://127.0.0.1:1/api/datasets/org/name/tree/{SHA}?recursive=true&expand=false",
        ],
    )
    def test_a_listing_that_leads_astray(self, monkeypatch, following) -> None:
        says = Says(monkeypatch, info(), (f"[{ENTRY}]", following))
        with pytest.raises(SourceError, match=r"the hub's listing of .* leads to '") as caught:
            self.source().files()
        assert len(says.asked) == 2
        assert str(caught.value).isprintable()

    def test_a_source_of_ones_own_that_states_no_digest(self, tmp_path) -> None:
        class Vague(CallableSource):
            def stat(self, name: str, **_: object) -> RemoteFile:  # type: ignore[override]
                return RemoteFile(name, digest="md5:\x1b")

        source = Vague(lambda name, dest: dest.write_bytes(b"1234"))
        with pytest.raises(
            FetchError, match=r"states of '0.bin' can't be read: expected 32 hexadecimal"
        ):
            fetch(source, "0.bin", tmp_path)


class TestPages:
    PAGE = b"<html><title>Sign in</title>"

    @pytest.mark.parametrize("kind", ["TEXT/HTML ;x", "application/xhtml+xml; q"])
    def test_a_page_is_told_by_its_type(self, kind) -> None:
        assert is_page("0.bin", kind)
        assert not is_page("0.XHTML", kind)
        assert not is_page("0.bin", f"x{kind}")

    @pytest.mark.parametrize(
        "data",
        [
            b"\xef\xbb\xbf\r\n  <HTML lang=x>",
            b'<?XML version="1.0"?><!-- < html -->\r\n<!----><!DOCTYPE html>',
            b"\n" * 2000 + b"<html>",
        ],
    )
    def test_a_page_is_told_by_its_beginning(self, data) -> None:
        assert is_page("0.bin", "", data)
        assert not is_page("0.html", "", data)
        assert not is_page("0.bin", "", b"x" + data)

    @pytest.mark.parametrize("data", [b"<!-- <html> --><rows/>", b"<!DOCTYPE svg>", b"\n" * 5000])
    def test_other_markup_is_none(self, data) -> None:
        assert not is_page("0.bin", "", data + b"<html>")

    def test_one_whose_digest_is_known_is_not(self, shard_hub, tmp_path) -> None:
        shard_hub.put("0.bin", self.PAGE)
        digest = f"sha256:{hashlib.sha256(self.PAGE).hexdigest()}"
        source = HttpSource(shard_hub.url)
        assert fetch_file(source, "0.bin", tmp_path / "x", digest=digest).proven
        source.close()


def test_an_empty_file_whose_digest_or_size_is_known_is_one(tmp_path) -> None:
    source = CallableSource(lambda name, dest: dest.write_bytes(b""))
    digest = f"sha256:{hashlib.sha256(b'').hexdigest()}"
    assert fetch_file(source, "0.bin", tmp_path / "0", digest=digest).proven
    assert fetch_file(source, "0.bin", tmp_path / "1", file=RemoteFile("0.bin", size=0)).path
    with pytest.raises(FetchError, match="found an empty file"):
        fetch_file(source, "0.bin", tmp_path / "2", limits=LIMITS)


@pytest.mark.parametrize(
    "value", ["Mon, 99999999999999999999 Jan 2020 00:00:00 GMT", "Mon, 32 Jan 2020 0:0:0", "soon"]
)
def test_a_moment_that_is_none(value) -> None:
    assert seconds_to_wait(value) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:1/a\x1b]0;x\x07b", "http://127.0.0.1:1/a%1B]0;x%07b"),
        ("file:///nowhere/a\x1b[31mb", "file:///nowhere/a%1B[31mb"),
        ("hf://org/a\x1b[31mb", "hf://org/a%1B[31mb"),
    ],
)
def test_an_address_with_control_characters(tmp_path, url, shown) -> None:
    source = open_source(url)
    assert source.url == shown
    if isinstance(source, HubSource):
        return  # which would ask the hub
    with pytest.raises(FetchError) as caught:
        fetch(source, "0.bin", tmp_path, Limits(attempts=1))
    assert str(caught.value).replace("\n", "").isprintable()


@pytest.mark.parametrize("name", ["x#1.bin", "x?1.bin", "x#", "x%231.bin"])
def test_elsewhere_than_on_the_web_every_character_is_part_of_a_name(name, tmp_path) -> None:
    there = tmp_path / "a#b?c"
    there.mkdir()
    (there / "x").write_bytes(b"another")
    (there / name).write_bytes(b"1234")

    folder, last = split_name(f"file://{there}/{name}")
    fetched = fetch(open_source(folder), last, tmp_path)

    assert last == name
    assert fetched.path.read_bytes() == b"1234"


@pytest.mark.parametrize(
    ("folder", "name", "url"),
    [
        ("file:///", "0.bin", "file:///0.bin"),
        ("simplecache::file:///", "0.bin", "simplecache::file:///0.bin"),
        ("Local:///", "0.bin", "Local:///0.bin"),
        ("file:///a", "b::c.bin", "file:///a/b::c.bin"),
        ("file:///a::b", "c.bin", "file:///a::b/c.bin"),
        ("hf://datasets/org/name/a::b", "c.bin", "hf://datasets/org/name/a::b/c.bin"),
        ("https://h/a%20b?q=1", "x#", "HTTPS://h/a%20b/x%23?q=1#f"),
    ],
)
def test_the_address_of_a_file_has_a_folder_and_a_name(folder, name, url) -> None:
    assert split_name(url) == (folder, name)


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("hf://org/name", True),
        ("HF://datasets/org/name@main", True),
        ("hf://org/name/folder", False),
        ("hf://org", False),
        ("https://h/org/name", False),
    ],
)
def test_a_whole_repository(url, is_one) -> None:
    assert is_repository(url) is is_one


@pytest.mark.parametrize(
    "url", ["file:///", "memory://x", "s3://bucket", "s3://b/a/", "x", "/x", ""]
)
def test_an_address_of_no_file(url) -> None:
    with pytest.raises(ValueError, match="ends with a file's name"):
        split_name(url)


class Cutting(type(fsspec.filesystem("memory"))):
    """A file system that takes what stands behind ``?`` for no part of a path, as that of FTP."""

    protocol = "cutting"
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("cutting://").partition("?")[0].strip("/")


class Pages(Cutting):
    protocol = "pages"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.replace("pages://", "http://")


@pytest.mark.parametrize(
    ("url", "name"), [("cutting://a?b", "0.bin"), ("pages://h/a?b", "0"), ("pages://h/a", "0#1")]
)
def test_what_would_be_another_file_is_refused(url, name, tmp_path, monkeypatch) -> None:
    registry = importlib.import_module("fsspec.registry")._registry
    monkeypatch.setitem(registry, "cutting", Cutting)
    monkeypatch.setitem(registry, "pages", Pages)
    fsspec.filesystem("memory").pipe("/a/0.bin", b"another")

    with pytest.raises(FetchError, match=r"which (would )?end") as caught:
        fetch(open_source(url), name, tmp_path)

    assert caught.value.__cause__.kind == "unusable"


@pytest.mark.parametrize("mark", ["?", "#"])
def test_a_repository_that_would_be_another_one_is_refused(mark) -> None:
    with pytest.raises(ValueError, match="url: expected hf://") as caught:
        open_source(f"hf://datasets/o/n{mark}token={SECRET}")
    assert SECRET not in str(caught.value)

    with pytest.raises(ValueError, match="repo_id: expected") as caught:
        HubSource(f"o/n{mark}token={SECRET}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://u:SECRET@h:1/a?SECRET#SECRET", "http://h:1/a"),
        ("http://u:SECRET/x@h/a", "http://..."),
        ("http://u:SECRET#x@h/a", "http://..."),
        ("http://u:SECRET@[::1]:80/a@b::c", "http://[::1]:80/a@b::c"),
        ("ftp://u:SECRET@h/a@b?c#d/", "ftp://h/a@b?c#d"),
        ("sftp://u:SECRET/x@h/a", "sftp://..."),
        ("simplecache::ftp://u:SECRET@h/a", "simplecache::ftp://h/a"),
        ("zip://x@y::http://u:SECRET@h/a.zip?SECRET", "zip://x@y::http://h/a.zip"),
        ("u:SECRET@h/a", "h/a"),
        ("memory://a:b/c#1", "memory://a:b/c#1"),
        ("file:///a::b/c:d@e", "file:///a::b/c:d@e"),
        ("abfs://container@account/a", "abfs://container@account/a"),
    ],
)
def test_an_address_is_shown_without_what_is_secret(url, shown) -> None:
    assert bare(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "http://u:SECRET/x@h/a",
        "http://u:[SECRET]@h/a",
        "http://u:SECRET@[::1/a",
        "sftp://u:SECRET/x@h/a",
        "zip://x::ftp://u:x#SECRET@h/a.zip",
        "u:SECRET@h/a",
    ],
)
def test_a_refused_address_is_told_without_what_is_secret(url, monkeypatch) -> None:
    monkeypatch.setattr("shardproof.fetching.sources._fsspec._refuse_unknown", lambda _: None)

    with pytest.raises(ValueError, match="url: expected") as caught:
        open_source(split_name(f"{url}/x")[0])

    assert "SECRET" not in str(caught.value)


def test_what_a_library_says_of_a_password_is_not_told(tmp_path, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError(f"http://u:{SECRET}/@h")

    registry = importlib.import_module("fsspec.registry")._registry
    monkeypatch.setitem(registry, "cutting", Cutting)
    monkeypatch.setattr(Cutting, "__init__", refuse)

    with pytest.raises(FetchError, match=r"can't be opened: FileNotFoundError$") as caught:
        fetch(open_source(f"cutting://u:{SECRET}%2F@h"), "0.bin", tmp_path)

    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_scheme_has_no_case(shard_hub, tmp_path) -> None:
    shard_hub.put("a/0.bin", b"1234")

    fetched = fetch(open_source(f"{shard_hub.url}/a".replace("http", "HTTP")), "0.bin", tmp_path)

    assert fetched.path.read_bytes() == b"1234"
    assert isinstance(open_source("HF://datasets/o/N"), HubSource)
    assert open_source("Memory://A").url == "memory://A"


class Async(AsyncFileSystem):
    """A file system over a loop in a thread, which no fork takes along."""

    protocol = "asynchronous"
    cachable = False

    async def _info(self, path: str, **_: object) -> dict[str, object]:
        return {"name": path, "size": 4, "type": "file", "ETag": "a"}

    async def _cat_file(self, path: str, start: int = 0, end: int = 4, **_: object) -> bytes:
        return b"1234"[start:end]


class Tells(MemoryFileSystem):
    """Its errors have the whole address in them, as those of fsspec's own for the web have."""

    protocol = "tells"

    def info(self, path: str, **_how: object) -> dict[str, object]:
        try:
            raise ValueError(f"url='tells://u:{SECRET}@host/x'")
        except ValueError as error:
            raise PermissionError("403") from error

    ls = find = info


@pytest.mark.parametrize(
    "ask", [lambda source: source.files(), lambda source: source.stat("a", timeout=9)]
)
def test_no_secret_of_an_address_is_in_an_error_of_its_file_system(ask) -> None:
    fsspec.register_implementation("tells", Tells, clobber=True)
    source = FsspecSource(f"tells://u:{SECRET}@host/x")
    with pytest.raises(SourceError, match=r"^ValueError$") as caught:
        ask(source)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("address", ["zip::file://{}/a.zip", "zip://::file://{}/a.zip"])
def test_names_at_the_root_of_an_archive_are_whole(tmp_path, address) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.bin", b"1234")
        archive.writestr("b/c.bin", b"1234")
    source = FsspecSource(address.format(tmp_path))
    assert [file.name for file in source.files()] == ["a.bin", "b/c.bin"]


class GivesAll:
    """What s3fs is behind a proxy that ignores ranges: an answer with all of an object."""

    loop = None

    def split_path(self, path: str) -> list[str]:
        return ["bucket", path, ""]

    def call_s3(self, *_: object, **_how: object) -> dict[str, object]:
        return {"Body": self, "ContentLength": 2**40}

    async def read(self) -> bytes:
        raise AssertionError("all of it is read into memory")

    def close(self) -> None:
        pass


def test_of_a_store_that_ignores_ranges_nothing_is_read_into_memory(monkeypatch) -> None:
    monkeypatch.setattr(GivesAll, "loop", get_loop())
    source = FsspecSource("memory://bucket")
    source._opened_by[os.getpid()] = GivesAll(), "bucket"
    with pytest.raises(SourceError, match="gives no parts"):
        source.part_of(RemoteFile("a", 2**40, identity='ETag="x"'), 0, 2**16)


def test_each_process_opens_a_file_system_of_its_own(tmp_path, monkeypatch) -> None:
    registry = importlib.import_module("fsspec.registry")._registry
    monkeypatch.setitem(registry, "asynchronous", Async)
    source = open_source("asynchronous://a")
    fetch_file(source, "0.bin", tmp_path / "0", limits=LIMITS)

    child = forked(lambda: fetch_file(source, "0.bin", tmp_path / "1", limits=LIMITS))

    assert ended(child) == 0
    assert (tmp_path / "1").read_bytes() == b"1234"
    fetch_file(source, "0.bin", tmp_path / "2", limits=LIMITS)


class TestArchives:
    BLOCK = 2**10
    DATA = b"".join(i.to_bytes(4, "big") for i in range(2**12))

    @pytest.fixture
    def source(self, tmp_path, monkeypatch) -> Source:
        monkeypatch.setattr("shardproof.fetching.sources._fsspec._BLOCK", self.BLOCK)
        with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("0.bin", self.DATA)
        return open_source(f"zip://::file://{tmp_path}/a.zip")

    def test_a_file_is_opened_once(self, source, tmp_path, monkeypatch) -> None:
        kind = fsspec.get_filesystem_class("zip")
        opened, open_one = [], kind._open

        def count(self: object, path: str, *args: object, **kwargs: object) -> object:
            opened.append(open_one(self, path, *args, **kwargs))
            return opened[-1]

        monkeypatch.setattr(kind, "_open", count)

        fetched = fetch(source, "0.bin", tmp_path)

        assert fetched.path.read_bytes() == self.DATA
        assert len(opened) == 1
        assert opened[0].closed

    def test_what_was_begun_is_closed(self, source) -> None:
        with source.read(ReadRequest("0.bin", 5000, 9000)) as response:
            assert next(response.chunks) == self.DATA[5000 : 5000 + self.BLOCK]

        assert next(response.chunks, None) is None

    def test_parts_of_it_are_not_fetched_at_once(self, source) -> None:
        assert not source.stat("0.bin", timeout=1.0).has_ranges
        assert not source.files()[0].has_ranges


# What S3, Cloud Storage and Azure tell of an object, as s3fs, gcsfs and adlfs hand it on.
MD5, SHA256 = "1B2M2Y8AsgTpgAmY7PhCfg==", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="


@pytest.mark.parametrize(
    ("told", "stated"),
    [
        ({"ChecksumSHA256": SHA256, "ChecksumType": "FULL_OBJECT"}, ["sha256"]),
        (
            {"ChecksumSHA256": SHA256, "ETag": f'"{"0" * 32}"'},
            ["sha256"],
        ),  # before there were kinds
        ({"ChecksumSHA256": SHA256, "ChecksumType": "COMPOSITE"}, []),
        ({"ChecksumSHA256": f"{SHA256}-3", "ChecksumType": "FULL_OBJECT"}, []),
        ({"ChecksumSHA256": SHA256, "ETag": f'"{"0" * 32}-3"'}, []),
        ({"ChecksumSHA256": SHA256, "ChecksumType": "OF_PARTS"}, []),  # of a kind to come
        ({"ChecksumSHA256": MD5, "ChecksumType": "FULL_OBJECT"}, []),
        ({"ChecksumSHA256": None, "ChecksumType": "FULL_OBJECT"}, []),
        ({"ChecksumSHA256": "\x1b[2J" * 9, "ChecksumType": "FULL_OBJECT"}, []),
        ({"ChecksumCRC64NVME": "AAAAAAAAAAA=", "ChecksumType": "FULL_OBJECT"}, ["crc64nvme"]),
        ({"ETag": '"d41d8cd98f00b204e9800998ecf8427e"'}, []),
        # Cloud Storage's documentation of objects: base64, big-endian; no MD5 of composed ones.
        ({"md5Hash": MD5, "crc32c": "AAAAAA==", "etag": "CJj-x-=-1"}, ["md5", "crc32c"]),
        ({"crc32c": "AAAAAA==", "componentCount": 2}, ["crc32c"]),
        ({"md5Hash": MD5, "crc32c": "AAAAAA==", "contentEncoding": "gzip"}, []),
        ({"content_settings": {"content_md5": bytearray(16)}, "etag": '"0x8D"'}, []),
    ],
)
def test_what_stores_state_of_all_bytes(told, stated) -> None:
    assert [text.partition(":")[0] for text in stated_in(told)] == stated


def test_the_strongest_digest_is_the_proof(monkeypatch) -> None:
    memory = fsspec.filesystem("memory")
    told = {"type": "file", "size": 0, "md5Hash": MD5, "crc32c": "AAAAAA=="}
    monkeypatch.setattr(type(memory), "info", lambda *_, **__: told)

    file = FsspecSource("memory://stated").stat("0.bin", timeout=1)

    assert file.digest == f"md5:{hashlib.md5().hexdigest()}"
    assert file.checksums == ("crc32c:00000000",)


class ClientError(Exception):
    """As botocore's: what S3 answered is in a dictionary."""

    def __init__(self, status: int, code: str, **headers: str) -> None:
        super().__init__(code)
        about = {"HTTPStatusCode": status, "HTTPHeaders": headers}
        self.response = {"Error": {"Code": code}, "ResponseMetadata": about}


@pytest.mark.parametrize(
    ("error", "kind", "wait"),
    [
        (ClientError(503, "SlowDown", **{"retry-after": "3"}), "broken", 3.0),
        (ClientError(403, "AccessDenied"), "refused", None),
        (type("NoCredentialsError", (Exception,), {})(), "refused", None),
    ],
)
def test_what_the_client_of_a_store_raises_is_explained(monkeypatch, error, kind, wait) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("translated") from error

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "info", fail)

    with pytest.raises(SourceError, match=r"OSError: translated: .+") as caught:
        FsspecSource("memory://x").stat("0.bin", timeout=1)

    assert (caught.value.kind, caught.value.retry_after) == (kind, wait)


def test_what_no_store_has_said_is_as_it_was(monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "a disk says that")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "info", fail)

    with pytest.raises(PermissionError, match="a disk"):
        FsspecSource("memory://x").stat("0.bin", timeout=1)


@pytest.mark.parametrize("is_of_old", [False, True])
def test_a_file_is_put_where_none_is(monkeypatch, is_of_old) -> None:
    memory = fsspec.filesystem("memory")
    if is_of_old:  # of fsspec before 2024.12, which can't be asked to write only what is not there
        write = lambda self, path, value: self.open(path, "wb", data=value)  # noqa: E731
        monkeypatch.setattr(type(memory), "pipe_file", write)
    source = FsspecSource(f"memory://put-{is_of_old}")
    source.put("a", b"1")

    with pytest.raises(FileExistsError):
        source.put("a", b"2")
    assert memory.cat(f"/put-{is_of_old}/a") == b"1"

    source.put("a", b"3", replace=True)
    assert memory.cat(f"/put-{is_of_old}/a") == b"3"

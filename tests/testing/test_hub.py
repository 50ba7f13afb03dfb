"""The loopback hub: files as from a web server, repositories as from the Hugging Face Hub."""

import contextlib
import email.utils
import gc
import hashlib
import http.client
import os
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardproof.testing.faults import Hub, HubRequest, serve_hub
from shardproof.testing.faults.hub import _hf
from tests.helpers.hub_asking import DEADLINE, ask, connected, dial
from tests.helpers.hub_client import hub_client
from tests.helpers.waiting import until

DATA = bytes(range(200)) * 5
ETAG = f'"{hashlib.sha256(DATA).hexdigest()}"'


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve_hub({"data/x.bin": DATA}) as hub:
        yield hub


def test_a_file_and_its_head(hub: Hub) -> None:
    got, head = ask(hub, "/data/x.bin"), ask(hub, "/data/x.bin", "HEAD", Range="bytes=1-2")
    assert (got.status, got.body, head.status, head.body) == (200, DATA, 200, b"")
    for name, value in {"ETag": ETAG, "Accept-Ranges": "bytes", "Content-Length": "1000"}.items():
        assert got.headers[name] == head.headers[name] == value
    assert got.headers["Content-Type"] == "application/octet-stream"
    for name in ("Date", "Last-Modified"):
        age = time.time() - email.utils.parsedate_to_datetime(got.headers[name]).timestamp()
        assert 0 <= age < DEADLINE


@pytest.mark.parametrize(
    ("value", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-", 10, 1000),
        ("bytes=-10", 990, 1000),
        ("bytes=-5000", 0, 1000),
        ("bytes=990-" + "9" * 5000, 990, 1000),
        ("bytes=" + "0" * 5000 + "7-8", 7, 9),
        ("BYTES=1-2", 1, 3),
        *((value, 0, 0) for value in ("bytes=1000-2000", "bytes=-0", f"bytes={'9' * 5000}-")),
        *((value, None, None) for value in ("", "bytes=-", "bytes=5-4", "bytes=-5-")),
        *((value, None, None) for value in ("bytes=1-2,5-6", "bytes=\u00b2-3", "lines=1-2")),
    ],
)
def test_a_range_is_given_or_is_not_there_or_says_nothing(hub, value, start, stop) -> None:
    got = ask(hub, "/data/x.bin", Range=value)
    status, span = 206, f"bytes {start}-{(stop or 0) - 1}/1000"
    if start is None:
        status, span = 200, None
    elif start == stop:
        status, span = 416, "bytes */1000"
    assert (got.status, got.body) == (status, DATA[start:stop])
    assert got.headers["Content-Range"] == span
    assert got.headers["Content-Length"] == str(len(got.body))
    assert got.headers["ETag"] == ETAG


@pytest.mark.parametrize(
    "if_range", [ETAG, '"other"', f"W/{ETAG}", "Wed, 21 Oct 2015 07:28:00 GMT"]
)
def test_a_range_of_a_version(hub: Hub, if_range: str) -> None:
    got = ask(hub, "/data/x.bin", Range="bytes=300-", If_Range=if_range)
    assert (got.status, got.body) == ((206, DATA[300:]) if if_range == ETAG else (200, DATA))


@pytest.mark.parametrize("known", [ETAG, f'"a", W/{ETAG},"b"', "*"])
def test_a_version_that_the_client_has_is_not_sent(hub: Hub, known: str) -> None:
    for method in ("GET", "HEAD"):
        got = ask(hub, "/data/x.bin", method, If_None_Match=known, Range="bytes=5000-")
        assert (got.status, got.body, got.headers["ETag"]) == (304, b"", ETAG)
        assert "Content-Length" not in got.headers
    assert ask(hub, "/data/x.bin", If_None_Match='"other"').status == 200


def test_a_connection_is_kept(hub: Hub) -> None:
    with connected(hub) as connection:
        for path in ("/data/x.bin", "/nothing", "/data/x.bin"):
            ask(connection, path)
            ask(connection, path, "HEAD", Range="bytes=0-")
            ask(connection, path, Range="bytes=5000-")
            ask(connection, path, If_None_Match="*")
    assert {request.connection for request in hub.requests} == {1}
    assert len(hub.requests) == 12


@pytest.mark.parametrize("line", ["GET /data/x.bin HTTP/1.0\r\n", "GET /data/x.bin\r\n"])
def test_an_old_client_is_told_the_end_by_the_end(hub: Hub, line: str) -> None:
    with dial(hub) as client:
        client.sendall(f"{line}\r\n".encode())
        data = b"".join(iter(lambda: client.recv(2**16), b""))
    assert data.endswith(b"Connection: close\r\n\r\n" + DATA)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/d%61ta%2Fx.bin?a=b&c", 200),
        ("/data/x.bin?" + "&".join("a=b" for _ in range(1000)), 200),
        ("http://elsewhere:99/data/x.bin", 200),
        ("/" + "a" * 70_000, 414),
        *((target, 404) for target in ("*", "/data/", "/data//x.bin", "/data/%2e%2e/data/x.bin")),
        *((target, 404) for target in ("/../../../../etc/passwd", "//etc/passwd", "/%ff%fe%zz")),
        *((target, 404) for target in ("/data/x.bin%00", "/api/datasets/../../etc/passwd")),
        *((f"/{area}datasets/resolve/main/x", 404) for area in ("", "api/", "cdn/a/")),
    ],
)
def test_a_target_is_looked_up_and_never_followed(hub: Hub, target: str, status: int) -> None:
    with dial(hub) as client:
        client.sendall(f"GET {target} HTTP/1.1\r\nConnection: close\r\n\r\n".encode("latin-1"))
        with contextlib.suppress(ConnectionResetError):  # it may not have read a long line
            assert client.recv(12) == f"HTTP/1.1 {status}".encode()
    assert len(hub.requests) == (status != 414)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ("nonsense", 400),
        ("GET /data/x.bin HTTP/9.9", 505),
        *((f"{method} /data/x.bin HTTP/1.1", 405) for method in ("PUT", "POST", "DELETE", "PATCH")),
        ("GET / HTTP/1.1\r\n" + "\r\n".join(f"A{i}: b" for i in range(101)), 431),
        ("POST / HTTP/1.1\r\nContent-Length: -1", 413),
        ("POST / HTTP/1.1\r\nContent-Length: 1048577", 413),
        ("POST / HTTP/1.1\r\nContent-Length: " + "9" * 5000, 413),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked", 413),
    ],
)
def test_a_request_that_is_refused(hub: Hub, request_: str, status: int) -> None:
    with dial(hub) as client:
        client.sendall(f"{request_}\r\nConnection: close\r\n\r\n".encode())
        with contextlib.suppress(ConnectionResetError):
            assert f" {status} ".encode() in client.recv(200)
    assert ask(hub, "/data/x.bin").body == DATA


def test_what_a_request_brings_along_is_not_the_next_request(hub: Hub) -> None:
    with dial(hub) as client:
        client.sendall(b"GET /a HTTP/1.1\r\nContent-Length: 9\r\n\r\nGET /b\r\n\r")
        client.sendall(b"GET /c HTTP/1.1\r\nConnection: close\r\n\r\n")
        while client.recv(2**16):
            pass
    assert [request.path for request in hub.requests] == ["a", "c"]


def test_a_file_from_disk_and_one_that_is_put_again(hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(DATA[::-1])
    os.utime(path, (1e9, 1e9))
    assert hub.put("data/x.bin", path) == f"{hub.url}/data/x.bin"
    got = ask(hub, "/data/x.bin", If_None_Match=ETAG)
    assert (got.status, got.body) == (200, DATA[::-1])
    assert got.headers["ETag"] != ETAG
    assert got.headers["Last-Modified"] == "Sun, 09 Sep 2001 01:46:40 GMT"
    assert ask(hub, "/data/x.bin", Range="bytes=300-309").body == DATA[::-1][300:310]
    assert ask(hub, "/data/x.bin", Range="bytes=300-", If_Range=ETAG).body == DATA[::-1]
    hub.put("empty", b"")
    assert ask(hub, "/empty", Range="bytes=0-").status == 416
    assert ask(hub, "/empty")[::2] == (200, b"")


def test_a_large_file_is_never_in_memory(hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2**26)
    tracemalloc.start()
    try:
        hub.put("large", path)
        with connected(hub) as connection:
            connection.request("GET", "/large")
            response = connection.getresponse()
            size = sum(map(len, iter(lambda: response.read(2**16), b"")))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size == 2**26
    assert peak < 2**23


def test_a_file_that_shrinks_while_it_is_sent_ends_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(2**25))  # more than two kernels keep
    with serve_hub({"x": path}) as hub, connected(hub) as connection:
        connection.request("GET", "/x")
        response = connection.getresponse()
        os.truncate(path, 0)
        with pytest.raises(http.client.IncompleteRead):
            response.read()


@pytest.mark.parametrize("name", ["a b.bin", "é.bin", "a%2Fb", "a?b#c", "a'\"b", "漢/字"])
def test_a_name_with_odd_characters(hub: Hub, name: str) -> None:
    for repo in (None, "owner/name"):
        url = hub.put(name, DATA, repo=repo, lfs=None if repo is None else False)
        assert ask(hub, url.removeprefix(hub.url)).body == DATA
        assert hub.requests[-1].file == name


@pytest.mark.parametrize(
    ("error", "text", "arguments"),
    [
        *(
            (ValueError, "path: expected a name like", {"path": name})
            for name in ("", "/x", "x/", ".", "a/../b", "a\nb", "a\0b", "\ud800")
        ),
        (TypeError, "path: expected str, found b'x'", {"path": b"x"}),
        (TypeError, "content: expected PathLike or bytes, found 'x'", {"content": "x"}),
        (ValueError, "regular file, .* '/dev/null'", {"content": Path("/dev/null")}),
        (FileNotFoundError, "nothing", {"content": Path("/nothing")}),
        (ValueError, "repo: expected 'owner/name', found 1", {"repo": 1}),
        (ValueError, "repo_type: expected .*, found 'space'", {"repo": "a", "repo_type": "space"}),
        (ValueError, "revision: expected a name", {"repo": "a", "revision": "a//b"}),
        (ValueError, "only a file of a repository", {"revision": "v1"}),
    ],
)
def test_what_cannot_be_put(hub, error, text, arguments) -> None:
    with pytest.raises(error, match=text):
        hub.put(**{"path": "y", "content": b"", **arguments})
    assert ask(hub, "/y").status == 404


@pytest.mark.parametrize(
    ("error", "text", "arguments"),
    [
        (ValueError, "rate: expected bytes a second, found 0", {"rate": 0}),
        (ValueError, "rate: .*, found nan", {"rate": float("nan")}),
        (TypeError, "latency: expected int or float, found True", {"latency": True}),
        (ValueError, "latency: .*, found inf", {"latency": float("inf")}),
        (TypeError, "content: expected PathLike or bytes", {"files": {"a": 1}}),
    ],
)
def test_what_cannot_be_served(error: type[Exception], text: str, arguments: dict) -> None:
    before = descriptors()
    with pytest.raises(error, match=text), serve_hub(**arguments):
        pass
    assert descriptors() == before


def test_the_log(hub: Hub) -> None:
    names = ("Authorization", "Proxy-Authorization", "Cookie")
    secrets = {name.replace("-", "_"): "hf_secret" for name in names}
    before = time.monotonic()
    ask(hub, "/data/x.bin?token=1", Range="bytes=300-", **secrets)
    hub.fault("*", "status-500", times=1)
    ask(hub, "/data/x.bin")
    ask(hub, "/nothing", "HEAD")
    request = hub.requests[0]
    assert before <= request.started <= time.monotonic()
    assert request.headers["range"] == "bytes=300-"
    assert {request.headers[name.lower()] for name in names} == {"(withheld)"}
    assert "hf_secret" not in repr(hub.requests)
    assert request == HubRequest(
        method="GET",
        path="data/x.bin",
        file="data/x.bin",
        host=hub.url.removeprefix("http://"),
        headers=request.headers,
        connection=1,
        started=request.started,
        fault=None,
        status=206,
        bytes_sent=700,
    )
    for asked, statuses in (
        (hub.requests_for("data/*"), [206, 500]),
        (hub.requests_for("*", method="HEAD"), [404]),
        (hub.requests_for("*", fault="status-500"), [500]),
        (hub.requests_for("nothing", fault="status-500"), []),
    ):
        assert [request.status for request in asked] == statuses


@pytest.mark.parametrize("on_disk", [False, True])
def test_bytes_are_counted_when_they_have_arrived(hub: Hub, tmp_path: Path, on_disk: bool) -> None:
    data = bytes(3 * 2**20 + 7)
    (tmp_path / "x").write_bytes(data)
    hub.put("large", tmp_path / "x" if on_disk else data)
    for number in range(1, 30):
        ask(hub, "/large")
        assert hub.requests[-1].bytes_sent == len(data)
        assert len(hub.requests) == number


def test_bytes_that_a_client_did_not_want_are_not_counted(hub: Hub) -> None:
    hub.put("large", bytes(2**25))
    with dial(hub) as client:
        client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert len(b"".join(client.recv(1) for _ in range(1000))) == 1000  # header, some body
    until(lambda: hub_threads() == ["shardproof hub: accept"] * 2)
    assert 0 < hub.requests[0].bytes_sent < 2**25


def descriptors() -> list[str]:
    gc.collect()
    found = {name: f"/dev/fd/{name}" for name in os.listdir("/dev/fd")}
    return sorted(name for name, path in found.items() if os.path.lexists(path))


def hub_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "shardproof" in thread.name]


REQUEST = b"GET /data/x.bin HTTP/1.1\r\n\r\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "fault", "arguments"),
    [
        (b"", None, {}),
        (b"GET /data/x.bin HTTP/1.1\r\nContent-Length: 10\r\n\r\n123", None, {}),
        (REQUEST, None, {"latency": 1e5}),
        (REQUEST, None, {"rate": 1e-3}),
        *((REQUEST, fault, {}) for fault in ("stall-in-body", "drip", "gzip-bomb")),
        (b"GET /large HTTP/1.1\r\n\r\n", "reset-in-body", {}),
        (b"GET /disk HTTP/1.1\r\n\r\n", None, {}),
    ],
)
def test_the_end_waits_for_nobody(sent, fault, arguments, tmp_path) -> None:
    large = 2**24 if b"/l" in sent or b"/disk" in sent else 1  # more than two kernels keep
    (tmp_path / "large").write_bytes(bytes(large))
    files = {"data/x.bin": DATA, "large": bytes(large), "disk": tmp_path / "large"}
    before = descriptors()
    with contextlib.ExitStack() as clients, contextlib.ExitStack() as hubs:
        hub = hubs.enter_context(serve_hub(files, **arguments))
        if fault:
            hub.fault("*", fault)
        for _ in range(3):
            clients.enter_context(dial(hub)).sendall(sent)
        if b"\r\n\r\n" in sent and not sent.endswith(b"123"):
            until(lambda: len(hub.requests) == 3)
        end = threading.Thread(target=hubs.close, daemon=True)
        end.start()
        end.join(DEADLINE)
        assert not end.is_alive()
        assert hub_threads() == []
    assert descriptors() == before


@pytest.mark.parametrize("fault", ["stall-before-header", "endless-body"])
def test_a_client_that_goes_takes_its_thread_along(hub: Hub, fault: str) -> None:
    hub.fault("*", fault)
    with dial(hub) as client:
        client.sendall(REQUEST)
        until(lambda: hub.requests)
        assert len(hub_threads()) == 3
    until(lambda: len(hub_threads()) == 2)


def test_a_reset_does_not_wait_for_a_client_that_has_gone(hub: Hub) -> None:
    hub.put("data/x.bin", bytes(400_000))
    hub.fault("*", "reset-in-body")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the rest stays with the hub
        client.connect(("127.0.0.1", hub._server.ports[0]))
        client.sendall(REQUEST)
        until(lambda: [r.bytes_sent for r in hub.requests] == [200_000])
    until(lambda: len(hub_threads()) == 2)


def test_an_answer_is_late_and_no_faster_than_its_rate() -> None:
    with serve_hub({"x": bytes(20_000)}, rate=100_000, latency=0.05) as hub:
        for path, least in (("/x", 0.25), ("/nothing", 0.05)):
            start = time.monotonic()
            ask(hub, path)
            assert time.monotonic() - start >= least


@pytest.fixture(scope="module")
def hf() -> Iterator[ModuleType]:
    with hub_client() as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("HF_TOKEN", raising=False)


LARGE = bytes(range(256)) * 100
FILES = {"README.md": b"# Shards\n", "data/a.bin": LARGE, "data/more/b c.bin": DATA}
README_ID = (
    "cd850ec7e68f6203cceb8010118c9ec3814183ef"  # printf '# Shards\\n' | git hash-object --stdin
)
POINTER_ID = "960b8051d7401a215c5b658f2bc6bbc80f11c275"  # the same for the pointer to DATA


@pytest.fixture(params=["dataset", "model"])
def repo(hub: Hub, request: pytest.FixtureRequest) -> dict[str, str]:
    """Where the files are, in the keywords that all calls of the client share."""
    where = {"repo_id": "owner/shards", "repo_type": request.param}
    put_all(hub, where, FILES)
    return where


@pytest.fixture
def api(hub: Hub, hf: ModuleType) -> Any:
    return hf.HfApi(endpoint=hub.url, token=False)


@pytest.fixture
def download(hub: Hub, hf: ModuleType, repo: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    where = {**repo, "endpoint": hub.url, "cache_dir": tmp_path, "token": False}
    return lambda filename, **more: hf.hf_hub_download(**where | {"filename": filename} | more)


def put_all(hub: Hub, where: dict[str, str], files: dict[str, bytes]) -> None:
    for path, content in files.items():
        hub.put(path, content, repo=where["repo_id"], repo_type=where["repo_type"])


def test_the_client_takes_a_snapshot(hub, hf, api, repo, tmp_path) -> None:
    def snapshot(**more: object) -> dict[str, bytes]:
        where = {**repo, "endpoint": hub.url, "cache_dir": tmp_path, "token": False, **more}
        root = Path(hf.snapshot_download(**where))
        files = (path for path in root.rglob("*") if path.is_file())
        return {str(path.relative_to(root)): path.read_bytes() for path in files}

    first = api.repo_info(**repo).sha
    put_all(hub, repo, {"data/a.bin": LARGE[::-1]})
    assert snapshot() == {**FILES, "data/a.bin": LARGE[::-1]}
    assert snapshot(revision=first) == FILES


def test_the_client_resolves_revisions(hub: Hub, api: Any, repo: dict[str, str]) -> None:
    sha = api.repo_info(**repo).sha
    assert len(sha) == 40
    put_all(hub, repo, {"README.md": b"new"})
    new = api.repo_info(**repo).sha
    assert new != sha == api.repo_info(**repo, revision=sha).sha
    hub.put("x", b"", repo=repo["repo_id"], repo_type=repo["repo_type"], revision="refs/pr/1")
    branch = api.repo_info(**repo, revision="refs/pr/1")
    assert [file.rfilename for file in branch.siblings] == ["x"]
    assert api.revision_exists(**repo, revision="refs/pr/1")
    assert not api.revision_exists(**repo, revision="v9")
    heads = {ref.name: ref.target_commit for ref in api.list_repo_refs(**repo).branches}
    assert heads == {"main": new, "refs/pr/1": branch.sha}
    assert [commit.commit_id for commit in api.list_repo_commits(**repo)] == [new]


def test_the_client_reads_metadata(hub, hf, api, repo) -> None:
    digest = hashlib.sha256(LARGE).hexdigest()
    for name, etag in {"README.md": README_ID, "data/a.bin": digest}.items():
        url = hf.hf_hub_url(**repo, filename=name, endpoint=hub.url)
        found = api.get_hf_file_metadata(url=url, token=False)
        assert found.commit_hash == api.repo_info(**repo).sha
        assert (found.etag, found.size) == (etag, len(FILES[name]))
    assert found.location.startswith(hub.cdn_url)


def test_the_client_lists(api: Any, repo: dict[str, str]) -> None:
    def paths(**keywords: object) -> list[str]:
        return [entry.path for entry in api.list_repo_tree(**repo, **keywords)]

    assert sorted(api.list_repo_files(**repo)) == sorted(FILES)
    assert paths() == ["README.md", "data"]
    assert paths(path_in_repo="data") == ["data/a.bin", "data/more"]
    assert paths(recursive=True) == sorted([*FILES, "data", "data/more"])


def test_the_client_asks_about_paths(hf: ModuleType, api: Any, repo: dict[str, str]) -> None:
    readme, data = api.get_paths_info(**repo, paths=["README.md", "data", "nothing", "dat"])
    assert (readme.path, readme.size, readme.blob_id) == ("README.md", 9, README_ID)
    assert readme.lfs is None
    assert data == hf.hf_api.RepoFolder(path="data", oid=data.tree_id)
    paths = ["data/more/b c.bin"]
    (listed,) = api.list_repo_tree(**repo, path_in_repo="data/more", expand=True)
    (file,) = api.get_paths_info(**repo, paths=paths, expand=True)
    assert listed == file
    assert (file.path, file.size, file.blob_id) == (*paths, 1000, POINTER_ID)
    assert (file.lfs.size, f'"{file.lfs.sha256}"') == (1000, ETAG)
    assert file.last_commit.oid == api.repo_info(**repo).sha


def test_the_client_asks_about_a_repository_and_what_there_is(api, repo) -> None:
    info = api.repo_info(**repo, files_metadata=True)
    assert (info.id, info.author, info.gated) == ("owner/shards", "owner", False)
    sizes = {file.rfilename: file.size for file in info.siblings}
    assert sizes == {name: len(content) for name, content in FILES.items()}
    digests = {file.lfs.sha256 for file in info.siblings if file.lfs}
    assert digests == {hashlib.sha256(content).hexdigest() for content in (LARGE, DATA)}
    assert api.repo_exists(**repo)
    other = "model" if repo["repo_type"] == "dataset" else "dataset"
    assert not api.repo_exists("owner/shards", repo_type=other)
    assert not api.repo_exists("owner/other", repo_type=repo["repo_type"])
    assert api.file_exists(**repo, filename="data/a.bin")
    assert not api.file_exists(**repo, filename="data")


def test_the_client_hears_what_is_missing(hf: ModuleType, download: Callable[..., str]) -> None:
    for missing, error in (
        ({"filename": "nothing"}, "EntryNotFoundError"),
        ({"filename": "README.md", "revision": "nothing"}, "RevisionNotFoundError"),
        ({"filename": "README.md", "repo_id": "owner/nothing"}, "RepositoryNotFoundError"),
    ):
        with pytest.raises(getattr(hf.errors, error)):
            download(**missing)


def test_long_listings_come_in_pages(hub: Hub, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _hf._PAGE == 1000
    monkeypatch.setattr(_hf, "_PAGE", 2)
    where = {"repo_id": "owner/shards", "repo_type": "dataset"}
    names = [f"{number}.bin" for number in range(5)]
    put_all(hub, where, dict.fromkeys(names, b""))
    assert [entry.path for entry in api.list_repo_tree(**where)] == names
    assert len(hub.requests_for("api/*")) == 3


def test_questions_that_cannot_be_read(hub: Hub) -> None:
    hub.put("x", b"", repo="owner/shards")
    tree = "/api/datasets/owner/shards/tree/main?cursor="
    for cursor in ("-1", "1" * 5000):
        assert ask(hub, tree + cursor).status == 400
    assert ask(hub, f"{tree}999999999").body == b"[]"
    too_many = "&".join(f"{number}=b" for number in range(1000))
    assert ask(hub, f"{tree}x&{too_many}").status == 200
    for form in (b"\xff", b"a=b&" * 20_000):
        with connected(hub) as connection:
            connection.request("POST", "/api/datasets/owner/shards/paths-info/main", form)
            assert connection.getresponse().status == 400


def test_a_gated_repository(hub, hf, api, repo, download) -> None:
    with pytest.raises(TypeError, match="token: expected str, found None"):
        hub.gate("owner/shards", None)
    hub.gate("owner/shards", "hf_right", repo_type=repo["repo_type"])
    assert api.repo_info(**repo).gated == "manual"
    for token, status in ((False, 401), ("hf_wrong", 403)):
        with pytest.raises(hf.errors.GatedRepoError):
            download("data/a.bin", token=token)
        assert hub.requests[-1].status == status
    assert Path(download("data/a.bin", token="hf_right")).read_bytes() == LARGE


def test_the_other_port_sees_no_token(hub: Hub, download: Callable[..., str]) -> None:
    download("data/a.bin", token="hf_secret")
    head, get = hub.requests_for("data/a.bin")
    assert head.host == hub.url.removeprefix("http://")
    assert get.host == hub.cdn_url.removeprefix("http://")
    assert head.headers["authorization"] == "(withheld)"
    assert "authorization" not in get.headers
    assert "hf_secret" not in repr(hub.requests)


@pytest.mark.parametrize(
    ("name", "lfs", "large"),
    [
        *(("x.tar.gz", None, True), ("x.JSON", None, False), (".gitattributes", None, False)),
        *(("x.bin", False, False), ("x.txt", True, True)),
    ],
)
def test_what_is_large_to_git(hub: Hub, name: str, lfs: bool | None, large: bool) -> None:
    got = ask(hub, hub.put(name, DATA, repo="owner/shards", lfs=lfs), "HEAD")
    if large:
        assert got.status == 302
        assert (got.headers["X-Linked-Etag"], got.headers["X-Linked-Size"]) == (ETAG, "1000")
    else:
        blob = hashlib.sha1(b"blob 1000\0" + DATA).hexdigest()
        assert (got.status, got.headers["ETag"]) == (200, f'"{blob}"')

"""A directory on a web server that lists its folders."""

import errno
import hashlib
from pathlib import Path

import numpy as np
import pytest

import shardproof
from shardproof import FindingKind, ManifestNotFoundError, SealError, fetching, stage, validate
from shardproof.fetching.sources import _http
from shardproof.fetching.sources._web_index import names_on
from shardproof.testing import Layout, write_layout
from tests.formats.looking import sampled
from tests.helpers.commands import run
from tests.helpers.web_folder import WebFolder, web_folder
from tests.remote.test_like_here import FAULTS, THERE, said


@pytest.fixture(autouse=True)
def brief_waits(monkeypatch) -> None:
    """Wait no seconds between two attempts."""
    monkeypatch.setattr("shardproof.fetching.transfer._attempts._seconds_between", lambda *_: 0.0)


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    path = tmp_path / "a b"
    (path / "more").mkdir(parents=True)
    for number in range(3):
        np.save(path / f"{number} '&é#?%41.npy", np.arange(1000))
    np.save(path / "more" / "3.npy", np.arange(1000))
    shardproof.seal(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["whole", "empty", "changed"])
@pytest.mark.parametrize("golden", sampled(THERE))
def test_it_is_judged_as_here(golden, fault: str, tmp_path: Path) -> None:
    path = golden.copy(tmp_path)
    name = shardproof.formats.detect(str(path)).read_manifest(str(path)).files[-1].name
    if (path / name).stat().st_size:
        FAULTS[fault](path / name)

    with web_folder(path) as address:
        there = said(lambda: validate(address, level="valid"), address)

    assert there == said(lambda: validate(path, level="valid"), str(path))


def test_no_file_is_read_where_its_size_is_enough(arrays: Path) -> None:
    asked: list[str] = []
    with web_folder(arrays.parent, asked) as address:
        assert validate(f"{address}/a%20b").ok
    assert not [each for each in asked if each.startswith("GET") and ".npy" in each]
    assert len([each for each in asked if each.startswith("HEAD") and ".npy" in each]) == 3
    assert len(asked) == len({*asked})


def test_by_what_it_was_verified(arrays: Path) -> None:
    with web_folder(arrays) as address:
        assert validate(address, level="valid").notes == ("verified: 3 by reading",)


def test_all_below(arrays: Path) -> None:
    (arrays.parent / "c").mkdir()
    np.save(arrays.parent / "c" / "3.npy", np.arange(3))
    (arrays / "1 '&é#?%41.npy").write_bytes(b"")
    with web_folder(arrays.parent) as address:
        ended = run("validate", "-r", "--level=complete", address)
    assert ended.exit_code == 1, ended.output
    assert f"  - {address}/a b/1 '&é#?%41.npy: " in ended.output
    assert "2 directories: 1 whole, 1 damaged" in ended.output


def test_a_copy_is_staged_from_it(tmp_path: Path) -> None:
    path = write_layout(Layout(n_shards=3), tmp_path / "x")
    (tmp_path / "to").mkdir()
    with web_folder(path) as address:
        copy = stage(address, tmp_path / "to")
        with pytest.raises(SealError, match="nothing is written there"):
            shardproof.seal(address)
    assert validate(copy, level="valid", against=path).ok


def test_a_file_that_is_refused_may_be_whole(arrays: Path, monkeypatch) -> None:
    def refuse(self: WebFolder) -> None:
        denied = self.path.startswith("/1")
        self.send_error(403) if denied else super(WebFolder, self).do_GET()

    def refuse_head(self: WebFolder) -> None:
        denied = self.path.startswith("/1")
        self.send_error(403) if denied else super(WebFolder, self).do_HEAD()

    monkeypatch.setattr(WebFolder, "do_GET", refuse, raising=False)
    monkeypatch.setattr(WebFolder, "do_HEAD", refuse_head, raising=False)
    with web_folder(arrays) as address:
        report = validate(address, level="complete")
    [finding] = report.findings
    assert (finding.kind, finding.errno) == (FindingKind.UNREADABLE, errno.EIO)
    assert "403" in finding.found


def test_the_length_of_encoded_bytes_is_not_that_of_the_file(arrays: Path, monkeypatch) -> None:
    """Servers that compress on their way say so, and then how many bytes they send."""

    def end(self: WebFolder) -> None:
        if self.path.endswith(".npy"):
            self.send_header("Content-Encoding", "gzip")
        super(WebFolder, self).end_headers()

    monkeypatch.setattr(WebFolder, "end_headers", end, raising=False)
    with web_folder(arrays) as address:
        report = validate(address)
    assert {each.kind for each in report.findings} == {FindingKind.UNREADABLE}
    assert "encoded" in report.findings[0].found


def test_a_server_that_lists_nothing(arrays: Path, monkeypatch) -> None:
    with web_folder(arrays) as address:
        (arrays / "index.html").write_text("<a href='https://example.org/x'>Welcome</a>")
        with pytest.raises(ManifestNotFoundError, match=r"links to no file below it\. Does the"):
            validate(address)
        with pytest.raises(OSError, match=r"404 .*; does the server list its folders\?"):
            validate(f"{address}/nowhere")
        monkeypatch.setattr(WebFolder, "list_directory", lambda self, _: self.send_error(403))
        (arrays / "index.html").unlink()
        with pytest.raises(OSError, match=r"403 .*; does the server list its folders\?"):
            validate(address)


def test_no_credentials_are_shown(arrays: Path) -> None:
    with web_folder(arrays) as address:
        there = address.replace("//", "//user:secret@") + "?token=secret"
        report = validate(there, level="complete")
        assert str(report.path) == address
        with pytest.raises(OSError, match="404") as caught:
            validate(f"{address.replace('//', '//user:secret@')}/nowhere")
    assert "secret" not in str(caught.value)


def test_folders_in_folders_without_end(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(_http, "_MAX_TEXT", 1000)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a").symlink_to("..")
    with web_folder(tmp_path) as address, pytest.raises(OSError, match="name a folder in it"):
        validate(address)


def test_a_page_that_is_too_long(arrays: Path, monkeypatch) -> None:
    monkeypatch.setattr(_http, "_MAX_PAGE", 100)
    with web_folder(arrays) as address, pytest.raises(OSError, match="at most 100 bytes"):
        validate(address)


def test_others_ask_no_pages(arrays: Path) -> None:
    """A source of a fetch or a repair has what its caller says."""
    asked: list[str] = []
    with web_folder(arrays, asked) as address, fetching.HttpSource(address) as source:
        assert source.files() == ()
    assert not asked


NGINX = """<html><head><title>Index of /w/</title></head><body><h1>Index of /w/</h1><hr><pre>
<a href="../">../</a>
<a href="sub%20dir/">sub dir/</a>                                           28-Nov-2026 22:28
<a href="SHA256SUMS">SHA256SUMS</a>                                         28-Nov-2026 22:28
<a href="a%200%27%26%C3%A9.npy">a 0'&amp;é.npy</a>                          28-Nov-2026 22:28
</pre><hr></body></html>"""

APACHE = """<tr><th><a href="?C=N;O=D">Name</a></th><th><a href="?C=M;O=A">Date</a></th></tr>
<tr><td valign="top">&nbsp;</td><td><a href="/">Parent Directory</a>       </td><td>&nbsp;</td>
<tr><td><a href="SHA256SUMS">SHA256SUMS</a>             </td><td>2026-11-28 22:28  </td></tr>
<tr><td><a href="a%200'&amp;%c3%a9.npy">a 0'&amp;é.npy</a>            </td><td>7.9K</td></tr>
<tr><td><a href="sub%20dir/">sub dir/</a>               </td><td align="right">  - </td></tr>"""

LIGHTTPD = """<tr class="d"><td class="n"><a href="../">..</a>/</td><td class="m">&nbsp;</td></tr>
<tr class="d"><td class="n"><a href="sub%20dir/">sub dir</a>/</td><td class="s">- &nbsp;</td></tr>
<tr><td class="n"><a href="SHA256SUMS">SHA256SUMS</a></td><td class="s">0.3K</td></tr>
<tr><td class="n"><a href="a%200%27%26%C3%A9.npy">a 0&#x27;&#x26;é.npy</a></td></tr>
<script>link.setAttribute("href", "#");</script>"""

OTHER = """<A class=x HREF='/w/SHA256SUMS'>one</A><a
  href=http://host/w/sub%20dir/>two</a><a title="a>b" href="./a%200'&amp;é.npy#top">three</a>"""


@pytest.mark.parametrize("page", [NGINX, APACHE, LIGHTTPD, OTHER])
def test_pages_of_servers(page: str) -> None:
    """As nginx 1.22, Apache 2.4 and lighttpd 1.4 write them, and as others might."""
    assert {*names_on(page, "http://host/w/")} >= {"SHA256SUMS", "sub dir/"}
    assert len({*names_on(page, "http://host/w/")} - {"a 0'&é.npy"}) == 2


@pytest.mark.parametrize(
    "link",
    [
        *(
            "..",
            "../",
            "%2e%2e/",
            "..%2fx",
            "x%2f..%2fy",
            "a//b",
            ".",
            "./",
            "/",
            "//",
            "",
            "?a",
            "#a",
        ),
        *("/v/x", "/w", "//other/w/x", "http://other/w/x", "ftp://host/w/x", "http://[/w/x"),
        *("javascript:x", "data:,x", "x/y", "mailto:x@host"),
    ],
)
def test_links_that_lead_elsewhere(link: str) -> None:
    assert not [*names_on(f'<a href="{link}">', "http://host/w/")]


def test_digests_are_of_what_is_read(arrays: Path) -> None:
    data = (arrays / "more" / "3.npy").read_bytes()
    (arrays / "more" / "SHA256SUMS").write_text(f"{hashlib.sha256(data).hexdigest()}  3.npy\n")
    with web_folder(arrays) as address:
        assert validate(f"{address}/more", level="valid").n_proven == 1

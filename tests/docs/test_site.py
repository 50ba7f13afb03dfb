"""The built site: it is searchable, light and dark, and fits a phone and a wide screen."""

import functools
import http.server
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import ROOT

pytestmark = pytest.mark.slow

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

HARNESS = """<body><script>
const wide = [];
async function look(page) {
  const frame = document.createElement("iframe");
  frame.style.width = "360px";
  document.body.append(frame);
  await new Promise(done => { frame.onload = done; frame.src = page; });
  for (const width of [360, 1280]) {
    frame.style.width = width + "px";
    const found = frame.contentDocument.documentElement.scrollWidth;
    if (found > width) wide.push(`${page} at ${width}: ${found}`);
  }
  frame.remove();
}
(async () => {
  for (const page of PAGES) await look(page);
  await fetch("/", {method: "POST", body: JSON.stringify(wide)});
})();
</script>"""
"""Looks at each page in a frame as wide as a phone, and as a screen, for what sticks out."""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and takes what the harness found."""

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.server.found.put(json.loads(self.rfile.read(size)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    to = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", to]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return to


@pytest.fixture
def server(site: Path) -> Iterator[http.server.ThreadingHTTPServer]:
    handler = functools.partial(Handler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.found = queue.Queue()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_it_can_be_searched_and_is_light_and_dark(site: Path) -> None:
    found = json.loads((site / "search/search_index.json").read_text())["docs"]
    assert any("HeaderTooLarge" in entry["title"] for entry in found)
    start = (site / "index.html").read_text()
    assert {*re.findall(r'data-md-color-scheme="(\w+)"', start)} >= {"default", "slate"}
    assert "https://github.com/" in start
    assert '"provider": "mike"' in start


def test_no_page_is_wider_than_a_phone_or_a_screen(site: Path, server, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        pytest.skip("needs chromium")
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("index.html"))
    (site / "harness.html").write_text(HARNESS.replace("PAGES", json.dumps(pages)))
    address = f"http://127.0.0.1:{server.server_port}/harness.html"
    command = [browser, *FLAGS, "--remote-debugging-port=0", f"--user-data-dir={tmp_path}", address]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True) as process:
        try:
            assert server.found.get(timeout=300) == []
        finally:
            os.killpg(process.pid, signal.SIGKILL)

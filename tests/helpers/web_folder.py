"""A web server that lists its folders, as Python's own does, and gives parts of files, too."""

import contextlib
import http.server
import io
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path


class WebFolder(http.server.SimpleHTTPRequestHandler):
    """Says nothing on standard error, and keeps what it was asked."""

    protocol_version = "HTTP/1.1"
    asked: list[str]

    def log_request(self, *_: object) -> None:
        self.asked.append(f"{self.command} {self.path}")

    def log_message(self, *_: object) -> None:
        pass

    def send_head(self):
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        if span is None or not os.path.isfile(path := self.translate_path(self.path)):
            return super().send_head()
        data, start = Path(path).read_bytes(), int(span[1])
        part = data[start : int(span[2]) + 1 if span[2] else None]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        return io.BytesIO(part)


@contextlib.contextmanager
def web_folder(path: Path, asked: list[str] | None = None) -> Iterator[str]:
    """Yield the address of a folder."""
    kind = type("Handler", (WebFolder,), {"asked": [] if asked is None else asked})

    def handler(*args: object) -> WebFolder:
        return kind(*args, directory=os.fspath(path))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()

"""Object stores for tests: moto's S3 server, and an emulator of Cloud Storage, with faults."""

import contextlib
import dataclasses
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server
from werkzeug.test import run_wsgi_app

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMIbPxRfiCYEXAMPLEKEY"


@dataclasses.dataclass
class Fault:
    """What the store answers instead, to the first requests that match."""

    method: str  # of the request: a pattern
    path: str  # with the query: a pattern
    status: int = 503
    code: str = "SlowDown"
    headers: tuple[tuple[str, str], ...] = ()
    times: int = 10**6
    cut_after: int | None = None  # bytes of the true answer, after which the connection ends
    before: Callable[[], None] | None = None  # is called, and the store answers as always


@dataclasses.dataclass
class ObjectStore:
    """moto's S3 server, the requests that it got, and what it is to answer some of them."""

    app: Any
    endpoint: str = ""
    faults: list[Fault] = dataclasses.field(default_factory=list)
    requests: list[str] = dataclasses.field(default_factory=list)
    ranges: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # the path of each

    def client(self) -> Any:
        """Return boto3's client, by which tests write: it knows checksums and parts."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )

    def upload_parts(self, bucket: str, key: str, parts: list[bytes], **how: str) -> None:
        """Upload an object in parts; all but the last have 5 MiB at least."""
        s3, where = self.client(), {"Bucket": bucket, "Key": key}
        upload = s3.create_multipart_upload(**where, **how)["UploadId"]
        done = []
        for number, body in enumerate(parts, 1):
            more = {"PartNumber": number, "UploadId": upload}
            if "ChecksumAlgorithm" in how:
                more["ChecksumAlgorithm"] = how["ChecksumAlgorithm"]
            answer = s3.upload_part(**where, Body=body, **more)
            done.append({"PartNumber": number, "ETag": answer["ETag"]})
        s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": done})

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        path += "?" + environ["QUERY_STRING"] if environ["QUERY_STRING"] else ""
        self.requests.append(f"{method} {path}")
        self.ranges.append((path, environ.get("HTTP_RANGE", "")))
        for fault in self.faults:
            if not fault.times or not re.fullmatch(fault.method, method):
                continue
            if not re.search(fault.path, path):
                continue
            fault.times -= 1
            if fault.before is not None:
                fault.before()
                continue
            if fault.cut_after is not None:
                return self._cut(environ, start_response, fault.cut_after)
            text = f"<Error><Code>{fault.code}</Code><Message>{fault.code}.</Message></Error>"
            headers = [("Content-Type", "application/xml"), *fault.headers]
            start_response(f"{fault.status} No", headers)
            return [] if method == "HEAD" else [text.encode()]
        if method == "HEAD" and environ.get("HTTP_X_AMZ_CHECKSUM_MODE"):
            return self._head(environ, start_response)
        return self.app(environ, start_response)

    def _head(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Answer HEAD with the checksums that moto has for GET alone; in S3 they are the same."""
        _, _, told = run_wsgi_app(self.app, {**environ, "REQUEST_METHOD": "GET"})
        body, status, headers = run_wsgi_app(self.app, environ)
        named = [(k, v) for k, v in headers if not k.lower().startswith("x-amz-checksum")]
        named += [(k, v) for k, v in told if k.lower().startswith("x-amz-checksum")]
        start_response(status, named)
        return body

    def _cut(self, environ: dict[str, Any], start_response: Any, n_bytes: int) -> Any:
        body, status, headers = run_wsgi_app(self.app, environ)
        start_response(status, list(headers))
        yield b"".join(body)[:n_bytes]
        raise ConnectionResetError("cut by the test")


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Serve S3 on the loopback until the end of the block."""
    store = ObjectStore(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, store, threaded=True, request_handler=MotoRequestHandler)
    store.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

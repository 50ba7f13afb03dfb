"""What sources say, and what is believed of it: with a source that says what it is told to."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from shardproof import FetchError, SourceError
from shardproof.fetching import (
    Cancellation,
    FetchResult,
    Limits,
    ReadRequest,
    RemoteFile,
    Response,
    fetch_file,
)
from shardproof.fetching.transfer import _relay

OLD, NEW = b"old " * 10, b"new " * 10
LIMITS = Limits(max_backoff=0.001, connections=3)

Answer = Callable[[int, int | None], Response]


class Scripted:
    """Gives one answer after the other; the last one again and again."""

    url = "own://scripted"

    def __init__(self, *answers: Answer, file: RemoteFile | None = None) -> None:
        self.asked: list[tuple[int, int | None, str | None]] = []
        self._answers = list(answers)
        self._file = file or RemoteFile("x")

    def files(self) -> Sequence[RemoteFile]:
        return [self._file]

    def stat(
        self, name: str, *, timeout: float, cancellation: Cancellation | None = None
    ) -> RemoteFile:
        return self._file

    @contextlib.contextmanager
    def read(
        self, request: ReadRequest, cancellation: Cancellation | None = None
    ) -> Iterator[Response]:
        known = request.known
        self.asked.append((request.start, request.stop, known and known.identity))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        yield answer(request.start, request.stop)

    def close(self) -> None:
        pass

    def fetch(self, path: Path, digest: str | None = None) -> FetchResult:
        return fetch_file(self, "x", path / "x", digest=digest, limits=LIMITS)


def gives(
    data: bytes,
    *,
    identity: str | None = None,
    n_bytes: int | None = None,
    size: int | None = -1,
    is_framed: bool = True,
) -> Answer:
    """Answer with what is asked for, or with its first bytes and a connection that breaks."""

    def chunks(part: bytes) -> Iterator[bytes]:
        yield part[:n_bytes]
        if n_bytes is not None:
            raise SourceError("it broke")

    def answer(start: int, stop: int | None) -> Response:
        told = RemoteFile("x", len(data) if size == -1 else size, identity)
        return Response(told, start, stop, chunks(data[start:stop]), is_framed)

    return answer


def test_what_broke_and_has_no_identity_begins_anew(tmp_path) -> None:
    source = Scripted(gives(OLD, n_bytes=10), gives(NEW))

    assert source.fetch(tmp_path).path.read_bytes() == NEW
    assert source.asked == [(0, None, None), (0, None, None)]


def test_an_end_that_may_be_none_is_not_believed(tmp_path) -> None:
    source = Scripted(gives(OLD[:20], size=None, is_framed=False))

    with pytest.raises(FetchError, match=r"its length is unknown.*: give its digest"):
        source.fetch(tmp_path)

    assert len(source.asked) == 1
    assert not list(tmp_path.iterdir())


def test_parts_of_what_may_be_two_files_are_not_put_together(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(_relay, "_MIN_SPAN", 4)
    monkeypatch.setattr(_relay, "_AT_FIRST", 3)
    source = Scripted(gives(OLD), file=RemoteFile("x", size=len(OLD), has_ranges=True))

    fetched = source.fetch(tmp_path)

    assert fetched.path.read_bytes() == OLD
    assert fetched.n_attempts == 2
    assert source.asked[-1] == (0, None, None)


def test_bytes_that_nobody_asked_for(tmp_path) -> None:
    def answer(start: int, stop: int | None) -> Response:
        return Response(RemoteFile("x", 40), 7, 40, iter([OLD[7:]]))

    with pytest.raises(FetchError, match="asked for bytes from 0 on, it gives bytes from 7 on"):
        Scripted(answer).fetch(tmp_path)

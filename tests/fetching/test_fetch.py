"""Fetching one shard: by one call as in the shell; what is there, what was said, the disk."""

import array
import contextlib
import enum
import errno
import hashlib
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardproof
from shardproof import FetchError, SourceError
from shardproof._base.work import Cancelled, Deadline, Stop, stoppable
from shardproof.errors import FetchTimeoutError, SourceErrorKind
from shardproof.fetching import (
    CallableSource,
    Cancellation,
    FetchResult,
    FsspecSource,
    HttpSource,
    HubSource,
    Limits,
    ReadRequest,
    RemoteFile,
    Response,
    Source,
    fetch_file,
    open_source,
)
from shardproof.fetching.sources import _http
from shardproof.fetching.transfer import _fetch, _relay
from shardproof.fetching.transfer._attempts import Goal, retry
from shardproof.fetching.transfer._requests import read_range
from shardproof.testing.faults import FileSystemFaults, serve_hub
from tests.helpers.file_limit import no_file_above
from tests.helpers.kept_parts import PARTS

DATA = bytes(range(256)) * 40
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
LIMITS = Limits(max_backoff=0.01, stall_timeout=0.5)
DEADLINE = Deadline(None, threading.Event())


@pytest.fixture
def source(shard_hub) -> Iterator[HttpSource]:
    shard_hub.put("a/0.bin", DATA)
    source = HttpSource(f"{shard_hub.url}/a")
    yield source
    source.close()


class TestWhatIsThere:
    def test_it_is_there_but_its_name_was_not_synced(self, source, tmp_path) -> None:
        path = tmp_path / "0.bin"
        with FileSystemFaults(tmp_path) as fs:
            fs.fail("fsync", errno.EIO, match=tmp_path.name)
            with pytest.raises(FetchError, match="exists, but may not survive") as caught:
                fetch_file(source, "0.bin", path, digest=DIGEST, limits=LIMITS)
        assert str(caught.value).count("see to the disk") == 1
        assert path.read_bytes() == DATA

    def test_the_right_file_is_left_alone(self, source, shard_hub, tmp_path) -> None:
        path = tmp_path / "0.bin"
        path.write_bytes(DATA)
        before = path.stat().st_ino, path.stat().st_mtime_ns

        fetched = fetch_file(source, "0.bin", path, digest=DIGEST)

        assert (fetched.n_attempts, fetched.n_bytes, fetched.proven) == (0, 0, True)
        assert (path.stat().st_ino, path.stat().st_mtime_ns) == before
        assert not shard_hub.requests_for("a/0.bin", method="GET")

    @pytest.mark.parametrize(
        "there",
        [DATA[:-1], DATA + b"x", b"", bytes(len(DATA))],
        ids=["short", "long", "empty", "0"],
    )
    def test_a_wrong_one_is_moved_aside(self, there, source, tmp_path) -> None:
        path = tmp_path / "0.bin"
        path.write_bytes(there)

        fetched = fetch_file(source, "0.bin", path, digest=DIGEST)

        assert fetched.path.read_bytes() == DATA
        (aside,) = tmp_path.glob("0.bin.bad-????????")
        assert aside.read_bytes() == there
        assert [p.name for p in tmp_path.glob("*.bin")] == ["0.bin"]

    def test_a_wrong_one_does_not_keep_its_name_though_nothing_comes(
        self, source, shard_hub, tmp_path
    ) -> None:
        (tmp_path / "0.bin").write_bytes(b"wrong")
        shard_hub.fault("a/0.bin", "status-503")

        with pytest.raises(FetchError):
            fetch_file(source, "0.bin", tmp_path / "0.bin", digest=DIGEST, limits=LIMITS)

        assert not (tmp_path / "0.bin").exists()

    def test_without_a_digest_the_size_is_what_can_be_looked_at(self, source, tmp_path) -> None:
        (tmp_path / "0.bin").write_bytes(bytes(len(DATA)))

        fetched = fetch_file(source, "0.bin", tmp_path / "0.bin")

        assert fetched.n_attempts == 0
        assert not fetched.proven

    def test_what_nothing_is_known_of_is_not_believed(self, tmp_path) -> None:
        (tmp_path / "0.bin").write_bytes(b"whose?")
        source = CallableSource(lambda name, dest: dest.write_bytes(DATA))

        fetched = fetch_file(source, "0.bin", tmp_path / "0.bin")

        assert fetched.path.read_bytes() == DATA
        (aside,) = tmp_path.glob("0.bin.bad-*")
        assert aside.read_bytes() == b"whose?"

    def test_a_directory_is_in_the_way(self, source, tmp_path) -> None:
        (tmp_path / "0.bin").mkdir()

        with pytest.raises(FetchError, match="expected a regular file or nothing, found a direct"):
            fetch_file(source, "0.bin", tmp_path / "0.bin")

    def test_who_was_faster_with_the_right_bytes_is_not_moved_aside(self, source, tmp_path) -> None:
        path = tmp_path / "0.bin"

        fetch_file(source, "0.bin", path, on_bytes=lambda *_: path.write_bytes(DATA))

        assert os.listdir(tmp_path) == ["0.bin"]


class TestWhatWasSaid:
    def test_a_manifest_goes_before_the_server(self, source, tmp_path) -> None:
        file = RemoteFile("0.bin", size=len(DATA) + 1)

        with pytest.raises(FetchError, match=f"expected {len(DATA) + 1} bytes, the source has"):
            fetch_file(source, "0.bin", tmp_path / "0.bin", file=file, limits=LIMITS)

    @pytest.mark.parametrize("algorithm", ["sha1", "md5", "blake2b", "sha512"])
    def test_other_digests_prove_too(self, algorithm, source, tmp_path) -> None:
        digest = f"{algorithm}:{hashlib.new(algorithm, DATA).hexdigest()}"

        fetched = fetch_file(source, "0.bin", tmp_path / "0.bin", digest=digest)

        assert fetched.proven
        assert fetched.digest == DIGEST
        assert fetch_file(source, "0.bin", tmp_path / "0.bin", digest=digest).n_attempts == 0

    @pytest.mark.parametrize("digest", ["", "sha256", "sha256:12", "crc32:12345678"])
    def test_a_digest_that_is_none_is_refused_before_any_work(
        self, digest, source, shard_hub, tmp_path
    ) -> None:
        with pytest.raises(ValueError, match="expected"):
            fetch_file(source, "0.bin", tmp_path / "0.bin", digest=digest)

        assert not shard_hub.requests

    @pytest.mark.parametrize(
        ("wrong", "error"),
        [
            ({"attempts": 0}, ValueError),
            ({"attempts": True}, TypeError),
            ({"timeout": float("nan")}, ValueError),
            ({"deadline": 10**400}, ValueError),
            ({"stall_timeout": "30"}, TypeError),
            ({"min_speed": -1}, ValueError),
            ({"max_unsized_bytes": 1.5}, TypeError),
        ],
    )
    def test_limits_that_are_none(self, wrong, error) -> None:
        with pytest.raises(error, match=next(iter(wrong))):
            Limits(**wrong)


class Own:
    """A source of the user's own: what it tells and gives, in turn, and the last of it for good."""

    url = "own://here"

    def __init__(
        self, told: Sequence[object], given: Sequence[object] = (RemoteFile("0.bin"),)
    ) -> None:
        self._told, self._given = list(told), list(given)
        self.chunks: list[object] = [b"1234"]
        self.answer: Callable[[ReadRequest], Response] | None = None
        self.asked: list[ReadRequest] = []

    def files(self) -> Sequence[RemoteFile]:
        return ()

    def stat(self, name: str, **_: object) -> object:
        return self._told.pop(0) if len(self._told) > 1 else self._told[0]

    @contextlib.contextmanager
    def read(self, request: ReadRequest, _: object = None) -> Iterator[Response]:
        self.asked.append(request)
        file = self._given.pop(0) if len(self._given) > 1 else self._given[0]
        yield self.answer(request) if self.answer else Response(file, 0, 4, iter(self.chunks))

    def close(self) -> None:
        """Nothing."""


def known_as(identity: object) -> RemoteFile:
    return RemoteFile("0.bin", 4, identity)


class TestIdentities:
    @pytest.mark.parametrize(
        ("one", "other"),
        [('"1"', '"2"'), ("ETag=1", "ETag=2"), ("mtime=1 size=4", "mtime=2 size=4"), ("a", "b")],
    )
    def test_another_file_than_was_told_is_asked_for_again(self, one, other, tmp_path) -> None:
        source = Own([known_as(one), known_as(other)], [known_as(other)])

        fetched = fetch_file(source, "0.bin", tmp_path / "0.bin", limits=LIMITS)

        assert (fetched.n_attempts, fetched.file.identity) == (2, other)

    @pytest.mark.parametrize("is_told", [True, False])
    def test_one_that_stays_another_is_refused_with_the_names_of_both(
        self, is_told, tmp_path
    ) -> None:
        source = Own([known_as('"2"')], [known_as('"1"')])
        file = known_as('"2"') if is_told else None

        with pytest.raises(FetchError, match=r"expected .*'\"2\"'.*gives '\"1\"'") as caught:
            fetch_file(source, "0.bin", tmp_path / "0.bin", file=file, limits=LIMITS)

        assert len(caught.value.causes) == LIMITS.attempts
        assert not list(tmp_path.iterdir())

    def test_what_the_caller_knows_is_replaced_by_no_look(self, tmp_path) -> None:
        source = Own([known_as('"2"')], [known_as('"2"')])

        with pytest.raises(FetchError, match="expected the file that is"):
            fetch_file(source, "0.bin", tmp_path / "0.bin", file=known_as('"1"'), limits=LIMITS)

    @pytest.mark.parametrize(
        ("told", "given"),
        [
            ("0123abcd", '"etag"'),
            ("ETag=1", "VersionId=1"),
            ('ETag="0x1"', "ETag=0x1"),
            ('"1"', None),
            (None, '"1"'),
            (1, 1),
        ],
    )
    def test_those_of_two_kinds_are_not_compared(self, told, given, tmp_path) -> None:
        source = Own([known_as(told)], [known_as(given)])

        fetched = fetch_file(source, "0.bin", tmp_path / "0.bin", limits=LIMITS)

        assert (fetched.n_attempts, fetched.file.identity) == (1, told)

    def test_where_a_digest_proves_the_bytes_they_have_the_name_that_came_with_them(
        self, tmp_path
    ) -> None:
        source = Own([known_as('"2"')], [known_as('"1"')])
        digest = f"sha256:{hashlib.sha256(b'1234').hexdigest()}"

        fetched = fetch_file(source, "0.bin", tmp_path / "0.bin", digest=digest, limits=LIMITS)

        assert (fetched.n_attempts, fetched.file.identity) == (1, '"1"')


class TestSourcesOfTheUsersOwn:
    @pytest.mark.parametrize(("told", "given"), [(7, None), ({"size": 4}, None), (None, "0.bin")])
    def test_one_that_tells_or_gives_something_else(self, told, given, tmp_path) -> None:
        source = Own([told or known_as(None)], [given or known_as(None)])
        kind = type(told or given).__name__
        with pytest.raises(FetchError, match=f"expected a RemoteFile, the source returned {kind}"):
            fetch_file(source, "0.bin", tmp_path / "0.bin", limits=LIMITS)

    def test_one_that_gives_text(self, tmp_path) -> None:
        source = Own([known_as(None)])
        source.chunks = [b"12", "34"]

        with pytest.raises(FetchError, match="expected bytes, the source gives str") as caught:
            fetch_file(source, "0.bin", tmp_path / "0.bin", limits=LIMITS)

        assert len(caught.value.causes) == 1
        assert not list(tmp_path.iterdir())

    def test_one_that_gives_what_has_bytes(self, tmp_path) -> None:
        source = Own([known_as(None)])
        source.chunks = [bytearray(b"1"), memoryview(b"2"), array.array("B", b"34")]

        fetched = fetch_file(source, "0.bin", tmp_path / "0.bin", limits=LIMITS)

        assert fetched.path.read_bytes() == b"1234"


class TestAnswers:
    def test_what_broke_and_has_no_identity_begins_anew(self, tmp_path) -> None:
        def breaking() -> Iterator[bytes]:
            yield b"old"
            raise SourceError("it broke")

        def answer(request: ReadRequest) -> Response:
            chunks = breaking() if len(source.asked) == 1 else iter([b"1234"[request.start :]])
            return Response(known_as(None), request.start, 4, chunks)

        source = Own([RemoteFile("0.bin")])
        source.answer = answer
        fetched = fetch_file(source, "0.bin", tmp_path / "0.bin", limits=LIMITS)
        assert fetched.path.read_bytes() == b"1234"
        assert [request.start for request in source.asked] == [0, 0]

    def test_an_end_that_may_be_none_is_not_believed(self, tmp_path) -> None:
        source, file = Own([RemoteFile("0.bin")]), RemoteFile("0.bin")
        source.answer = lambda _: Response(file, 0, None, iter([b"12"]), is_framed=False)
        with pytest.raises(FetchError, match=r"its length is unknown.*: give its digest"):
            fetch_file(source, "0.bin", tmp_path / "0.bin", limits=LIMITS)
        assert len(source.asked) == 1
        assert not list(tmp_path.iterdir())

    def test_parts_of_what_may_be_two_files_are_not_put_together(
        self, tmp_path, monkeypatch
    ) -> None:
        monkeypatch.setattr(_relay, "_MIN_SPAN", 4)
        monkeypatch.setattr(_relay, "_AT_FIRST", 3)
        data, file = bytes(range(40)), RemoteFile("0.bin", 40, has_ranges=True)
        source = Own([file])
        source.answer = lambda r: Response(file, r.start, r.stop, iter([data[r.start : r.stop]]))
        fetched = fetch_file(source, "0.bin", tmp_path / "0.bin", limits=LIMITS)
        assert (fetched.path.read_bytes(), fetched.n_attempts) == (data, 2)
        assert (source.asked[-1].start, source.asked[-1].stop) == (0, None)

    def test_bytes_that_nobody_asked_for(self, tmp_path) -> None:
        source = Own([RemoteFile("0.bin")])
        source.answer = lambda _: Response(known_as(None), 3, 4, iter([b"4"]))
        with pytest.raises(FetchError, match="asked for bytes from 0 on, it gives bytes from 3 on"):
            fetch_file(source, "0.bin", tmp_path / "0.bin", limits=LIMITS)


class TestOneRequest:
    """A web server says of a file, as it gives it, what it says when it is asked before."""

    def test_a_small_file_takes_one(self, source, shard_hub, tmp_path) -> None:
        fetched = fetch_file(source, "0.bin", tmp_path / "0.bin")

        assert [r.method for r in shard_hub.requests_for("a/0.bin", method=None)] == ["GET"]
        tag = f'"{DIGEST.partition(":")[2]}"'
        assert fetched.file == RemoteFile("0.bin", len(DATA), tag, has_ranges=True)

    def test_one_that_can_not_be_told_from_another_comes_in_one(
        self, tmp_path, monkeypatch
    ) -> None:
        monkeypatch.setattr(_relay, "_MIN_SPAN", 1024)
        monkeypatch.setattr(_relay, "_AT_FIRST", 4)
        monkeypatch.setattr(_relay, "is_patient", lambda _: False)
        monkeypatch.setattr(_http, "identity_of", lambda response: None)
        with serve_hub({"0.bin": DATA}) as hub, HttpSource(hub.url) as source:
            fetched = fetch_file(source, "0.bin", tmp_path / "0.bin")
            assert len(hub.requests_for("0.bin", method=None)) == 1

        assert fetched.path.read_bytes() == DATA


class TestManyFiles:
    """What a fetch costs does not grow with what is in the directory."""

    def test_the_directory_is_not_listed_for_each(
        self, source, shard_hub, tmp_path, monkeypatch
    ) -> None:
        listed = []
        for name in ("listdir", "scandir"):
            real = getattr(os, name)
            counted = lambda path, real=real: listed.append(str(path)) or real(path)  # noqa: E731
            monkeypatch.setattr(os, name, counted)
        for n in range(5):
            fetch_file(source, "0.bin", tmp_path / f"{n}.bin")
        monkeypatch.undo()

        assert listed
        assert str(tmp_path) not in listed
        assert sorted(os.listdir(tmp_path)) == [f"{n}.bin" for n in range(5)]

    def test_where_the_directory_for_parts_should_be_a_link_is_not_followed(
        self, source, tmp_path
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / PARTS).symlink_to(tmp_path / "elsewhere")

        with pytest.raises(FetchError, match="a directory of this user's"):
            fetch_file(source, "0.bin", tmp_path / "0.bin")

        assert os.listdir(tmp_path / "elsewhere") == []
        assert (tmp_path / PARTS).is_symlink()

    def test_those_who_fetch_at_once_do_not_take_it_away_from_each_other(
        self, source, tmp_path
    ) -> None:
        with ThreadPoolExecutor(8) as pool:
            paths = [tmp_path / f"{n}.bin" for n in range(64)]
            fetched = list(pool.map(lambda path: fetch_file(source, "0.bin", path), paths))

        assert all(each.n_attempts == 1 for each in fetched)
        assert sorted(os.listdir(tmp_path)) == sorted(path.name for path in paths)


class TestParts:
    def test_what_comes_slowly_comes_over_several_connections(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(_relay, "_MIN_SPAN", 1024)
        with serve_hub({"0.bin": DATA}, rate=20_000) as hub:
            source = HttpSource(hub.url)

            fetch_file(source, "0.bin", tmp_path / "0.bin", digest=DIGEST)

            source.close()
            ranges = [r.headers.get("range") for r in hub.requests_for("0.bin", method="GET")]
        assert len(ranges) >= 4
        assert ranges[0] is None
        assert all(text.startswith("bytes=") for text in ranges[1:])

    def test_a_piece_of_a_file_that_stays(self, source, shard_hub) -> None:
        shard_hub.fault("a/0.bin", "truncated", times=1)

        assert read_range(source, "0.bin", 100, 300, limits=LIMITS) == DATA[100:300]

    def test_a_piece_from_who_gives_none(self, source, shard_hub) -> None:
        shard_hub.fault("a/0.bin", "range-ignored")

        with pytest.raises(FetchError, match="it gives no parts of files"):
            read_range(source, "0.bin", 100, 300, limits=LIMITS)

    def test_a_piece_of_another_file(self, source, shard_hub) -> None:
        with pytest.raises(FetchError, match=r"it gives no parts|has changed"):
            read_range(
                source, "0.bin", 0, 9, known=RemoteFile("0.bin", identity='"x"'), limits=LIMITS
            )

    def test_a_reader_that_can_not_be_cut_is_left_soon_after_an_interrupt(
        self, tmp_path, monkeypatch
    ) -> None:
        """Its deadline knows what stops the work of its thread: no second is waited for it."""
        seen, stop = list[bool](), threading.Event()
        real = _relay.join_threads

        def join(threads: Sequence[threading.Thread], deadline: Any) -> None:
            seen.append(deadline.stop.is_set())
            real(threads, deadline)

        def read(*_: object) -> Any:
            stop.set()
            time.sleep(0.3)
            raise OSError

        monkeypatch.setattr(_relay, "join_threads", join)
        monkeypatch.setattr(FsspecSource, "read", read)
        source = FsspecSource(f"file://{tmp_path}")
        with pytest.raises(Cancelled):
            stoppable(lambda: read_range(source, "0.bin", 100, 300, limits=LIMITS), stop)
        assert seen == [True]


class TestTheDisk:
    def test_a_limit_on_files_cuts_a_write_short(self, source, tmp_path) -> None:
        """A real one: the kernel writes what fits, then refuses (setrlimit(2))."""
        with no_file_above(5000), pytest.raises(FetchError, match="File too large"):
            fetch_file(source, "0.bin", tmp_path / "0.bin")

        assert not list(tmp_path.iterdir())

    def test_a_short_write_is_completed(self, source, tmp_path, monkeypatch) -> None:
        real = os.pwrite
        monkeypatch.setattr(os, "pwritev", lambda fd, c, at: real(fd, b"".join(c)[:7], at))
        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:1000], at))

        assert fetch_file(source, "0.bin", tmp_path / "0.bin").path.read_bytes() == DATA


class _Name(str, enum.Enum):  # noqa: UP042 - whose text is not its value
    IT = "s/0.bin"


TEXTS = [np.str_("s/0.bin"), _Name.IT]


class TestFetch:
    def test_an_address_as_in_the_shell(self, shard_hub, tmp_path) -> None:
        shard_hub.put("s/0.bin", DATA)
        fetched = shardproof.fetch(f"{shard_hub.url}/s/0.bin", tmp_path / "to", digest=DIGEST)
        assert isinstance(fetched, FetchResult)
        assert fetched.path == tmp_path / "to" / "0.bin"
        assert (fetched.path.read_bytes(), fetched.proven) == (DATA, True)

    def test_the_address_of_a_folder_and_a_name(self, tmp_path) -> None:
        (tmp_path / "from" / "a").mkdir(parents=True)
        (tmp_path / "from" / "a" / "0.bin").write_bytes(DATA)
        fetched = shardproof.fetch(f"file://{tmp_path}/from", tmp_path / "to", name="a/0.bin")
        assert fetched.path == tmp_path / "to" / "a" / "0.bin"
        assert fetched.path.read_bytes() == DATA

    @pytest.mark.parametrize("name", TEXTS, ids=lambda name: type(name).__name__)
    def test_a_name_of_a_subclass_of_str(self, name, shard_hub, tmp_path) -> None:
        shard_hub.put("s/0.bin", DATA)
        fetched = shardproof.fetch(shard_hub.url, tmp_path, name=name)
        assert (fetched.path, fetched.path.read_bytes()) == (tmp_path / "s" / "0.bin", DATA)
        with HttpSource(shard_hub.url) as source:
            fetched = fetch_file(source, name, tmp_path / "1.bin")
        assert fetched.path.read_bytes() == DATA
        assert type(fetched.file.name) is str
        with shardproof.ShardPrefetcher(
            shard_hub.url, [name], tmp_path / "cache", max_cache_bytes=10**6
        ) as prefetcher:
            (path,) = prefetcher
            assert (path.name, path.parent.name) == ("0.bin", "s")
            path.unlink()
            assert prefetcher.wait_for(name).read_bytes() == DATA

    @pytest.mark.parametrize("archive", ["zip://in/0.bin::file:///x.zip", "zip://0.bin::/a/x.zip"])
    def test_an_address_that_ends_with_another_files_name(self, archive, tmp_path) -> None:
        with pytest.raises(ValueError, match=r"within another file; .* and name="):
            shardproof.fetch(archive, tmp_path)
        assert not list(tmp_path.iterdir())

    def test_a_source_it_opened_is_closed(self, tmp_path, monkeypatch) -> None:
        closed = []
        monkeypatch.setattr(FsspecSource, "close", lambda self: closed.append(self.url))
        (tmp_path / "0.bin").write_bytes(DATA)
        shardproof.fetch(f"file://{tmp_path}/0.bin", tmp_path / "to")
        assert closed == [f"file://{tmp_path}"]

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"to": ""}, "to: expected a path"),
            ({"name": None}, "name: expected the name of a file of the source, found None"),
            ({"name": "../x"}, "name: '../x' is refused"),
            ({"source": "nowhere", "name": None}, "url: expected one that ends with a file's name"),
            ({"source": "nonsense"}, "url: expected hf://"),
            ({"digest": "12"}, "expected"),
        ],
    )
    def test_wrong_arguments(self, arguments, said, tmp_path) -> None:
        source = CallableSource(lambda name, dest: dest.write_bytes(DATA))
        usual = {"source": source, "to": tmp_path, "name": "0.bin"}
        with pytest.raises(ValueError, match=said):
            shardproof.fetch(**{**usual, **arguments})
        assert not list(tmp_path.iterdir())

    def test_progress_is_told_in_the_thread_of_the_caller(self, shard_hub, tmp_path) -> None:
        shard_hub.put("s/0.bin", DATA)
        told = []

        def progress(done: int, total: int) -> None:
            told.append((done, total, threading.current_thread()))

        shardproof.fetch(f"{shard_hub.url}/s/0.bin", tmp_path, progress=progress)
        assert told[-1] == (len(DATA), len(DATA), threading.current_thread())

    @pytest.mark.parametrize(("progress", "n_bars"), [(True, 1), (False, 0)])
    def test_a_bar_where_one_is_wanted(self, progress, n_bars, tmp_path, monkeypatch) -> None:
        labels = []

        def reporting(
            progress, label: str, *, in_bytes: bool
        ) -> contextlib.AbstractContextManager[Any]:
            if progress:
                labels.append(label)
            return contextlib.nullcontext(lambda done, total: None)

        monkeypatch.setattr(_fetch, "reporting", reporting)
        source = CallableSource(lambda name, dest: dest.write_bytes(DATA))
        shardproof.fetch(source, tmp_path, name="0.bin", progress=progress)
        assert labels == ["0.bin"] * n_bars

    @pytest.mark.parametrize("before", [True, False])
    def test_another_thread_cancels_it(self, before, shard_hub, tmp_path) -> None:
        shard_hub.put("s/0.bin", DATA)
        shard_hub.fault("s/0.bin", "stall-in-body")
        cancellation = Cancellation()
        if before:
            cancellation.cancel()
        with pytest.raises(FetchError, match="it was stopped"):
            shardproof.fetch(
                f"{shard_hub.url}/s/0.bin",
                tmp_path,
                cancellation=cancellation,
                progress=lambda *_: cancellation.cancel(),
            )

    def test_its_wait_between_two_attempts_is_cancelled_too(self, tmp_path) -> None:
        cancellation = Cancellation()

        def broken(name: str, dest: Path) -> None:
            cancellation.cancel()
            raise SourceError("not now", retry_after=3600)

        with pytest.raises(FetchError, match="it was stopped"):
            shardproof.fetch(
                CallableSource(broken), tmp_path, name="x",
                limits=Limits(max_backoff=3600), cancellation=cancellation,
            )  # fmt: skip


class TestSources:
    def test_each_is_a_context_that_closes_it(self, shard_hub, monkeypatch) -> None:
        sources = [
            HttpSource(shard_hub.url),
            HubSource("org/name", endpoint=shard_hub.url),
            FsspecSource("memory://x"),
            CallableSource(lambda name, dest: None),
            open_source(shard_hub.url),
        ]
        for source in sources:
            closed = []
            monkeypatch.setattr(type(source), "close", lambda self, to=closed: to.append(self))
            with source as opened:
                assert opened is source
                assert isinstance(source, Source)
            assert closed == [source]


class TestRetry:
    @pytest.mark.parametrize(
        ("n_attempts", "kind"),
        [
            *((5, kind) for kind in ("broken", "late", "other-bytes", "no-parts")),
            *((2, kind) for kind in ("refused", "astray")),
            *((1, kind) for kind in ("unusable", "invalid")),
        ],
    )
    def test_how_often_it_is_tried(self, kind, n_attempts) -> None:
        def refuse(_: Deadline) -> None:
            raise SourceError("no", kind=kind)

        limits = Limits(attempts=5, max_backoff=0)
        with pytest.raises(FetchError) as caught:
            retry(refuse, Goal("x", "u", "p"), limits, Deadline(None, Stop()))

        assert caught.value.causes == ("no",) * n_attempts
        assert isinstance(caught.value, FetchTimeoutError) == (kind == "late")
        assert caught.value.__cause__.kind == kind

    def test_a_refusal_that_is_followed_by_something_else_counts_anew(self) -> None:
        kinds: list[SourceErrorKind] = ["refused", "broken", "refused", "astray"]

        def refuse(_: Deadline) -> None:
            raise SourceError("no", kind=kinds.pop(0))

        limits = Limits(attempts=9, max_backoff=0)
        with pytest.raises(FetchError, match="after 4 attempts"):
            retry(refuse, Goal("x", "u", "p"), limits, Deadline(None, Stop()))


class TestErrors:
    def test_a_source_error_goes_to_another_process_whole(self) -> None:
        error = pickle.loads(pickle.dumps(SourceError("x", kind="refused", retry_after=2.0)))
        assert (error.kind, error.retry_after, error.problem) == ("refused", 2.0, "x")

    def test_a_kind_that_is_none(self) -> None:
        with pytest.raises(ValueError, match="kind: expected one of broken, late, refused"):
            SourceError("x", kind="lost")

    def test_the_time_is_up_while_what_is_there_is_hashed(self, tmp_path, monkeypatch) -> None:
        (tmp_path / "0.bin").write_bytes(DATA)

        def late(_: Deadline) -> None:
            raise SourceError("not done", kind="late")

        monkeypatch.setattr(Deadline, "raise_if_stopped", late)
        source = CallableSource(lambda name, dest: dest.write_bytes(DATA))
        file = RemoteFile("0.bin", len(DATA), digest=DIGEST)
        with pytest.raises(FetchTimeoutError, match="not done") as caught:
            fetch_file(source, "0.bin", tmp_path / "0.bin", file=file)
        assert isinstance(caught.value.__cause__, SourceError)

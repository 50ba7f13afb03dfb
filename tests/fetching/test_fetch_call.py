"""`shardproof.fetch`, one call as in the shell; sources as contexts; errors below one root."""

import contextlib
import enum
import hashlib
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardproof
from shardproof._base.work import Deadline, Stop
from shardproof.errors import (
    FetchError,
    FetchTimeoutError,
    SourceError,
    SourceErrorKind,
)
from shardproof.fetching import (
    CallableSource,
    Cancellation,
    FetchResult,
    FsspecSource,
    HttpSource,
    HubSource,
    Limits,
    RemoteFile,
    Source,
    fetch_file,
    open_source,
)
from shardproof.fetching.transfer import _fetch
from shardproof.fetching.transfer._attempts import Goal, retry

DATA = b"0123456789" * 100
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
LIMITS = Limits(max_backoff=0, stall_timeout=5)


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

        def bar(label: str) -> contextlib.AbstractContextManager[Any]:
            labels.append(label)
            return contextlib.nullcontext(lambda done, total: None)

        monkeypatch.setattr(_fetch, "bar", bar)
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

    def test_what_was_cancelled_before_is_ended_at_once(self) -> None:
        cancellation, ended = Cancellation(), []
        cancellation.cancel()
        with cancellation.register(lambda: ended.append(True)):
            assert ended == [True]
        assert cancellation.is_cancelled


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

"""A fetch that was killed or has failed goes on from where it was; what it left is proven first."""

import contextlib
import errno
import hashlib
import os
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pytest

from shardproof import FetchError, ShardPrefetcher
from shardproof._base import files
from shardproof._base.liveness import this_process
from shardproof.fetching import (
    CallableSource,
    Cancellation,
    FetchResult,
    FsspecSource,
    HttpSource,
    Limits,
    fetch_file,
)
from shardproof.fetching.sources import _fsspec, _http
from shardproof.fetching.transfer import _partial_file, _relay
from shardproof.fetching.transfer._kept import sweep_parts
from shardproof.testing.faults import Hub, HubFault, serve_hub
from tests.helpers.forking import ended, forked
from tests.helpers.kept_parts import PARTS, beside_parts, parts_in
from tests.helpers.killing import Begin, at_every_state, skip_where_not_permitted
from tests.helpers.waiting import files_below

DATA = random.Random(1).randbytes(400_000)
OTHER = random.Random(2).randbytes(400_000)
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
SMALL = DATA[:8000]
SMALL_DIGEST = f"sha256:{hashlib.sha256(SMALL).hexdigest()}"
ONCE = Limits(attempts=1)
DAY = 24 * 3600


class Got(NamedTuple):
    """What a hub was asked for: where each GET began, and the bytes that it has sent."""

    starts: list[int]
    n_bytes: int


def got(hub: Hub, since: int = 0) -> Got:
    requests = hub.requests_for("*", method="GET")[since:]
    ranges = [request.headers.get("range", "bytes=0-") for request in requests]
    starts = [int(text.removeprefix("bytes=").partition("-")[0]) for text in ranges]
    return Got(starts, sum(request.bytes_sent for request in requests))


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve_hub({"a/0.bin": DATA}) as hub:
        yield hub


def fail(hub: Hub, directory: Path, *, at: int = 300_000, digest: str | None = None) -> FetchError:
    """Fetch until the connection breaks, in one attempt."""
    hub.fault("a/0.bin", HubFault.TRUNCATED, times=1, at=at)
    with pytest.raises(FetchError) as caught:
        fetch(hub, directory, digest=digest)
    hub.heal()
    return caught.value


def get(hub: Hub, directory: Path, **options: Any) -> FetchResult:
    with contextlib.closing(HttpSource(f"{hub.url}/a")) as source:
        return fetch_file(source, "0.bin", directory / "0.bin", **options)


def fetch(hub: Hub, directory: Path, *, digest: str | None = None) -> bytes:
    fetched = get(hub, directory, digest=digest, limits=ONCE)
    assert os.listdir(directory) == ["0.bin"]
    return fetched.path.read_bytes()


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


class TestKilled:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("begins", "digest"),
        [
            ("anew", None),
            ("from what was left", SMALL_DIGEST),
            pytest.param("anew", SMALL_DIGEST, marks=pytest.mark.exhaustive),
            pytest.param("from what was left", None, marks=pytest.mark.exhaustive),
        ],
    )
    def test_at_every_system_call(self, tmp_path, monkeypatch, digest, begins) -> None:
        skip_where_not_permitted()
        monkeypatch.setattr(os, "fsync", lambda _: None)  # a kill is no power cut
        monkeypatch.setattr(_relay, "_BATCH_BYTES", 1000)
        directory, n_resumed = tmp_path / "here", 0

        def act(begin: Begin) -> None:
            begin()
            get(hub, directory, digest=digest, limits=ONCE)

        def check(n_calls: int) -> None:
            nonlocal n_resumed
            hub._server.rate = None
            n_before = len(hub.requests_for("*", method="GET"))
            path = directory / "0.bin"
            assert not path.exists() or path.read_bytes() == SMALL
            path.unlink(missing_ok=True)  # what is there is not looked for leftovers beside it
            wanted = SMALL if digest or n_calls % 2 else SMALL[::-1]
            hub.put("a/0.bin", wanted)
            assert fetch(hub, directory, digest=digest) == wanted
            n_resumed += any(got(hub, n_before).starts)

        with serve_hub({"a/0.bin": SMALL}, rate=100_000) as hub:
            directory.mkdir()
            if begins == "from what was left":
                fail(hub, directory, at=3000, digest=digest)
            n_states = at_every_state(act, directory, check=check)

        assert n_states > 10
        assert n_resumed > 5


def leave(hub: Hub, directory: Path, process: str, *, at: int = 300_000) -> Path:
    """Leave a part as a process does that was killed, and return it."""
    before = set(parts_in(directory))
    fail(hub, directory, at=at)
    (part,) = set(parts_in(directory)) - before
    named = part.with_name(part.name.replace(".left.", f".{process.replace('/', ',')}."))
    return part.rename(named)


def age(part: Path, days: float) -> None:
    then = time.time() - days * DAY
    for path in (*part.iterdir(), part):
        os.utime(path, (then, then))


ELSEWHERE = "0f0f0f0f-0000-0000-0000-000000000000/4026531836/1/1"


class TestWhoseItIs:
    def test_nobody_takes_over_what_another_process_writes(self, hub, tmp_path) -> None:
        part = leave(hub, tmp_path, this_process())
        age(part, 100)

        fetched = get(hub, tmp_path)

        assert fetched.path.read_bytes() == DATA
        assert got(hub).starts == [0, 0]
        assert set(os.listdir(tmp_path)) == {"0.bin", PARTS}
        assert parts_in(tmp_path) == [part]
        assert (part / "data").read_bytes() == DATA[:300_000]

    @pytest.mark.parametrize("process", [ELSEWHERE, ""], ids=["elsewhere", "not told"])
    def test_what_may_still_be_written_elsewhere_is_copied(self, hub, tmp_path, process) -> None:
        part = leave(hub, tmp_path, process)

        fetched = get(hub, tmp_path)

        assert fetched.path.read_bytes() == DATA
        assert got(hub) == ([0, 300_000], 400_000)
        assert (part / "data").read_bytes() == DATA[:300_000]
        assert (part / "data").stat().st_nlink == 1

    @pytest.mark.parametrize(("days", "stays"), [(6.9, True), (7.1, False)])
    def test_a_week_is_long_enough(self, hub, tmp_path, days, stays) -> None:
        part = leave(hub, tmp_path, "left")
        shutil.copytree(
            part, part.with_name(part.name.replace("left", ELSEWHERE.replace("/", ",")))
        )
        for each in parts_in(tmp_path):
            age(each, days)

        sweep_parts(str(tmp_path / PARTS))

        assert len(parts_in(tmp_path)) == 2 * stays

    def test_a_link_in_its_place_is_not_followed(self, hub, tmp_path) -> None:
        part = leave(hub, tmp_path, "left")
        outside = tmp_path / "outside"
        (part / "data").rename(outside)
        (part / "data").symlink_to(outside)

        get(hub, tmp_path)

        assert got(hub).starts == [0, 0]
        assert outside.read_bytes() == DATA[:300_000]

    def test_what_is_hard_linked_is_not_written_to(self, hub, tmp_path) -> None:
        part = leave(hub, tmp_path, "left")
        (tmp_path / "mine").hardlink_to(part / "data")

        get(hub, tmp_path)

        assert (tmp_path / "mine").read_bytes() == DATA[:300_000]

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda part: (part / "record.new").mkdir(),
            lambda part: part.chmod(0o500),
            lambda part: (part / "data").chmod(0),
        ],
        ids=["a directory in it", "can't be written", "can't be opened"],
    )
    def test_what_cannot_be_gone_on_from_ends_no_fetch(self, hub, tmp_path, spoil) -> None:
        part = leave(hub, tmp_path, "left")
        spoil(part)

        fetched = get(hub, tmp_path, limits=ONCE)

        assert fetched.path.read_bytes() == DATA
        assert got(hub).starts == [0, 0]
        part.chmod(0o700)

    def test_of_a_record_that_never_ends_the_beginning_is_read(self, hub, tmp_path) -> None:
        os.truncate(leave(hub, tmp_path, "left") / "record", 2**40)

        assert fetch(hub, tmp_path) == DATA
        assert got(hub).starts == [0, 300_000]

    def test_of_a_record_with_too_many_gaps_some_is_taken_over(
        self, hub, tmp_path, monkeypatch
    ) -> None:
        """Each gap is another request, and no fetch of ours leaves so many."""
        monkeypatch.setattr(_partial_file, "_MAX_SPANS", 3)
        record = leave(hub, tmp_path, "left") / "record"
        lines = [record.read_text().partition("\n")[0]]
        for at in range(0, 20, 2):
            found = _partial_file.hash_of(at, at + 1)
            found.update(DATA[at : at + 1])
            lines.append(f"{at} {at + 1} {found.hexdigest()}")
        record.write_text("\n".join([*lines, ""]))

        assert fetch(hub, tmp_path) == DATA
        assert got(hub, 1).starts == [1, 3, 5]

    @pytest.mark.parametrize("tag", [r"\"a\r\nb: c\"", r"\"\u00e4\"", f'\\"{"a" * 9999}\\"'])
    def test_what_is_no_entity_tag_is_not_sent(self, hub, tmp_path, tag) -> None:
        record = leave(hub, tmp_path, "left") / "record"
        head, lines = record.read_text().split("\n", 1)
        before, _, after = re.split(r'(?<="identity":)("[^,]*")', head)
        record.write_text(f'{before}"{tag}"{after}\n{lines}')

        assert fetch(hub, tmp_path) == DATA
        assert got(hub).starts[-1] == 0

    def test_of_many_who_go_on_at_once_one_does(self, tmp_path) -> None:
        with serve_hub({"a/0.bin": DATA}, rate=2_000_000) as hub:
            leave(hub, tmp_path, "left")

            def act() -> None:
                fetched = get(hub, tmp_path, digest=DIGEST)
                assert (fetched.proven, fetched.path.read_bytes()) == (True, DATA)

            children = [forked(act) for _ in range(4)]
            assert [ended(child) for child in children] == [0] * 4
            starts = got(hub, 1).starts

        assert starts.count(300_000) == 1
        assert os.listdir(tmp_path) == ["0.bin"]


class TestFailed:
    @pytest.mark.parametrize("digest", [None, DIGEST])
    def test_the_next_fetch_goes_on(self, hub, tmp_path, digest) -> None:
        error = fail(hub, tmp_path, digest=digest)

        assert "; 300000 of 400000 bytes are kept, and the next try goes on from there" in str(
            error
        )
        assert beside_parts(tmp_path) == set()
        assert fetch(hub, tmp_path, digest=digest) == DATA
        assert got(hub) == ([0, 300_000], 400_000)

    def test_spans_of_several_connections_are_kept(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(_relay, "_MIN_SPAN", 4096)
        monkeypatch.setattr(_relay, "_AT_FIRST", 4)
        monkeypatch.setattr(_relay, "is_patient", lambda _: False)
        with serve_hub({"a/0.bin": DATA}, rate=500_000) as hub:
            hub.fault("a/0.bin", HubFault.RESET_IN_BODY, times=1, nth=3, at=30_000)
            with pytest.raises(FetchError) as caught:
                fetch(hub, tmp_path, digest=DIGEST)
            n_first = len(hub.requests_for("*", method="GET"))
            fetched = get(hub, tmp_path, digest=DIGEST)
            starts, _ = got(hub, n_first)

        assert 0 not in starts
        assert fetched.path.read_bytes() == DATA
        assert f"; {400_000 - fetched.n_bytes} of 400000 bytes are kept" in str(caught.value)

    def test_a_digest_is_enough_where_there_is_no_entity_tag(
        self, hub, tmp_path, monkeypatch
    ) -> None:
        without_entity_tags(monkeypatch)
        fail(hub, tmp_path, digest=DIGEST)

        assert fetch(hub, tmp_path, digest=DIGEST) == DATA
        assert got(hub) == ([0, 300_000], 400_000)

    def test_a_prefetcher_goes_on_in_the_foreground(self, tmp_path) -> None:
        with serve_hub({"a/0.bin": DATA, "a/1.bin": OTHER}) as hub:
            hub.fault("a/1.bin", HubFault.TRUNCATED, times=1, at=300_000)
            url, names = f"{hub.url}/a", ["0.bin", "1.bin"]
            with ShardPrefetcher(url, names, tmp_path, limits=ONCE) as prefetcher:
                paths = [path.read_bytes() for path in prefetcher]

            assert paths == [DATA, OTHER]
            ranges = [r.headers.get("range") for r in hub.requests_for("a/1.bin", method="GET")]
            assert ranges == [None, "bytes=300000-399999"]
        assert not any(next(tmp_path.rglob(".shardproof/kept")).iterdir())


def without_entity_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http, "identity_of", lambda response: None)


def stop_before_the_name(
    hub: Hub, directory: Path, monkeypatch: pytest.MonkeyPatch, digest: str | None
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files, "move_whole", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch(hub, directory, digest=digest)


class TestNotKept:
    def test_what_nobody_could_tell_from_another_file(self, hub, tmp_path, monkeypatch) -> None:
        without_entity_tags(monkeypatch)

        error = fail(hub, tmp_path)

        assert "kept" not in str(error)
        assert os.listdir(tmp_path) == []

    def test_a_source_of_whole_files(self, tmp_path) -> None:
        cancellation = Cancellation()
        source = CallableSource(lambda name, dest: dest.write_bytes(DATA))

        with pytest.raises(FetchError, match=r"it was stopped$"):
            fetch_file(
                source, "0.bin", tmp_path / "0.bin", digest=DIGEST, cancellation=cancellation,
                on_bytes=lambda *_: cancellation.cancel(),
            )  # fmt: skip

        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
    def test_what_was_written_to_a_disk_that_refuses(
        self, hub, tmp_path, monkeypatch, number
    ) -> None:
        real, n_left = os.pwritev, 3

        def refuse(*args: Any) -> int:
            nonlocal n_left
            n_left -= 1
            if n_left < 0:
                raise OSError(number, os.strerror(number))
            return real(*args)

        monkeypatch.setattr(os, "pwritev", refuse)
        monkeypatch.setattr(_relay, "_BATCH_BYTES", 1000)

        with pytest.raises(FetchError, match=f"{os.strerror(number)}; see to the disk"):
            fetch(hub, tmp_path, digest=DIGEST)
        assert os.listdir(tmp_path) == []


DAMAGES: dict[str, Callable[[Path], object]] = {
    **{f"a bit at {at} is flipped": partial(flip, at=at) for at in (0, 150_000, 299_999)},
    **{f"cut to {n} bytes": partial(os.truncate, length=n) for n in (0, 1, 299_000, 299_999)},
    "bytes follow": lambda data: data.write_bytes(data.read_bytes() + bytes(200_000)),
}


class TestChanged:
    @pytest.mark.parametrize("digest", [False, True])
    @pytest.mark.parametrize("size", [400_000, 350_000, 250_000, 500_000])
    def test_a_file_that_has_changed_is_begun_anew(self, hub, tmp_path, size, digest) -> None:
        """In one attempt: what another one has left counts for none."""
        new = random.Random(3).randbytes(size)
        sha256 = f"sha256:{hashlib.sha256(new).hexdigest()}"
        fail(hub, tmp_path, digest=DIGEST if digest else None)
        hub.put("a/0.bin", new)

        assert fetch(hub, tmp_path, digest=sha256 if digest else None) == new

    @pytest.mark.parametrize("digest", [None, DIGEST])
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_a_part_that_is_damaged_is_not_believed(self, hub, tmp_path, damage, digest) -> None:
        """By the disk, by a power cut, or by bytes of which no record says anything."""
        fail(hub, tmp_path, digest=digest)
        (part,) = parts_in(tmp_path)
        DAMAGES[damage](part / "data")

        assert fetch(hub, tmp_path, digest=digest) == DATA

    @pytest.mark.parametrize("at", range(0, 400, 29))
    def test_a_record_that_is_damaged_is_not_believed(self, hub, tmp_path, at) -> None:
        fail(hub, tmp_path)
        (part,) = parts_in(tmp_path)
        flip(part / "record", at % (part / "record").stat().st_size)

        assert fetch(hub, tmp_path) == DATA

    def test_blocks_that_a_power_cut_left_empty_are_fetched_again(
        self, hub, tmp_path, monkeypatch
    ) -> None:
        monkeypatch.setattr(_relay, "_BATCH_BYTES", 50_000)
        fail(hub, tmp_path)
        (part,) = parts_in(tmp_path)
        with open(part / "data", "r+b") as file:
            file.seek(200_000)
            file.write(bytes(4096))

        assert fetch(hub, tmp_path) == DATA
        assert 200_000 < got(hub, 1).n_bytes + 100_000 < 350_000

    def test_a_query_names_another_file(self, hub, tmp_path) -> None:
        """Of one entity tag and one size, as of a server that counts versions."""
        hub.fault("a/0.bin", HubFault.TRUNCATED, times=1)
        for query in ("id=1", "id=2"):
            with (
                contextlib.closing(HttpSource(f"{hub.url}/a?{query}")) as source,
                contextlib.suppress(FetchError),
            ):
                fetch_file(source, "0.bin", tmp_path / "0.bin", limits=ONCE)

        assert got(hub).starts == [0, 0]

    def test_what_is_whole_and_has_a_digest_is_not_asked_for(
        self, hub, tmp_path, monkeypatch
    ) -> None:
        stop_before_the_name(hub, tmp_path, monkeypatch, DIGEST)

        assert fetch(hub, tmp_path, digest=DIGEST) == DATA
        assert got(hub).starts == [0]

    def test_what_is_whole_and_has_no_digest_is_asked_for_once_more(
        self, hub, tmp_path, monkeypatch
    ) -> None:
        stop_before_the_name(hub, tmp_path, monkeypatch, None)
        hub.put("a/0.bin", OTHER)

        assert fetch(hub, tmp_path) == OTHER


class TestPrefetcher:
    """Parts of a cache: in a directory of its own, and gone with what nobody wants."""

    NAMES = ("0.bin", "1.bin", "2.bin")

    @pytest.fixture
    def shards(self) -> Iterator[Hub]:
        with serve_hub({f"a/{name}": DATA for name in self.NAMES}) as hub:
            yield hub

    def kept(self, directory: Path) -> list[Path]:
        (kept,) = directory.rglob(".shardproof/kept")
        return parts_in(kept)

    def wait_for_a_part(self, directory: Path) -> None:
        while not any(
            b"\n" in path.read_bytes()[:-1] for path in files_below(directory, "kept/*/record")
        ):
            time.sleep(0.001)

    def prefetcher(self, hub: Hub, directory: Path, **options: Any) -> ShardPrefetcher:
        return ShardPrefetcher(f"{hub.url}/a", self.NAMES, directory, limits=ONCE, **options)

    def close_while_the_second_one_comes(self, hub: Hub, directory: Path, **options: Any) -> None:
        hub.fault("a/1.bin", HubFault.STALL_IN_BODY)
        with self.prefetcher(hub, directory, **options) as prefetcher:
            prefetcher.wait_for("0.bin")
            self.wait_for_a_part(directory)
        hub.heal()

    def test_what_is_ahead_when_it_is_closed_is_kept(self, shards, tmp_path) -> None:
        self.close_while_the_second_one_comes(shards, tmp_path)
        assert len(self.kept(tmp_path)) == 1

        with ShardPrefetcher(f"{shards.url}/a", ["1.bin"], tmp_path) as prefetcher:
            assert prefetcher.wait_for("1.bin").read_bytes() == DATA
        assert got(shards).starts[-1] > 0

    @pytest.mark.parametrize(
        ("stays", "n_kept"),
        [({"cleanup": "auto"}, 0), ({"cleanup": "keep"}, 1), ({"max_cache_bytes": 10**6}, 0)],
    )
    def test_what_is_not_wanted_any_more_goes_as_shards_do(
        self, shards, tmp_path, stays, n_kept
    ) -> None:
        self.close_while_the_second_one_comes(shards, tmp_path)

        with self.prefetcher(shards, tmp_path, lookahead=0, **stays) as prefetcher:
            prefetcher.wait_for("2.bin")

        assert len(self.kept(tmp_path)) == n_kept


class TestFsspec:
    def test_an_entity_tag_is_gone_on_from(self, tmp_path, monkeypatch) -> None:
        memory = type(fsspec.filesystem("memory"))
        memory().pipe("/tagged/0.bin", DATA)
        info, give, asked = memory.info, memory.cat_file, []

        def give_some(self: Any, path: str, start: int, **options: Any) -> bytes:
            asked.append(start)
            if len(asked) == 4:
                raise OSError(errno.ECONNRESET, "the store is gone")
            return give(self, path, start=start, **options)

        monkeypatch.setattr(memory, "info", lambda *args: {**info(*args), "ETag": '"abc"'})
        monkeypatch.setattr(memory, "cat_file", give_some)
        monkeypatch.setattr(_fsspec, "_BLOCK", 100_000)

        with pytest.raises(FetchError, match="300000 of 400000 bytes are kept"):
            fetch_file(FsspecSource("memory://tagged"), "0.bin", tmp_path / "0.bin", limits=ONCE)
        source = FsspecSource("memory://tagged")
        assert fetch_file(source, "0.bin", tmp_path / "0.bin").path.read_bytes() == DATA

        assert asked == [0, 100_000, 200_000, 300_000, 300_000]

    @pytest.mark.parametrize(
        ("info", "identity", "is_lasting"),
        [
            ({"ETag": '"a"'}, 'ETag="a"', True),
            ({"VersionId": "v1", "ETag": '"a"'}, "VersionId=v1", True),
            ({"VersionId": "null", "ETag": '"a"'}, 'ETag="a"', True),
            ({"generation": 17, "etag": "b"}, "generation=17", True),
            ({"etag": 'W/"a"', "mtime": 1.5}, "mtime=1.5 size=3 ino=None", False),
            ({"etag": 'W/"a"'}, None, False),
            ({"mtime": 1.5, "ino": 7}, "mtime=1.5 size=3 ino=7", False),
        ],
    )
    def test_what_tells_versions_apart_for_good(self, info, identity, is_lasting) -> None:
        file = _fsspec._file("0.bin", {"size": 3, **info})

        assert (file.identity, file.is_lasting) == (identity, is_lasting)

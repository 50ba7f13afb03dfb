"""The cache: what is found in it is proven, what is held stays, and nothing else is touched."""

import errno
import hashlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardproof import FetchError
from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.cache._leases import Lease
from shardproof.fetching.cache._proofs import ProofFiles
from shardproof.fetching.sources._source import RemoteFile
from tests.helpers.descriptors import path_of

NAME, DATA = "train/0.bin", b"1234"


def remote(data: bytes = DATA, name: str = NAME, **known: object) -> RemoteFile:
    """What a source tells that gives digests."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return RemoteFile(name, **{"size": len(data), "digest": digest} | known)


def revision(identity: str, size: int = 4) -> RemoteFile:
    """What a source tells that has entity tags."""
    return RemoteFile(NAME, size, identity)


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "cache" / "root"


@pytest.fixture
def new_cache(root) -> Iterator[Callable[..., Cache]]:
    made = []

    def make(**options) -> Cache:
        made.append(Cache(root, **options))
        return made[-1]

    yield make
    for cache in made:
        cache.close()


@pytest.fixture
def cache(new_cache) -> Cache:
    return new_cache()


@pytest.fixture
def other(new_cache) -> Cache:
    """The same directory, as another process sees it."""
    return new_cache()


def bring(cache: Cache, file: RemoteFile, data: bytes = DATA) -> Lease:
    """Fetch a shard into the cache, and keep the lease."""
    lease = cache.hold(file.name)
    assert cache.find(file, lease) is None
    lease.part.write_bytes(data)
    assert cache.place(lease.part, file, lease) == Path(cache.root, file.name)
    return lease


def put(cache: Cache, file: RemoteFile, data: bytes = DATA) -> Path:
    bring(cache, file, data).release()
    return Path(cache.root, file.name)


def foreign(root: Path, data: bytes = DATA) -> None:
    (root / NAME).parent.mkdir()
    (root / NAME).write_bytes(data)


def found(cache: Cache, file: RemoteFile) -> bool:
    with cache.hold(file.name) as lease:
        return cache.find(file, lease) is not None


def files(root: Path) -> list[str]:
    """What is in the cache beside what it knows."""
    return sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if ".shardproof" not in path.parts and (path.is_symlink() or not path.is_dir())
    )


def state(root: Path) -> list[str]:
    """What the cache knows, by kinds."""
    return sorted(path.suffix for path in (root / ".shardproof").glob("*/*"))


@pytest.fixture
def reads(root, monkeypatch) -> list[int]:
    """One item for each look into a shard."""
    reads, real = [], os.preadv

    def preadv(fd: int, *args) -> int:
        if path_of(fd) == str(root / NAME):
            reads.append(fd)
        return real(fd, *args)

    monkeypatch.setattr(os, "preadv", preadv)
    return reads


class TestFind:
    @pytest.mark.parametrize(
        "file", [remote(DATA, digest="sha256:" + "0" * 64), revision("v2"), revision("v1", 5)]
    )
    def test_nothing_where_another_revision_is(self, cache, root, file) -> None:
        put(cache, revision("v1"))
        assert not found(cache, file)
        assert files(root) == [NAME], "it is proven: somebody may want it"

    def test_a_file_of_somebody_else_by_its_digest(self, cache, root) -> None:
        foreign(root)
        assert found(cache, remote())
        assert not cache.discard(NAME), "nobody who may remove it put it there"

    @pytest.mark.parametrize("file", [revision("v1"), RemoteFile(NAME, 4), RemoteFile(NAME)])
    def test_not_without_one(self, cache, root, file) -> None:
        foreign(root)
        assert not found(cache, file)
        assert files(root) == [NAME], "it may be right: it stays until another one is there"

    def test_another_digest_than_the_one_that_is_remembered(self, cache, reads) -> None:
        put(cache, remote())
        md5 = f"md5:{hashlib.md5(DATA).hexdigest()}"
        assert found(cache, RemoteFile(NAME, 4, None, md5))
        assert reads
        reads.clear()
        assert found(cache, remote())
        assert found(cache, RemoteFile(NAME, 4, None, md5))
        assert not reads
        assert cache.discard(NAME), "it is still this package's"

    def test_one_that_changes_while_it_is_hashed_is_not_judged(
        self, cache, root, monkeypatch
    ) -> None:
        foreign(root)
        real = os.preadv

        def preadv(*args) -> int:
            n_bytes = real(*args)
            (root / NAME).write_bytes(b"mine")
            return n_bytes

        monkeypatch.setattr(os, "preadv", preadv)
        assert not found(cache, remote())
        assert files(root) == [NAME]
        assert state(root) == []

    @pytest.mark.parametrize("data", [b"", b"123", b"1235", b"12345"])
    def test_a_bad_one_is_moved_aside(self, cache, root, data, caplog) -> None:
        foreign(root, data)
        assert not found(cache, remote())
        [aside] = files(root)
        assert re.fullmatch(r"train/0\.bin\.bad-[0-9a-f]{8}", aside)
        assert (root / aside).read_bytes() == data
        assert f"'{root / NAME}' was not the right one, and is '{root / aside}' now" in caplog.text

    @pytest.mark.parametrize(
        "make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("../../../right.bin")]
    )
    def test_what_is_no_file_is_moved_aside_and_not_followed(
        self, cache, root, tmp_path, make
    ) -> None:
        path = root / NAME
        path.parent.mkdir()
        (tmp_path / "right.bin").write_bytes(DATA)
        make(path)
        assert not found(cache, remote(size=None))
        assert not os.path.lexists(path)
        put(cache, remote())
        assert (tmp_path / "right.bin").read_bytes() == DATA

    def test_hashing_ends_when_it_is_told_to(self, cache, root) -> None:
        foreign(root)
        stop = threading.Event()
        stop.set()
        with cache.hold(NAME) as lease:
            assert cache.find(remote(), lease, stop) is None
            assert files(root) == [NAME]
            assert cache.find(remote(), lease, threading.Event())

    @pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
    def test_what_can_not_be_looked_at_is_an_error(
        self, cache, root, make_shard_faults, number
    ) -> None:
        put(cache, remote())
        make_shard_faults(root).fail("stat", number, match=NAME, times=1)
        with (
            cache.hold(NAME) as lease,
            pytest.raises(OSError, match=re.escape(os.strerror(number))),
        ):
            cache.find(remote(), lease)


class TestPlace:
    def test_who_comes_second_takes_what_is_there(self, cache, other, root) -> None:
        first, second = cache.hold(NAME), other.hold(NAME)
        for lease in (first, second):
            lease.part.write_bytes(DATA)
        cache.place(first.part, remote(), first)
        inode = (root / NAME).stat().st_ino
        other.place(second.part, remote(), second)
        assert (root / NAME).stat().st_ino == inode, "somebody may have it open"
        assert not second.part.exists()
        for lease in (first, second):
            lease.release()
        assert state(root) == [".placed"]
        assert cache.discard(NAME)
        assert state(root) == []

    @pytest.mark.parametrize(
        "file", [revision("v1"), RemoteFile(NAME), remote(), revision("v1", 9)]
    )
    def test_what_is_in_the_way_stays_if_it_has_the_same_bytes(self, cache, root, file) -> None:
        foreign(root)
        inode = (root / NAME).stat().st_ino
        with cache.hold(NAME) as lease:
            lease.part.write_bytes(DATA)
            assert cache.place(lease.part, file, lease, digest=remote().digest) == root / NAME
            assert not lease.part.exists()
            assert cache.in_use(NAME)
        assert files(root) == [NAME]
        assert (root / NAME).stat().st_ino == inode
        assert not cache.discard(NAME), "it is not this package's"
        if file.size != 9:
            assert found(cache, file), "it is proven now"

    def test_a_comparison_that_is_stopped_moves_nothing(self, cache, root) -> None:
        foreign(root, b"mine")
        stop = threading.Event()
        stop.set()
        with cache.hold(NAME) as lease:
            lease.part.write_bytes(DATA)
            with pytest.raises(FetchError, match="it was stopped"):
                cache.place(lease.part, revision("v1"), lease, digest=remote().digest, stop=stop)
        assert files(root) == [NAME]
        assert (root / NAME).read_bytes() == b"mine"
        assert state(root) == []

    def test_a_file_of_somebody_else_does_not_even_if_it_was_used(self, cache, root) -> None:
        foreign(root)
        assert found(cache, remote())
        put(cache, remote(b"new!"), b"new!")
        name, aside = files(root)
        assert (root / name).read_bytes() == b"new!"
        assert (root / aside).read_bytes() == DATA

    def test_another_revision_that_is_read_stays(self, cache, other, root) -> None:
        reader = bring(cache, revision("v1"), b"old!")
        lease = other.hold(NAME)
        assert other.find(revision("v2"), lease) is None
        assert other.in_use(NAME, lease) == other.in_use(NAME)
        lease.part.write_bytes(b"new!")
        with pytest.raises(FetchError) as caught:
            other.place(lease.part, revision("v2"), lease)
        assert f"'{root / NAME}' has other bytes than the source has now" in str(caught.value)
        assert f"is read by uid {os.geteuid()} on " in str(caught.value)
        assert f"process {os.getpid()}; wait for its end" in str(caught.value)
        assert (root / NAME).read_bytes() == b"old!"
        assert cache.find(revision("v1"), reader)
        reader.release()
        assert other.in_use(NAME) == []
        other.place(lease.part, revision("v2"), lease)
        assert (root / NAME).read_bytes() == b"new!"

    @pytest.mark.parametrize("call", ["link", "rename", "fsync"])
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
    def test_what_fails_leaves_nothing(self, cache, root, make_shard_faults, call, number) -> None:
        with cache.hold(NAME) as lease:
            lease.part.write_bytes(DATA)
            make_shard_faults(root).fail(call, number, times=1)
            with pytest.raises(OSError, match=re.escape(os.strerror(number))):
                cache.place(lease.part, remote(), lease)
        assert files(root) == []
        assert state(root) == []
        put(cache, remote())


class TestDiscard:
    def test_not_what_somebody_holds(self, cache, other, root) -> None:
        put(cache, remote())
        for holder in (cache, other):
            with holder.hold(NAME):
                assert not cache.discard(NAME)
        assert files(root) == [NAME]
        assert cache.discard(NAME)
        assert files(root) == state(root) == []
        assert not cache.discard(NAME)

    def test_what_an_earlier_run_has_left(self, cache, other, new_cache, root) -> None:
        for name in "abcd":
            put(cache, remote(name=name))
        (root / "mine").write_bytes(DATA)
        assert new_cache(cleanup="keep").discard_others([]) == []
        with other.hold("c"):
            assert cache.discard_others(["a", "x"]) == ["b", "d"]
        assert files(root) == ["a", "c", "mine"]

    @pytest.mark.parametrize("change", ["rewritten", "replaced", "touched", "appended"])
    def test_not_what_changed(self, cache, root, change) -> None:
        path = put(cache, remote())
        before = path.stat()
        if change == "touched":
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        elif change == "replaced":
            path.unlink()
        if change != "touched":
            path.write_bytes(DATA + b"5" if change == "appended" else b"mine")
        assert not cache.discard(NAME)
        assert files(root) == [NAME]

    def test_proofs_of_files_that_were_purged_go_with_others(self, cache, other, root) -> None:
        for _ in range(3):
            put(cache, remote()).unlink()
        put(cache, remote())
        assert state(root) == [".placed"] * 4
        with other.hold(NAME):
            assert cache.discard_others([]) == []
            assert state(root).count(".placed") == 4, "it may be on its way"
        assert cache.discard_others([]) == [NAME]
        assert state(root) == []

    @pytest.mark.parametrize("call", ["rename", "scandir", "mkdir"])
    def test_what_fails_is_logged_and_costs_room_only(
        self, cache, root, make_shard_faults, caplog, call
    ) -> None:
        put(cache, remote())
        make_shard_faults(root).fail(call, errno.EACCES, times=1)
        assert not cache.discard(NAME)
        assert "Shard 'train/0.bin' could not be removed: [Errno 13]" in caplog.text
        assert files(root) == [NAME]
        assert cache.discard(NAME)


class TestLures:
    """Links and foreign files, placed so that a cleanup might go astray; a tree beside the root."""

    @pytest.fixture
    def beside(self, root) -> Path:
        beside = root.parent / "beside"
        for name in ("0.bin", "train/0.bin", "x/y/z"):
            (beside / name).parent.mkdir(parents=True, exist_ok=True)
            (beside / name).write_bytes(DATA)
        return beside

    @pytest.fixture(autouse=True)
    def _nothing_beside_is_touched(self, beside) -> Iterator[None]:
        before = looks(beside)
        yield
        assert looks(beside) == before

    def test_a_directory_becomes_a_link(self, cache, root, beside) -> None:
        put(cache, remote())
        (root / "train").rename(root / "moved")
        (root / "train").symlink_to(beside / "train")
        assert not cache.discard(NAME)
        assert cache.make_room(1, cache.hold("b"))
        for call in (cache.distrust, cache.hold, cache.path_of, cache.is_unknown):
            with pytest.raises(NotADirectoryError):
                call(NAME)

    def test_the_shard_becomes_a_link(self, cache, root, beside) -> None:
        path = put(cache, remote())
        path.unlink()
        path.symlink_to(beside / "0.bin")
        assert not cache.discard(NAME)
        assert path.is_symlink()

    def test_a_shard_that_is_replaced_at_the_last_moment_comes_back(
        self, cache, root, beside, monkeypatch
    ) -> None:
        path = put(cache, remote())
        real = os.rename

        def rename(source, target, **fds) -> None:
            if str(source) == "0.bin":
                path.unlink()
                path.write_bytes(b"mine")
            real(source, target, **fds)

        monkeypatch.setattr(os, "rename", rename)
        assert not cache.discard(NAME)
        assert path.read_bytes() == b"mine"
        assert files(root) == [NAME]

    def test_parts_of_the_dead_that_are_links_are_not_followed(self, cache, root, beside) -> None:
        parts = root / ".shardproof/parts"
        (parts / "dead").mkdir()
        (parts / "dead" / "link").symlink_to(beside)
        Cache(root).close()
        assert list(parts.iterdir()) == []

    def test_what_nfs_says_has_failed_may_have_been_done(self, cache, root, monkeypatch) -> None:
        put(cache, remote())
        real = os.rename

        def rename(source, target, **fds) -> None:
            real(source, target, **fds)
            if str(source) == "0.bin":
                raise FileNotFoundError(errno.ENOENT, "it was repeated")

        monkeypatch.setattr(os, "rename", rename)
        assert cache.discard(NAME)
        assert files(root) == state(root) == []

    def test_foreign_files_stay(self, cache, root, beside) -> None:
        names = ["0.bin", "train/1.bin", "train/0.bin.bad-12345678", "x/.shardproof-x", "y.hold"]
        for name in names:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_bytes(DATA)
        put(cache, remote())
        assert cache.discard(NAME)
        for name in names[:3]:
            assert not cache.discard(name)
        Cache(root, max_cache_bytes=1).close()
        assert files(root) == sorted(names)


def looks(root: Path) -> list[tuple[str, bytes, int]]:
    return sorted(
        (str(path), path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    )


class TestDistrust:
    @pytest.mark.parametrize(
        "stays", [{"cleanup": "auto"}, {"cleanup": "keep"}, {"max_cache_bytes": 100}]
    )
    def test_what_this_package_put_there_goes(self, new_cache, root, stays) -> None:
        cache = new_cache(**stays)
        put(cache, remote())
        with cache.hold(NAME):
            cache.distrust(NAME)
        assert files(root) == state(root) == []

    def test_unless_it_is_read(self, cache, other, root) -> None:
        lease = bring(cache, remote())
        other.distrust(NAME)
        assert files(root) == [NAME]
        assert cache.find(remote(), lease)

    def test_what_it_did_not_stays_and_is_proven_anew(self, cache, root, reads) -> None:
        foreign(root)
        assert found(cache, remote())
        reads.clear()
        assert found(cache, remote())
        assert not reads, "its digest was computed once"
        cache.distrust(NAME)
        assert found(cache, remote())
        assert reads


class TestWhatIsKnown:
    def test_of_a_file(self, cache, root) -> None:
        assert not cache.is_unknown(NAME)
        put(cache, remote())
        assert cache.owns(NAME)
        assert not cache.is_unknown(NAME)
        (root / NAME).write_bytes(DATA)
        assert not cache.owns(NAME)
        assert cache.is_unknown(NAME)
        assert found(cache, remote())
        assert not cache.owns(NAME)
        assert not cache.is_unknown(NAME)

    def test_where_it_can_not_be_looked_at(self, cache, root, make_shard_faults) -> None:
        put(cache, remote())
        make_shard_faults(root).fail("stat", errno.EIO, match=NAME, times=2)
        with pytest.raises(OSError, match=re.escape(os.strerror(errno.EIO))):
            cache.is_unknown(NAME)
        assert not cache.owns(NAME)
        assert cache.owns(NAME)


DIES_WHILE_IT_REMOVES = """
import os, sys
from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.sources._source import RemoteFile
real = os.rename
def rename(*args, **fds):
    real(*args, **fds)
    if ".removal" in args[1]:
        os.kill(os.getpid(), 9)
os.rename = rename
cache = Cache(sys.argv[1])
if sys.argv[2] == "discard":
    cache.discard("train/0.bin")
else:
    file = RemoteFile("train/0.bin", digest="sha256:" + 64 * "0")
    cache.find(file, cache.hold(file.name))
"""


class TestWhatTheKilledLeft:
    def killed(self, root: Path, what: str) -> None:
        command = [sys.executable, "-c", DIES_WHILE_IT_REMOVES, root, what]
        assert subprocess.run(command).returncode == -9
        assert files(root) == []

    def test_what_may_not_be_swept_hinders_nobody(
        self, cache, root, new_cache, make_shard_faults, caplog
    ) -> None:
        put(cache, remote())
        self.killed(root, "discard")
        make_shard_faults(root).fail("unlink", errno.EACCES, match="*.removal/*", times=1)
        assert not found(new_cache(), remote())
        assert f"What killed processes left in '{root}' stays: [Errno 13]" in caplog.text
        new_cache()
        assert state(root) == []

    def test_a_foreign_file_is_kept(self, cache, root, new_cache, caplog) -> None:
        foreign(root, b"mine")
        self.killed(root, "find")
        with cache.hold(NAME):
            new_cache()
        [aside] = files(root)
        assert (root / aside).read_bytes() == b"mine"
        assert aside.startswith("0.bin.bad-")
        assert "Found what a killed process had taken away" in caplog.text
        assert state(root) == []


def test_a_relative_root_below_a_link(tmp_path, monkeypatch) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    monkeypatch.chdir(tmp_path)
    with Cache("data/root") as cache:
        put(cache, remote())
        assert cache.path_of(NAME) == tmp_path / "disk/root" / NAME
        assert cache.discard(NAME)


SIZE = 10


def sized(name: str) -> RemoteFile:
    return RemoteFile(name, SIZE)


def place(cache: Cache, name: str, lease: Lease) -> None:
    lease.part.write_bytes(b"x" * SIZE)
    cache.place(lease.part, sized(name), lease)


def bring_within(cache: Cache, name: str) -> None:
    """Bring a shard as a prefetcher does, and let go of it."""
    with cache.hold(name) as lease:
        assert cache.make_room(SIZE, lease)
        place(cache, name, lease)


def has_room(cache: Cache, n_bytes: int) -> bool:
    with cache.hold("new") as lease:
        return cache.make_room(n_bytes, lease)


def shards(root: Path) -> str:
    return "".join(files(root))


class TestSizeLimit:
    """Where several processes share a cache, each reads little, and knows enough."""

    @pytest.fixture
    def cache(self, new_cache) -> Cache:
        """One that holds three shards, and has looked at them."""
        cache = new_cache(max_cache_bytes=3 * SIZE)
        for name in "abc":
            bring_within(cache, name)
        assert has_room(cache, 0)
        return cache

    @pytest.fixture
    def other(self, new_cache) -> Cache:
        return new_cache(max_cache_bytes=3 * SIZE)

    @pytest.mark.parametrize("share", [0.5, 2.0])
    def test_no_more_proofs_are_read_for_each_of_many_shards_than_of_few(
        self, tmp_path, monkeypatch, share
    ) -> None:
        n_read, read = [0], ProofFiles.of_file

        def counting(self: ProofFiles, filename: str) -> object:
            n_read[0] += 1
            return read(self, filename)

        monkeypatch.setattr(ProofFiles, "of_file", counting)
        each = []
        for n in (10, 40):
            n_read[0] = 0
            with Cache(tmp_path / str(n), max_cache_bytes=int(share * n) * SIZE) as cache:
                for number in range(n):
                    bring_within(cache, f"{number:03d}")
            each.append(n_read[0] / n)
        assert each[1] <= 1.2 * each[0]

    def test_what_another_process_used_since_the_last_removal_stays(
        self, cache, other, root
    ) -> None:
        bring_within(cache, "d")
        assert found(other, sized("b"))
        bring_within(cache, "e")
        assert shards(root) == "bde"

    def test_what_another_process_brought_counts(self, cache, other, root) -> None:
        bring_within(other, "d")
        assert shards(root) == "bcd"
        assert has_room(cache, SIZE)
        assert shards(root) == "cd"

    def test_what_another_process_removed_counts_no_more(self, cache, other, root) -> None:
        assert has_room(other, 2 * SIZE)
        assert shards(root) == "c"
        assert has_room(cache, 2 * SIZE)
        assert shards(root) == "c"

    def test_what_another_process_holds_stays_until_it_is_released(
        self, cache, other, root
    ) -> None:
        with other.hold("a"):
            assert has_room(cache, SIZE)
            assert shards(root) == "ac"
            assert not has_room(cache, 3 * SIZE)
            assert shards(root) == "a"
        assert has_room(cache, 3 * SIZE)
        assert shards(root) == ""

    def test_what_another_program_removed_is_noticed_when_its_turn_comes(self, cache, root) -> None:
        for name in "ab":
            (root / name).unlink()
        assert has_room(cache, 2 * SIZE)
        assert shards(root) == "c"
        assert state(root).count(".placed") == 1

    def test_but_not_of_what_is_about_to_be_placed(self, cache, other, root) -> None:
        os.rename(root / "a", root / "elsewhere")
        with cache.hold("a"):
            assert has_room(other, SIZE)
            os.rename(root / "elsewhere", root / "a")
        assert state(root).count(".placed") == 3
        assert has_room(other, SIZE)
        assert shards(root) == "bc"

    def test_a_shard_that_can_not_be_looked_at_keeps_its_proof(
        self, cache, other, root, make_shard_faults
    ) -> None:
        make_shard_faults(root).fail("stat", errno.EIO, match="a", times=2)
        assert has_room(other, SIZE)
        assert shards(root) == "ac"
        assert state(root).count(".placed") == 2

    @pytest.mark.parametrize(
        ("n_bytes", "left"), [(0, "abc"), (1, "bc"), (10, "bc"), (11, "c"), (30, ""), (31, "")]
    )
    def test_as_many_go_as_must(self, cache, root, n_bytes, left) -> None:
        assert has_room(cache, n_bytes) is (n_bytes <= 3 * SIZE)
        assert shards(root) == left

    def test_what_others_fetch_counts_until_there_is_no_room_for_it(
        self, cache, other, root
    ) -> None:
        with other.hold("d") as theirs, cache.hold("new") as lease:
            assert other.make_room(SIZE, theirs)
            assert cache.make_room(SIZE, lease)
            assert shards(root) == "c"
            assert not cache.make_room(2 * SIZE + 1, lease)
            assert shards(root) == ""
            assert other.make_room(3 * SIZE, theirs), "what there was no room for is not reserved"

    @pytest.mark.parametrize(
        "said", [b"[" * 4096, b'{"token":"","note":{"reserved":-9}}', b"\xff", b"null"]
    )
    def test_what_nobody_here_has_written_keeps_no_room(self, cache, other, root, said) -> None:
        with other.hold("a") as theirs:
            Path(theirs.path).write_bytes(said)
            assert has_room(cache, SIZE)
        assert shards(root) == "ac"

    def test_what_is_placed_is_not_counted_twice(self, cache, root) -> None:
        with cache.hold("d") as lease:
            assert cache.make_room(SIZE, lease)
            place(cache, "d", lease)
            assert has_room(cache, SIZE)
        assert shards(root) == "cd"

    def test_what_is_taken_over_neither_counts_nor_goes(self, cache, other, root) -> None:
        (root / "0").write_bytes(b"x" * SIZE)
        cache.take_over(sized("0"), threading.Event(), trust=True)
        for each in (cache, other):
            assert has_room(each, 0)
            assert not has_room(each, 4 * SIZE)
            assert shards(root) == "0"

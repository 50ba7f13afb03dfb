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
from shardproof._base import files as _files
from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.cache._leases import Lease
from shardproof.fetching.sources._source import RemoteFile

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
        if os.readlink(f"/proc/self/fd/{fd}") == str(root / NAME):
            reads.append(fd)
        return real(fd, *args)

    monkeypatch.setattr(os, "preadv", preadv)
    return reads


class TestFind:
    def test_what_was_placed(self, cache, other) -> None:
        with bring(cache, remote()) as lease:
            path = cache.find(remote(), lease)
            assert path == Path(cache.root, NAME)
            assert path.read_bytes() == DATA
        assert found(other, remote())

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

    def test_a_digest_is_computed_once(self, cache, root, reads) -> None:
        foreign(root)
        assert found(cache, remote())
        assert reads
        reads.clear()
        assert found(cache, remote())
        assert not reads

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

    @pytest.mark.parametrize("kind", ["directory", "fifo", "link", "link to nowhere", "link out"])
    def test_what_is_no_file_is_moved_aside_and_not_followed(
        self, cache, root, tmp_path, kind
    ) -> None:
        path = root / NAME
        path.parent.mkdir()
        (root / "right.bin").write_bytes(DATA)
        (tmp_path / "right.bin").write_bytes(DATA)
        targets = {"link": root / "right.bin", "link to nowhere": root / "x"}
        if kind == "directory":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            path.symlink_to(targets.get(kind, tmp_path / "right.bin"))
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

    def test_a_lease_on_another_shard_is_refused(self, cache) -> None:
        with cache.hold("train/1.bin") as lease:
            with pytest.raises(ValueError, match=r"lease: expected one on 'train/0.bin', found"):
                cache.find(remote(), lease)
            with pytest.raises(ValueError, match=r"lease: expected one on 'train/0.bin', found"):
                cache.place("x", remote(), lease)

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
    def test_the_part_is_gone_and_the_proof_is_there(self, cache, root) -> None:
        lease = bring(cache, remote())
        assert files(root) == [NAME]
        assert not lease.part.exists()
        assert {".placed", ".hold"} < set(state(root))
        lease.release()
        assert state(root) == [".placed"]

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

    def test_what_is_in_the_way_is_moved_aside(self, cache, root) -> None:
        foreign(root, b"mine")
        put(cache, revision("v1"))
        name, aside = files(root)
        assert name == NAME
        assert (root / aside).read_bytes() == b"mine"
        assert found(cache, revision("v1"))

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

    def test_who_is_too_late_with_another_revision_reads_nothing(
        self, cache, other, root, monkeypatch
    ) -> None:
        real, first = _files.move_new, []

        def move_new(*args, **keywords) -> bool:
            if not first:
                first.append(1)
                first.append(bring(cache, revision("v1"), b"old!"))
            return real(*args, **keywords)

        monkeypatch.setattr(_files, "move_new", move_new)
        lease = other.hold(NAME)
        lease.part.write_bytes(b"new!")
        with pytest.raises(FetchError, match="is read by"):
            other.place(lease.part, revision("v2"), lease)
        assert (root / NAME).read_bytes() == b"old!"
        assert other.in_use(NAME, first[1]) == []

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

    def test_who_only_wants_it_hinders_nobody(self, cache, other) -> None:
        """Else of many that come for the new revision, each would wait for the others."""
        put(cache, revision("v1"), b"old!")
        leases = [other.hold(NAME) for _ in range(3)]
        for lease in leases:
            assert other.find(revision("v2"), lease) is None
            lease.part.write_bytes(b"new!")
        paths = {other.place(lease.part, revision("v2"), lease).read_bytes() for lease in leases}
        assert paths == {b"new!"}

    def test_a_file_of_somebody_else_that_is_read_stays(self, cache, other, root) -> None:
        foreign(root)
        reader = cache.hold(NAME)
        assert cache.find(remote(), reader)
        lease = other.hold(NAME)
        lease.part.write_bytes(b"new!")
        with pytest.raises(FetchError, match="is read by"):
            other.place(lease.part, remote(b"new!"), lease)
        assert files(root) == [NAME]

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
    def test_what_nobody_holds(self, cache, root) -> None:
        put(cache, remote())
        assert cache.discard(NAME)
        assert files(root) == []
        assert state(root) == []
        assert not cache.discard(NAME)

    def test_not_what_somebody_holds(self, cache, other, root) -> None:
        put(cache, remote())
        for holder in (cache, other):
            with holder.hold(NAME):
                assert not cache.discard(NAME)
        assert files(root) == [NAME]
        assert cache.discard(NAME)

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
        if change == "rewritten":
            path.write_bytes(b"mine")
        elif change == "replaced":
            path.unlink()
            path.write_bytes(b"mine")
        elif change == "touched":
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        else:
            path.write_bytes(DATA + b"5")
        assert not cache.discard(NAME)
        assert files(root) == [NAME]

    def test_a_damaged_proof_gives_no_right_to_remove(self, cache, root) -> None:
        put(cache, remote())
        for proof in (root / ".shardproof/proofs").iterdir():
            proof.write_bytes(proof.read_bytes()[:-1])
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

    def test_even_to_the_very_same_directory(self, cache, root, beside) -> None:
        put(cache, remote())
        (root / "train").rename(root / "moved")
        (root / "train").symlink_to(root / "moved")
        assert not cache.discard(NAME)
        assert (root / "moved/0.bin").exists()

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

    def test_what_the_cache_knows_may_not_be_elsewhere(self, root, beside) -> None:
        root.mkdir(parents=True)
        (root / ".shardproof").symlink_to(beside)
        with pytest.raises(NotADirectoryError, match=r"\.shardproof'$"):
            Cache(root)

    def test_parts_of_the_dead_that_are_links_are_not_followed(self, cache, root, beside) -> None:
        parts = root / ".shardproof/parts"
        (parts / "dead").mkdir()
        (parts / "dead" / "link").symlink_to(beside)
        Cache(root).close()
        assert list(parts.iterdir()) == []

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
        cache.distrust(NAME)
        reads.clear()
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

    def test_its_proof_stays_while_it_is_being_taken_away(self, cache, root, new_cache) -> None:
        put(cache, remote())
        other = new_cache()  # before, or it would do the rest
        self.killed(root, "discard")
        other.discard_others([])
        assert ".placed" in state(root)
        new_cache()
        assert (files(root), state(root)) == ([], [])

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

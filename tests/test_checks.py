"""Every kind of finding, at every level, by every way of looking."""

import contextlib
import errno
import functools
import hashlib
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from shardproof import FindingKind, ManifestNotFoundError, testing
from shardproof._base import digest, fanout
from shardproof._base.opening import Read
from shardproof._base.work import stoppable
from shardproof.checks import check
from shardproof.manifest import Contradiction, ExpectedFile, Manifest, Mismatch
from shardproof.testing.faults import FileSystemFaults


@pytest.fixture
def root(tmp_path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def manifest(root: Path, *files: ExpectedFile | str, **keywords) -> Manifest:
    promised = [ExpectedFile(name=file) if isinstance(file, str) else file for file in files]
    return Manifest(root=root, path=root / "index.json", format="test", files=promised, **keywords)


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def kinds(report) -> dict[str, str]:
    return {finding.path.name: finding.kind.value for finding in report.findings}


@pytest.fixture
def zoo(root, tmp_path):
    """One file of each state; the names say what the report must call it."""
    (tmp_path / "outside").write_bytes(b"x")
    (root / "ok").write_bytes(b"x")
    (root / "ok-link").symlink_to("ok")
    (root / "empty").touch()
    (root / "unreadable").write_bytes(b"x")
    (root / "unreadable").chmod(0)
    (root / "unreadable-loop").symlink_to("unreadable-loop")
    (root / "not-regular-directory").mkdir()
    (root / "not-regular-link-to-directory").symlink_to("not-regular-directory")
    (root / "not-regular-outside").symlink_to("../outside")
    (root / "not-regular-device").symlink_to("/dev/zero")
    os.mkfifo(root / "not-regular-fifo")
    (root / "missing-dangling").symlink_to("gone")
    (root / "missing-outside").symlink_to("../gone")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(root / "not-regular-socket"))
    names = ["missing", *sorted(os.listdir(root))]
    with testing.without_root_override():
        yield manifest(root, *names)


def expected_of(zoo: Manifest) -> dict[str, str]:
    found = ("missing", "empty", "unreadable", "not-regular")
    return {
        file.name: next(kind for kind in found if file.name.startswith(kind))
        for file in zoo.files
        if not file.name.startswith("ok")
    }


@pytest.mark.parametrize("level", ["present", "complete", "valid"])
@pytest.mark.parametrize("workers", [None, 1, 5])
def test_each_state_has_its_finding(zoo, level, workers) -> None:
    report = check(zoo, level=level, workers=workers)

    assert kinds(report) == expected_of(zoo)
    assert report.n_files == len(zoo.files)
    assert report.exit_code == 1


def test_each_state_has_its_finding_in_other_processes(zoo) -> None:
    # Forked, because a process that root executes anew gets its override of permissions back.
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as executor:
        assert kinds(check(zoo, executor=executor)) == expected_of(zoo)


def test_a_finding_says_what_was_expected_and_found(zoo) -> None:
    findings = {finding.path.name: finding for finding in check(zoo).findings}
    by_errno = {name: finding.errno for name, finding in findings.items() if finding.errno}

    assert by_errno == {
        "missing": errno.ENOENT,
        "missing-dangling": errno.ENOENT,
        "missing-outside": errno.ENOENT,
        "unreadable": errno.EACCES,
        "unreadable-loop": errno.ELOOP,
    }
    assert findings["unreadable"].found == "Permission denied"
    assert findings["not-regular-fifo"].found == "FIFO"
    assert findings["not-regular-socket"].found == "socket"
    assert findings["not-regular-link-to-directory"].found == "directory"
    assert findings["not-regular-outside"].found.endswith("/outside', outside the root")
    assert all(finding.path.is_absolute() for finding in findings.values())


def test_a_fifo_is_not_opened_and_its_writer_not_woken(root) -> None:
    os.mkfifo(root / "fifo")
    woken = threading.Event()

    def write() -> None:
        os.close(os.open(root / "fifo", os.O_WRONLY))
        woken.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        report = check(manifest(root, "fifo"), level="valid")
        assert not woken.wait(0.05)
    finally:
        os.close(os.open(root / "fifo", os.O_RDONLY | os.O_NONBLOCK))
        writer.join()
    assert kinds(report) == {"fifo": "not-regular"}


def test_only_promised_regular_files_are_opened(zoo, monkeypatch) -> None:
    opened = []
    real = os.open

    def spy(path, *args, **keywords):
        opened.append(os.path.basename(path))
        return real(path, *args, **keywords)

    monkeypatch.setattr(os, "open", spy)
    (zoo.root / "stray").write_bytes(b"x")
    check(zoo)

    assert set(opened) == {"root", "ok", "empty", "unreadable"}


class TestAFileSystemThatFails:
    """What EIO and ESTALE do: a mock, since no healthy disk gives them."""

    @pytest.fixture
    def fail(self, monkeypatch):
        def fail(call: str, number: int, *, name: str = "a", times: int = 10**9) -> list[str]:
            real, left, log = getattr(os, call), [times], []

            def failing(path, *args, **keywords):
                if path == name and left[0]:
                    left[0] -= 1
                    log.append(call)
                    raise OSError(number, os.strerror(number), path)
                return real(path, *args, **keywords)

            monkeypatch.setattr(os, call, failing)
            return log

        return fail

    @pytest.mark.parametrize("call", ["open", "stat"])
    @pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE])
    def test_a_file_that_could_not_be_looked_at(self, root, fail, call, number) -> None:
        (root / "a").write_bytes(b"x")
        (root / "b").symlink_to("a")
        fail(call, number)
        # At level complete each file is asked for its type, so that stat is called too.
        report = check(manifest(root, "a", "b"), level="complete")

        found = [(one.path.name, one.kind, one.errno, one.conclusive) for one in report.findings]
        # Whoever follows the link meets the same.
        assert found == [(name, FindingKind.UNREADABLE, number, False) for name in ("a", "b")]
        assert report.exit_code == 3

    def test_a_stale_handle_is_tried_again(self, root, fail) -> None:
        (root / "a").write_bytes(b"x")
        log = fail("open", errno.ESTALE, times=1)

        assert check(manifest(root, "a")).ok
        assert log == ["open"]

    def test_a_listing_that_fails_is_done_without(self, zoo, monkeypatch) -> None:
        monkeypatch.setattr(os, "scandir", fails_with(OSError(errno.EIO, "I/O error")))
        assert kinds(check(zoo)) == expected_of(zoo)

    def test_fstat_that_fails(self, root, monkeypatch) -> None:
        (root / "a").write_bytes(b"x")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", fails_with(OSError(errno.EIO, "Input/output error")))
            report = check(manifest(root, "a"))
        assert (report.findings[0].errno, report.exit_code) == (errno.EIO, 3)

    def test_an_error_without_a_number(self, root, monkeypatch) -> None:
        (root / "a").write_bytes(b"x")
        monkeypatch.setattr(os, "fstat", fails_with(OSError("who knows")))
        (finding,) = check(manifest(root, "a")).findings
        monkeypatch.undo()
        assert finding.found == "who knows"


def fails_with(error: OSError):
    def failing(*_args):
        raise error

    return failing


class TestADirectoryThatChanges:
    @pytest.fixture
    def after_listing(self, monkeypatch):
        def after_listing(action) -> None:
            real = os.scandir

            def scandir(fd):
                with real(fd) as entries:
                    listed = list(entries)
                action()
                return contextlib.nullcontext(listed)

            monkeypatch.setattr(os, "scandir", scandir)

        return after_listing

    def test_a_file_that_vanishes(self, root, after_listing) -> None:
        (root / "a").write_bytes(b"x")
        after_listing((root / "a").unlink)
        assert kinds(check(manifest(root, "a"))) == {"a": "missing"}

    def test_a_file_that_appears(self, root, after_listing) -> None:
        after_listing(lambda: (root / "a").write_bytes(b"x"))
        assert check(manifest(root, "a")).ok

    @pytest.mark.parametrize(
        "make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to("../outside")]
    )
    def test_a_file_that_turns_into_something_else(
        self, root, tmp_path, after_listing, make
    ) -> None:
        (root / "a").write_bytes(b"x")
        (tmp_path / "outside").write_bytes(b"secret")

        def replace() -> None:
            (root / "a").unlink()
            make(root / "a")

        after_listing(replace)
        assert kinds(check(manifest(root, "a"))) == {"a": "not-regular"}

    @pytest.mark.parametrize("level", ["present", "complete"])
    def test_a_folder_that_comes_as_a_link_out_of_the_root(
        self, root, tmp_path, after_listing, level
    ) -> None:
        (root / "a").write_bytes(b"x")
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "b").write_bytes(b"x")
        after_listing(lambda: (root / "sub").symlink_to("../outside"))
        promise = manifest(root, ExpectedFile(name="a", size=1), ExpectedFile(name="sub/b", size=1))
        assert kinds(check(promise, level=level)) == {"b": "not-regular"}


class TestComplete:
    def test_sizes(self, root) -> None:
        for name, size in {"ok": 5, "short": 4, "long": 6, "unstated": 3}.items():
            (root / name).write_bytes(b"x" * size)
        files = [ExpectedFile(name=name, size=5) for name in ("ok", "short", "long")]
        report = check(manifest(root, *files, "unstated"), level="complete")

        assert kinds(report) == {"short": "size", "long": "size"}
        assert [(finding.expected, finding.found) for finding in report.findings] == [
            ("5 bytes", "4 bytes"),
            ("5 bytes", "6 bytes"),
        ]
        assert report.unproven == (root / "unstated",)

    def test_an_empty_file_says_what_was_promised(self, root) -> None:
        (root / "a").touch()
        (root / "b").touch()
        findings = check(manifest(root, ExpectedFile(name="a", size=5), "b")).findings
        assert [finding.expected for finding in findings] == ["5 bytes", "more than 0 bytes"]

    def test_a_file_that_shall_be_empty(self, root) -> None:
        (root / "a").touch()
        for level in ("present", "complete"):
            assert check(manifest(root, ExpectedFile(name="a", size=0)), level=level).ok

    def test_the_formats_probe(self, root) -> None:
        (root / "good").write_bytes(b"MAGICx")
        (root / "bad").write_bytes(b"magicx")
        files = [ExpectedFile(name="bad", size=6), ExpectedFile(name="good", size=6), "good2"]
        (root / "good2").write_bytes(b"MAGICy")
        promise = manifest(root, *files, probe=begins_with_magic)
        report = check(promise, level="complete")

        (finding,) = report.findings
        assert check(promise).ok
        assert check(promise, level="valid").unproven == (root / "good", root / "good2")
        assert (finding.path, finding.kind) == (root / "bad", FindingKind.STRUCTURE)
        assert (finding.expected, finding.found) == ("MAGIC", "b'magic'")
        assert report.unproven == ()

    def test_contradictions_of_the_manifest(self, root) -> None:
        contradictions = (Contradiction("index.json", "6 in all", "5"),)
        promise = manifest(root, contradictions=lambda: contradictions)

        assert check(promise).ok
        (finding,) = check(promise, level="complete").findings
        assert finding.path == root / "index.json"
        assert finding.kind is FindingKind.STRUCTURE


def test_a_file_that_came_into_a_new_folder_during_the_check_is_found(root) -> None:
    for name in ("day/1", "other/2"):
        (root / name).parent.mkdir()
        (root / name).write_bytes(b"x")

    def exchange(file: ExpectedFile, _fd: int, _size: int) -> None:
        if file.name == "day/1":
            (root / "day").rename(root / "yesterday")
            (root / "other").rename(root / "day")

    assert check(manifest(root, "day/1", "day/2", probe=exchange), level="complete", workers=1).ok


def test_a_folder_is_opened_once_for_the_files_in_it(root, monkeypatch) -> None:
    files = [f"a/b/{number}" for number in range(9)]
    (root / "a" / "b").mkdir(parents=True)
    for name in files:
        (root / name).write_bytes(b"x")
    opened = Counter[str]()
    real = os.open

    def counting(path, *args, **keywords) -> int:
        opened[path] += 1
        return real(path, *args, **keywords)

    monkeypatch.setattr(os, "open", counting)
    assert check(manifest(root, *files), workers=1).ok
    assert (opened["a"], opened["b"], opened["8"]) == (1, 1, 1)


def begins_with_magic(_file: ExpectedFile, fd: int, size: int) -> Mismatch | None:
    assert size == 6
    found = os.pread(fd, 5, 0)
    return None if found == b"MAGIC" else Mismatch(expected="MAGIC", found=repr(found))


class TestValid:
    def test_digests(self, root) -> None:
        for name in ("ok", "flipped", "unstated"):
            (root / name).write_bytes(b"y" if name == "flipped" else b"x")
        right = sha256(b"x")
        files = [ExpectedFile(name=name, size=1, digest=right) for name in ("ok", "flipped")]
        report = check(manifest(root, *files, "unstated"), level="valid")

        assert kinds(report) == {"flipped": "digest"}
        assert (report.findings[0].expected, report.findings[0].found) == (right, sha256(b"y"))
        assert report.unproven == (root / "unstated",)

    @pytest.mark.parametrize(
        ("level", "digest", "workers", "asked"),
        [
            ("valid", "md5:" + "0" * 32, None, (3, 1)),
            ("valid", "md5:" + "0" * 32, 7, (7, 1)),
            ("valid", None, None, (None, None)),
            ("complete", "md5:" + "0" * 32, None, (None, None)),
            ("present", None, 7, (7, None)),
        ],
    )
    def test_reading_every_byte_takes_a_thread_for_each_processor(
        self, root, monkeypatch, level, digest, workers, asked
    ) -> None:
        calls = []
        real = fanout.over_threads

        def over_threads(work, items, threads=None, **keywords):
            calls.append((threads, keywords.get("chunk")))
            return real(work, items, threads, **keywords)

        monkeypatch.setattr(fanout, "over_threads", over_threads)
        monkeypatch.setattr(fanout, "available_cpus", lambda: 3)
        promise = manifest(root, ExpectedFile(name="a", size=1, digest=digest))
        check(promise, level=level, workers=workers)
        assert calls == [(workers, None), asked]  # of the listing, and of the files

    @pytest.mark.parametrize(
        ("n_hashed", "workers", "each"), [(1, None, 4), (2, None, 2), (5, None, 1), (5, 2, 2)]
    )
    def test_files_that_are_hashed_at_once_share_the_processors(
        self, root, monkeypatch, n_hashed, workers, each
    ) -> None:
        asked = []
        real = digest.begin

        def begin(algorithm, size, *, threads=None):
            asked.append(threads)
            return real(algorithm, size)

        monkeypatch.setattr(digest, "begin", begin)
        monkeypatch.setattr(fanout, "available_cpus", lambda: 4)
        files = [ExpectedFile(name=str(i), size=1, digest=sha256(b"x")) for i in range(n_hashed)]
        for file in [*files, ExpectedFile(name="unstated")]:
            (root / file.name).write_bytes(b"x")
        check(manifest(root, *files, "unstated"), level="valid", workers=workers)
        assert asked == [each] * n_hashed

    def test_a_wrong_size_is_found_without_reading(self, root) -> None:
        (root / "a").write_bytes(b"xx")
        promised = ExpectedFile(name="a", size=1, digest=sha256(b"x"))
        assert kinds(check(manifest(root, promised), level="valid")) == {"a": "size"}


class TestTheDirectory:
    def test_a_given_executor_does_the_looking(self, root) -> None:
        (root / "a").write_bytes(b"x")
        before = set(os.listdir("/dev/fd"))
        seen = []

        class Spy(ThreadPoolExecutor):
            def submit(self, work, /, *args, **keywords):
                seen.append(work.files)
                return super().submit(work, *args, **keywords)

        with Spy(1) as executor:
            assert check(manifest(root, "a"), executor=executor).ok
        assert seen == [[ExpectedFile(name="a")]]
        assert set(os.listdir("/dev/fd")) == before

    @pytest.mark.parametrize("executor", [None, "threads"])
    def test_it_is_gone(self, root, executor) -> None:
        promise = manifest(root, "a")
        root.rmdir()
        with ThreadPoolExecutor(1) as pool, pytest.raises(ManifestNotFoundError):
            check(promise, executor=pool if executor else None)

    def test_files_in_subdirectories(self, root) -> None:
        (root / "sub").mkdir()
        (root / "sub" / "a").write_bytes(b"x")
        report = check(manifest(root, "sub/a", "sub/b", "sub/a/c"))
        assert [(finding.path, finding.kind.value) for finding in report.findings] == [
            (root / "sub" / "b", "missing"),
            (root / "sub" / "a" / "c", "unreadable"),
        ]


class TestResources:
    @pytest.mark.parametrize("workers", [None, 8])
    def test_no_descriptor_and_no_thread_is_left(self, zoo, workers) -> None:
        before = os.listdir("/dev/fd"), threading.active_count()
        check(zoo, level="valid", workers=workers)
        after = os.listdir("/dev/fd"), threading.active_count()
        assert after == before

    def test_descriptors_are_bounded(self, root) -> None:
        n_files = 2000
        for index in range(n_files):
            (root / str(index)).write_bytes(b"x")
        code = (
            "import resource, sys; from pathlib import Path\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))\n"
            "from shardproof import checks, manifest\n"
            "from shardproof._base import fanout as _fanout\n"
            "_fanout.SLOW_SECONDS = -1  # as if every look waited long, so that threads start\n"
            f"files = [manifest.ExpectedFile(name=str(i)) for i in range({n_files})]\n"
            "root = Path(sys.argv[1])\n"
            "promise = manifest.Manifest(root=root, path=root, format='test', files=files)\n"
            "print(checks.check(promise, level='complete').findings)"
        )
        run = subprocess.run([sys.executable, "-c", code, root], capture_output=True, text=True)
        assert run.stdout == "()\n", run.stderr

    def test_progress_is_told_to_the_end(self, root) -> None:
        told = []
        names = [str(index) for index in range(2500)]
        work = functools.partial(check, manifest(root, *names), is_told=True)
        stoppable(work, threading.Event(), lambda *so_far: told.append(so_far))
        assert told[-1] == (2500, 2500)
        assert told == sorted(set(told))
        assert len(told) >= 2

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    def test_a_callback_that_raises_ends_the_look_and_its_threads(self, root, error) -> None:
        before = os.listdir("/dev/fd"), threading.active_count()

        def fail(done: int, total: int) -> None:
            raise error

        promise = manifest(root, *map(str, range(5000)))
        work = functools.partial(check, promise, workers=4, is_told=True)
        with pytest.raises(error) as caught:
            stoppable(work, threading.Event(), fail)
        # While the traceback still holds the frames: nothing may wait for them to be collected.
        assert (os.listdir("/dev/fd"), threading.active_count()) == before
        assert caught.type is error


@pytest.mark.parametrize("workers", [None, 1, 3])
def test_each_finding_has_the_number_of_its_file(root, workers: int | None) -> None:
    """Whatever runs and chunks the files were given to."""
    names = [str(index) for index in range(700)]
    for name in names[1::3]:
        (root / name).write_bytes(b"x")
    promise = manifest(root, *names)
    with ThreadPoolExecutor(2) as executor:
        reports = [check(promise, workers=workers), check(promise, executor=executor)]
    for report in reports:
        found = [(finding.index, finding.path.name) for finding in report.findings]
        assert found == [(index, name) for index, name in enumerate(names) if index % 3 != 1]


# What a look tells beyond sizes and digests: impostors, holes, links, checksums inside

POINTER = f"version https://git-lfs.github.com/spec/v1\noid {sha256(b'')}\nsize 1234567\n"
TOLD = "Git LFS pointer of 1 234 567 bytes: run `git lfs pull`"


def look(root: Path, file: ExpectedFile, level="complete", **keywords) -> tuple[str, str] | None:
    links = keywords.pop("links", "inside")
    findings = check(manifest(root, file, **keywords), level=level, links=links).findings
    return (findings[0].kind.value, findings[0].found) if findings else None


class TestImpostors:
    @pytest.mark.parametrize(
        "promised", [{"size": 1234567}, {"digest": "sha256:" + "0" * 64, "size": len(POINTER)}, {}]
    )
    def test_where_the_promise_is_broken_or_can_not_be_proven(self, root: Path, promised) -> None:
        (root / "a").write_text(POINTER)
        level = "valid" if "digest" in promised else "complete"
        assert look(root, ExpectedFile(name="a", **promised), level) == ("impostor", TOLD)
        broken = Mismatch(expected="a header", found="none")
        assert look(root, ExpectedFile(name="a"), probe=lambda *_: broken) == ("impostor", TOLD)

    def test_a_file_that_is_promised_so_is_none(self, root: Path) -> None:
        (root / "a").write_text(POINTER)
        digest = sha256(POINTER.encode())
        for level in ("complete", "valid"):
            promised = ExpectedFile(name="a", size=len(POINTER), digest=digest)
            assert look(root, promised, level) is None
        assert look(root, ExpectedFile(name="a", digest=digest), "valid") is None

    def test_a_page_is_one_unless_its_name_says_so(self, root: Path) -> None:
        for name in ("a.bin", "a.html"):
            (root / name).write_text("<html>")
        assert look(root, ExpectedFile(name="a.html")) is None
        kind, found = look(root, ExpectedFile(name="a.bin"))
        assert (kind, found[:9]) == ("impostor", "HTML page")


class TestUnwritten:
    @pytest.fixture
    def root(self, root: Path) -> Path:
        with (root / "a").open("wb") as file:
            file.truncate(2**20)
        return root

    def test_a_hole(self, root: Path) -> None:
        found = ("unwritten", "a hole of 1048576 bytes")
        assert look(root, ExpectedFile(name="a", size=2**20)) == found
        assert look(root, ExpectedFile(name="a")) == found
        assert look(root, ExpectedFile(name="a"), "valid") == found
        assert look(root, ExpectedFile(name="a"), "present") is None

    def test_nothing_was_owed(self, root: Path) -> None:
        assert look(root, ExpectedFile(name="a", size=2**20, n_items=0)) is None

    def test_a_digest_is_the_better_proof(self, root: Path) -> None:
        zeros = ExpectedFile(name="a", digest=sha256(bytes(2**20)))
        assert look(root, zeros, "valid") is None
        kind, _ = look(root, ExpectedFile(name="a", digest="sha256:" + "0" * 64), "valid")
        assert kind == "digest"

    def test_one_byte_was_written(self, root: Path) -> None:
        with (root / "a").open("wb") as file:
            file.seek(2**20)
            file.write(b"x")
        assert look(root, ExpectedFile(name="a", size=2**20 + 1)) is None

    def test_where_it_can_not_be_told_nothing_is_said(self, root: Path, monkeypatch) -> None:
        """NFS before 4.2: the file is one piece of data."""
        monkeypatch.setattr(os, "lseek", lambda fd, offset, whence: 0)
        assert look(root, ExpectedFile(name="a", size=2**20)) is None


class TestLinks:
    @pytest.fixture
    def store(self, root: Path) -> Path:
        store = root.parent / "store"
        store.mkdir()
        (store / "a").write_bytes(b"abc")
        (root / "a").symlink_to(store / "a")
        return store

    def test_one_that_leads_out_is_a_finding_that_says_where(self, root, store) -> None:
        found = f"symbolic link to '{store}/a', outside the root"
        assert look(root, ExpectedFile(name="a")) == ("not-regular", found)

    def test_it_is_followed_into_a_store_of_the_format(self, root, store) -> None:
        assert look(root, ExpectedFile(name="a", size=3), stores=[str(store)]) is None
        beside = str(store)[:-1]
        assert look(root, ExpectedFile(name="a", size=3), stores=[beside])[0] == "not-regular"
        kind, _ = look(root, ExpectedFile(name="a", size=4), stores=[str(store)])
        assert kind == "size"

    @pytest.mark.parametrize("level", ["present", "complete", "valid"])
    def test_it_is_followed_when_that_is_asked_for(self, root, store, level) -> None:
        promised = ExpectedFile(name="a", size=3, digest=sha256(b"abc"))
        assert look(root, promised, level, links="follow") is None

    def test_even_then_only_to_a_regular_file(self, root, tmp_path) -> None:
        (root / "a").symlink_to("/dev/zero")
        (root / "b").symlink_to(tmp_path / "gone")
        found = ("not-regular", "character device")
        assert look(root, ExpectedFile(name="a"), links="follow") == found
        assert look(root, ExpectedFile(name="b"), links="follow") == ("missing", "nothing")

    def test_of_a_folder(self, root, store) -> None:
        (root / "folder").symlink_to(store)
        assert look(root, ExpectedFile(name="folder/a"))[0] == "not-regular"
        assert look(root, ExpectedFile(name="folder/a", size=3), links="follow") is None


class TestChecksumsInside:
    @pytest.mark.parametrize(
        ("answer", "finding", "n_unproven"),
        [
            (True, None, 0),
            (False, None, 1),
            (Mismatch(expected="page 3 as it was", found="another"), ("digest", "another"), 0),
        ],
    )
    def test_what_they_prove(self, root: Path, answer, finding, n_unproven) -> None:
        (root / "a").write_bytes(b"abc")
        asked = []

        def prove(promised: ExpectedFile, read: Read, size: int) -> Mismatch | bool:
            asked.append((promised.name, read(9), size))
            return answer

        report = check(manifest(root, ExpectedFile(name="a"), prove=prove), level="valid")
        found = [(each.kind.value, each.found) for each in report.findings]
        assert found == ([finding] if finding else [])
        assert (len(report.unproven), report.n_proven) == (n_unproven, answer is True)
        assert asked == [("a", b"abc", 3)]

    @pytest.mark.parametrize("answer", [True, False, Mismatch(expected="x", found="y")])
    def test_they_are_looked_at_beside_a_digest(self, root: Path, answer) -> None:
        (root / "a").write_bytes(b"abc")
        promised = ExpectedFile(name="a", digest=sha256(b"abc"))
        report = check(manifest(root, promised, prove=lambda *_: answer), level="valid")
        assert (report.ok, report.unproven) == (isinstance(answer, bool), ())

    @pytest.mark.parametrize("level", ["present", "complete"])
    def test_below_valid_they_are_not_read(self, root: Path, level) -> None:
        (root / "a").write_bytes(b"abc")
        promise = manifest(root, "a", prove=lambda *_: pytest.fail("it was read"))
        assert check(promise, level=level).ok


def test_a_probe_that_can_not_read_is_unreadable(root: Path) -> None:
    (root / "a").write_bytes(b"abc")

    def probe(promised: ExpectedFile, read: Read, size: int) -> None:
        read(1)

    with FileSystemFaults(root) as fs:
        fs.fail("read", 5, match="a")
        assert look(root, ExpectedFile(name="a"), probe=probe) == (
            "unreadable",
            "Input/output error",
        )

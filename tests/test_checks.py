"""Every kind of finding, at every level, by every way of looking."""

import errno
import hashlib
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from shardproof import FindingKind, ManifestNotFoundError, testing
from shardproof._base import digest, fanout
from shardproof.checks import check
from shardproof.manifest import Contradiction, ExpectedFile, Manifest, Mismatch


@pytest.fixture
def root(tmp_path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def manifest(root: Path, *files: ExpectedFile | str, **keywords) -> Manifest:
    promised = [ExpectedFile(name=file) if isinstance(file, str) else file for file in files]
    return Manifest(root=root, path=root / "index.json", format="test", files=promised, **keywords)


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
        def broken(_fd):
            raise OSError(errno.EIO, "I/O error")

        monkeypatch.setattr(os, "scandir", broken)
        assert kinds(check(zoo)) == expected_of(zoo)

    def test_fstat_that_fails(self, root, monkeypatch) -> None:
        (root / "a").write_bytes(b"x")

        def broken(_fd):
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", broken)
            report = check(manifest(root, "a"))
        assert report.findings[0].errno == errno.EIO
        assert report.exit_code == 3

    def test_an_error_without_a_number(self, root, monkeypatch) -> None:
        (root / "a").write_bytes(b"x")
        real = os.open

        def broken(path, *args, **keywords):
            if path == "a":
                raise OSError("who knows")
            return real(path, *args, **keywords)

        monkeypatch.setattr(os, "open", broken)
        (finding,) = check(manifest(root, "a")).findings
        assert finding.found == "who knows"


class TestADirectoryThatChanges:
    @pytest.fixture
    def after_listing(self, monkeypatch):
        """Do something right after the directory was listed."""

        def after_listing(action) -> None:
            real = os.scandir

            def scandir(fd):
                with real(fd) as entries:
                    listed = list(entries)
                action()
                return _Entries(listed)

            monkeypatch.setattr(os, "scandir", scandir)

        return after_listing

    def test_a_file_that_vanishes(self, root, after_listing) -> None:
        (root / "a").write_bytes(b"x")
        after_listing((root / "a").unlink)
        assert kinds(check(manifest(root, "a"))) == {"a": "missing"}

    def test_a_file_that_appears(self, root, after_listing) -> None:
        after_listing(lambda: (root / "a").write_bytes(b"x"))
        assert check(manifest(root, "a")).ok

    @pytest.mark.parametrize("kind", ["directory", "fifo", "link"])
    def test_a_file_that_turns_into_something_else(
        self, root, tmp_path, after_listing, kind
    ) -> None:
        (root / "a").write_bytes(b"x")
        (tmp_path / "outside").write_bytes(b"secret")

        def replace() -> None:
            (root / "a").unlink()
            if kind == "directory":
                (root / "a").mkdir()
            elif kind == "fifo":
                os.mkfifo(root / "a")
            else:
                (root / "a").symlink_to("../outside")

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


class _Entries(list):
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


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
        promised = ExpectedFile(name="a", size=0)
        assert check(manifest(root, promised), level="complete").ok
        assert check(manifest(root, promised)).ok

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
        assert finding.path == root / "bad"
        assert (finding.kind, finding.expected, finding.found) == (
            FindingKind.STRUCTURE,
            "MAGIC",
            "b'magic'",
        )
        assert report.unproven == ()

    def test_contradictions_of_the_manifest(self, root) -> None:
        contradictions = (Contradiction("index.json", "6 in all", "5"),)
        promise = manifest(root, contradictions=lambda: contradictions)

        assert check(promise).ok
        (finding,) = check(promise, level="complete").findings
        assert finding.path == root / "index.json"
        assert finding.kind is FindingKind.STRUCTURE


def begins_with_magic(_file: ExpectedFile, fd: int, size: int) -> Mismatch | None:
    assert size == 6
    found = os.pread(fd, 5, 0)
    return None if found == b"MAGIC" else Mismatch(expected="MAGIC", found=repr(found))


class TestValid:
    def test_digests(self, root) -> None:
        right = "sha256:" + hashlib.sha256(b"x").hexdigest()
        for name in ("ok", "flipped", "unstated"):
            (root / name).write_bytes(b"y" if name == "flipped" else b"x")
        files = [
            ExpectedFile(name="ok", size=1, digest=right),
            ExpectedFile(name="flipped", size=1, digest=right),
        ]
        report = check(manifest(root, *files, "unstated"), level="valid")

        assert kinds(report) == {"flipped": "digest"}
        assert report.findings[0].expected == right
        assert report.findings[0].found == "sha256:" + hashlib.sha256(b"y").hexdigest()
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
        check(
            manifest(root, ExpectedFile(name="a", size=1, digest=digest)),
            level=level,
            workers=workers,
        )
        listing, looks = calls
        assert looks == asked
        assert listing == (workers, None)

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
        right = "sha256:" + hashlib.sha256(b"x").hexdigest()
        files = [ExpectedFile(name=str(i), size=1, digest=right) for i in range(n_hashed)]
        for file in [*files, ExpectedFile(name="unstated")]:
            (root / file.name).write_bytes(b"x")
        check(manifest(root, *files, "unstated"), level="valid", workers=workers)
        assert asked == [each] * n_hashed

    def test_a_wrong_size_is_found_without_reading(self, root) -> None:
        (root / "a").write_bytes(b"xx")
        right = "sha256:" + hashlib.sha256(b"x").hexdigest()
        report = check(manifest(root, ExpectedFile(name="a", size=1, digest=right)), level="valid")
        assert kinds(report) == {"a": "size"}


class TestTheDirectory:
    def test_a_given_executor_does_the_looking(self, root) -> None:
        (root / "a").write_bytes(b"x")
        before = set(os.listdir("/proc/self/fd"))
        seen = []

        class Spy(ThreadPoolExecutor):
            def submit(self, work, /, *args, **keywords):
                seen.append(args)
                return super().submit(work, *args, **keywords)

        with Spy(1) as executor:
            assert check(manifest(root, "a"), executor=executor).ok
        assert seen == [([ExpectedFile(name="a")],)]
        assert set(os.listdir("/proc/self/fd")) == before

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
        before = os.listdir("/proc/self/fd"), threading.active_count()
        check(zoo, level="valid", workers=workers)
        after = os.listdir("/proc/self/fd"), threading.active_count()
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
        check(manifest(root, *names), on_progress=lambda done, total: told.append((done, total)))
        assert told[-1] == (2500, 2500)
        assert told == sorted(set(told))
        assert len(told) >= 2

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    def test_a_callback_that_raises_ends_the_look_and_its_threads(self, root, error) -> None:
        before = os.listdir("/proc/self/fd"), threading.active_count()

        def fail(done: int, total: int) -> None:
            raise error

        with pytest.raises(error) as caught:
            check(manifest(root, *map(str, range(5000))), workers=4, on_progress=fail)
        # While the traceback still holds the frames: nothing may wait for them to be collected.
        assert (os.listdir("/proc/self/fd"), threading.active_count()) == before
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

"""A write is whole or absent, whatever fails and whenever."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from shardproof import UnsyncedError
from shardproof._base import files, liveness
from shardproof._base.files import _naming
from tests.helpers.descriptors import path_of
from tests.helpers.file_limit import no_file_above


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def fail_nth(monkeypatch, call: str, number: int, nth: int) -> list[str]:
    real, failed, count = getattr(os, call), [], 0

    def fail(*args, **kwargs):
        nonlocal count
        count += 1
        if count == nth:
            failed.append(call)
            failing(number)()
        return real(*args, **kwargs)

    monkeypatch.setattr(os, call, fail)
    return failed


def fail_for_directories(monkeypatch, number: int) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            failing(number)()
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.fixture
def synced(monkeypatch) -> list[tuple[str, int]]:
    real, found = os.fsync, []

    def fsync(fd: int) -> None:
        found.append((path_of(fd), os.fstat(fd).st_size))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def write_within(path: Path, *, replace: bool = True) -> None:
    with files.being_written(path, replace=replace) as fd:
        os.write(fd, b"new")


class TestWriteWhole:
    def test_a_new_file_with_the_mode_of_any_other_and_no_descriptor_left(
        self, tmp_path, monkeypatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "y").write_bytes(b"new")
        before = os.listdir("/dev/fd")
        files.write_whole("x", b"new")
        assert os.listdir("/dev/fd") == before
        assert (tmp_path / "x").read_bytes() == b"new"
        assert (tmp_path / "x").stat().st_mode == (tmp_path / "y").stat().st_mode
        assert sorted(os.listdir(tmp_path)) == ["x", "y"]

    @pytest.mark.parametrize("call", ["open", "fsync", "replace"])
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
    @pytest.mark.parametrize("nth", [1, 2])
    def test_a_failing_call_raises_and_leaves_old_or_new(
        self, tmp_path, monkeypatch, call, number, nth
    ) -> None:
        (tmp_path / "x").write_bytes(b"old")
        failed = fail_nth(monkeypatch, call, number, nth)
        if nth == 2 and call == "replace":
            files.write_whole(tmp_path / "x", b"new")  # it renames once only
            assert failed == []
            return
        with pytest.raises(OSError, match=os.strerror(number)) as caught:
            files.write_whole(tmp_path / "x", b"new")
        is_done = nth == 2  # what is opened and synced after the rename is the directory
        assert isinstance(caught.value, UnsyncedError) == is_done
        assert caught.value.errno == number
        assert is_done or caught.value.filename == str(tmp_path / "x")
        assert (tmp_path / "x").read_bytes() == (b"new" if is_done else b"old")
        assert os.listdir(tmp_path) == ["x"]
        assert failed == [call]

    def test_all_its_bytes_are_synced_before_it_gets_its_name_and_that_after(
        self, tmp_path, synced, monkeypatch
    ) -> None:
        real = os.replace
        monkeypatch.setattr(
            os, "replace", lambda *a, **k: (synced.append(("replace", 0)), real(*a, **k))
        )
        files.write_whole(tmp_path / "before", b"")  # what it imports, pytest may write a .pyc of
        synced.clear()
        files.write_whole(tmp_path / "x", b"new")
        (temporary, size), renamed, (directory, _) = synced
        assert (size, renamed, directory) == (3, ("replace", 0), str(tmp_path))
        assert files.is_temporary(os.path.basename(temporary))

    def test_a_full_disk_leaves_the_old_file(self, tmp_path) -> None:
        (tmp_path / "x").write_bytes(b"old")
        problem = f"File too large: '{tmp_path / 'x'}'"
        with no_file_above(4096), pytest.raises(OSError, match=problem):
            files.write_whole(tmp_path / "x", b"n" * 8192)
        assert (tmp_path / "x").read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["x"]

    def test_in_the_directory_that_is_held_whatever_it_is_called(self, tmp_path) -> None:
        (tmp_path / "d").mkdir()
        dir_fd = os.open(tmp_path / "d", os.O_RDONLY)
        (tmp_path / "d").rename(tmp_path / "e")
        files.write_whole(tmp_path / "d" / "x", b"new", dir_fd=dir_fd)
        os.close(dir_fd)
        assert (tmp_path / "e" / "x").read_bytes() == b"new"
        assert os.listdir(tmp_path / "e") == ["x"]


def name_of(tag: str, digit: str = "0") -> str:
    return f".shardproof-{tag}-{digit * 16}.tmp"


class TestSweep:
    @pytest.fixture
    def dead(self) -> str:
        code = "from shardproof._base.liveness import this_process; print(this_process())"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        return run.stdout.strip()

    def test_a_killed_writer_leaves_a_temporary_file_that_the_next_run_sweeps(
        self, tmp_path
    ) -> None:
        (tmp_path / "x").write_bytes(b"old")
        code = (
            "import os, sys; from shardproof._base import files as _files;"
            "os.replace = lambda *a, **k: os.kill(os.getpid(), 9);"
            "_files.write_whole(sys.argv[1], b'new')"
        )
        subprocess.run([sys.executable, "-c", code, tmp_path / "x"], check=False)
        assert len(os.listdir(tmp_path)) == 2
        assert (tmp_path / "x").read_bytes() == b"old"
        (name,) = files.sweep_leftovers(tmp_path)
        assert files.is_temporary(name)
        assert os.listdir(tmp_path) == ["x"]

    def test_only_our_own_dead_leftovers_go(self, tmp_path, dead: str) -> None:
        boot, namespace, pid, started = dead.split("/")
        others = [f"{boot}/1/{pid}/{started}", f"{'0' * 36}/{namespace}/{pid}/{started}"]
        tag, alive = liveness.tag_of(dead), liveness.tag_of(liveness.this_process())
        stay = [
            *(name_of(liveness.tag_of(process)) for process in others),
            name_of(alive),
            name_of(tag) + ".bak",
            name_of("unknown"),
            f".shardproof-{'0' * 8}-{pid}-{'0' * 16}.tmp",
            "acts000000.bin",
            "x.tmp",
        ]
        reused = name_of(alive[:-1] + str((int(alive[-1]) + 1) % 10))
        gone = sorted([name_of(tag), reused])
        for name in [*stay, *gone]:
            (tmp_path / name).write_bytes(b"")
        assert files.sweep_leftovers(tmp_path) == gone
        assert sorted(os.listdir(tmp_path)) == sorted(stay)

    @pytest.mark.parametrize("number", [errno.EPERM, errno.EROFS, errno.EIO])
    def test_what_can_not_be_removed_stays(
        self, tmp_path, dead: str, monkeypatch, number: int
    ) -> None:
        """As another user's in a directory like /tmp."""
        stays, goes, a_directory = (name_of(liveness.tag_of(dead), digit) for digit in "012")
        for name in (stays, goes):
            (tmp_path / name).write_bytes(b"")
        (tmp_path / a_directory / "x").mkdir(parents=True)
        real = os.unlink

        def unlink(path, **_) -> None:
            if os.path.basename(path) == stays:
                raise OSError(number, os.strerror(number), path)
            real(path)

        monkeypatch.setattr(os, "unlink", unlink)
        assert files.sweep_leftovers(tmp_path) == [goes]
        assert sorted(os.listdir(tmp_path)) == [stays, a_directory]

    def test_nothing_of_another_host_goes_nor_where_the_system_does_not_tell(
        self, tmp_path, dead: str, monkeypatch
    ) -> None:
        name = name_of(liveness.tag_of(dead))
        (tmp_path / name).write_bytes(b"")
        with monkeypatch.context() as patched:
            patched.setattr(os, "uname", lambda: SimpleNamespace(nodename="elsewhere"))
            assert files.sweep_leftovers(tmp_path) == []
        with monkeypatch.context() as patched:
            patched.setattr(liveness, "_here", lambda: "")
            assert files.sweep_leftovers(tmp_path) == []
            assert files.temporary_name().startswith(".shardproof-unknown-")
        assert files.sweep_leftovers(tmp_path) == [name]


LINKS = {"links": None, "no links": errno.EPERM, "neither links nor renaming": errno.ENOSYS}


def without(monkeypatch, kind: str) -> None:
    """Take away what a file system may lack: hard links, and the rename that replaces nothing."""
    if LINKS[kind]:
        monkeypatch.setattr(os, "link", failing(LINKS[kind]))
    if LINKS[kind] == errno.ENOSYS:
        monkeypatch.setattr(_naming, "_renaming", lambda: lambda *_: errno.EINVAL)


class TestPublish:
    @pytest.mark.parametrize("kind", LINKS)
    def test_the_first_one_makes_it_whole_and_for_good(
        self, tmp_path, monkeypatch, synced, kind: str
    ) -> None:
        without(monkeypatch, kind)
        assert files.publish(tmp_path / "x", b"first")
        assert [(path.endswith(".tmp"), size) for path, size in synced[:1]] == [(True, 5)]
        assert [path for path, _ in synced[1:]] == [str(tmp_path)]
        assert not files.publish(tmp_path / "x", b"second")
        assert (tmp_path / "x").read_bytes() == b"first"
        assert os.listdir(tmp_path) == ["x"]

    def test_a_rename_that_fails_leaves_nothing(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(os, "link", failing(errno.EPERM))
        monkeypatch.setattr(_naming, "_renaming", lambda: lambda *_: errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            files.publish(tmp_path / "x", b"first")
        assert os.listdir(tmp_path) == []

    def test_a_link_whose_answer_was_lost(self, tmp_path, monkeypatch) -> None:
        """A server made it, and the client asked again (open(2), on O_EXCL)."""
        real = os.link

        def link(source, target, **how) -> None:
            real(source, target, **how)
            raise FileExistsError(errno.EEXIST, "exists")

        monkeypatch.setattr(os, "link", link)
        assert files.publish(tmp_path / "x", b"first")
        assert os.listdir(tmp_path) == ["x"]

    @pytest.mark.parametrize("call", ["open", "fsync", "link"])
    def test_a_failing_call_raises_and_leaves_nothing(self, tmp_path, monkeypatch, call) -> None:
        failed = fail_nth(monkeypatch, call, errno.EIO, 1)
        with pytest.raises(OSError, match="Input/output error"):
            files.publish(tmp_path / "x", b"new")
        assert failed
        assert os.listdir(tmp_path) == []

    def test_what_has_its_name_is_made_though_its_temporary_name_stays(
        self, tmp_path, monkeypatch
    ) -> None:
        monkeypatch.setattr(os, "unlink", failing(errno.EIO))
        write_within(tmp_path / "x", replace=False)
        assert (tmp_path / "x").read_bytes() == b"new"
        (left,) = {*os.listdir(tmp_path)} - {"x"}
        assert files.is_temporary(left)

    def test_and_though_its_directory_is_not_closed_well(self, tmp_path, monkeypatch) -> None:
        real = os.close

        def close(fd: int) -> None:
            is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
            real(fd)
            if is_directory:
                failing(errno.EIO)()

        monkeypatch.setattr(os, "close", close)
        write_within(tmp_path / "x", replace=False)
        assert os.listdir(tmp_path) == ["x"]

    def test_whoever_takes_its_temporary_name_ends_it(self, tmp_path) -> None:
        writing = files.being_written(tmp_path / "x", tmp_path / "t", replace=False)
        writing.__enter__()
        (tmp_path / "t").unlink()
        (tmp_path / "t").write_bytes(b"another's")
        with pytest.raises(FileNotFoundError):
            writing.__exit__(None, None, None)
        assert os.listdir(tmp_path) == []

    def test_no_line_of_it_leaves_a_temporary_file_where_an_interrupt_falls(self, tmp_path) -> None:
        is_interrupted, place = True, 0
        before = sys.gettrace()
        while is_interrupted:
            place += 1
            try:
                sys.settrace(interrupt_at(place))
                write_within(tmp_path / f"{place}", replace=False)
                is_interrupted = False
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(before)
            assert not any(map(files.is_temporary, os.listdir(tmp_path))), place
        assert place > 20


def interrupt_at(place: int):
    """Trace lines of `files`, and interrupt at one of them."""
    n_lines = 0

    def trace(frame, event: str, _):
        nonlocal n_lines
        if os.path.dirname(frame.f_code.co_filename) != os.path.dirname(files.__file__):
            return None
        n_lines += event == "line"
        if event == "line" and n_lines == place:
            raise KeyboardInterrupt
        return trace

    return trace


class TestDirectories:
    def test_each_new_one_is_synced_into_its_parent(self, tmp_path, synced) -> None:
        for _ in range(2):
            files.make_directories(tmp_path / "a" / "b")
            assert (tmp_path / "a" / "b").is_dir()
            assert [path for path, _ in synced] == [str(tmp_path), str(tmp_path / "a")]

    def test_a_file_in_the_way(self, tmp_path) -> None:
        (tmp_path / "a").touch()
        with pytest.raises(NotADirectoryError):
            files.make_directories(tmp_path / "a" / "b")

    def test_one_that_can_not_be_synced_is_made_anew_by_the_next_call(
        self, tmp_path, monkeypatch, synced
    ) -> None:
        """A sync that failed is not repeated (fsync(2)), and must not be forgotten either."""
        with monkeypatch.context() as patched:
            fail_nth(patched, "fsync", errno.EIO, 2)
            with pytest.raises(OSError, match=r"Input/output error: '.*/a/b'") as caught:
                files.make_directories(tmp_path / "a" / "b" / "c")
        assert not isinstance(caught.value, UnsyncedError)
        assert os.listdir(tmp_path / "a") == []
        synced.clear()
        files.make_directories(tmp_path / "a" / "b" / "c")
        assert [path for path, _ in synced] == [str(tmp_path / "a"), str(tmp_path / "a" / "b")]

    def test_one_that_is_interrupted_before_it_is_synced_goes(self, tmp_path, monkeypatch) -> None:
        def fsync(fd: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(KeyboardInterrupt):
            files.make_directories(tmp_path / "a" / "b")
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("other", ["made it", "is in it"])
    def test_one_that_can_not_be_synced_stays_where_others_need_it(
        self, tmp_path, monkeypatch, other: str
    ) -> None:
        path, real = tmp_path / "a", os.mkdir

        def mkdir(directory) -> None:
            real(directory)
            if other == "made it":
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), directory)
            (path / "x").touch()

        monkeypatch.setattr(os, "mkdir", mkdir)
        monkeypatch.setattr(os, "fsync", failing(errno.EIO))
        with pytest.raises(UnsyncedError, match="exists, but may not survive"):
            files.make_directories(path)
        assert path.is_dir()

    @pytest.mark.parametrize("number", [errno.ENOENT, errno.EIO])
    def test_where_every_look_fails(self, tmp_path, monkeypatch, number) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", failing(number))
            with pytest.raises(OSError, match=r"^\[Errno") as caught:
                files.make_directories(tmp_path / "a" / "b")
        assert caught.value.errno in {number, errno.ENOTDIR}
        assert os.listdir(tmp_path) == []

    def test_deeper_than_calls_go(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(os, "fsync", lambda _: None)
        path = tmp_path / "/".join("d" * 1100)
        files.make_directories(path)
        assert path.is_dir()
        subprocess.run(["rm", "-r", tmp_path / "d"], check=True)  # too deep for shutil

    def test_only_an_empty_one_is_removed(self, tmp_path) -> None:
        path = tmp_path / "d"
        assert files.remove_empty(str(path))
        (path / "x").mkdir(parents=True)
        assert not files.remove_empty(str(path))
        (path / "x").rmdir()
        assert files.remove_empty(str(path))
        assert not path.exists()
        path.write_bytes(b"")
        with pytest.raises(NotADirectoryError):
            files.remove_empty(str(path))


class TestTrees:
    def test_a_link_in_one_is_removed_and_not_followed(self, tmp_path) -> None:
        (tmp_path / "tree" / "sub").mkdir(parents=True)
        (tmp_path / "stays").mkdir()
        (tmp_path / "stays" / "x").touch()
        (tmp_path / "tree" / "sub" / "link").symlink_to(tmp_path / "stays")
        files.remove_tree(tmp_path / "tree")
        files.remove_tree(tmp_path / "tree")
        assert os.listdir(tmp_path) == ["stays"]
        assert os.listdir(tmp_path / "stays") == ["x"]

    def test_one_that_somebody_else_removes_too(self, tmp_path, monkeypatch) -> None:
        for name in "abc":
            (tmp_path / "tree" / name).mkdir(parents=True)
        real, n_calls = os.rmdir, 0

        def rmdir(path, **keywords) -> None:
            nonlocal n_calls
            n_calls += 1
            real(path, **keywords)
            if n_calls == 1:
                raise FileNotFoundError(errno.ENOENT, "gone", path)

        monkeypatch.setattr(os, "rmdir", rmdir)
        files.remove_tree(tmp_path / "tree")
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("ghost", ["tree", "tree/sub", "tree/sub/file"])
    def test_what_is_listed_for_ever_and_never_found_is_an_error(
        self, tmp_path, monkeypatch, ghost: str
    ) -> None:
        """As in a damaged directory of a network file system."""
        (tmp_path / "tree" / "sub").mkdir(parents=True)
        (tmp_path / "tree" / "sub" / "file").touch()
        calls: list[object] = []

        def unless_ghost(real):
            def remove(path, **keywords) -> None:
                if Path(path).name != Path(ghost).name:
                    return real(path, **keywords)
                calls.append(path)
                assert len(calls) < 9, "it tries for ever"
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

            return remove

        monkeypatch.setattr(os, "unlink", unless_ghost(os.unlink))
        monkeypatch.setattr(os, "rmdir", unless_ghost(os.rmdir))
        with pytest.raises(OSError, match=r"not empty|No such file or directory: '.*tree'"):
            files.remove_tree(tmp_path / "tree")
        assert (tmp_path / ghost).exists()


class TestMoving:
    @pytest.fixture
    def dir_fd(self, tmp_path) -> Iterator[int]:
        (tmp_path / "d").mkdir()
        (tmp_path / "a").write_bytes(b"new")
        fd = os.open(tmp_path / "d", os.O_RDONLY)
        yield fd
        os.close(fd)

    @pytest.fixture(params=LINKS)
    def source(self, request, tmp_path, dir_fd, monkeypatch) -> str:
        without(monkeypatch, request.param)
        return str(tmp_path / "a")

    @pytest.mark.parametrize("kind", ["file", "link to nowhere", "directory"])
    def test_not_over_anything(self, tmp_path, source, dir_fd, kind) -> None:
        put(tmp_path / "d" / "b", kind)
        before = os.lstat(tmp_path / "d" / "b").st_ino
        assert not files.move_new(source, "b", dir_fd=dir_fd)
        assert os.lstat(tmp_path / "d" / "b").st_ino == before
        assert (tmp_path / "a").read_bytes() == b"new"

    @pytest.mark.parametrize("source", ["links", "no links"], indirect=True)
    def test_not_over_what_came_after_a_look(
        self, request, tmp_path, source, dir_fd, monkeypatch
    ) -> None:
        if request.node.callspec.params["source"] == "no links" and sys.platform == "darwin":
            pytest.skip("this system has no renameat2")
        (tmp_path / "d" / "b").write_bytes(b"old")
        monkeypatch.setattr(_naming, "mode_of", lambda *_, **__: 0)
        assert not files.move_new(source, "b", dir_fd=dir_fd)
        assert (tmp_path / "d" / "b").read_bytes() == b"old"

    def test_what_is_gone_is_not_moved(self, source, dir_fd) -> None:
        with pytest.raises(FileNotFoundError, match="gone"):
            files.move_new(f"{source}-gone", "b", dir_fd=dir_fd)

    def test_a_link_is_moved_and_not_followed(self, tmp_path, dir_fd) -> None:
        (tmp_path / "l").symlink_to(tmp_path / "a")
        assert files.move_new(str(tmp_path / "l"), "b", dir_fd=dir_fd)
        assert (tmp_path / "d" / "b").is_symlink()

    @pytest.mark.parametrize("name", ["a.bin", "x" * 255, "ä" * 127, "\udc80" * 255])
    def test_to_a_name_for_what_is_bad(self, name) -> None:
        found = files.aside_name(name)
        kept, _, digits = found.rpartition(".bad-")
        assert name.startswith(kept)
        assert len(digits) == 8
        assert len(os.fsencode(found)) <= 255
        assert found != files.aside_name(name)


def put(path: Path, kind: str) -> None:
    if kind == "file":
        path.write_bytes(b"old")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("nowhere")


class TestUnsynced:
    """Where only the sync of the directory fails, what was written is there, and that is said."""

    @pytest.fixture
    def unsynced(self, tmp_path, monkeypatch) -> None:
        fail_for_directories(monkeypatch, errno.EIO)
        (tmp_path / "source").write_bytes(b"new")

    def move_new(self, path) -> None:
        fd = os.open(path.parent, os.O_RDONLY)
        try:
            files.move_new(str(path.parent / "source"), path.name, dir_fd=fd)
        finally:
            os.close(fd)

    @pytest.mark.parametrize("how", ["whole", "context", "published", "moved", "moved new"])
    def test_it_is_there(self, tmp_path, unsynced, how) -> None:
        path = tmp_path / "x"
        act = {
            "whole": lambda: files.write_whole(path, b"new"),
            "context": lambda: write_within(path),
            "published": lambda: files.publish(path, b"new"),
            "moved": lambda: (path.touch(), files.move_whole(tmp_path / "source", path)),
            "moved new": lambda: self.move_new(path),
        }[how]
        with pytest.raises(UnsyncedError, match="exists, but may not survive a power") as caught:
            act()
        assert caught.value.errno == errno.EIO
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.path == str(path)
        assert path.read_bytes() == b"new"
        assert set(os.listdir(tmp_path)) <= {"x", "source"}

    def test_its_name_where_nobody_tells_of_which_directory(
        self, tmp_path, unsynced, monkeypatch
    ) -> None:
        monkeypatch.setattr(os, "readlink", failing(errno.ENOENT))
        with pytest.raises(UnsyncedError, match="'x' exists"):
            self.move_new(tmp_path / "x")

    def test_what_was_moved_aside(self, tmp_path, unsynced) -> None:
        with pytest.raises(UnsyncedError) as caught:
            files.move_aside(tmp_path / "source")
        assert caught.value.path.startswith(f"{tmp_path}/source.bad-")
        assert os.path.exists(caught.value.path)


class TestWhereDirectoriesCanNotBeSynced:
    """Some file systems have no such thing, and say EINVAL (fsync(2))."""

    def test_all_is_written_all_the_same(self, tmp_path, monkeypatch) -> None:
        fail_for_directories(monkeypatch, errno.EINVAL)
        (tmp_path / "source").write_bytes(b"new")
        files.make_directories(tmp_path / "d" / "e")
        files.write_whole(tmp_path / "a", b"new")
        write_within(tmp_path / "b")
        assert files.publish(tmp_path / "c", b"new")
        files.move_whole(tmp_path / "source", tmp_path / "g")
        assert {path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == {b"new"}
        assert sorted(os.listdir(tmp_path)) == ["a", "b", "c", "d", "g"]

    def test_a_file_must_be(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
        with (tmp_path / "x").open("wb") as file, pytest.raises(OSError, match="Invalid argument"):
            files.sync(file.fileno())
        with pytest.raises(OSError, match="Invalid argument"):
            files.write_whole(tmp_path / "y", b"new")
        assert os.listdir(tmp_path) == ["x"]


class TestRemovedIfItIsTheOne:
    @pytest.fixture
    def path(self, tmp_path) -> Path:
        path = tmp_path / "x"
        path.write_bytes(b"this")
        return path

    def test_it_goes(self, path) -> None:
        known = path.stat().st_ino
        assert files.remove_if(str(path), lambda status: status.st_ino == known)
        assert os.listdir(path.parent) == []

    def test_nothing_is_there(self, tmp_path) -> None:
        assert not files.remove_if(str(tmp_path / "x"), lambda _: True)
        assert not files.remove_if(str(tmp_path / "gone" / "x"), lambda _: True)

    @pytest.mark.parametrize("is_in_one_step", [True, False])
    @pytest.mark.parametrize("kind", ["file", "link", "directory"])
    def test_another_one_stays(self, path, monkeypatch, kind: str, is_in_one_step: bool) -> None:
        path.unlink()
        put(path, kind)
        before = path.lstat()
        if not is_in_one_step:
            monkeypatch.setattr(_naming, "_renaming", lambda: lambda *_: errno.ENOSYS)
        looks = iter([True, False])  # it came between two looks
        assert not files.remove_if(str(path), lambda _: next(looks))
        assert os.path.samestat(path.lstat(), before)
        assert os.listdir(path.parent) == ["x"]

    def test_another_one_keeps_its_name_all_the_time(self, path, monkeypatch) -> None:
        monkeypatch.setattr(os, "rename", lambda *_: pytest.fail("it had no name for a moment"))
        assert not files.remove_if(str(path), lambda _: False)
        assert path.read_bytes() == b"this"

    def test_one_that_came_while_another_one_was_looked_at_stays(self, path) -> None:
        def look(_: os.stat_result) -> bool:
            if path.exists():
                return True
            path.write_bytes(b"newer")
            return False

        assert not files.remove_if(str(path), look)
        assert path.read_bytes() == b"newer"
        assert os.listdir(path.parent) == ["x"]

    @pytest.mark.parametrize("what", ["look", "move"])
    def test_where_its_second_look_or_its_move_fails_it_stays(
        self, path, monkeypatch, what: str
    ) -> None:
        if what == "move":
            monkeypatch.setattr(os, "rename", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            files.remove_if(str(path), lambda _: path.exists() or failing(errno.EIO)())
        assert os.listdir(path.parent) == ["x"]
        assert path.read_bytes() == b"this"


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_file_without_a_name_can_be_written_and_mapped(monkeypatch, tmp_path, platform) -> None:
    if platform == "linux" and not hasattr(os, "memfd_create"):
        pytest.skip("this system has no memfd_create")
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fd = files.nameless()
    try:
        os.pwrite(fd, b"abc", 0)
        assert (os.pread(fd, 9, 0), [*tmp_path.iterdir()]) == (b"abc", [])
    finally:
        os.close(fd)

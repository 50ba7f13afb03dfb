"""A repair fetches what is missing or wrong, proves it, and touches nothing else."""

import contextlib
import errno
import functools
import hashlib
import os
import re
import shutil
import stat
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof import FetchError, FindingKind, ManifestError, fetch, repair, seal, validate
from shardproof._base import files
from shardproof.fetching import CallableSource, Cancellation, HubSource, Limits, RemoteFile
from shardproof.fetching.transfer._kept import key_in
from shardproof.testing import without_root_override
from shardproof.testing.faults import FileSystemFaults, serve_hub
from tests.goldens import golden
from tests.helpers.checkpoint_files import flip
from tests.helpers.commands import run
from tests.helpers.descriptors import needs_proc

LIMITS = Limits(attempts=2, max_backoff=0.01)


def contents(path: Path) -> dict[str, bytes]:
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def listing(path: Path) -> dict[str, bytes | str]:
    """All that lies there: what is no file by what it is, or where it leads."""
    return contents(path) | {
        each.relative_to(path).as_posix(): os.readlink(each) if each.is_symlink() else "folder"
        for each in path.rglob("*")
        if each.is_symlink() or not each.is_file()
    }


@pytest.fixture
def sealed(make_shards_dir) -> Path:
    path = make_shards_dir(6)
    seal(path)
    return path


@pytest.fixture
def whole(sealed) -> dict[str, bytes]:
    return contents(sealed)


def snapshot() -> str:
    return str(next((golden("hf-cache").path / "snapshots").iterdir()))


def write_list(path: Path, files: dict[str, bytes]) -> None:
    lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
    (path / "SHA256SUMS").write_text("".join(lines))


def break_some(path: Path) -> list[str]:
    (path / "acts000001.bin").unlink()
    os.truncate(path / "acts000002.bin", 3)
    (path / "acts000004.bin").write_bytes(b"")
    flip(path / "acts000005.bin")
    return [f"acts00000{n}.bin" for n in (1, 2, 4, 5)]


class TestRepaired:
    def test_what_is_broken_and_nothing_else(self, sealed, whole) -> None:
        names, told = break_some(sealed), []
        with serve_hub(whole) as hub:
            done = repair(
                sealed, hub.url, limits=LIMITS, progress=lambda done, n: told.append((done, n))
            )
            asked = {request.path.rpartition("/")[2] for request in hub.requests}
        assert (done.ok, list(done.repaired), dict(done.failed)) == (True, names, {})
        assert contents(sealed) == whole
        assert asked <= set(names)
        assert (4, 4) in told
        assert validate(sealed, level="valid").n_proven == 6

    def test_from_the_hub_against_its_listing(self, tmp_path, monkeypatch) -> None:
        root = tmp_path / "data"
        root.mkdir()
        with serve_hub() as hub:
            files = {f"train/{n}.bin": bytes([n]) * 100 for n in range(3)} | {"README.md": b"# x"}
            for name, data in files.items():
                hub.put(name, data, repo="org/name")
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_bytes(data)
            flip(root / "train/1.bin")
            (root / "README.md").unlink()
            monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
            monkeypatch.setattr("huggingface_hub.hf_api.ENDPOINT", hub.url, raising=False)
            report = validate(root, level="valid", against="hf://datasets/org/name")
            assert {each.path.name: each.kind for each in report.findings} == {
                "1.bin": FindingKind.DIGEST,
                "README.md": FindingKind.MISSING,
            }
            monkeypatch.undo()  # the client's own addresses begin with what was replaced
            write_list(tmp_path, files)
            with HubSource("org/name", endpoint=hub.url) as source:
                done = repair(root, source, against=tmp_path / "SHA256SUMS")
        assert set(done.repaired) == {"train/1.bin", "README.md"}, done.failed
        assert contents(root) == files

    def test_a_dry_run_tells_and_changes_nothing(self, sealed, whole) -> None:
        names = break_some(sealed)
        before = contents(sealed)
        with serve_hub(whole) as hub:
            done = repair(sealed, hub.url, dry_run=True)
            assert not hub.requests
        assert [file.name for file in done.wanted] == names
        assert done.n_bytes == sum(len(whole[name]) for name in names)
        assert (done.ok, done.repaired) == (False, ())
        assert contents(sealed) == before

    def test_what_is_said_of_the_whole_is_asked_again(self, tmp_path) -> None:
        """A bag says how many bytes its payload has, which is right again."""
        path = golden("bagit").copy(tmp_path)
        name = next(each for each in contents(path) if each.startswith("data/"))
        (path / name).unlink()
        assert len(validate(path, level="valid").findings) == 2
        done = repair(path, str(golden("bagit").path))
        assert (done.ok, done.repaired) == (True, (name,))
        report = validate(path, level="valid")
        assert (done.report.n_proven, done.report.unproven) == (report.n_proven, ())

    def test_what_a_fetched_promise_names_is_fetched_too(self, tmp_path) -> None:
        path = golden("bagit").copy(tmp_path)
        payload = sorted(name for name in contents(path) if name.startswith("data/"))
        (path / "manifest-sha256.txt").unlink()
        (path / payload[0]).unlink()
        (path / payload[1]).write_bytes(b"")
        done = repair(path, str(golden("bagit").path))
        assert set(done.repaired) == {"manifest-sha256.txt", *payload[:2]}, done.failed
        assert done.ok, str(done.report)
        assert contents(path) == contents(golden("bagit").path)
        assert done.report == validate(path, level="valid")


class TestNotRepaired:
    @pytest.mark.parametrize("source", ["has none", "has other bytes"])
    def test_what_the_source_can_not_give(self, sealed, whole, source: str) -> None:
        break_some(sealed)
        bad = (sealed / "acts000005.bin").read_bytes()
        data = whole.pop("acts000005.bin")
        if source == "has other bytes":
            whole["acts000005.bin"] = bytes(len(data))
        with serve_hub(whole) as hub:
            done = repair(sealed, hub.url, limits=LIMITS)
        assert (list(done.failed), len(done.repaired)) == (["acts000005.bin"], 3)
        assert source != "has none" or "404" in done.failed["acts000005.bin"]
        assert [each.path.name for each in done.report.findings] == ["acts000005.bin"]
        assert done.report == validate(sealed, level="valid")
        assert (bool(done), done.report.exit_code) == (False, 1)
        assert (sealed / "acts000005.bin").read_bytes() == bad

    def test_a_link_out_of_the_directory_and_a_folder_stay(self, sealed, whole, tmp_path) -> None:
        (tmp_path / "elsewhere").write_bytes(b"mine")
        for name in ("acts000001.bin", "acts000002.bin"):
            (sealed / name).unlink()
        (sealed / "acts000001.bin").symlink_to(tmp_path / "elsewhere")
        (sealed / "acts000002.bin").mkdir()
        (sealed / "acts000002.bin/mine").touch()
        with serve_hub(whole) as hub:
            done = repair(sealed, hub.url, limits=LIMITS)
        assert "leads out" in done.failed["acts000001.bin"]
        assert "move it away" in done.failed["acts000002.bin"]
        assert (tmp_path / "elsewhere").read_bytes() == b"mine"
        assert (sealed / "acts000002.bin/mine").exists()

    def test_what_could_not_be_looked_at_is_let_be(self, sealed, whole) -> None:
        with serve_hub(whole) as hub, FileSystemFaults(sealed) as fs:
            fs.fail("open", 5, match="acts000002.bin")
            done = repair(sealed, hub.url, limits=LIMITS)
            assert not hub.requests
        assert done.wanted == ()
        assert done.report.exit_code == 3

    def test_from_itself(self, sealed, whole, tmp_path) -> None:
        flip(sealed / "acts000001.bin")
        before = contents(sealed)
        (tmp_path / "link").symlink_to(sealed)
        for source in (sealed, tmp_path / "link"):
            with pytest.raises(ValueError, match="the directory itself"):
                repair(sealed, str(source))
        assert contents(sealed) == before

    def test_no_promise(self, sealed, whole, tmp_path) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(ManifestError):
            repair(tmp_path / "empty", "https://example.org")
        with pytest.raises(ValueError, match=r"expected an address as hf:.*found 'nonsense:"):
            repair(sealed, "nonsense://x")


def test_what_was_broken_too_is_fetched_as_it_is_promised_now(tmp_path) -> None:
    source = golden("mds-raw").copy(tmp_path / "source")
    write_list(source, contents(source))
    root = shutil.copytree(source, tmp_path / "root")
    index, [shard, *_] = root / "index.json", sorted(root.glob("*.mds"))
    index.write_text(index.read_text().replace('"bytes": ', '"bytes": 9'))
    os.truncate(shard, 70)
    done = repair(root, str(source), limits=LIMITS)
    assert (done.ok, done.failed) == (True, {})
    assert set(done.repaired) == {"index.json", shard.name}
    assert [file.name for file in done.wanted].count(shard.name) == 1
    assert contents(root) == contents(source)


class TestSources:
    """A directory is asked for the file itself, a host that is not there once."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        """It is promised two files, and has none; its source has both."""
        root, source = tmp_path / "root", tmp_path / "source"
        (source / "sub").mkdir(parents=True), root.mkdir()
        (source / "a.bin").write_bytes(b"aaaa")
        (source / "sub/b.bin").write_bytes(b"bbbb")
        write_list(root, contents(source))
        return root

    @pytest.mark.parametrize("odd", ["a loop", "a folder that may not be listed"])
    @pytest.mark.parametrize("scheme", ["", "file://", "FILE://"])
    def test_what_can_not_be_listed_and_is_not_needed(self, root, tmp_path, odd, scheme) -> None:
        source = tmp_path / "source"
        (source / "loop").symlink_to("loop")
        (source / "dark").mkdir(mode=0)
        with without_root_override() if odd != "a loop" else contextlib.nullcontext():
            done = repair(root, f"{scheme}{source}", limits=LIMITS)
        assert (done.ok, done.repaired) == (True, ("a.bin", "sub/b.bin"))

    def test_what_is_wanted_is_behind_a_loop_or_below_a_file(self, root, tmp_path) -> None:
        (tmp_path / "source/a.bin").unlink()
        (tmp_path / "source/a.bin").symlink_to("a.bin")
        shutil.rmtree(tmp_path / "source/sub")
        (tmp_path / "source/sub").touch()
        done = repair(root, str(tmp_path / "source"), limits=LIMITS)
        assert "symbolic links" in done.failed.pop("a.bin")
        assert (done.repaired, done.failed) == ((), {"sub/b.bin": "the source has no such file"})

    @pytest.mark.parametrize("name", ["hf-cache", "hf-cache-dataset"])
    def test_a_copy_of_the_cache_and_not_of_a_snapshot(self, tmp_path: Path, name: str) -> None:
        path = golden(name).copy(tmp_path)
        right = listing(path)
        for blob in sorted((path / "blobs").iterdir())[:2]:
            os.truncate(blob, 3)
        done = repair(path, str(golden(name).path), limits=LIMITS)
        assert (done.ok, len(done.repaired), done.failed) == (True, 2, {})
        assert listing(path) == right

    @pytest.mark.parametrize("source", ["typo", "file:///typo", "source/a.bin"])
    @pytest.mark.parametrize("is_whole", [False, True])
    def test_no_directory_is_refused_at_once(
        self, root, tmp_path, source, is_whole, caplog
    ) -> None:
        if is_whole:
            shutil.copytree(tmp_path / "source", root, dirs_exist_ok=True)
        before = listing(root)
        address = source if "://" in source else str(tmp_path / source)
        with pytest.raises(FetchError, match="expected a directory, found none: ") as caught:
            repair(root, address)
        assert len(str(caught.value).splitlines()) == 1
        code = run("repair", root, "--from", address).exit_code
        assert (code, caplog.records, listing(root)) == (3, [], before)

    def test_a_host_that_is_not_there_is_not_asked_for_each_file(self, tmp_path, caplog) -> None:
        root = tmp_path / "root"
        root.mkdir()
        write_list(root, {str(n): bytes([n]) for n in range(50)})
        with serve_hub() as hub:
            gone = hub.url
        with pytest.raises(FetchError, match="attempts 1 to 2: "):
            repair(root, gone, limits=LIMITS, workers=1)
        assert len(caplog.records) <= 2 * 3  # three of a file, and of a second that had begun
        assert os.listdir(root) == ["SHA256SUMS"]
        assert run("repair", root, "--from", gone).exit_code == 3


class TestElsewhere:
    @pytest.fixture
    def plain(self, tmp_path) -> Path:
        (tmp_path / "plain").mkdir()
        for name in "abc":
            (tmp_path / "plain" / name).write_bytes(name.encode() * 10)
        return tmp_path / "plain"

    def test_no_secret_of_an_address_is_told(self, plain) -> None:
        text = f"{hashlib.sha256(b'x').hexdigest()}  a\n"
        with serve_hub({"x/SHA256SUMS": text.encode(), "x/MD5SUMS": b"nonsense\n"}) as hub:
            host = hub.url.replace("://", "://user:hunter2@")
            report = validate(plain, level="valid", against=f"{host}/x/SHA256SUMS?sig=s3cret")
            assert [each.path.name for each in report.findings] == ["a"]
            assert report.format == f"{hub.url}/x/SHA256SUMS"
            told = [str(report.to_dict())]
            for address in ("x/MD5SUMS", "x/SHA1SUMS", "x"):
                with pytest.raises((ManifestError, FetchError)) as caught:
                    validate(plain, against=f"{host}/{address}?sig=s3cret")
                told.append(f"{caught.value}{caught.value.__cause__}")
        assert not [text for text in told if "hunter2" in text or "s3cret" in text]

    def test_another_directory(self, plain, tmp_path) -> None:
        other = shutil.copytree(plain, tmp_path / "other")
        assert validate(plain, level="valid", against=other).n_proven == 3
        (plain / "b").write_bytes(b"x" * 10)
        os.truncate(plain / "c", 3)
        for level, names in {"complete": ["c"], "valid": ["b", "c"]}.items():
            found = validate(plain, level=level, against=other).findings
            assert [each.path.name for each in found] == names


def access_list(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY = 2**32 - 1
USER_READS = ((1, 6, NOBODY), (2, 4, 1000), (4, 4, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY))


class TestRights:
    """Who could read a file can read what comes in its place, and nobody else."""

    @pytest.fixture
    def pair(self, tmp_path: Path) -> tuple[Path, str]:
        root, source = tmp_path / "root", tmp_path / "source"
        root.mkdir(), source.mkdir()
        (root / "a").write_bytes(b"wrong")
        (source / "a").write_bytes(b"right")
        return root / "a", str(source)

    @pytest.mark.skipif(os.geteuid() != 0, reason="gives files to others")
    @pytest.mark.parametrize(
        ("mode", "keeps", "expected"),
        [
            (0o6755, "all", 0o6755),
            (0o640, "group", 0o640),
            (0o6754, "group", 0o754),
            (0o640, "nothing", 0o600),
            (0o664, "nothing", 0o644),
            (0o604, "nothing", 0o600),
            (0o6777, "nothing", 0o777),
        ],
    )
    def test_a_group_keeps_its_own_and_no_other_gets_any(
        self, pair, mode: int, keeps: str, expected: int, monkeypatch
    ) -> None:
        """A user can give a file to a group of theirs, and to no other user."""
        path, source = pair
        os.chown(path, 1001, 2000)
        path.chmod(mode)
        if not os.access(path, os.R_OK):
            pytest.skip("root has no override of permissions here")

        def chown(real: Callable[..., None], file: object, owner: int, group: int) -> None:
            if keeps == "nothing" or (keeps == "group" and owner not in {-1, 0}):
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
            real(file, owner, group)

        for name in ("chown", "fchown"):
            monkeypatch.setattr(os, name, functools.partial(chown, getattr(os, name)))
        assert repair(path.parent, source, against=source).ok
        status = path.stat()
        assert oct(stat.S_IMODE(status.st_mode)) == oct(expected)
        assert status.st_uid == (1001 if keeps == "all" else 0)
        assert status.st_gid == (0 if keeps == "nothing" else 2000)

    @pytest.mark.skipif(sys.platform != "linux", reason="lists of access")
    @pytest.mark.parametrize("group", ["kept", "lost"])
    def test_a_list_of_access_is_carried_over(self, pair, group: str, monkeypatch) -> None:
        path, source = pair
        entries = [*USER_READS[:4], (0x20, 4, NOBODY)]
        try:
            os.setxattr(path, "system.posix_acl_access", access_list(*entries))
        except OSError as error:
            pytest.skip(f"no lists of access here: {error}")
        os.setxattr(path, "user.note", b"of a user")
        if group == "lost":
            if os.geteuid():
                pytest.skip("gives files to others")
            os.chown(path, 0, 2000)
            entries[2:] = (4, 6, NOBODY), (8, 5, 3000), (0x10, 7, NOBODY), (0x20, 6, NOBODY)
            os.setxattr(path, "system.posix_acl_access", access_list(*entries))
            # Who was in the group is of the others now: the least of both, and of the named group.
            entries[2], entries[5] = (4, 4, NOBODY), (0x20, 4, NOBODY)
            monkeypatch.setattr(os, "fchown", lambda *_: os.stat("/gone"))
        assert repair(path.parent, source, against=source).ok
        assert os.listxattr(path) == ["system.posix_acl_access"]
        assert os.getxattr(path, "system.posix_acl_access") == access_list(*entries)

    def test_nobody_else_reads_what_waits_to_be_proven(self, pair, tmp_path) -> None:
        path, source = pair
        path.chmod(0o600)
        seen = []

        def fetch(_name: str, dest: Path) -> None:
            [parts] = [each for each in path.parent.iterdir() if each.name.endswith(".parts")]
            seen.append(stat.S_IMODE(parts.stat().st_mode))
            dest.write_bytes(b"right")

        with CallableSource(fetch, scratch=tmp_path) as opened:
            assert repair(path.parent, opened, against=source).ok
        assert seen == [0o700]


@pytest.mark.parametrize("when", ["before", "while it lists", "while it fetches"])
def test_a_repair_that_is_cancelled_ends_with_a_fetch_error(
    sealed, whole, tmp_path, when: str
) -> None:
    break_some(sealed)
    before, cancellation = contents(sealed), Cancellation()
    if when == "before":
        cancellation.cancel()

    class Source(CallableSource):
        def files(self) -> list[RemoteFile]:
            if when == "while it lists":
                cancellation.cancel()
            return [RemoteFile(name) for name in whole]

    def fetch(name: str, dest: Path) -> None:
        cancellation.cancel()
        dest.write_bytes(whole[name])

    error = pytest.raises(FetchError, match="it was stopped")
    with Source(fetch, scratch=tmp_path) as source, error:
        repair(sealed, source, cancellation=cancellation, workers=1, limits=LIMITS)
    assert all(data in {before.get(each), whole[each]} for each, data in contents(sealed).items())


class TestPlaces:
    """Where a file is, and where what is fetched for it waits."""

    def test_a_store_that_is_a_link_out(self, tmp_path: Path) -> None:
        path = golden("hf-cache").copy(tmp_path)
        repository = next(each for each in path.rglob("blobs") if each.is_dir()).parent
        (repository / "blobs").rename(tmp_path / "elsewhere")
        (repository / "blobs").symlink_to(tmp_path / "elsewhere")
        before = contents(tmp_path / "elsewhere")
        done = repair(path, snapshot())
        assert (done.ok, done.repaired) == (False, ())
        assert "leads out" in " ".join(done.failed.values())
        assert contents(tmp_path / "elsewhere") == before

    @pytest.mark.parametrize("how", ["seen before", "seen by the rename"])
    def test_a_folder_of_another_file_system(self, tmp_path: Path, how: str, monkeypatch) -> None:
        root, source = tmp_path / "root", tmp_path / "source"
        (source / "sub/x").mkdir(parents=True)
        (source / "sub/x/a").write_bytes(b"right")
        (root / "sub").mkdir(parents=True)
        lstat, move, asked = os.lstat, files.move, []

        def other(path: object, **keywords: int) -> os.stat_result:
            status = lstat(path, **keywords)
            is_it = how == "seen before" and os.fspath(path) == f"{root}/sub"
            return os.stat_result([*status[:2], status.st_dev + is_it, *status[3:]])

        def refuse(*args: str, target_fd: int | None = None) -> None:
            if target_fd is not None:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            move(*args)

        monkeypatch.setattr(os, "lstat", other)
        if how != "seen before":
            monkeypatch.setattr(files, "move", refuse)

        def fetch(name: str, dest: Path) -> None:
            asked.append(name)
            shutil.copy(source / name, dest)

        with CallableSource(fetch, scratch=tmp_path) as opened:
            done = repair(root, opened, against=source)
        assert "another file system" in done.failed["sub/x/a"]
        assert "--against" in done.failed["sub/x/a"]
        assert asked == ([] if how == "seen before" else ["sub/x/a"])
        assert listing(root) == {"sub": "folder"}
        monkeypatch.undo()
        assert repair(root / "sub", str(source / "sub"), against=source / "sub").ok

    @pytest.mark.parametrize("kind", ["link", "file", "another user's"])
    def test_what_is_in_the_place_of_parts_is_named(
        self, request, sealed, whole, tmp_path, kind
    ) -> None:
        break_some(sealed)
        parts = sealed / f".shardproof-{os.geteuid()}.parts"
        if kind == "link":
            left = tmp_path / "x" / parts.name / f".shardproof-{'0' * 16}.{'0' * 16}.left.part"
            key = key_in(f"{sealed}/{parts.name}", f"{sealed}/acts000003.bin")
            left = left.with_name(left.name.replace("0" * 16, key, 1))
            left.mkdir(parents=True)
            parts.symlink_to(left.parent)
        elif kind == "file":
            parts.write_bytes(b"mine")
        elif os.geteuid():
            pytest.skip("gives a folder to others")
        else:
            parts.mkdir()
            os.chown(parts, 1000, 1000)
            request.addfinalizer(lambda: os.chown(parts, 0, 0))  # so that anybody may remove it
        before = listing(sealed)
        with serve_hub(whole) as hub:
            done = repair(sealed, hub.url, limits=LIMITS)
            with pytest.raises(FetchError, match=re.escape(f"'{parts}'")):
                fetch(f"{hub.url}/acts000001.bin", sealed)
        assert len(done.failed) == 4
        for problem in done.failed.values():
            assert re.search(f"'{re.escape(str(parts))}'.*move that away", problem)
        assert listing(sealed) == before
        assert kind != "link" or left.is_dir()


@pytest.mark.parametrize("name", ["b::", "::b", "b::file", "a #?%41*[x]::~ "])
def test_a_directory_is_a_source_whatever_it_is_called(
    tmp_path: Path, monkeypatch, name: str
) -> None:
    (tmp_path / "root").mkdir()
    for each, data in {name: b"right", "b": b"wrong", "a #?%41*[x]": b"wrong"}.items():
        (tmp_path / each).mkdir()
        (tmp_path / each / "a").write_bytes(data)
    monkeypatch.chdir(tmp_path)
    done = repair("root", name, against=tmp_path / name)
    assert (done.ok, done.failed) == (True, {})
    os.truncate("root/a", 0)
    assert repair("root", f"file://{tmp_path}/{name}", against=tmp_path / name).ok
    with pytest.raises(ValueError, match="found the directory itself"):
        validate(name, against=f"file://{tmp_path}/{name}")


class TestWithoutDigests:
    """What only the structure of a file tells from the right one, which is of the same size."""

    def test_a_source_that_is_not_right_either(self, tmp_path: Path) -> None:
        root = golden("parquet-plain").copy(tmp_path)
        shard = min(root.glob("*.parquet"))
        source = shutil.copytree(root, tmp_path / "source")
        shard.write_bytes(bytes(4) + shard.read_bytes()[4:])
        (source / shard.name).write_bytes(bytes(8) + shard.read_bytes()[8:])
        before = contents(root)
        done = repair(root, str(source), limits=LIMITS)
        assert (done.ok, done.repaired, list(done.failed)) == (False, (), [shard.name])
        assert contents(root) == before

    def test_of_a_folder_that_nothing_comes_into_nothing_is_made(self, tmp_path: Path) -> None:
        listed = shutil.copytree(golden("parquet-plain").path, tmp_path / "source/x/y").parents[1]
        root, nothing = tmp_path / "empty", tmp_path / "nothing"
        root.mkdir(), nothing.mkdir()
        done = repair(root, str(nothing), against=listed, limits=LIMITS)
        assert (done.ok, list(root.iterdir())) == (False, [])
        assert set(done.failed) == {file.name for file in done.wanted}
        assert repair(root, str(listed), against=listed).ok
        assert contents(root) == contents(listed)


class TestNeverWorse:
    """What is there is left or exchanged, by what is proven; nothing else is touched."""

    @pytest.mark.parametrize("of_the_source", ["sha256", "md5"])
    def test_each_digest_is_proven_before_the_exchange(self, tmp_path, of_the_source) -> None:
        """Two lists are of other bytes: no source can have what both state."""
        root, source = tmp_path / "root", tmp_path / "source"
        root.mkdir(), source.mkdir()
        (source / "a").write_bytes(b"found at the source")
        for algorithm, name in {"sha256": "SHA256SUMS", "md5": "MD5SUMS"}.items():
            data = b"found at the source" if algorithm == of_the_source else b"other bytes"
            (root / name).write_text(f"{hashlib.new(algorithm, data).hexdigest()}  a\n")
        (root / "a").write_bytes(b"broken")
        before = listing(root)
        done = repair(root, str(source), limits=LIMITS)
        assert (bool(done), done.repaired, list(done.failed)) == (False, (), ["a"])
        assert listing(root) == before

    def test_a_link_gives_way_and_what_it_leads_to_stays(self, tmp_path: Path) -> None:
        root = tmp_path / "l"
        root.mkdir()
        (root / "b").write_bytes(b"b" * 10)
        (root / "a").symlink_to("b")
        (root / "loop").symlink_to("loop")
        source = tmp_path / "source"
        source.mkdir()
        for name in ("a", "b", "loop"):
            (source / name).write_bytes(name.encode() * 10)
        done = repair(root, str(source), against=source)
        assert (done.ok, sorted(done.repaired)) == (True, ["a", "loop"])
        assert contents(root) == contents(source)
        assert not [path for path in root.iterdir() if path.is_symlink()]

    def test_nothing_behind_a_link_to_a_folder(self, tmp_path: Path) -> None:
        root, source = tmp_path / "root", tmp_path / "source"
        for base in (root, source):
            (base / "v1").mkdir(parents=True)
            (base / "v1/x").write_bytes(b"1")
        (source / "v2").mkdir()
        (source / "v2/x").write_bytes(b"2")
        (root / "v2").symlink_to("v1")
        before = listing(root)
        done = repair(root, str(source), against=source, limits=LIMITS)
        assert (done.ok, list(done.failed), listing(root)) == (False, ["v2/x"], before)
        assert "'v2/x'" not in done.failed["v2/x"]
        assert "a link" in done.failed["v2/x"]

    def test_a_promised_file_where_parts_are(self, tmp_path: Path) -> None:
        """Its name is that of a part of the broken one: who has made the part, no name tells."""
        root, source = tmp_path / "root", tmp_path / "source"
        parts = f".shardproof-{os.geteuid()}.parts"
        part = f"{parts}/.shardproof-{key_in(f'/x/{parts}', '/x/a')}.{'0' * 16}.left.part/data"
        for base in (root, source):
            (base / part).parent.mkdir(parents=True)
            (base / part).write_bytes(b"of a user")
            (base / "a").write_bytes(b"right")
        write_list(tmp_path, contents(root))
        (root / "a").write_bytes(b"wrong")
        before = listing(root)
        with pytest.raises(ManifestError, match=r"lists files in '\.shardproof-\d+\.parts'"):
            repair(root, str(source), against=tmp_path / "SHA256SUMS", limits=LIMITS)
        assert listing(root) == before

    def test_another_name_of_the_same_bytes_stays(self, sealed: Path, whole, tmp_path) -> None:
        flip(sealed / "acts000001.bin")
        os.link(sealed / "acts000001.bin", tmp_path / "mine")
        wrong = (tmp_path / "mine").read_bytes()
        with serve_hub(whole) as hub:
            assert repair(sealed, hub.url).ok
        assert (tmp_path / "mine").read_bytes() == wrong

    def test_the_folder_of_blobs_is_gone(self, tmp_path: Path) -> None:
        path = golden("hf-cache").copy(tmp_path)
        right = contents(path)
        shutil.rmtree(path / "blobs")
        done = repair(path, snapshot())
        assert (done.ok, done.failed) == (True, {})
        blobs = {file.name for file in done.report.path.joinpath("blobs").iterdir()}
        assert contents(path).items() <= right.items()
        assert len(blobs) == len(done.repaired)

    @pytest.mark.parametrize("against", [False, True])
    def test_a_blob_gets_the_bytes_by_which_it_is_called(self, tmp_path: Path, against) -> None:
        """A link to another blob than the promised one gives way, and the blob stays."""
        path = golden("hf-cache").copy(tmp_path)
        [link] = [each for each in path.rglob("*") if each.is_symlink()][:1]
        blob, right = link.resolve(), link.read_bytes()
        if against:
            path, source = link.parent, tmp_path / "source"
            shutil.copytree(path, source)
            (source / link.name).write_bytes(b"of a later revision")
            done = repair(path, str(source), against=source)
            assert (link.is_symlink(), link.read_bytes()) == (False, b"of a later revision")
        else:
            blob.write_bytes(b"wrong")
            done = repair(path, str(path / "refs"), limits=LIMITS)
            assert (done.ok, blob.read_bytes()) == (False, b"wrong")
            done = repair(path, snapshot())
            assert link.is_symlink()
        assert (done.ok, done.failed) == (True, {})
        assert blob.read_bytes() == right

    @needs_proc  # by which it follows the directory
    def test_another_directory_in_its_place(self, sealed: Path, whole, tmp_path) -> None:
        names = break_some(sealed)
        kept, other = tmp_path / "kept", tmp_path / "other"
        shutil.copytree(sealed, other)
        before = contents(other)

        def swap(_name: str, dest: Path) -> None:
            dest.write_bytes(whole[_name])
            if not kept.exists():
                sealed.rename(kept)
                other.rename(sealed)

        error = pytest.raises(OSError, match="replaced")
        with CallableSource(swap, scratch=tmp_path) as source, error:
            repair(sealed, source, workers=1)
        assert contents(sealed) == before
        assert {each for each, data in contents(kept).items() if data != whole[each]} <= {*names}


@pytest.mark.parametrize("address", ["s3://bucket/dir", "memory://dir", "gs://user:pass@b/dir"])
def test_nothing_is_repaired_in_a_bucket(address) -> None:
    with pytest.raises(ValueError, match="is not repaired in place: upload the files") as caught:
        repair(address, "memory://other")

    assert "pass" not in str(caught.value)

"""The one verb, on every bad input that there is."""

import contextlib
import errno
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import shardproof
from shardproof import (
    FindingKind,
    ManifestError,
    ManifestNotFoundError,
    ManifestPermissionError,
    Metadata,
    Shard,
    ShardInfo,
    formats,
    testing,
    validate,
    validation,
)
from shardproof.testing import time_limit, without_root_override
from shardproof.testing.faults import serve_hub
from tests.helpers.commands import run
from tests.helpers.descriptors import needs_proc


def test_a_healthy_directory(make_shards_dir) -> None:
    shards_dir = make_shards_dir(3)
    report = validate(shards_dir)

    assert (report.ok, report.path, report.format) == (True, shards_dir, "saev")
    assert (report.level, report.n_files) == ("present", 3)
    assert report.findings == report.unproven == ()


def test_a_failing_look_at_valid_says_how_many_files_are_unproven(make_shards_dir) -> None:
    report = validate(make_shards_dir(3, labels=True, missing_shards=[1]), level="valid")

    counts = "valid: 0 proven, 3 without a digest, 1 not as expected, of 4 files of"
    assert str(report).endswith(f"acts000001.bin\n\n{counts} '{report.path}'")
    assert (report.n_proven, len(report.unproven)) == (0, 3)


def test_a_relative_path_and_a_link_to_the_directory(
    make_shards_dir, tmp_path, monkeypatch
) -> None:
    shards_dir = make_shards_dir(2, missing_shards=[0])
    (tmp_path / "link").symlink_to(shards_dir)
    monkeypatch.chdir(shards_dir.parent)

    for path in (shards_dir.name, tmp_path / "link"):
        (finding,) = validate(path).findings
        assert finding.path == shards_dir / "acts000000.bin"


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"level": "everything"}, ValueError),
        ({"level": None}, TypeError),
        ({"workers": "2"}, TypeError),
        ({"workers": True}, TypeError),
        ({"workers": 0}, ValueError),
        ({"workers": -1}, ValueError),
        ({"executor": 3}, TypeError),
        ({"progress": 3}, TypeError),
    ],
)
def test_a_wrong_argument_is_refused_before_any_work(tmp_path, keywords, error) -> None:
    with pytest.raises(error, match=next(iter(keywords))):
        validate(tmp_path / "gone", **keywords)


def test_workers_and_executor_exclude_each_other(tmp_path) -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(ValueError, match="found both"):
        validate(tmp_path, workers=2, executor=executor)


class TestNoReadablePromise:
    @pytest.mark.parametrize(
        ("name", "error", "match"),
        [
            ("gone", ManifestNotFoundError, "/gone': there is no such"),
            ("link", ManifestNotFoundError, "/gone': there is no such"),
            ("file", ManifestError, "found a file"),
            ("a\0b", ValueError, "null"),
            ("empty", ManifestNotFoundError, "found nothing"),
        ],
    )
    def test_what_is_no_shards_directory(self, tmp_path, name: str, error, match: str) -> None:
        (tmp_path / "link").symlink_to("gone")
        (tmp_path / "file").write_bytes(b"x")
        (tmp_path / "empty").mkdir()
        with pytest.raises(error, match=match):
            validate(tmp_path / name)

    @pytest.mark.parametrize(
        ("which", "mode"),
        [
            (".", 0o000),
            (".", 0o444),  # its names can be listed, and none of its files looked at
            (".", 0o111),
            ("..", 0o000),
            ("shards.json", 0o000),
            ("metadata.json", 0o000),
            ("receipts", 0o000),
            ("receipts", 0o111),
        ],
    )
    def test_what_may_not_be_read(
        self, make_shards_dir, make_receipts_dir, which: str, mode: int
    ) -> None:
        root = make_receipts_dir(2) if which == "receipts" else make_shards_dir(1)
        closed = Path(os.path.abspath(root / which))
        before = closed.stat().st_mode
        closed.chmod(mode)
        try:
            with without_root_override(), pytest.raises(ManifestPermissionError) as caught:
                validate(root)
        finally:
            closed.chmod(before)
        assert "ask its owner to let you read it" in str(caught.value)
        assert caught.value.path.startswith(str(closed if which == "receipts" else root))

    @pytest.mark.parametrize("name", ["shards.json", "metadata.json"])
    @pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path.name)])
    def test_a_manifest_file_that_is_none(self, make_shards_dir, name, make) -> None:
        shards_dir = make_shards_dir(1)
        (shards_dir / name).unlink()
        make(shards_dir / name)
        with pytest.raises((ManifestError, OSError), match=r"regular file|symbolic links"):
            validate(shards_dir)

    @pytest.mark.parametrize("name", ["shards.json", "metadata.json"])
    def test_a_manifest_file_on_a_disk_that_fails(self, make_shards_dir, name, monkeypatch) -> None:
        shards_dir = make_shards_dir(1)
        real = os.open

        def failing(path, *args, **keywords):
            if path == name:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return real(path, *args, **keywords)

        monkeypatch.setattr(os, "open", failing)
        with pytest.raises(OSError, match="Input/output error") as caught:
            validate(shards_dir)
        assert not isinstance(caught.value, shardproof.ShardproofError)


class TestADirectoryThatIsReplaced:
    """While it is looked at: what was found may be of either, and of none is told."""

    @pytest.fixture(params=["another", "a link to another", "a file", "nothing", "itself"])
    def replace(self, request, make_shards_dir, tmp_path) -> Callable[[], None]:
        self.root = make_shards_dir(3, missing=[1])
        other = make_shards_dir(2, missing=[0])

        def replace() -> None:
            time.sleep(0.02)  # the clock of a file system may go on in steps of 10 ms
            self.root.rename(tmp_path / "kept")
            if request.param == "another":
                other.rename(self.root)
            elif request.param == "a link to another":
                self.root.symlink_to(other)
            elif request.param == "a file":
                self.root.touch()
            elif request.param == "itself":
                (tmp_path / "kept").rename(self.root)

        return replace

    @pytest.fixture(params=["detect", "check"])
    def during(self, request, replace, monkeypatch) -> None:
        where = formats if request.param == "detect" else validation
        real = getattr(where, request.param)

        def step_then_replace(*args, **keywords):
            result = real(*args, **keywords)
            replace()
            return result

        monkeypatch.setattr(where, request.param, step_then_replace)

    @pytest.mark.usefixtures("during")
    def test_it_could_not_be_looked_at(self) -> None:
        before = os.listdir("/dev/fd")
        with pytest.raises(OSError, match="it was replaced during the check") as caught:
            validate(self.root)
        assert caught.value.errno == errno.ESTALE
        assert caught.value.filename == str(self.root)
        assert os.listdir("/dev/fd") == before

    @pytest.mark.usefixtures("during")
    def test_in_the_command(self) -> None:
        result = run("validate", self.root)
        assert result.exit_code == 3
        assert "it was replaced during the check" in result.stderr


def test_nothing_is_opened_outside_the_directory_nor_run(make_shards_dir, tmp_path) -> None:
    """An audit hook watches a hostile directory being looked at (sys.addaudithook)."""
    shards_dir = make_shards_dir(3)
    (tmp_path / "secret").write_bytes(b"secret")
    (shards_dir / "acts000001.bin").unlink()
    (shards_dir / "acts000001.bin").symlink_to(tmp_path / "secret")
    code = (
        "import concurrent.futures.thread, sys, shardproof; shardproof.validate\n"
        "seen = []\n"
        "watched = 'pickle.find_class', 'os.system', 'subprocess.Popen', 'socket.connect', 'exec'\n"
        "def hook(event, args):\n"
        "    if event == 'open' and str(args[0]).endswith('secret') or event in watched:\n"
        "        seen.append((event, args))\n"
        "shardproof.validate(sys.argv[1], level='valid')\n"  # warm: lazy imports run code objects
        "sys.addaudithook(hook)\n"
        "print(len(shardproof.validate(sys.argv[1], level='valid').findings), seen)"
    )
    run = subprocess.run([sys.executable, "-c", code, shards_dir], capture_output=True, text=True)

    assert run.stdout == "1 []\n", run.stderr


def test_no_file_is_changed_by_a_look(make_shards_dir) -> None:
    shards_dir = make_shards_dir(3, labels=True)

    def state() -> list[tuple]:
        files = [shards_dir, *sorted(shards_dir.iterdir())]
        return [
            (f.name, f.stat().st_mtime_ns, f.stat().st_ctime_ns, f.stat().st_size) for f in files
        ]

    before = state()
    validate(shards_dir, level="valid")
    assert state() == before


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """100 000 shards; links to one file, since only the looking counts here."""
    shards_dir = tmp_path_factory.mktemp("many")
    limit = os.pathconf(shards_dir, "PC_LINK_MAX") - 1
    names = [f"acts{index:06}.bin" for index in range(100_000)]
    for index, name in enumerate(names):
        source = names[index - index % min(limit, 10_000)]
        if name == source:
            (shards_dir / name).write_bytes(b"x" * 16)
        else:
            os.link(shards_dir / source, shards_dir / name)
    ShardInfo([Shard(name, 4) for name in names]).dump(shards_dir)
    fields = {"family": "clip", "ckpt": "c", "layers": (0,), "data": "", "dataset": "/d"}
    counts = {"content_tokens_per_example": 1, "d_model": 1, "max_tokens_per_shard": 4}
    Metadata(**fields, **counts, cls_token=False, n_examples=400_000).dump(shards_dir)
    return shards_dir


@needs_proc
@pytest.mark.slow
def test_100_000_shards_in_bounded_memory(many) -> None:
    code = (
        # Not ru_maxrss, which begins with what the parent had.
        "import re, sys, shardproof\n"
        "report = shardproof.validate(sys.argv[1], level=sys.argv[2])\n"
        "kib = int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "print(report.ok, report.n_files, kib < 120 * 1024, kib)"
    )
    for level in ("present", "complete"):
        run = subprocess.run(
            [sys.executable, "-c", code, many, level], capture_output=True, text=True
        )
        assert run.stdout.startswith("True 100000 True"), run.stdout + run.stderr


@pytest.mark.slow
def test_all_of_100_000_shards_missing_are_counted(many, tmp_path) -> None:
    for name in ("shards.json", "metadata.json"):
        (tmp_path / name).write_bytes((many / name).read_bytes())
    text = str(validate(tmp_path))

    assert text.count("\n  - ") == 10_000
    assert "Missing files (100000):" in text
    assert "and 90000 more" in text


@pytest.mark.parametrize(("quiet_seconds", "draws"), [(0, True), (60, False)])
def test_a_bar_on_a_terminal_when_it_takes_long(
    make_shards_dir, monkeypatch, quiet_seconds, draws
) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("shardproof._base.progress._QUIET_SECONDS", quiet_seconds)
    before = threading.active_count()

    assert validate(make_shards_dir(3), progress=True).ok

    assert ("3/3" in terminal.getvalue()) == draws
    assert threading.active_count() == before


class TestACheckpointByItsPrefix:
    def test_a_flipped_shard_is_found_as_the_verifier_finds_it(self, make_checkpoint) -> None:
        prefix = make_checkpoint(world_size=3)
        assert str(validate(prefix, level="valid")) == f"valid: 3 of 3 files of '{prefix}'"
        shard = prefix.with_name(f"{prefix.name}_shard_1.shard")
        testing.damage(shard, "flipped")
        report = validate(prefix, level="valid")
        verified = shardproof.ShardFileVerifier().verify_checkpoint(prefix, level="valid")
        assert [(finding.kind, finding.path) for finding in report.findings] == [
            (finding.kind, finding.path) for finding in verified.findings
        ]
        assert not report.ok
        assert not validate(prefix.parent, level="valid").ok

    def test_of_torn_metadata_nothing_is_promised(self, make_checkpoint) -> None:
        prefix = make_checkpoint(world_size=2)
        metadata = prefix.with_name(f"{prefix.name}.metadata.json")
        metadata.write_bytes(metadata.read_bytes()[:-9])
        with pytest.raises(ManifestError, match="not JSON") as caught:
            validate(prefix)
        assert caught.value.path == str(metadata)
        assert not shardproof.ShardFileVerifier().verify_checkpoint(prefix).ok
        assert not validate(prefix.parent).ok
        metadata.unlink()
        with pytest.raises(ManifestNotFoundError, match="no such directory"):
            validate(prefix)


class TestAPromiseFromElsewhere:
    """One that says nothing, or comes from the directory itself, proves nothing."""

    @pytest.mark.parametrize("options", [[], ["--level", "valid", "--require-digests"]])
    @pytest.mark.parametrize("kind", ["folder", "hidden", "list", "comments", "memory", "file"])
    def test_of_nothing_is_refused(self, make_shards_dir, tmp_path: Path, kind, options) -> None:
        empty = tmp_path / "empty"
        empty.mkdir()
        (empty / ".hidden").mkdir()
        (empty / ".hidden/x").touch()
        texts = {"list": "", "comments": "# nothing\n\n"}
        if kind in texts:
            empty = tmp_path / "empty.txt"
            empty.write_text(texts[kind])
        if kind == "file":
            (empty / ".hidden/x").unlink()
        addresses = {"memory": "memory://nothing/here", "file": f"file://{empty}"}
        against = addresses.get(kind, str(empty))
        done = run("validate", "--against", against, *options, make_shards_dir(2))
        assert (done.exit_code, done.stdout) == (2, "")
        found = "expected a digest and a name, found none" if kind in texts else "it lists no files"
        assert f"'{against}': " in done.stderr
        assert found in done.stderr

    def test_of_nothing_at_an_address_is_refused(self, make_shards_dir) -> None:
        with serve_hub({"x/SHA256SUMS": b""}) as hub:
            for address in (f"{hub.url}/x/SHA256SUMS", hub.url):
                with pytest.raises(ManifestError, match="it lists no files"):
                    validate(make_shards_dir(2), against=address)

    @pytest.mark.parametrize(
        "way", ["{}", "{}/", "{}/../{name}", "link", "here", "file://{}", "FILE://{}", "local://{}"]
    )
    def test_of_itself_is_refused(self, make_shards_dir, tmp_path, monkeypatch, way: str) -> None:
        path = make_shards_dir(2)
        (tmp_path / "link").symlink_to(path)
        monkeypatch.chdir(path)
        there = {"link": str(tmp_path / "link"), "here": "."}.get(way)
        address = there or way.format(path, name=path.name)
        with pytest.raises(ValueError, match="found the directory itself"):
            validate(path, against=address)
        assert run("validate", "--against", address, path).exit_code == 2

    @pytest.mark.parametrize("target", ["../outside", "../fifo", "gone", "loop"])
    def test_with_links_to_what_is_no_file_is_refused(self, make_shards_dir, tmp_path, target):
        (tmp_path / "outside").mkdir()
        other = shutil.copytree(make_shards_dir(2), tmp_path / "other")
        os.mkfifo(tmp_path / "fifo")
        (other / "loop").symlink_to(target)
        with time_limit(10):
            done = run("validate", "--against", other, make_shards_dir(2))
        assert done.exit_code in {2, 3}
        assert f"{other}/loop'" in done.output

    @pytest.fixture
    def at(self, tmp_path: Path) -> Iterator[Callable[[str], str]]:
        """Put a list into a directory that is served; the address is its own, or its path."""
        (tmp_path / "lists").mkdir()
        with contextlib.ExitStack() as stack:

            def at(text: str, *, is_served: bool) -> str:
                if is_served:
                    hub = stack.enter_context(serve_hub({"SHA256SUMS": text.encode()}))
                    return f"{hub.url}/SHA256SUMS"
                (tmp_path / "lists/SHA256SUMS").write_text(text)
                return str(tmp_path / "lists/SHA256SUMS")

            yield at

    @pytest.mark.parametrize("is_served", [False, True])
    def test_a_list_is_read_by_the_rules_of_one_inside(self, tmp_path, at, is_served) -> None:
        """Several algorithms of a file, itself as it was before its last line."""
        path = tmp_path / "data"
        path.mkdir()
        (path / "a").write_bytes(b"a")
        sha256, md5 = hashlib.sha256(b"a").hexdigest(), hashlib.md5(b"a").hexdigest()
        text = f"SHA256 (a) = {sha256}\nMD5 (a) = {md5}\n{sha256}  SHA256SUMS\n"
        assert validate(path, level="valid", against=at(text, is_served=is_served)).n_proven == 1
        for wrong in (text.replace(md5, "0" * 32), text.replace(sha256, "0" * 64)):
            report = validate(path, level="valid", against=at(wrong, is_served=is_served))
            assert [each.kind for each in report.findings] == [FindingKind.DIGEST]
        disagrees = f"{sha256}  a\n{'0' * 64}  a\n"
        report = validate(path, against=at(disagrees, is_served=is_served), level="complete")
        assert [each.kind for each in report.findings] == [FindingKind.STRUCTURE]

    @pytest.mark.parametrize("bad", ["no digest\n", f"{'0' * 64}  ../x\n"])
    @pytest.mark.parametrize("is_served", [False, True])
    def test_a_bad_line_of_a_list_hides_nothing(self, tmp_path, at, is_served, bad) -> None:
        path = tmp_path / "data"
        path.mkdir()
        (path / "a").write_bytes(b"a")
        text = f"{hashlib.sha256(b'a').hexdigest()}  a\n{bad}"
        address = at(text, is_served=is_served)
        report = validate(path, level="valid", against=address)
        assert (report.exit_code, report.n_files, report.n_proven) == (1, 1, 1)
        [finding] = report.findings
        assert finding.kind is FindingKind.STRUCTURE
        assert is_served or finding.path == Path(address)
        assert address in str(report)
        address = at(bad, is_served=is_served)
        with pytest.raises(ManifestError, match=re.escape(address)):
            validate(path, against=address)

"""What other tools fetched is taken over: proven where that can be, else on the user's word."""

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shardproof import FetchError, ShardPrefetcher
from shardproof.cli.app import app
from shardproof.fetching import CallableSource, Cancellation, HubSource, Limits, RemoteFile, adopt
from shardproof.fetching.cache import Cache
from shardproof.testing.faults import Hub
from tests.helpers.hub_sources import repository

NAMES = [f"train/{n}.bin" for n in range(3)]
ONCE = Limits(attempts=1, max_backoff=0.01)


def content(name: str) -> bytes:
    return name.encode() * 1000


def put_there(root: Path, names: list[str] = NAMES) -> None:
    """As another tool does it."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content(name))


def looks(root: Path) -> dict[str, tuple[int, int, int]]:
    """Every file beside the records, so that nothing can change unseen."""
    files = [path for path in root.rglob("*") if ".shardproof" not in path.parts]
    return {
        path.relative_to(root).as_posix(): (status.st_ino, status.st_mtime_ns, status.st_size)
        for path in files
        if not stat.S_ISDIR((status := path.lstat()).st_mode)
    }


def nowhere(name: str, dest: Path) -> None:
    raise AssertionError(f"{name} was fetched")


def fetched(url: str, cache: Path, name: str = "0.bin") -> Path:
    with ShardPrefetcher(url, [name], cache) as prefetcher:
        return prefetcher.wait_for(name)


def gets(hub: Hub) -> list[str]:
    """Which were fetched; the hub leads to its CDN."""
    paths = [request.path for request in hub.requests_for("*.bin", method="GET")]
    return [path for path in paths if not path.startswith("cdn/")]


@pytest.fixture
def source(shard_hub) -> Iterator[HubSource]:
    with repository(shard_hub, {name: content(name) for name in NAMES}) as source:
        yield source


@pytest.fixture
def root(tmp_path) -> Path:
    """Where a prefetcher keeps the shards of the hub's repository."""
    return tmp_path / "hf_shards/org/name/all"


class TestAgainstASource:
    def test_what_it_states_digests_of_is_proven(self, source, shard_hub, root, tmp_path) -> None:
        put_there(root)
        before = looks(root)
        report = adopt(root, source)
        assert str(report) == f"valid: 3 of 3 files of '{root}'"
        with ShardPrefetcher(source, NAMES, tmp_path) as prefetcher:
            assert [path.read_bytes() for path in prefetcher] == [content(n) for n in NAMES]
        assert gets(shard_hub) == []
        assert looks(root) == before, "what it did not fetch is not removed either"

    def test_what_differs_is_not_taken_over_and_stays(
        self, source, shard_hub, root, tmp_path
    ) -> None:
        put_there(root)
        (root / NAMES[0]).write_bytes(content(NAMES[0])[:-1])
        (root / NAMES[1]).write_bytes(content(NAMES[1])[:-1] + b"x")
        before = looks(root)
        report = adopt(root, source)
        assert [(finding.kind, finding.path) for finding in report.findings] == [
            ("size", root / NAMES[0]),
            ("digest", root / NAMES[1]),
        ]
        assert report.exit_code == 1
        assert looks(root) == before
        with ShardPrefetcher(source, NAMES, tmp_path, cleanup="keep") as prefetcher:
            assert [path.read_bytes() for path in prefetcher] == [content(n) for n in NAMES]
        assert len(gets(shard_hub)) == 2

    def test_what_it_does_not_have_is_left_alone(self, shard_hub, root, caplog) -> None:
        put_there(root)
        report = adopt(root, f"{shard_hub.url}/no")
        assert (report.ok, report.n_files) == (True, 0)
        assert caplog.text.count("is left alone: the source does not list it") == 3

    @pytest.mark.parametrize("file", ["0.bin", RemoteFile("0.bin", 4)])
    def test_a_function_that_says_what_there_is(self, tmp_path, file) -> None:
        source = CallableSource(nowhere, [file])
        (tmp_path / "0.bin").write_bytes(b"1234")
        (tmp_path / "1.bin").write_bytes(b"1234")
        assert adopt(tmp_path, source).unproven == (tmp_path / "0.bin",)

    @pytest.mark.parametrize("status", ["status-503", "closed-before-header"])
    def test_one_that_can_not_be_asked(self, shard_hub, tmp_path, status) -> None:
        put_there(tmp_path, NAMES[:1])
        shard_hub.put(NAMES[0], content(NAMES[0]))
        shard_hub.fault("*", status, method=None)
        with pytest.raises(FetchError):
            adopt(tmp_path, shard_hub.url, limits=ONCE)

    def test_a_file_that_this_package_fetched_stays_its_own(self, source, root, tmp_path) -> None:
        with ShardPrefetcher(source, NAMES, tmp_path, cleanup="keep") as prefetcher:
            list(prefetcher)
        assert adopt(root, source).ok
        assert adopt(root).ok
        with Cache(root) as cache:
            assert sorted(cache.discard_others([])) == NAMES


class TestOnTheUsersWord:
    def test_what_nobody_states_anything_of(self, tmp_path) -> None:
        source = CallableSource(nowhere)
        root = tmp_path / "own_shards/default/_/all"
        put_there(root)
        report = adopt(root)
        assert str(report).startswith(
            f"valid: 0 proven, 3 without a digest, of 3 files of '{root}'"
        )
        with ShardPrefetcher(source, NAMES, tmp_path) as prefetcher:
            assert [path.read_bytes() for path in prefetcher] == [content(n) for n in NAMES]

    @pytest.mark.parametrize("is_asked", [True, False], ids=["its size is told", "nothing is"])
    def test_it_is_for_the_revision_that_is_first_asked_for(
        self, shard_hub, tmp_path, is_asked
    ) -> None:
        url = shard_hub.put("0.bin", b"1234").removesuffix("/0.bin")
        path = fetched(url, tmp_path)
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        path.write_bytes(b"1234")
        report = adopt(path.parent, url if is_asked else None)
        assert (report.ok, report.unproven) == (True, (path,))
        n_gets = len(gets(shard_hub))
        for data in (b"1234", b"1234", b"5678"):
            shard_hub.put("0.bin", data)
            assert fetched(url, tmp_path).read_bytes() == data
            assert len(gets(shard_hub)) == n_gets + (data == b"5678")

    def test_a_digest_that_is_stated_later_goes_before_it(
        self, source, shard_hub, root, tmp_path
    ) -> None:
        put_there(root)
        (root / NAMES[1]).write_bytes(content(NAMES[1])[::-1])
        assert adopt(root).ok
        with ShardPrefetcher(source, NAMES, tmp_path, cleanup="keep") as prefetcher:
            assert [path.read_bytes() for path in prefetcher] == [content(n) for n in NAMES]
        assert [path.rpartition("/")[2] for path in gets(shard_hub)] == ["1.bin"]

    def test_it_may_count_for_nothing(self, tmp_path) -> None:
        put_there(tmp_path)
        report = adopt(tmp_path, trust=False)
        assert [finding.found for finding in report.findings] == ["none"] * 3
        with Cache(tmp_path) as cache:
            assert all(map(cache.is_unknown, NAMES))


class TestWhatLiesThere:
    @pytest.mark.parametrize("kind", ["link in", "link out", "link to a directory", "fifo"])
    def test_what_is_no_file_is_not_followed(self, root, tmp_path, kind) -> None:
        put_there(root)
        put_there(tmp_path / "outside")
        targets = {"link in": NAMES[0], "link out": tmp_path / "outside" / NAMES[0]}
        if kind == "fifo":
            os.mkfifo(root / "x")
        else:
            (root / "x").symlink_to(targets.get(kind, tmp_path / "outside"))
        before = looks(tmp_path)
        report = adopt(root)
        assert [(finding.kind, finding.path) for finding in report.findings] == [
            ("not-regular", root / "x")
        ]
        assert len(report.unproven) == 3
        assert looks(tmp_path) == before

    def test_what_is_hidden_or_was_moved_aside_is_left_out(self, tmp_path) -> None:
        put_there(tmp_path, [*NAMES, ".git/x", ".x", "train/0.bin.bad-1234abcd", "a/.b/c"])
        assert adopt(tmp_path).n_files == 3
        assert adopt(tmp_path).n_files == 3, "what is known is no shard"

    def test_a_name_that_no_shard_has(self, tmp_path) -> None:
        put_there(tmp_path, ["a\nb"])
        (finding,) = adopt(tmp_path).findings
        assert "control character" in finding.found

    @pytest.mark.parametrize("data", [b"", None])
    def test_what_is_empty_or_can_not_be_read(self, tmp_path, make_shard_faults, data) -> None:
        put_there(tmp_path)
        if data is None:
            make_shard_faults(tmp_path).fail("open", errno.EACCES, match=NAMES[1])
        else:
            (tmp_path / NAMES[1]).write_bytes(data)
        report = adopt(tmp_path)
        assert [finding.path for finding in report.findings] == [tmp_path / NAMES[1]]
        assert report.exit_code == 1

    def test_a_file_that_goes_meanwhile_is_left_out(self, tmp_path, make_shard_faults) -> None:
        put_there(tmp_path)
        make_shard_faults(tmp_path).fail("stat", errno.ENOENT, match=NAMES[1], times=2)
        report = adopt(tmp_path)
        assert report.ok
        assert report.unproven == (tmp_path / NAMES[0], tmp_path / NAMES[2])

    def test_what_goes_before_it_is_taken_over_is_left_out(self, tmp_path, monkeypatch) -> None:
        def take_over(cache: Cache, file: RemoteFile, *args: object, **keywords: bool) -> bool:
            if file.name == NAMES[1]:
                (tmp_path / file.name).unlink()
            return real(cache, file, *args, **keywords)

        put_there(tmp_path)
        real = Cache.take_over
        monkeypatch.setattr(Cache, "take_over", take_over)
        report = adopt(tmp_path)
        assert report.ok
        assert report.unproven == (tmp_path / NAMES[0], tmp_path / NAMES[2])

    def test_a_directory_of_several_sources(self, root, tmp_path) -> None:
        put_there(root)
        adopt(root)
        with pytest.raises(ValueError, match="expected the directory of one source"):
            adopt(tmp_path)
        assert not (tmp_path / ".shardproof").exists()

    def test_some_of_it(self, tmp_path) -> None:
        put_there(tmp_path, [*NAMES, "notes.txt"])
        assert adopt(tmp_path, match="train/[01].bin").n_files == 2

    @pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
    def test_what_can_not_be_looked_at(self, source, root, make_shard_faults, number) -> None:
        put_there(root)
        make_shard_faults(root).fail("read", number, match=NAMES[1])
        report = adopt(root, source)
        (finding,) = report.findings
        assert (finding.path, finding.errno, report.exit_code) == (root / NAMES[1], number, 3)

    def test_what_is_stopped(self, tmp_path) -> None:
        put_there(tmp_path)
        cancellation = Cancellation()
        cancellation.cancel()
        with pytest.raises(FetchError, match="it was stopped"):
            adopt(tmp_path, cancellation=cancellation)

    @pytest.mark.parametrize("arguments", [{"path": ""}, {"workers": 0}, {"source": "nowhere"}])
    def test_wrong_arguments(self, tmp_path, arguments) -> None:
        with pytest.raises(ValueError, match="expected"):
            adopt(**{"path": tmp_path, **arguments})


def run(*args: str | Path) -> Result:
    result = CliRunner().invoke(app, ["adopt", *map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


class TestCommand:
    def test_proven(self, shard_hub, source, root, monkeypatch) -> None:
        monkeypatch.setenv("HF_ENDPOINT", shard_hub.url)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", shard_hub.url)
        put_there(root)
        result = run(root, "--from", "hf://datasets/org/name", "--proven-only")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == f"3 proven, 0 on your word, 0 not taken over: '{root}'\n"

    def test_on_the_users_word(self, tmp_path) -> None:
        put_there(tmp_path, NAMES[:1])
        result = run(tmp_path)
        assert result.exit_code == 0
        assert "0 proven, 1 on your word, 0 not taken over: " in result.stdout
        assert result.stderr == f"on your word, not proven: {tmp_path / NAMES[0]}\n"
        result = run(tmp_path, "--quiet")
        assert (result.exit_code, result.output) == (0, "")

    def test_json(self, tmp_path) -> None:
        put_there(tmp_path, NAMES[:1])
        (tmp_path / "x").symlink_to("nowhere")
        result = run(tmp_path, "--json")
        found = json.loads(result.stdout)
        assert (result.exit_code, found["exit_code"], found["n_files"]) == (1, 1, 2)
        assert found["unproven"] == [str(tmp_path / NAMES[0])]
        assert found["n_proven"] == 0

    @pytest.mark.parametrize("options", [[], ["--quiet"], ["--json", "-q"]])
    def test_what_the_source_does_not_have_is_named_and_no_finding(self, options, tmp_path) -> None:
        there, here = tmp_path / "there", tmp_path / "here"
        put_there(there, NAMES[:1])
        put_there(here, [*NAMES[:1], "notes.txt"])
        result = run(here, "--from", f"file://{there}", *options)
        assert result.exit_code == 0
        named = f"'{here / 'notes.txt'}' is left alone: the source does not list it\n"
        assert result.stderr.count(named) == 1
        assert (result.stderr == named) == bool(options)
        if "--json" in options:
            found = json.loads(result.stdout)
            assert (found["ok"], found["n_files"], found["findings"]) == (True, 1, [])

    @pytest.mark.parametrize(
        ("args", "code", "said"),
        [
            (["gone"], 2, "No such file or directory"),
            (["file"], 2, "Not a directory"),
            ([".", "--from", "nonsense"], 2, "expected hf://"),
            ([".", "--from", "http://127.0.0.1:1"], 3, "Connection refused"),
        ],
    )
    def test_json_says_why_there_is_no_report(
        self, args, code, said, tmp_path, monkeypatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "file").touch()
        result = run(*args, "--json")
        found = json.loads(result.stdout)
        assert (result.exit_code, found["exit_code"], found["ok"]) == (code, code, False)
        assert found["path"] == str(tmp_path / args[0])
        assert said in found["error"]
        assert said in result.stderr

    def test_nothing_is_there(self, tmp_path) -> None:
        result = run(tmp_path)
        assert result.exit_code == 1
        assert f"nothing to take over in '{tmp_path}'" in result.stderr

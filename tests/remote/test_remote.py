"""A directory at an address: how it is listed, asked and named, and what else takes no address."""

import contextlib
import functools
import hashlib
import io
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import pytest

import shardproof
from shardproof import (
    FindingKind,
    ManifestError,
    ManifestNotFoundError,
    checkpoint,
    datasets,
    fetching,
    formats,
    receipts,
    remote,
    validate,
)
from shardproof._base.addresses import AddressPath, path_of, remote_at
from shardproof._base.names import opened
from shardproof._base.opening import Read, names_in, tree
from shardproof.fetching import HubSource
from shardproof.fetching.sources import _fsspec
from shardproof.manifest import Mismatch
from shardproof.remote import _directory
from shardproof.testing import Layout, write_layout
from shardproof.testing.faults import Hub, serve_hub
from tests.helpers.commands import run, started
from tests.helpers.in_memory import in_memory

MEMORY = fsspec.filesystem("memory")


@pytest.fixture(autouse=True)
def brief_waits(monkeypatch) -> None:
    """Wait no seconds between two attempts."""
    monkeypatch.setattr("shardproof.fetching.transfer._attempts._seconds_between", lambda *_: 0.0)


@pytest.fixture
def arrays(tmp_path: Path) -> Iterator[str]:
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", np.arange(100_000))
    with in_memory(tmp_path) as address:
        yield address


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    """Which bytes are asked for."""
    asked, real = list[str](), type(MEMORY).cat_file

    def cat_file(self, path, start=None, end=None, **how) -> bytes:
        asked.append(f"{os.path.basename(path)} {start}-{end}")
        return real(self, path, start=start, end=end, **how)

    monkeypatch.setattr(type(MEMORY), "cat_file", cat_file)
    return asked


def failing(monkeypatch, name: str, error: Callable[[], Exception], times: int = 99) -> None:
    real, n_calls = type(MEMORY).cat_file, 0

    def cat_file(self, path, *args, **how) -> bytes:
        nonlocal n_calls
        n_calls += path.endswith(name)
        if path.endswith(name) and n_calls <= times:
            raise error()
        return real(self, path, *args, **how)

    monkeypatch.setattr(type(MEMORY), "cat_file", cat_file)


class TestPaths:
    def test_their_text_keeps_both_slashes(self) -> None:
        path = path_of("s3://bucket/dir", "a/b.bin")
        assert str(path) == os.fspath(path) == f"{path}" == "s3://bucket/dir/a/b.bin"
        assert (path.name, str(path.parent)) == ("b.bin", "s3://bucket/dir/a")
        assert str(path.parent / "c") == "s3://bucket/dir/a/c"
        assert str(path.with_suffix(".x")) == "s3://bucket/dir/a/b.x"
        assert path.relative_to("s3://bucket/dir").parts == ("a", "b.bin")
        assert str(path_of("zip://in::s3://b/a.zip")) == "zip://in::s3://b/a.zip"

    @pytest.mark.parametrize("text", ["s3://", "zip::memory://"])
    def test_nothing_but_a_scheme_is_an_address_too(self, text: str) -> None:
        """As of `s3://$BUCKET` where the variable is not set."""
        assert str(path_of(text)) == text

    def test_they_are_pickled_compared_and_sorted(self) -> None:
        path = path_of("s3://bucket/dir")
        again = pickle.loads(pickle.dumps(path))
        assert (type(again), str(again), again, {path}) == (AddressPath, str(path), path, {again})
        assert path != path_of("s3://bucket/other")
        assert sorted([path / "b", path / "a"]) == [path / "a", path / "b"]

    @pytest.mark.parametrize("text", ["/a/b", "a", "./x://y", "C:/x", "a:b/c", "", "/s3://b"])
    def test_a_path_of_this_machine_is_none(self, text) -> None:
        assert type(path_of(text)) is type(Path())
        assert remote_at(text) is None


class TestValidate:
    def test_a_report_names_addresses(self, arrays) -> None:
        MEMORY.pipe(f"{arrays}/2.npy", b"")
        report = validate(f"{arrays}/", level="complete")
        assert (str(report.path), report.n_files, report.exit_code) == (arrays, 4, 1)
        [finding] = report.findings
        assert (finding.kind, str(finding.path)) == (FindingKind.EMPTY, f"{arrays}/2.npy")
        assert (report.broken().names, report.broken().ranges) == (("2.npy",), "2")
        assert f"Shard validation failed in '{arrays}':" in str(report)
        assert json.loads(json.dumps(report.to_dict()))["findings"][0]["path"] == f"{arrays}/2.npy"
        assert pickle.loads(pickle.dumps(report)) == report

    def test_one_listing_answers_for_present(self, arrays, reads) -> None:
        assert validate(arrays).ok
        assert reads == []

    def test_one_read_a_file_answers_for_complete(self, arrays, reads) -> None:
        assert validate(arrays, level="complete").ok
        assert sorted(reads) == [f"{n}.npy 0-65536" for n in range(4)]

    def test_valid_reads_each_byte_once_where_nothing_is_stated(self, tmp_path, reads) -> None:
        data = os.urandom(5_000_000)
        (tmp_path / "a.bin").write_bytes(data)
        shardproof.seal(tmp_path)
        with in_memory(tmp_path) as address:
            report = validate(address, level="valid")
        assert (report.ok, report.n_proven, report.notes) == (True, 1, ("verified: 1 by reading",))
        spans = [each.split()[1].split("-") for each in reads if each.startswith("a.bin")]
        n_read = sum(int(end) - int(begin) for begin, end in spans)
        assert n_read < len(data) + 3 * 2**16
        assert len(spans) < 12

    def test_what_was_put_there_meanwhile_is_not_taken_for_what_was_listed(
        self, tmp_path, monkeypatch
    ) -> None:
        (tmp_path / "a.npy").write_bytes(b"\x93NUMPY")
        with in_memory(tmp_path) as address, remote.mounted(address) as root:
            MEMORY.pipe(f"{address}/a.npy", b"something longer")
            report = validate(root, level="complete")
        [finding] = report.findings
        assert (finding.kind, finding.conclusive) == (FindingKind.UNREADABLE, False)
        assert "changed" in finding.found

    @pytest.mark.parametrize(
        "error", [lambda: PermissionError(13, "AccessDenied"), lambda: OSError("SlowDown")]
    )
    def test_what_can_not_be_read_is_neither_missing_nor_damaged(
        self, arrays, monkeypatch, error, caplog
    ) -> None:
        failing(monkeypatch, "1.npy", error)
        report = validate(arrays, level="complete")
        [finding] = report.findings
        assert (finding.kind, finding.path.name) == (FindingKind.UNREADABLE, "1.npy")
        assert (report.exit_code, finding.conclusive, len(report.broken())) == (3, False, 0)
        assert "AccessDenied" in finding.found or "SlowDown" in finding.found

    def test_nor_where_a_probe_takes_the_error_for_damage(self, arrays, monkeypatch) -> None:
        """As zipfile does, which says of an error at the end of a file that it is no zip file."""

        def probe(_: object, read: Read, size: int) -> Mismatch:
            with contextlib.suppress(OSError):
                read(size)
            return Mismatch("a zip file", "something else")

        monkeypatch.setattr("shardproof.probes.npy.probe", probe)
        failing(monkeypatch, "1.npy", lambda: OSError("gone"), times=3)  # of the first read, all
        kinds = {each.path.name: each.kind for each in validate(arrays, level="complete").findings}
        assert kinds.pop("1.npy") is FindingKind.UNREADABLE
        assert {*kinds.values()} == {FindingKind.STRUCTURE}

    def test_a_manifest_that_can_not_be_read_is_no_answer_either(
        self, tmp_path, monkeypatch
    ) -> None:
        path = write_layout(Layout(), tmp_path / "d")
        with in_memory(path) as address:
            failing(monkeypatch, "shards.json", lambda: OSError("cut"))
            with pytest.raises(OSError, match="cut") as caught:
                validate(address)
        assert not isinstance(caught.value, ManifestError)

    def test_nothing_there_speaks_of_a_bucket(self) -> None:
        with pytest.raises(ManifestNotFoundError, match="bucket and folder right") as caught:
            validate("memory://nothing/here")
        assert "scratch" not in str(caught.value)

    def test_the_address_of_a_file(self, arrays) -> None:
        with pytest.raises(ManifestError, match="found a file"):
            validate(f"{arrays}/1.npy")

    def test_another_expectation(self, arrays, tmp_path) -> None:
        (tmp_path / "3.npy").unlink()
        assert validate(arrays, against=tmp_path, level="complete").ok
        assert [each.path.name for each in validate(tmp_path, against=arrays).findings] == ["3.npy"]
        with in_memory(tmp_path) as other:
            assert validate(other, against=arrays).counts == {FindingKind.MISSING: 1}
        with pytest.raises(ValueError, match="the directory itself"):
            validate(arrays, against=arrays)

    @pytest.mark.parametrize("how", [{"quick": True}, {"executor": ThreadPoolExecutor(1)}])
    def test_what_makes_no_sense_there_is_refused(self, arrays, how) -> None:
        with pytest.raises(ValueError, match=f"{next(iter(how))}: .* found an address"):
            validate(arrays, **how)

    def test_a_path_as_an_address(self, tmp_path) -> None:
        with pytest.raises(ValueError, match=f"give '{tmp_path}'"):
            validate(f"file://{tmp_path}")

    @pytest.mark.parametrize("scheme", ["s3", "gs", "abfs", "simplecache::s3", "S3"])
    @pytest.mark.parametrize("verb", ["validate", "seal", "stage", "fetch"])
    def test_an_empty_variable_leads_to_no_other_bucket(self, tmp_path, verb, scheme) -> None:
        """``s3://$BUCKET/shards``: to s3fs and gcsfs, that would be the bucket ``shards``."""
        where = {"stage": [f"--to={tmp_path}"], "fetch": [str(tmp_path)]}.get(verb, [])
        ended = run(verb, f"{scheme}:///shards/0.bin", *where)
        assert ended.exit_code == 2, ended.output
        assert "expected a bucket, is a variable not set?" in ended.output + ended.stderr

    def test_no_credentials_are_shown(self, monkeypatch) -> None:
        monkeypatch.setattr(_fsspec.FsspecSource, "files", lambda *_: ())
        with pytest.raises(ManifestNotFoundError) as caught:
            validate("memory::ftp://user:secret@host/dir")
        assert "secret" not in str(caught.value)

    def test_many_files_in_threads(self, tmp_path, monkeypatch) -> None:
        """They ask the same listing as the thread that began them."""
        for number in range(1200):
            np.save(tmp_path / f"{number:04}.npy", np.arange(1))
        with in_memory(tmp_path) as address:
            MEMORY.pipe(f"{address}/0700.npy", b"other")
            report = validate(address, level="complete", workers=8)
        assert [each.path.name for each in report.findings] == ["0700.npy"]


HOSTILE = ["../x.npy", "a/../../x.npy", "a//b.npy", "/x.npy", "a\\b.npy", "\x1b[2J.npy", "x" * 300]


class TestListings:
    def test_what_is_below_a_file_is_told_as_passed_over(self, arrays, monkeypatch) -> None:
        """A store may have both; a walk of the folders finds the file alone."""
        real = _fsspec.FsspecSource.files
        odd = [fetching.RemoteFile(name, 9) for name in ("both/x.npy", "both")]
        monkeypatch.setattr(_fsspec.FsspecSource, "files", lambda *a: (*real(*a), *odd))
        [note] = validate(arrays, level="complete").notes
        assert note.startswith("1 object passed over, since no file can have such a name: ")
        assert note.endswith("'both/x.npy': its folder is a file, too")

    def test_names_that_no_file_can_have_lead_nowhere(self, arrays, monkeypatch) -> None:
        real = _fsspec.FsspecSource.files
        odd = [fetching.RemoteFile(name, 9) for name in HOSTILE]
        monkeypatch.setattr(_fsspec.FsspecSource, "files", lambda *a: (*real(*a), *odd))
        report = validate(arrays, level="complete", strict=True)
        assert (report.ok, report.n_files) == (True, 4)
        [note] = report.notes
        assert note.startswith("7 objects passed over, since no file can have such a name: ")
        assert note.isprintable()

    def test_no_other_name_leads_out(self, arrays) -> None:
        with remote.mounted(arrays) as root:
            for name in ("../1.npy", "./1.npy", "", "/etc/passwd", "x/../1.npy"):
                with opened(name, root) as file:
                    assert file is None, name

    def test_folders_are_what_names_have_and_marks_of_folders(self, tmp_path, monkeypatch) -> None:
        (tmp_path / "b/c").mkdir(parents=True)
        for name in ("a", "b/c/d", "b/e", "z"):
            (tmp_path / name).write_bytes(b"x")
        real = _fsspec.FsspecSource.files
        marks = [fetching.RemoteFile(name, 0) for name in ("m/", "b/", "a/inside")]
        monkeypatch.setattr(_fsspec.FsspecSource, "files", lambda *a: (*real(*a), *marks))
        with in_memory(tmp_path) as address, remote.mounted(address) as root:
            assert names_in(root) == ["a", "b", "m", "z"]
            assert names_in(f"{root}/b") == ["c", "e"]
            assert names_in(f"{root}/no") == names_in(f"{root}/z") == []
            assert [here.removeprefix(root) for here, *_ in tree(root)] == ["", "/b", "/b/c", "/m"]

    def test_within_a_listing_no_other_is_made(self, arrays, monkeypatch) -> None:
        n_listings, real = 0, _fsspec.FsspecSource.files

        def files(*args) -> object:
            nonlocal n_listings
            n_listings += 1
            return real(*args)

        monkeypatch.setattr(_fsspec.FsspecSource, "files", files)
        with remote.mounted(arrays):
            assert validate(arrays).ok
            assert list(formats.find(arrays)) == [arrays]
        assert n_listings == 1
        validate(arrays)
        assert n_listings == 2

    def test_it_answers_no_longer_than_it_is_mounted(self, arrays) -> None:
        with remote.mounted(arrays) as root:
            assert len(names_in(root)) == 4
        with pytest.raises(ValueError, match="found an address"):
            names_in(root)


class TestCommands:
    @pytest.fixture
    def tops(self, tmp_path: Path) -> Iterator[str]:
        for name in ("x/a", "x/b"):
            (tmp_path / name).mkdir(parents=True)
            np.save(tmp_path / name / "0.npy", np.arange(3))
        with in_memory(tmp_path) as address:
            yield address

    def test_below_an_address(self, tops, monkeypatch) -> None:
        n_listings, real = [], _fsspec.FsspecSource.files
        monkeypatch.setattr(
            _fsspec.FsspecSource, "files", lambda *a: n_listings.append(1) or real(*a)
        )
        MEMORY.pipe(f"{tops}/x/b/0.npy", b"other")
        ended = run("validate", "-r", "--level=complete", f"{tops}/")
        assert ended.exit_code == 1, ended.output
        assert f"'{tops}/x/a'" in ended.output
        assert f"  - {tops}/x/b/0.npy" in ended.output
        assert "2 directories: 1 whole, 1 damaged" in ended.output
        assert len(n_listings) == 1
        assert list(formats.find(tops)) == [f"{tops}/x/a", f"{tops}/x/b"]

    def test_json_and_broken(self, tops) -> None:
        ended = run("validate", "--json", f"{tops}/x/a")
        [said] = json.loads(ended.stdout)
        assert (ended.exit_code, said["path"]) == (0, f"{tops}/x/a")

    def test_what_could_not_be_read_is_said_once(self, tops, monkeypatch) -> None:
        failing(monkeypatch, "0.npy", lambda: OSError("SlowDown"))
        ended = run("validate", "--level=complete", f"{tops}/x/a")
        assert ended.exit_code == 3
        assert "SlowDown" in ended.output
        assert "Could not download" not in ended.output

    def test_as_a_page_and_in_other_forms(self, tops, tmp_path) -> None:
        MEMORY.pipe(f"{tops}/x/a/1.npy", b"other")
        page, tests = tmp_path / "page.html", tmp_path / "junit.xml"
        forms = ["--html", page, "--junit", tests, "--level", "complete"]
        ended = run("report", f"{tops}/x/a", *forms)
        assert ended.exit_code == 1, ended.output
        assert f"{tops}/x/a" in page.read_text()
        assert "1.npy" in tests.read_text()


class TestHub:
    @pytest.fixture
    def hub(self, monkeypatch) -> Iterator[Hub]:
        with serve_hub() as hub:
            source = functools.partial(HubSource, "org/name", endpoint=hub.url, subfolder="data")
            monkeypatch.setattr(_directory, "open_source", lambda _: source())
            yield hub

    def put(self, hub: Hub, there: Mapping[str, bytes], sealed: Mapping[str, bytes]) -> set[str]:
        lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sealed.items())
        for name, data in {**there, "SHA256SUMS": "".join(lines).encode()}.items():
            hub.put(f"data/{name}", data, repo="org/name", lfs=name != "SHA256SUMS")
        return {f"data/{name}" for name in there}

    def test_what_the_hub_states_proves_without_reading(self, hub) -> None:
        data = {f"{n}.dat": os.urandom(1000 + n) for n in range(3)}
        names = self.put(hub, data, data)
        report = validate("hf://datasets/org/name/data", level="valid")
        assert (report.ok, report.n_proven) == (True, 3)
        assert report.notes == ("verified: 3 by the sha256 that the store states",)
        assert not names & {each.file for each in hub.requests if each.method == "GET"}

    def test_another_digest_is_a_finding_without_reading(self, hub) -> None:
        self.put(hub, {"a.dat": b"wrong"}, {"a.dat": b"right"})
        [finding] = validate("hf://datasets/org/name/data", level="valid").findings
        assert (finding.kind, finding.path.name) == (FindingKind.DIGEST, "a.dat")
        assert finding.found == f"sha256:{hashlib.sha256(b'wrong').hexdigest()}"

    def test_parts_of_files_are_read_where_the_hub_keeps_them(self, hub) -> None:
        file = io.BytesIO()
        np.save(file, np.arange(100_000))
        data = {"a.npy": file.getvalue()}
        names = self.put(hub, data, data)
        assert validate("hf://datasets/org/name/data", level="complete", format="npy").ok
        sent = [each.bytes_sent for each in hub.requests if each.file in names]
        assert max(filter(None, sent)) == 2**16


ADDRESS = "s3://bucket/dir"
INFO = shardproof.ShardInfo((shardproof.Shard("0.bin", 1),))
ELSEWHERE: dict[str, Callable[[], object]] = {
    "ShardInfo.load": lambda: shardproof.ShardInfo.load(ADDRESS),
    "ShardInfo.dump": lambda: INFO.dump(ADDRESS),
    "ShardInfo.validate": lambda: INFO.validate(ADDRESS),
    "Metadata.load": lambda: shardproof.Metadata.load(ADDRESS),
    "ShuffledDataLoader": lambda: shardproof.ShuffledDataLoader(ADDRESS, layer=1),
    "OrderedDataLoader": lambda: shardproof.OrderedDataLoader(ADDRESS, layer=1),
    "IndexedDataset": lambda: shardproof.IndexedDataset(ADDRESS, layer=1),
    "TokenFiles": lambda: datasets.TokenFiles(sequence_length=8, shards_path=ADDRESS),
    "hf_load_dataset_sharded": lambda: shardproof.hf_load_dataset_sharded("x", cache_dir=ADDRESS),
    "adopt": lambda: fetching.adopt(ADDRESS),
    "fetch": lambda: fetching.fetch("memory://x", ADDRESS, name="y"),
    "ShardPrefetcher": lambda: fetching.ShardPrefetcher("memory://x", ["y"], ADDRESS),
    "ReceiptStore": lambda: receipts.ReceiptStore(ADDRESS),
    "plan_dirs": lambda: list(receipts.plan_dirs(ADDRESS)),
    "claims_in": lambda: receipts.claims_in(ADDRESS),
    "pin_files": lambda: receipts.pin_files(ADDRESS),
    "input_files": lambda: receipts.input_files(ADDRESS),
    "to_safetensors": lambda: checkpoint.to_safetensors("/tmp/x", ADDRESS),
    "from_safetensors": lambda: checkpoint.from_safetensors(ADDRESS, "/tmp/x", step=1),
    "formats.detect": lambda: formats.detect(ADDRESS),
    "formats.locate": lambda: formats.locate(ADDRESS),
}


@pytest.mark.parametrize("call", ELSEWHERE)
def test_no_address_is_taken_for_a_path(call, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"found an address, s3://\.\.\.") as caught:
        ELSEWHERE[call]()
    assert "scratch" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["receipts", "checkpoint"])
def test_formats_that_are_read_on_a_disk_only(form, tmp_path) -> None:
    path = write_layout(Layout(format=form), tmp_path / "d" / "model")
    where = path if path.is_dir() else path.parent
    with (
        in_memory(where) as address,
        pytest.raises(ManifestError, match=f"format {form} can't be checked in a bucket: .*check"),
    ):
        validate(address)


def test_a_path_that_was_an_address(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ManifestNotFoundError, match="Give it as text, no `Path`"):
        validate(Path("s3://bucket/dir"))


def test_an_interrupt_ends_a_read_that_hangs(tmp_path) -> None:
    """In half a minute nothing would come."""
    np.save(tmp_path / "0.npy", np.arange(3))
    script = f"""
import signal, threading, time
import fsspec, shardproof
memory = fsspec.filesystem("memory")
memory.pipe("/x/0.npy", open({str(tmp_path / "0.npy")!r}, "rb").read())
type(memory).cat_file = lambda *_, **__: (print("hangs", flush=True), time.sleep(30))
try:
    shardproof.validate("memory://x", level="complete")
except KeyboardInterrupt:
    print("interrupted")
"""
    process = started([sys.executable, "-c", script])
    assert process.stdout is not None
    assert process.stdout.readline() == "hangs\n"
    process.send_signal(signal.SIGINT)
    said, wrong = process.communicate(timeout=10)
    assert said == "interrupted\n", wrong

"""A repair fetches what is missing or wrong, proves it, and touches nothing else."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from shardproof import FetchError, FindingKind, ManifestError, repair, repairing, seal, validate
from shardproof.fetching import HubSource, Limits
from shardproof.testing import without_root_override
from shardproof.testing.faults import FileSystemFaults, HubFault, serve_hub
from tests.goldens import GOLDENS

LIMITS = Limits(attempts=2, max_backoff=0.01)


def contents(path: Path) -> dict[str, bytes]:
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


@pytest.fixture
def sealed(make_shards_dir) -> Path:
    path = make_shards_dir(6)
    seal(path)
    return path


@pytest.fixture
def whole(sealed) -> dict[str, bytes]:
    return contents(sealed)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[5] ^= 4
    path.write_bytes(data)


def break_some(path: Path) -> list[str]:
    (path / "acts000001.bin").unlink()
    os.truncate(path / "acts000002.bin", 3)
    (path / "acts000004.bin").write_bytes(b"")
    flip(path / "acts000005.bin")
    return [f"acts00000{n}.bin" for n in (1, 2, 4, 5)]


class TestRepaired:
    def test_what_is_broken_and_nothing_else(self, sealed, whole) -> None:
        names = break_some(sealed)
        with serve_hub(whole) as hub:
            done = repair(sealed, hub.url, limits=LIMITS)
            asked = {request.path.rpartition("/")[2] for request in hub.requests}
        assert (done.ok, list(done.repaired), dict(done.failed)) == (True, names, {})
        assert contents(sealed) == whole
        assert asked <= set(names)
        assert validate(sealed, level="valid").n_proven == 6

    def test_a_whole_directory_asks_for_nothing(self, sealed, whole) -> None:
        with serve_hub(whole) as hub:
            done = repair(sealed, hub.url)
            assert not hub.requests
        assert (bool(done), done.wanted, done.repaired) == (True, (), ())

    def test_from_another_directory(self, sealed, whole, tmp_path) -> None:
        backup = shutil.copytree(sealed, tmp_path / "backup")
        break_some(sealed)
        assert repair(sealed, str(backup)).ok
        assert contents(sealed) == whole

    @pytest.mark.parametrize("called", ["name", "checksums"])
    def test_from_the_hub_against_its_listing(self, tmp_path, monkeypatch, called) -> None:
        root = tmp_path / "data"
        root.mkdir()
        with serve_hub() as hub:
            files = {f"train/{n}.bin": bytes([n]) * 100 for n in range(3)} | {"README.md": b"# x"}
            for name, data in files.items():
                hub.put(name, data, repo=f"org/{called}")
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_bytes(data)
            flip(root / "train/1.bin")
            (root / "README.md").unlink()
            monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
            monkeypatch.setattr("huggingface_hub.hf_api.ENDPOINT", hub.url, raising=False)
            promise = f"hf://datasets/org/{called}"
            report = validate(root, level="valid", against=promise)
            assert {each.path.name: each.kind for each in report.findings} == {
                "1.bin": FindingKind.DIGEST,
                "README.md": FindingKind.MISSING,
            }
            monkeypatch.undo()  # the client's own addresses begin with what was replaced
            lines = [f"{hashlib.sha256(files[n]).hexdigest()}  {n}\n" for n in files]
            (tmp_path / "SHA256SUMS").write_text("".join(lines))
            with HubSource(f"org/{called}", endpoint=hub.url) as source:
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

    def test_behind_a_link_in_the_directory(self, sealed, whole) -> None:
        store = sealed / "store"
        store.mkdir()
        (sealed / "acts000003.bin").rename(store / "x")
        (sealed / "acts000003.bin").symlink_to("store/x")
        flip(store / "x")
        with serve_hub(whole) as hub:
            assert repair(sealed, hub.url).ok
        assert (sealed / "acts000003.bin").is_symlink()
        assert (store / "x").read_bytes() == whole["acts000003.bin"]

    def test_progress_is_told(self, sealed, whole) -> None:
        break_some(sealed)
        told = []
        with serve_hub(whole) as hub:
            repair(sealed, hub.url, progress=lambda done, n: told.append((done, n)))
        assert told[-1] == (4, 4)

    def test_what_is_said_of_the_whole_is_asked_again(self, tmp_path) -> None:
        """A bag says how many bytes its payload has, which is right again."""
        golden = next(golden for golden in GOLDENS if golden.name == "bagit")
        path = golden.copy(tmp_path)
        name = next(each for each in contents(path) if each.startswith("data/"))
        (path / name).unlink()
        assert len(validate(path, level="valid").findings) == 2
        done = repair(path, str(golden.path))
        assert (done.ok, done.repaired) == (True, (name,))
        report = validate(path, level="valid")
        assert (done.report.n_proven, done.report.unproven) == (report.n_proven, ())

    def test_what_a_fetched_promise_names_is_fetched_too(self, tmp_path) -> None:
        golden = next(golden for golden in GOLDENS if golden.name == "bagit")
        path = golden.copy(tmp_path)
        payload = sorted(name for name in contents(path) if name.startswith("data/"))
        (path / "manifest-sha256.txt").unlink()
        (path / payload[0]).unlink()
        (path / payload[1]).write_bytes(b"")
        done = repair(path, str(golden.path))
        assert set(done.repaired) == {"manifest-sha256.txt", *payload[:2]}, done.failed
        assert done.ok, str(done.report)
        assert contents(path) == contents(golden.path)
        assert done.report == validate(path, level="valid")

    def test_the_report_is_what_validate_would_say(self, sealed, whole) -> None:
        break_some(sealed)
        del whole["acts000004.bin"]
        with serve_hub(whole) as hub:
            done = repair(sealed, hub.url, limits=LIMITS)
        assert len(done.repaired) == 3
        assert done.report == validate(sealed, level="valid")

    def test_what_has_no_digest_is_not_called_proven(self, make_shards_dir, tmp_path) -> None:
        path = make_shards_dir(3)
        backup = shutil.copytree(path, tmp_path / "backup")
        (path / "acts000001.bin").unlink()
        done = repair(path, str(backup))
        assert (done.ok, done.report.n_proven, len(done.report.unproven)) == (True, 0, 3)


class TestNotRepaired:
    def test_what_the_source_does_not_have(self, sealed, whole) -> None:
        break_some(sealed)
        del whole["acts000001.bin"]
        with serve_hub(whole) as hub:
            done = repair(sealed, hub.url, limits=LIMITS)
        assert list(done.failed) == ["acts000001.bin"]
        assert "404" in done.failed["acts000001.bin"]
        assert len(done.repaired) == 3
        assert [each.path.name for each in done.report.findings] == ["acts000001.bin"]
        assert done.report.exit_code == 1

    def test_where_the_source_has_other_bytes(self, sealed, whole) -> None:
        flip(sealed / "acts000005.bin")
        wrong = (sealed / "acts000005.bin").read_bytes()
        whole["acts000005.bin"] = bytes(len(wrong))
        with serve_hub(whole) as hub:
            done = repair(sealed, hub.url, limits=LIMITS)
        assert list(done.failed) == ["acts000005.bin"]
        assert not done
        left = [path.read_bytes() for path in sealed.glob("acts000005.bin*")]
        assert left == [wrong], "the wrong one stays, under a name that no loader takes"

    def test_a_link_out_of_the_directory(self, sealed, whole, tmp_path) -> None:
        (tmp_path / "elsewhere").write_bytes(b"mine")
        (sealed / "acts000001.bin").unlink()
        (sealed / "acts000001.bin").symlink_to(tmp_path / "elsewhere")
        with serve_hub(whole) as hub:
            done = repair(sealed, hub.url, limits=LIMITS)
        assert "leads out" in done.failed["acts000001.bin"]
        assert (tmp_path / "elsewhere").read_bytes() == b"mine"

    def test_a_directory_in_its_place(self, sealed, whole) -> None:
        (sealed / "acts000001.bin").unlink()
        (sealed / "acts000001.bin").mkdir()
        (sealed / "acts000001.bin/mine").touch()
        with serve_hub(whole) as hub:
            done = repair(sealed, hub.url, limits=LIMITS)
        assert "move it away" in done.failed["acts000001.bin"]
        assert (sealed / "acts000001.bin/mine").exists()

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


class TestAgain:
    def test_it_does_what_is_left(self, sealed, whole) -> None:
        break_some(sealed)
        with serve_hub(whole) as hub:
            hub.fault("*acts000002.bin", HubFault.RESET_BEFORE_HEADER, times=99)
            first = repair(sealed, hub.url, limits=LIMITS)
            assert list(first.failed) == ["acts000002.bin"]
            hub.heal()
            n_before = len(hub.requests)
            second = repair(sealed, hub.url, limits=LIMITS)
            asked = {each.path.rpartition("/")[2] for each in hub.requests[n_before:]}
        assert asked == {"acts000002.bin"}
        assert second.ok
        assert contents(sealed) == whole

    def test_what_an_earlier_one_moved_aside_goes_too(self, sealed, whole) -> None:
        (sealed / "acts000002.bin").rename(sealed / "acts000002.bin.bad-0123abcd")
        (sealed / "acts000002.bin.bad-of-mine").touch()
        with serve_hub(whole) as hub:
            assert repair(sealed, hub.url).ok
        assert not (sealed / "acts000002.bin.bad-0123abcd").exists()
        assert (sealed / "acts000002.bin.bad-of-mine").exists()


class TestElsewhere:
    """Promises that are not the directory's own."""

    @pytest.fixture
    def plain(self, tmp_path) -> Path:
        root = tmp_path / "plain"
        root.mkdir()
        for name in "abc":
            (root / name).write_bytes(name.encode() * 10)
        return root

    def test_a_list_beside_it(self, plain, tmp_path) -> None:
        lines = [f"{hashlib.sha256(n.encode() * 10).hexdigest()}  {n}\n" for n in "abd"]
        (tmp_path / "SHA256SUMS").write_text("".join(lines))
        report = validate(plain, level="valid", against=tmp_path / "SHA256SUMS", strict=True)
        assert {each.path.name: each.kind.value for each in report.findings} == {
            "d": "missing",
            "c": "stray",
        }

    def test_a_list_at_an_address(self, plain) -> None:
        text = f"{hashlib.sha256(b'x').hexdigest()}  a\n"
        with serve_hub({"x/SHA256SUMS": text.encode()}) as hub:
            report = validate(plain, level="valid", against=f"{hub.url}/x/SHA256SUMS")
        assert [(each.path.name, each.kind) for each in report.findings] == [
            ("a", FindingKind.DIGEST)
        ]

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
        assert [
            each.path.name for each in validate(plain, level="complete", against=other).findings
        ] == ["c"]
        assert [
            each.path.name for each in validate(plain, level="valid", against=other).findings
        ] == ["b", "c"]

    def test_a_source_that_can_not_list(self, plain) -> None:
        with serve_hub({"a": b"a"}) as hub, pytest.raises(ManifestError, match="lists no files"):
            validate(plain, against=hub.url)

    def test_a_hidden_part_that_may_not_be_read_is_not_passed_over(self, tmp_path) -> None:
        [golden] = [each for each in GOLDENS if each.name == "torch-dcp"]
        path, other = golden.copy(tmp_path), golden.copy(tmp_path / "other")
        (other / ".metadata").chmod(0)
        with without_root_override(), pytest.raises(PermissionError):
            validate(path, level="valid", against=other)

    @pytest.mark.parametrize(
        ("name", "hidden"), [("torch-dcp", ".metadata"), ("energon", ".nv-meta/index.sqlite")]
    )
    def test_hidden_parts_of_a_format(self, tmp_path, name, hidden) -> None:
        [golden] = [each for each in GOLDENS if each.name == name]
        path, other = golden.copy(tmp_path), golden.copy(tmp_path / "other")
        (other / ".DS_Store").write_bytes(b"of the other machine")
        assert validate(path, level="valid", against=other).ok
        os.truncate(path / hidden, 3)
        found = [each.path for each in validate(path, level="complete", against=other).findings]
        assert found == [path / hidden]
        assert repair(path, str(other), against=other, level="valid").ok
        assert validate(path, level="valid", against=other).ok

    def test_strict_of_a_format(self, make_shards_dir) -> None:
        path = make_shards_dir(2)
        assert validate(path, strict=True).ok
        seal(path)
        assert validate(path, strict=True).ok
        (path / "acts000002.bin").touch()
        (path / ".acts.tmp").touch()
        found = validate(path, strict=True).findings
        assert {each.path.name: each.kind.value for each in found} == {
            "acts000002.bin": "stray",
            ".acts.tmp": "stray",
        }


class TestBroken:
    def test_names_and_numbers(self, make_shards_dir) -> None:
        path = make_shards_dir(9, missing=[0, 3, 4, 5], truncated=[8])
        broken = validate(path, level="complete").broken()
        assert broken.indices == (0, 3, 4, 5, 8)
        assert broken.ranges == "0,3-5,8"
        assert broken.names[1] == "acts000003.bin"
        assert len(broken) == 5
        assert validate(make_shards_dir(2)).broken().ranges == ""

    def test_of_a_prefix_they_are_relative_to_its_directory(self, make_checkpoint) -> None:
        prefix = make_checkpoint(world_size=2)
        (prefix.parent / f"{prefix.name}_shard_1.shard").unlink()
        assert validate(prefix).broken().names == (f"{prefix.name}_shard_1.shard",)


class TestWithoutDigests:
    """What only the structure of a file tells from the right one, which is of the same size."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        [golden] = [each for each in GOLDENS if each.name == "parquet-plain"]
        return golden.copy(tmp_path)

    @pytest.fixture
    def shard(self, root: Path) -> Path:
        return min(root.glob("*.parquet"))

    def test_a_source_that_is_not_right_either(self, root: Path, shard: Path, tmp_path) -> None:
        """Both wrong files are there afterwards: nobody knows which is worth more."""
        source = shutil.copytree(root, tmp_path / "source")
        wrong, other = bytes(4) + shard.read_bytes()[4:], bytes(8) + shard.read_bytes()[8:]
        shard.write_bytes(wrong)
        (source / shard.name).write_bytes(other)
        done = repair(root, str(source), limits=LIMITS)
        assert (done.ok, done.repaired, list(done.failed)) == (False, (), [shard.name])
        [aside] = root.glob("*.bad-*")
        assert (aside.read_bytes(), shard.read_bytes()) == (wrong, other)

    def test_what_somebody_else_has_repaired_stays(
        self, root: Path, shard: Path, tmp_path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = shutil.copytree(root, tmp_path / "source")
        right = shard.read_bytes()
        shard.write_bytes(bytes(4) + right[4:])
        fetch = repairing._RepairVisit.fetch

        def fetch_later(*args):
            shard.write_bytes(right)
            return fetch(*args)

        monkeypatch.setattr(repairing._RepairVisit, "fetch", fetch_later)
        inode = shard.stat().st_ino
        assert repair(root, str(source)).ok
        assert shard.stat().st_ino == inode
        assert not list(root.glob("*.bad-*"))

    def test_what_nobody_can_look_at_stays(self, root: Path, shard: Path, tmp_path) -> None:
        source = shutil.copytree(root, tmp_path / "source")
        shard.chmod(0)
        with without_root_override():
            done = repair(root, str(source), limits=LIMITS)
        assert not done.ok
        assert shard.exists()
        assert not list(root.glob("*.bad-*"))

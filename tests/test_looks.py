"""What a look tells beyond sizes and digests: impostors, holes, links, checksums inside."""

import hashlib
import os
from pathlib import Path

import pytest

from shardproof.checks import check
from shardproof.manifest import ExpectedFile, Manifest, Mismatch
from shardproof.testing.faults import FileSystemFaults

OID = hashlib.sha256(b"").hexdigest()
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{OID}\nsize 1234567\n"
TOLD = "Git LFS pointer of 1 234 567 bytes: run `git lfs pull`"


@pytest.fixture
def root(tmp_path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def manifest(root: Path, *files: ExpectedFile, **keywords) -> Manifest:
    return Manifest(root=root, path=root / "index.json", format="test", files=files, **keywords)


def look(root: Path, file: ExpectedFile, level="complete", **keywords) -> tuple[str, str] | None:
    links = keywords.pop("links", "inside")
    findings = check(manifest(root, file, **keywords), level=level, links=links).findings
    return (findings[0].kind.value, findings[0].found) if findings else None


def never(promised: ExpectedFile, fd: int, size: int) -> Mismatch:
    return Mismatch(expected="a header", found="none")


class TestImpostors:
    @pytest.mark.parametrize(
        "promised",
        [
            {"size": 1234567},
            {"digest": "sha256:" + "0" * 64, "size": len(POINTER)},
            {},
        ],
    )
    def test_where_the_promise_is_broken_or_can_not_be_proven(self, root: Path, promised) -> None:
        (root / "a").write_text(POINTER)
        level = "valid" if "digest" in promised else "complete"
        assert look(root, ExpectedFile(name="a", **promised), level) == ("impostor", TOLD)

    def test_where_the_probe_fails(self, root: Path) -> None:
        (root / "a").write_text(POINTER)
        assert look(root, ExpectedFile(name="a"), probe=never) == ("impostor", TOLD)

    def test_a_file_that_is_promised_so_is_none(self, root: Path) -> None:
        (root / "a").write_text(POINTER)
        digest = "sha256:" + hashlib.sha256(POINTER.encode()).hexdigest()
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
    def test_a_hole(self, root: Path) -> None:
        (root / "a").touch()
        os.truncate(root / "a", 2**20)
        found = ("unwritten", "a hole of 1048576 bytes")
        assert look(root, ExpectedFile(name="a", size=2**20)) == found
        assert look(root, ExpectedFile(name="a")) == found
        assert look(root, ExpectedFile(name="a"), "valid") == found
        assert look(root, ExpectedFile(name="a"), "present") is None

    def test_nothing_was_owed(self, root: Path) -> None:
        (root / "a").touch()
        os.truncate(root / "a", 2**20)
        assert look(root, ExpectedFile(name="a", size=2**20, n_items=0)) is None

    def test_a_digest_is_the_better_proof(self, root: Path) -> None:
        (root / "a").touch()
        os.truncate(root / "a", 2**20)
        zeros = "sha256:" + hashlib.sha256(bytes(2**20)).hexdigest()
        assert look(root, ExpectedFile(name="a", digest=zeros), "valid") is None
        kind, _ = look(root, ExpectedFile(name="a", digest="sha256:" + "0" * 64), "valid")
        assert kind == "digest"

    def test_one_byte_was_written(self, root: Path) -> None:
        with (root / "a").open("wb") as file:
            file.seek(2**20)
            file.write(b"x")
        assert look(root, ExpectedFile(name="a", size=2**20 + 1)) is None

    def test_where_it_can_not_be_told_nothing_is_said(self, root: Path, monkeypatch) -> None:
        """NFS before 4.2: the file is one piece of data."""
        (root / "a").touch()
        os.truncate(root / "a", 2**20)
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
        digest = "sha256:" + hashlib.sha256(b"abc").hexdigest()
        promised = ExpectedFile(name="a", size=3, digest=digest)
        assert look(root, promised, level, links="follow") is None

    def test_even_then_only_to_a_regular_file(self, root, tmp_path) -> None:
        (root / "a").symlink_to("/dev/zero")
        kind, found = look(root, ExpectedFile(name="a"), links="follow")
        assert (kind, found) == ("not-regular", "character device")

    def test_one_to_nothing_is_missing(self, root, tmp_path) -> None:
        (root / "a").symlink_to(tmp_path / "gone")
        assert look(root, ExpectedFile(name="a"), links="follow") == ("missing", "nothing")

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

        def prove(promised: ExpectedFile, fd: int, size: int) -> Mismatch | bool:
            asked.append((promised.name, os.pread(fd, 9, 0), size))
            return answer

        report = check(manifest(root, ExpectedFile(name="a"), prove=prove), level="valid")
        assert [(each.kind.value, each.found) for each in report.findings] == [finding] * bool(
            finding
        )
        assert (len(report.unproven), report.n_proven) == (n_unproven, answer is True)
        assert asked == [("a", b"abc", 3)]

    @pytest.mark.parametrize("answer", [True, False, Mismatch(expected="x", found="y")])
    def test_they_are_looked_at_beside_a_digest(self, root: Path, answer) -> None:
        (root / "a").write_bytes(b"abc")
        digest = "sha256:" + hashlib.sha256(b"abc").hexdigest()
        promised = ExpectedFile(name="a", digest=digest)
        report = check(manifest(root, promised, prove=lambda *_: answer), level="valid")
        assert (report.ok, report.unproven) == (isinstance(answer, bool), ())

    @pytest.mark.parametrize("level", ["present", "complete"])
    def test_below_valid_they_are_not_read(self, root: Path, level) -> None:
        (root / "a").write_bytes(b"abc")
        promised = ExpectedFile(name="a")
        assert check(
            manifest(root, promised, prove=lambda *_: pytest.fail("it was read")), level=level
        ).ok


def test_a_probe_that_can_not_read_is_unreadable(root: Path) -> None:
    (root / "a").write_bytes(b"abc")

    def probe(promised: ExpectedFile, fd: int, size: int) -> None:
        os.pread(fd, 1, 0)

    with FileSystemFaults(root) as fs:
        fs.fail("read", 5, match="a")
        assert look(root, ExpectedFile(name="a"), probe=probe) == (
            "unreadable",
            "Input/output error",
        )

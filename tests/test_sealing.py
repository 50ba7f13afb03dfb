"""A seal is written whole or not at all, goes on after a kill, and never blesses bytes twice."""

import errno
import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

from shardproof import (
    FindingKind,
    ManifestError,
    ManifestNotFoundError,
    SealError,
    ShardValidationError,
    formats,
    seal,
    validate,
)
from shardproof._base import digest, digest_lists
from tests.formats.looking import format_of, sampled
from tests.formats.test_model_signing import HOW, STATEMENT, resource, stated, write_statement
from tests.goldens import GOLDENS, golden
from tests.helpers import commands
from tests.helpers.checkpoint_files import flip
from tests.helpers.descriptors import path_of

LIST, JOURNAL = "SHA256SUMS", ".SHA256SUMS.journal"


@pytest.fixture
def settled(monkeypatch) -> None:
    """No file has changed lately: a change time can't be set back."""
    monkeypatch.setattr("shardproof.checks._proofs.SETTLED_SECONDS", -3600.0)


class TestSealed:
    def test_from_then_on_every_byte_is_proven(self, make_shards_dir) -> None:
        path = make_shards_dir(3)
        sealed = seal(path)
        assert (sealed.list_path, sealed.n_files, sealed.algorithm) == (path / LIST, 3, "sha256")
        report = validate(path, level="valid")
        assert (report.ok, report.n_proven, report.unproven) == (True, 3, ())

        shard = path / "acts000001.bin"
        flip(shard)
        assert [(each.kind, each.path) for each in validate(path, level="valid").findings] == [
            (FindingKind.DIGEST, shard)
        ]
        assert validate(path, level="complete").ok

    def test_the_list_is_what_sha256sum_writes_and_accepts(self, make_shards_dir) -> None:
        path = make_shards_dir(3)
        seal(path)
        names = sorted(file.name for file in path.glob("acts*"))
        command = ["sha256sum", *names]
        said = subprocess.run(command, cwd=path, capture_output=True, check=True).stdout
        assert (path / LIST).read_bytes() == said
        subprocess.run(["sha256sum", "-c", "--strict", LIST], cwd=path, check=True)

    @pytest.mark.parametrize("algorithm", ["sha512", "blake3", "xxh3-128"])
    def test_by_another_algorithm(self, make_shards_dir, algorithm: str) -> None:
        path = make_shards_dir(2)
        assert seal(path, algorithm=algorithm).algorithm == algorithm
        assert validate(path, level="valid").n_proven == 2
        flip(path / "acts000000.bin")
        assert not validate(path, level="valid")

    def test_of_any_files(self, tmp_path: Path) -> None:
        (tmp_path / "below").mkdir()
        for name in ("a", "below/b c", ".hidden"):
            (tmp_path / name).write_bytes(name.encode())
        sealed = seal(tmp_path)
        assert sealed.added == ("a", "below/b c")
        subprocess.run(["sha256sum", "-c", "--strict", LIST], cwd=tmp_path, check=True)
        report = validate(tmp_path, level="valid")
        assert (report.format, report.ok, report.n_files) == ("digests", True, 2)

    def test_an_empty_directory_has_nothing_to_seal(self, tmp_path: Path) -> None:
        with pytest.raises(ManifestNotFoundError, match="there is nothing to seal"):
            seal(tmp_path)


def lists_of(path: Path) -> list[str]:
    return sorted(file.name for file in path.rglob("*SUMS"))


def line(data: bytes, name: str, algorithm: str = "sha256") -> str:
    return f"{hashlib.new(algorithm, data).hexdigest()}  {name}\n"


class TestDenied:
    """What the directory itself denies is not sealed, by whichever digest it does."""

    @pytest.mark.slow
    @pytest.mark.parametrize(("algorithm", "update"), [("sha256", False), ("blake3", True)])
    @pytest.mark.parametrize("one", sampled(GOLDENS))
    def test_by_any_format(self, one, tmp_path: Path, algorithm: str, update: bool) -> None:
        path = one.copy(tmp_path)
        promised = formats.read_manifest(formats.detect(str(path)), str(path))
        before = lists_of(path)
        flip((path / promised.files[-1].name).resolve())
        seen = validate(path, level="valid")
        if digest_lists.NAMES[algorithm] in before:
            return  # it is sealed
        assert (promised.files[-1].digest is None) or not seen.ok
        if not seen.ok:
            with pytest.raises(ShardValidationError):
                seal(path, algorithm=algorithm, update=update)
        else:
            seal(path, algorithm=algorithm, update=update)
        assert (lists_of(path) == before) == (not seen.ok)

    @pytest.mark.parametrize("name", ["MD5SUMS", "sub/MD5SUMS", "a.md5"])
    def test_by_a_list_with_a_bad_line(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "sub").mkdir()
        for file in ("a", "sub/a"):
            (tmp_path / file).write_bytes(b"a")
        (tmp_path / name).write_text(line(b"a", "a", "md5") + "0123\n")
        with pytest.raises(ShardValidationError, match="line 2: expected a digest") as caught:
            seal(tmp_path)
        assert [each.path for each in caught.value.report.findings] == [tmp_path / name]
        assert caught.value.report.exit_code == 1
        assert not (tmp_path / LIST).exists()

    @pytest.mark.parametrize("algorithm", ["sha512", "blake3", "xxh3-128"])
    def test_by_an_older_seal(self, make_shards_dir, algorithm: str) -> None:
        path = make_shards_dir(2)
        seal(path)
        flip(path / "acts000001.bin")
        for update in (False, True):
            with pytest.raises(ShardValidationError) as caught:
                seal(path, algorithm=algorithm, update=update)
            assert [each.kind for each in caught.value.report.findings] == [FindingKind.DIGEST]
        assert lists_of(path) == [LIST]

    def test_by_a_checksum_in_the_file(self, tmp_path: Path) -> None:
        with gzip.open(tmp_path / "a.tar.gz", "wb") as file, tarfile.open(None, "w", file) as tar:
            tar.add(__file__, "a.txt")
        flip(tmp_path / "a.tar.gz")
        (tmp_path / "MD5SUMS").write_text(
            line((tmp_path / "a.tar.gz").read_bytes(), "a.tar.gz", "md5")
        )
        with pytest.raises(ShardValidationError):
            seal(tmp_path, format="webdataset")

    def test_one_that_was_read_before_the_list_came(self, tmp_path: Path, settled) -> None:
        """A journal stands for those digests alone that were compared then."""
        (tmp_path / "a").write_bytes(b"a")
        seal(tmp_path)
        (tmp_path / LIST).unlink()
        (tmp_path / "MD5SUMS").write_text(line(b"other", "a", "md5"))
        with pytest.raises(ShardValidationError):
            seal(tmp_path)
        (tmp_path / "MD5SUMS").write_text(line(b"a", "a", "md5"))
        assert seal(tmp_path).n_resumed == 0


DENIES = "0" * 64
A = hashlib.sha256(b"a").hexdigest()
BY_OTHERS = {"MD5SUMS": "md5", "sub/SHA1SUMS": "sha1", "a.bin.sha512": "sha512"}
CLEARSIGNED = (
    "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{}  a.bin\n"
    "-----BEGIN PGP SIGNATURE-----\n\niQIzBAEBCAAdFiEE0123456789abcdef\n=abcd\n"
    "-----END PGP SIGNATURE-----\n"
)
TITLED = "SHA-256 checksums, made by make\n===\n\n# of this release\n{}  a.bin\n"

LISTS = {
    **dict.fromkeys(["MD5SUMS", "a.bin.sha512", "SHASUMS256.txt", "hashes.txt"], "{}  a.bin\n"),
    "sub/SHA1SUMS": "{}  ../a.bin\n",
    "meta/of-the-root.sha256": "{}  a.bin\n",
    "a.bin.sha256": "{}  -\n",
    "sums/of.sha256": "{}  ROOT/a.bin\n",
    "old/checksums.txt": "{}  /moved/from/root/a.bin\n",
    "x-checksums.txt": "{}  ../root/a.bin\n",
    "digests.txt": "SHA256 (a.bin) = {}\n",
    "README.md": "# The data\n\nCheck them:\n\n    {}  a.bin\n\nand then use them.\n",
    "titled-checksums.txt": TITLED,
    "hashes.asc": CLEARSIGNED,
    "openssl.txt": "SHA2-256(a.bin)= {}\n",
}


def write_list(root: Path, name: str, text: str, digits: str, encoding: str = "utf-8") -> None:
    (root / name).parent.mkdir(exist_ok=True)
    text = text.replace("ROOT", str(root)).format(digits)
    (root / name).write_bytes(text.encode(encoding))


class TestAnyList:
    """A file is a list if its content is one and it speaks of this directory."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "root").mkdir()
        (tmp_path / "root/a.bin").write_bytes(b"a")
        return tmp_path / "root"

    @pytest.mark.slow
    @pytest.mark.parametrize("name", LISTS)
    def test_that_denies_a_file_is_not_sealed_over_whatever_its_name_and_paths(
        self, root: Path, name: str
    ) -> None:
        right = hashlib.new(BY_OTHERS.get(name, "sha256"), b"a").hexdigest()
        write_list(root, name, LISTS[name], "0" * len(right))
        with pytest.raises(ShardValidationError, match="Files with another digest") as caught:
            seal(root)
        assert [each.path for each in caught.value.report.findings] == [root / "a.bin"]
        assert not (root / LIST).exists()
        write_list(root, name, LISTS[name], right)
        assert "a.bin" in seal(root).added

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
    @pytest.mark.parametrize("name", ["hashes.txt", "checksums.txt"])
    def test_that_was_written_with_a_mark_of_its_encoding(self, root, name, encoding) -> None:
        write_list(root, name, "{}  a.bin\r\n", DENIES, encoding)
        with pytest.raises(ShardValidationError, match="Files with another digest"):
            seal(root)
        write_list(root, name, "{}  a.bin\r\n", A, encoding)
        assert "a.bin" in seal(root).added

    def test_that_has_another_name_is_sealed_as_any_file(self, root: Path) -> None:
        for name in ("hashes", "hashes.csv"):
            write_list(root, name, "{}  a.bin\n", A)
        assert seal(root).added == ("a.bin", "hashes.csv")

    def test_that_speaks_of_nothing_here_or_of_what_is_outside_is_none(self, root: Path) -> None:
        text = "{0}  b.bin\n{0}  ../a.bin\n{0}  /etc/hostname\n{0}  ../../a.bin\n"
        for name in ("hashes.txt", "readme", "SHASUMS256.txt"):
            write_list(root, name, text, DENIES)
        assert seal(root).n_files == 4

    @pytest.mark.parametrize("kind", ["loop", "dangling", "fifo"])
    @pytest.mark.parametrize("name", ["x.md5", "checksums.txt", "hashes.txt"])
    def test_what_can_not_be_opened_is_none(self, make_shards_dir, name: str, kind: str) -> None:
        path = make_shards_dir(1)
        if kind == "fifo":
            os.mkfifo(path / name)
        else:
            (path / name).symlink_to(name if kind == "loop" else "nowhere")
        assert validate(path, level="valid").ok
        assert seal(path).n_files == 1


def sign_over(root: Path, changed: Path) -> None:
    files = sorted(path for path in root.iterdir() if path.name != "model.sig")
    resources = [
        resource(path.name, b"other" if path == changed else path.read_bytes()) for path in files
    ]
    predicate = {"serialization": HOW, "resources": resources}
    write_statement(root, STATEMENT | stated(predicate))


class TestAnyFormat:
    """What any format states, here or below, is compared; also of one that another hides."""

    def test_damage_below_is_not_sealed_over(self, tmp_path: Path) -> None:
        path = golden("mds-hashed").copy(tmp_path / "sf")
        flip(path / "shard.00000.mds")
        for name in (None, "digests"):
            if name:
                write_list(tmp_path / "sf", "SHA512SUMS", "{}  x\n", DENIES * 2)
                (tmp_path / "sf/x").write_bytes(b"x")
            with pytest.raises(ShardValidationError) as caught:
                seal(tmp_path / "sf")
            found = [each.path for each in caught.value.report.findings]
            assert path / "shard.00000.mds" in found or name
            assert not (tmp_path / "sf" / LIST).exists()

    def test_what_is_missing_or_can_not_be_read_below_is_not_sealed_over(self, tmp_path) -> None:
        path = golden("mds-hashed").copy(tmp_path / "sf")
        (path / "shard.00000.mds").unlink()
        with pytest.raises(ShardValidationError, match="Missing files"):
            seal(tmp_path / "sf")
        (path / "index.json").write_bytes(b"")
        with pytest.raises(ManifestError, match=r"index\.json"):
            seal(tmp_path / "sf")
        assert lists_of(tmp_path) == []

    @pytest.mark.slow
    def test_what_is_whole_below_is_sealed(self, tmp_path: Path) -> None:
        # Not those with files that are empty: a _SUCCESS, and locks.
        others = {"parquet-spark", "datasets-cache"}
        one_of_each = {format_of(one): one for one in GOLDENS if one.name not in others}
        for one in one_of_each.values():
            one.copy(tmp_path / one.name)
        assert seal(tmp_path).n_files > len(one_of_each)
        assert validate(tmp_path, level="valid").ok

    def test_a_signature_beside_another_format(self, tmp_path: Path) -> None:
        path = golden("mds-raw").copy(tmp_path)
        sign_over(path, path / "shard.00000.mds")
        with pytest.raises(ShardValidationError, match="Files with another digest"):
            seal(path, format="mds")
        sign_over(path, path / "none")
        assert seal(path, format="mds").n_files


class TestEveryDigest:
    """At `valid` each digest that is stated counts, not the one that proves most."""

    @pytest.mark.parametrize("algorithm", ["md5", "sha256"])
    def test_of_a_bag(self, tmp_path: Path, algorithm: str) -> None:
        path = golden("bagit").copy(tmp_path)
        manifest = path / f"manifest-{algorithm}.txt"
        digits, _, name = manifest.read_text().splitlines()[0].partition(" ")
        for file in path.glob("tagmanifest-*"):
            file.unlink()
        manifest.write_text(manifest.read_text().replace(digits, digits[::-1]))
        findings = validate(path, level="valid").findings
        assert [each.kind for each in findings] == [FindingKind.DIGEST]
        assert findings[0].path == path / name.strip()
        assert findings[0].expected == f"{algorithm}:{digits[::-1]}"

    @pytest.mark.parametrize("wrong", ["SHA256SUMS", "MD5SUMS", "SHA512SUMS", "XXH64SUMS"])
    def test_of_a_seal_and_lists(self, make_shards_dir, wrong: str) -> None:
        path = make_shards_dir(1)
        seal(path)
        data = (path / "acts000000.bin").read_bytes()
        for name in ("MD5SUMS", "SHA512SUMS"):
            (path / name).write_text(line(data, "acts000000.bin", name[:-4].lower()))
        assert validate(path, level="valid").n_proven == 1
        digits = 16 if wrong == "XXH64SUMS" else len((path / wrong).read_text().split()[0])
        (path / wrong).write_text(f"{'0' * digits}  acts000000.bin\n")
        report = validate(path, level="valid")
        assert [each.kind for each in report.findings] == [FindingKind.DIGEST]
        assert report.n_proven == 0
        assert validate(path, level="complete").ok

    def test_a_quick_look_passes_over_no_digest_that_the_seal_did_not_compare(
        self, tmp_path: Path, settled
    ) -> None:
        (tmp_path / "a").write_bytes(b"a")
        seal(tmp_path)
        assert validate(tmp_path, level="valid", quick=True).n_unread == 1
        (tmp_path / "MD5SUMS").write_text(line(b"a", "a", "md5"))
        assert validate(tmp_path, level="valid", quick=True).n_unread == 0
        (tmp_path / "MD5SUMS").write_text(line(b"other", "a", "md5"))
        assert not validate(tmp_path, level="valid", quick=True).ok
        (tmp_path / "MD5SUMS").write_text(line(b"a", "a", "md5"))
        seal(tmp_path, algorithm="sha512")
        assert validate(tmp_path, level="valid", quick=True).n_unread == 1

    @pytest.mark.slow
    @pytest.mark.parametrize("one", sampled(GOLDENS))
    def test_what_a_list_alone_names_is_none_of_the_shards(self, one, tmp_path: Path) -> None:
        """As by ``sha256sum * > SHA256SUMS``, which names that list too."""
        path = one.copy(tmp_path)
        if one.name.startswith("model-signing"):
            return  # what is not signed is a finding
        (path / "READ.ME").write_bytes(b"hello\n" * 9)
        with (path / LIST).open("a") as file:
            file.write(line(b"hello\n" * 9, "READ.ME") + line(b"", LIST))
        for level in ("present", "complete", "valid"):
            assert validate(path, level=level).ok, level
        flip(path / "READ.ME")
        assert [each.path.name for each in validate(path, level="valid").findings] == ["READ.ME"]


NONE = {
    "model.md5": b"\0\1\2" * 999,
    "weights.b2": bytes(range(256)) * 40,
    "notes-sha1.txt": b"SHA-1 is broken; see the paper.\n",
    "checksums.txt": f"{'0' * 64}  of-another-release.tar\n".encode(),
    "x-CHECKSUM": b"# checksums\n\nnone yet\n",
    "dated-checksums.txt": b"20240115 checksums are computed with sha256\n",
    "sizes-sha1.txt": b"size (bytes) = 12345678\n",
    "git-sha1.txt": b"a" * 40 + b"\n",
    "short-checksums.txt": b"0" * 8 + b"  a\n",
}


LISTED_BY_NAME = ("sha256sum.txt", "sha256sums", "a.npy.sha256", "checksums.txt", "SHA256SUMS.txt")


@pytest.mark.parametrize("name", LISTED_BY_NAME)
def test_a_list_of_such_a_name_is_compared_beside_shards(tmp_path: Path, name: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros(9))
    right = line((tmp_path / "a.npy").read_bytes(), "a.npy")
    (tmp_path / name).write_text(right)
    report = validate(tmp_path, level="valid")
    assert (report.format, report.ok, report.n_proven) == ("npy", True, 1)
    (tmp_path / name).write_text(right + line(b"", "not-downloaded.npy"))
    assert validate(tmp_path, level="valid").n_files == 1
    (tmp_path / name).write_text(line(b"other", "a.npy"))
    report = validate(tmp_path, level="valid")
    assert [each.kind for each in report.findings] == [FindingKind.DIGEST]


class TestLeftOut:
    def test_it_says_what_and_why(self, make_shards_dir) -> None:
        path = make_shards_dir(2)
        for name in (".hidden", ".git/config", ".git/x", "notes.txt", "MD5SUMS"):
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text(
                line((path / "acts000000.bin").read_bytes(), "acts000000.bin", "md5")
            )
        sealed = seal(path)
        assert sealed.left_out == {
            ".git/": "hidden",
            ".hidden": "hidden",
            "MD5SUMS": "a list of digests",
            "metadata.json": "not in the manifest",
            "notes.txt": "a list of digests",
            "shards.json": "not in the manifest",
        }
        assert sealed.added == ("acts000000.bin", "acts000001.bin")

    def test_what_is_only_called_like_a_list_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"a")
        for name, data in NONE.items():
            (tmp_path / name).write_bytes(data)
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub/SHA256SUMS").write_text(line(b"b", "b"))
        (tmp_path / "sub/b").write_bytes(b"b")
        (tmp_path / "md5sum.txt").write_text(line(b"a", "a", "md5"))
        sealed = seal(tmp_path)
        assert {*sealed.added} == {"a", *NONE, "sub/b"}
        lists = dict.fromkeys(("md5sum.txt", "sub/SHA256SUMS"), "a list of digests")
        assert sealed.left_out == lists
        report = validate(tmp_path, level="valid")
        assert (report.ok, report.n_proven) == (True, len(sealed.added))
        for name in NONE:
            flip(tmp_path / name)
            assert not validate(tmp_path, level="valid").ok
            flip(tmp_path / name)

    @pytest.mark.parametrize("name", ["SHA256SUMS", "md5sum.txt", "a.sha256"])
    @pytest.mark.parametrize("text", ["", "0" * 17, f"{'0' * 64}  a\n01234", "\n\n"])
    def test_a_list_that_is_torn_is_not_passed_over(self, tmp_path, name: str, text: str) -> None:
        (tmp_path / "a").write_bytes(b"a")
        (tmp_path / "SHA1SUMS").write_text(line(b"a", "a", "sha1"))
        (tmp_path / name).write_text(text)
        with pytest.raises((ManifestError, ShardValidationError), match=name):
            validate(tmp_path).raise_for_findings()  # of one whose last line is torn, that line
        with pytest.raises((ManifestError, ShardValidationError), match=name):
            seal(tmp_path, algorithm="sha512")
        assert not (tmp_path / "SHA512SUMS").exists()

    def test_a_sealed_file_that_became_a_list(self, tmp_path: Path) -> None:
        (tmp_path / "a.bin").write_bytes(b"a")
        (tmp_path / "checksums.txt").write_text("todo\n")
        assert seal(tmp_path).n_files == 2
        (tmp_path / "checksums.txt").write_text(line(b"a", "a.bin"))
        findings = validate(tmp_path, level="valid").findings
        assert [(each.kind, each.path.name) for each in findings] == [
            (FindingKind.DIGEST, "checksums.txt")
        ]
        seal(tmp_path, update=True)
        assert not validate(tmp_path, level="valid")


class TestRefused:
    def test_what_is_not_whole(self, make_shards_dir) -> None:
        path = make_shards_dir(3, truncated=[1])
        with pytest.raises(ShardValidationError, match="Files of another size"):
            seal(path)
        assert not (path / LIST).exists()
        assert not (path / JOURNAL).exists()

    def test_a_file_that_changes_meanwhile(self, make_shards_dir, monkeypatch) -> None:
        path = make_shards_dir(2)
        real = digest.each_of_file

        def each_of_file(fd, *args, **keywords):
            found = real(fd, *args, **keywords)
            (path / "acts000001.bin").touch()
            return found

        monkeypatch.setattr(digest, "each_of_file", each_of_file)
        with pytest.raises(SealError, match="changed while it was read") as caught:
            seal(path, workers=1)
        assert caught.value.path == str(path / "acts000001.bin")
        assert not (path / LIST).exists()
        done = commands.run("seal", "--workers", "1", path)
        assert done.exit_code == 1
        assert "changed while it was read" in done.output


class TestUpdate:
    def test_bytes_that_changed_are_not_blessed(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"a")
        seal(tmp_path)
        (tmp_path / "a").write_bytes(b"b")
        (tmp_path / "b").write_bytes(b"b")
        seal(tmp_path, update=True)
        found = validate(tmp_path, level="valid").findings
        assert [(each.kind, each.path.name) for each in found] == [(FindingKind.DIGEST, "a")]

    @pytest.mark.parametrize("end", ["\n", ""])
    def test_what_the_list_says_is_kept_byte_for_byte(self, tmp_path: Path, end: str) -> None:
        """Lines of other algorithms, in other forms, comments: they stay, and are proven."""
        (tmp_path / "a").write_bytes(b"a")
        tags = {"SHA256": "sha256", "SHA512": "sha512", "MD5": "md5"}
        said = [f"{tag} (a) = {hashlib.new(name, b'a').hexdigest()}" for tag, name in tags.items()]
        said += [f"BLAKE2b-256 (a) = {hashlib.blake2b(b'a', digest_size=32).hexdigest()}"]
        before = "\n".join(["# by hand", *said]) + end
        (tmp_path / LIST).write_text(before)
        (tmp_path / "b").write_bytes(b"b")
        sealed = seal(tmp_path, update=True)
        assert (sealed.added, sealed.n_files) == (("b",), 2)
        assert (tmp_path / LIST).read_text() == before.rstrip("\n") + "\n" + line(b"b", "b")
        assert validate(tmp_path, level="valid").n_proven == 2
        assert seal(tmp_path, update=True).added == ()
        subprocess.run(["sha256sum", "-c", LIST], cwd=tmp_path, check=True)

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
    def test_no_line_is_added_where_nobody_reads_it(self, tmp_path: Path, encoding: str) -> None:
        """Behind a signature of PGP, or in a text of another encoding."""
        for name in "ab":
            (tmp_path / name).write_bytes(name.encode())
        signature = "-----BEGIN PGP SIGNATURE-----\nx\n-----END PGP SIGNATURE-----\n"
        text = line(b"a", "a") + signature * (encoding == "utf-8")
        (tmp_path / LIST).write_text(text, encoding=encoding)
        before = (tmp_path / LIST).read_bytes()
        with pytest.raises((SealError, ManifestError, ShardValidationError)):
            seal(tmp_path, update=True)
        assert (tmp_path / LIST).read_bytes() == before


class TestQuick:
    def test_files_as_they_were_are_not_read_again(self, tmp_path, settled, monkeypatch) -> None:
        for name in "ab":
            (tmp_path / name).write_bytes(name.encode())
        seal(tmp_path)
        report = validate(tmp_path, level="valid", quick=True)
        assert (report.ok, report.n_proven, report.n_unread) == (True, 2, 2)
        assert str(report).startswith("valid: 2 (2 not read again) of 2 files")
        assert validate(tmp_path, level="valid").n_unread == 0

        (tmp_path / "a").write_bytes(b"b")
        report = validate(tmp_path, level="valid", quick=True)
        assert [each.path.name for each in report.findings] == ["a"]
        assert report.n_unread == 1

    @pytest.mark.parametrize("how", ["another time", "just changed", "a copy"])
    def test_what_may_be_another_is_read(self, tmp_path, request, how: str) -> None:
        if how != "just changed":
            request.getfixturevalue("settled")
        path = tmp_path / "one"
        path.mkdir()
        (path / "a").write_bytes(b"a")
        seal(path)
        if how == "another time":
            os.utime(path / "a", (1, 1))
        elif how == "a copy":
            path = shutil.copytree(path, tmp_path / "two")
        assert validate(path, level="valid", quick=True).n_unread == 0


def test_a_seal_that_was_killed_goes_on_where_it_was(tmp_path, settled, monkeypatch) -> None:
    for name in "abcd":
        (tmp_path / name).write_bytes(name.encode())
    real, n_left = digest.each_of_file, 2

    def each_of_file(*args, **keywords):
        nonlocal n_left
        n_left -= 1
        if n_left < 0:
            raise KeyboardInterrupt
        return real(*args, **keywords)

    monkeypatch.setattr(digest, "each_of_file", each_of_file)
    with pytest.raises(KeyboardInterrupt):
        seal(tmp_path, workers=1)
    assert not (tmp_path / LIST).exists()
    monkeypatch.setattr(digest, "each_of_file", real)
    assert seal(tmp_path).n_resumed == 2
    assert validate(tmp_path, level="valid").n_proven == 4


def test_digests_may_be_required_by_the_command(make_shards_dir) -> None:
    def run(*args: object) -> tuple[int, str]:
        done = commands.run(*args)
        return done.exit_code, done.output

    path = make_shards_dir(8)
    assert run("validate", "--level", "valid", path)[0] == 0
    code, text = run("validate", "--level", "valid", "--require-digests", path)
    assert code == 1
    assert "8 files have no digest" in text
    assert run("validate", "--require-digests", path)[0] == 2
    code, text = run("seal", path)
    why = "(not in the manifest)"
    left_out = f"left out: 'metadata.json' {why}, 'shards.json' {why}\n"
    assert (code, text) == (0, f"'{path}/SHA256SUMS': 8 files\n{left_out}")
    assert run("validate", "--level", "valid", "--require-digests", path)[0] == 0
    code, text = run("seal", path)
    assert (code, "sealed already: --update adds files" in text) == (2, True)
    assert run("seal", "--update", path) == (0, f"'{path}/SHA256SUMS': 0 added\n{left_out}")
    for number in range(30):
        (path / f".{number}").touch()
    assert run("seal", "--update", path)[1].endswith("(hidden), and 12 more\n")
    (path / "acts000003.bin").unlink()
    code, text = run("seal", "--update", path)
    assert code == 1
    assert "It is not sealed" in text


def test_a_journal_whose_owner_can_not_be_told_does_not_stay_open(
    tmp_path, make_shard_faults
) -> None:
    (tmp_path / "a").write_bytes(b"a")
    journal = tmp_path / ".SHA256SUMS.journal"
    journal.touch()
    stat = make_shard_faults(tmp_path).fail("stat", errno.EIO, match=journal.name, nth=2)
    with pytest.raises(OSError, match="Input/output error"):
        seal(tmp_path)
    assert stat.reached
    fds = [fd for fd in os.listdir("/dev/fd") if os.path.exists(f"/dev/fd/{fd}")]
    assert str(journal) not in map(path_of, fds)

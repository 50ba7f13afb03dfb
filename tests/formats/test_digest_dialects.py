"""Lists of digests in the dialect of each tool that writes them: no false alarm, none missed."""

import pickle
import re
import shutil
import zlib
from pathlib import Path

import pytest

import shardproof
from shardproof import ManifestError, Report, seal, validate
from shardproof._base import digest, digest_dialects, digest_lists
from shardproof.formats.lists import DIGESTS as FORMAT
from tests.formats.digest_dialects import (
    DOCUMENTED,
    FILES,
    PROVEN,
    REFUSED,
    UNKNOWN,
    WEAK,
    Dialect,
    recorded,
    write_files,
)

DIALECTS = [*recorded(), *DOCUMENTED]
SUMS = {name: f"{digest.hashlib.sha256(data).hexdigest()}  {name}" for name, data in FILES.items()}
TEXT = "\n".join([*SUMS.values(), ""])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_files(tmp_path / "set")
    return tmp_path / "set"


def told(root: Path, **how: object) -> tuple[list[tuple[str, str]], int | None, int, int]:
    report = validate(root, level="valid", **how)
    kinds = [(finding.kind.value, finding.path.name) for finding in report.findings]
    return kinds, report.n_proven, report.n_agreed, len(report.unproven)


EXPECTED = {PROVEN: (2, 0, 0), WEAK: (0, 2, 2), UNKNOWN: (0, 0, 2)}


def test_how_many_there_are() -> None:
    assert len({(each.name, each.writer) for each in DIALECTS}) == len(DIALECTS) >= 100
    assert all(each.version for each in recorded())


@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", [False, True], ids=["inside", "against"])
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: f"{each.name}-{each.writer}")
def test_each_is_read(root: Path, dialect: Dialect, elsewhere: bool) -> None:
    place = root.parent if elsewhere else root
    (place / dialect.name).write_bytes(dialect.data)
    how = {"against": place / dialect.name} if elsewhere else {"strict": True}
    if dialect.worth == REFUSED:
        with pytest.raises((ManifestError, shardproof.ShardValidationError)):
            validate(root, level="valid", **how).raise_for_findings()
        return
    assert told(root, **how) == ([], *EXPECTED[dialect.worth])
    changed = root / "a.bin"
    changed.write_bytes(b"A" + changed.read_bytes()[1:])
    findings = [] if dialect.worth == UNKNOWN else [("digest", "a.bin")]
    assert told(root, **how)[0] == findings
    changed.unlink()
    assert told(root, **how)[0] == [("missing", "a.bin")]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: f"{each.name}-{each.writer}")
def test_one_that_is_cut_states_of_no_file_what_the_whole_one_does_not(dialect: Dialect) -> None:
    """Digits that are cut are no digest, or one that fails; so does a name that is cut."""
    whole, _ = digest_dialects.parsed(dialect.data, dialect.name)
    for n_bytes in range(len(dialect.data) if whole else 0):
        for name, text in digest_dialects.parsed(dialect.data[:n_bytes], dialect.name)[0]:
            digits = text.partition(":")[2]
            right = [t for n, t in whole if n == name or name not in FILES]
            assert any(t.partition(":")[2].startswith(digits) for t in right), n_bytes
            is_told = name not in FILES or " --md5" in dialect.writer  # whose digits are last
            assert is_told or text in right, n_bytes


class TestByContent:
    @pytest.mark.parametrize("name", ["hashes.txt", "notes.txt", "manifest", "files.list", "x.asc"])
    def test_a_text_that_states_digests_of_files_here(self, root: Path, name: str) -> None:
        (root / name).write_text(f"Of version 3\n\n{TEXT}")
        assert told(root)[:2] == ([], 2)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "a text\n" * 50,
            "a text\n" * 5 + TEXT,
            TEXT + "a text\n" * 5,
            TEXT.replace(".bin", ".tar"),
            "20240115 a.bin\n20240116 sub/b c.bin\n",
            "\n".join(f"{name} 20240115" for name in FILES),
            "a.bin  300 bytes\nsub/b c.bin  140 bytes\n",
        ],
    )
    def test_other_texts(self, root: Path, text: str) -> None:
        for name in ("README.txt", "hashes.txt"):
            (root / name).write_text(text)
        assert digest_lists.lists_in(str(root)) == []

    def test_a_list_that_is_cut_has_a_finding(self, root: Path) -> None:
        (root / "hashes.txt").write_text(TEXT[:-20])
        assert told(root)[0] == [("structure", "hashes.txt")]

    def test_few_of_many_texts_are_opened(self, root: Path, monkeypatch) -> None:
        for n in range(1000):
            (root / f"{n:04}.txt").write_text("a caption\n")
        (root / "z-hashes.txt").write_text(TEXT)
        opened, before = [], digest_lists.opened
        hear = lambda name, *of: opened.append(name) or before(name, *of)  # noqa: E731
        monkeypatch.setattr(digest_lists, "opened", hear)
        assert digest_lists.lists_in(str(root)) == ["z-hashes.txt"]
        assert len(opened) <= 20

    def test_shards_whose_numbers_end_as_names_of_lists_do_are_not(self, root, monkeypatch) -> None:
        for name in ("shard-00256", "model-b3", "x.crc32c"):
            (root / name).write_bytes(b"\0")
        monkeypatch.setattr(digest_lists, "opened", None)
        assert digest_lists.lists_in(str(root)) == []

    def test_only_the_beginning_of_one_is_read(self, root: Path, monkeypatch) -> None:
        with (root / "huge.txt").open("wb") as file:
            file.truncate(2**40)
        assert digest_lists.lists_in(str(root)) == []

    def test_beside_shards_of_a_format_they_count_at_valid(self, make_shards_dir) -> None:
        path = make_shards_dir(2)
        data = (path / "acts000000.bin").read_bytes()
        (path / "hashes.txt").write_text(
            f"{digest.hashlib.sha256(data).hexdigest()}  acts000000.bin\n"
        )
        assert told(path)[:2] == ([], 1)
        (path / "acts000000.bin").write_bytes(b"\1" + data[1:])
        assert told(path)[0] == [("digest", "acts000000.bin")]


class TestNamesOfElsewhere:
    @pytest.mark.parametrize(
        "front", ["set/", "./set/", "/data/run/", "/data/run/set/", "C:\\x\\", "runs/7/set/", "/"]
    )
    def test_what_is_in_front_of_all_is_left_out_and_told(self, root: Path, front: str) -> None:
        lines = [each.replace("  ", f"  {front}", 1) for each in SUMS.values()]
        (root / "SHA256SUMS").write_text("\n".join(lines))
        assert told(root) == ([], 2, 0, 0)
        [note] = validate(root).notes
        assert repr(front.removeprefix("./").replace("\\", "/")) in note
        (root / "a.bin").unlink()
        assert told(root)[0] == [("missing", "a.bin")]

    def test_the_own_folder_in_the_names_of_files_that_have_it(self, root: Path) -> None:
        shutil.copytree(root, root / "set")
        lines = [each.replace("  ", "  set/", 1) for each in SUMS.values()]
        (root / "SHA256SUMS").write_text("\n".join(lines))
        assert validate(root).notes == ()
        (root / "set/a.bin").unlink()
        assert told(root)[0] == [("missing", "a.bin")]

    @pytest.mark.parametrize("front", ["train/", "../other/", "U/"])
    def test_a_folder_that_is_gone_is_missing(self, root: Path, front: str) -> None:
        lines = [each.replace("  ", f"  {front}", 1) for each in SUMS.values()]
        (root / "SHA256SUMS").write_text("\n".join(lines))
        try:
            assert not validate(root).ok
        except ManifestError as error:
            assert "a.bin" in str(error)  # noqa: PT017 - it is one or the other
        assert digest_lists.read(str(root), "SHA256SUMS")[0][0] == f"{front}a.bin"

    def test_most_of_them_have_to_be_here(self, root: Path) -> None:
        others = [f"{'0' * 64}  /data/{n}" for n in range(3)]
        lines = [each.replace("  ", "  /data/", 1) for each in SUMS.values()]
        (root / "SHA256SUMS").write_text("\n".join(lines + others))
        with pytest.raises(ManifestError, match=re.escape("/data/a.bin")):
            validate(root)

    def test_not_every_folder_of_a_long_name_is_tried(self) -> None:
        names = [f"{'/d' * 10_000}/{n}" for n in range(9)]
        assert len([*digest_lists._fronts(names, "d")]) == digest_lists._MOST_DEEP

    def test_a_seal_adds_no_line_to_such_a_list(self, root: Path) -> None:
        lines = [each.replace("  ", "  /data/", 1) for each in SUMS.values()]
        (root / "SHA256SUMS").write_text("\n".join(lines))
        (root / "new").write_bytes(b"new")
        with pytest.raises(shardproof.SealError, match="write it anew"):
            seal(root, update=True)


class TestEscapedNames:
    def test_the_entry_is_named_and_the_others_are_proven(self, root: Path) -> None:
        odd = f"\\{'0' * 64}  c\\nd\\\\e"
        (root / "SHA256SUMS").write_text(TEXT + odd + "\n")
        report = validate(root, level="valid")
        [finding] = report.findings
        assert (finding.path.name, report.n_proven) == ("SHA256SUMS", 2)
        assert r"c\nd\\e" in finding.found

    def test_a_list_of_nothing_else(self, root: Path) -> None:
        (root / "SHA256SUMS").write_text(f"\\{'0' * 64}  c\\nd\n")
        with pytest.raises(ManifestError, match=re.escape(r"'c\nd'")):
            validate(root)


class TestWeakChecksums:
    @pytest.fixture
    def weak(self, root: Path) -> Path:
        lines = (f"{name} {zlib.crc32(data):08X}\n" for name, data in FILES.items())
        (root / "x.sfv").write_text("; a comment\n" + "".join(lines))
        return root

    def test_they_say_so_and_prove_nothing(self, weak: Path) -> None:
        report = validate(weak, level="valid")
        assert report.notes == ("crc32 is weak: it detects accidents, no more",)
        assert "0 proven, 2 without a digest (2 agree with checksums beside them)" in str(report)
        assert all(file.digest is None for file in FORMAT.read_manifest(str(weak)).files)
        pickle.dumps(FORMAT.read_manifest(str(weak)))  # for an executor of other processes

    def test_an_empty_file(self, weak: Path) -> None:
        (weak / "empty").touch()
        with (weak / "x.sfv").open("a") as file:
            file.write("empty 00000000\n")
        (weak / "cksum.txt").write_text("4294967295 0 empty\n")
        assert told(weak) == ([], 0, 2, 3)

    def test_a_digest_beside_them_proves(self, weak: Path) -> None:
        (weak / "SHA256SUMS").write_text(TEXT)
        assert told(weak) == ([], 2, 0, 0)

    def test_a_repair_takes_no_file_that_differs_nor_calls_others_proven(self, weak: Path) -> None:
        source = weak.parent / "source"
        write_files(source)
        (source / "a.bin").write_bytes(b"A" + FILES["a.bin"][1:])
        (weak / "a.bin").unlink()
        done = shardproof.repair(weak, str(source), level="valid")
        assert not done.ok
        assert not (weak / "a.bin").exists()
        (source / "a.bin").write_bytes(FILES["a.bin"])
        done = shardproof.repair(weak, str(source), level="valid")
        assert (done.ok, done.report.n_proven, done.report.n_agreed) == (True, 0, 2)

    def test_a_seal_compares_them_and_proves_by_its_own(self, weak: Path) -> None:
        (weak / "a.bin").write_bytes(b"A" + FILES["a.bin"][1:])
        with pytest.raises(shardproof.ShardValidationError, match="another digest"):
            seal(weak)
        (weak / "a.bin").write_bytes(FILES["a.bin"])
        assert seal(weak).n_files == 2
        assert told(weak)[:2] == ([], 2)


class TestOtherAlgorithms:
    @pytest.mark.parametrize("algorithm", ["blake3", "sha3-256", "sm3"])
    def test_where_no_digest_is_right_the_list_may_be_by_another(
        self, root: Path, algorithm: str
    ) -> None:
        lines = []
        for name, data in FILES.items():
            hasher = digest.begin(algorithm, len(data))
            hasher.update(data)
            lines.append(f"{hasher.hexdigest()}  {name}\n")
        (root / "hashes.txt").write_text("".join(lines))
        report = validate(root, level="valid")
        assert "by another algorithm" in report.notes[0]
        (root / "hashes.txt").rename(root / f"x.{algorithm}")
        assert told(root) == ([], 2, 0, 0)

    def test_what_is_not_here_is_no_finding(self, root: Path, monkeypatch) -> None:
        (root / "x.sm3").write_text("".join(f"{'0' * 64}  {name}\n" for name in FILES))
        begin = digest.begin

        def without(algorithm: str, *of: object, **how: object) -> object:
            if algorithm == "sm3":
                raise ValueError("unsupported hash type sm3")
            return begin(algorithm, *of, **how)

        monkeypatch.setattr(digest, "begin", without)
        assert told(root) == ([], 0, 0, 2)
        assert validate(root).notes == ("sm3 can't be verified here",)

    def test_sizes_count_at_complete(self, root: Path) -> None:
        (root / "hashes.txt").write_text(f"       301  {SUMS['a.bin']}\n")
        report: Report = validate(root, level="complete")
        assert [finding.expected for finding in report.findings] == ["301 bytes"]

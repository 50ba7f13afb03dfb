"""The report: its text, JSON and exit code."""

import dataclasses
import errno
import json
import re
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof import (
    Finding,
    FindingKind,
    Report,
    ShardFileVerifier,
    ShardValidationError,
    formats,
    validate,
)
from shardproof.checks import check
from shardproof.manifest import Contradiction, ExpectedFile, Manifest
from shardproof.receipts import Verdict
from shardproof.testing.faults import FileSystemFaults

ROOT = Path("/d")


def finding(kind: FindingKind, name: str, number: int | None = None) -> Finding:
    return Finding(kind, ROOT / name, "this", "that", number)


def report(*findings: Finding, level="present", n_files=9, unproven=()) -> Report:
    return Report(ROOT, "saev", level, n_files, findings, unproven)


def test_the_groups_keep_their_order_and_the_files_theirs() -> None:
    kinds = [*reversed(FindingKind), FindingKind.MISSING]
    findings = [finding(kind, f"{index}-{kind}") for index, kind in enumerate(kinds)]

    groups = {
        "Missing files (2)": "9-missing\n  - /d/10-missing",
        "Empty files (1)": "8-empty",
        "Unreadable files (1)": "7-unreadable",
        "Not regular files (1)": "6-not-regular",
        "Files that are something else (1)": "5-impostor: that",
        "Files of which nothing was written (1)": "4-unwritten",
        "Files of another size (1)": "3-size",
        "Files of another structure (1)": "2-structure",
        "Files with another digest (1)": "1-digest",
        "Unexpected files (1)": "0-stray",
    }
    text = "".join(f"\n\n{title}:\n  - /d/{names}" for title, names in groups.items())
    assert str(report(*findings)) == f"Shard validation failed in '/d':{text}"


@pytest.mark.parametrize(
    ("level", "n_unproven", "text"),
    [
        ("present", 0, "present: 9 of 9 files of '/d'"),
        ("valid", 0, "valid: 9 of 9 files of '/d'"),
        ("valid", 3, "valid: 6 proven, 3 without a digest, of 9 files of '/d'; `shardproof seal` "),
        ("complete", 9, "complete: 0 proven, 9 without a size or structure, of 9 files of '/d'"),
    ],
)
def test_success_says_what_was_proven(level: str, n_unproven: int, text: str) -> None:
    unproven = tuple(ROOT / str(index) for index in range(n_unproven))

    seal = "gives them one" if "seal" in text else ""
    assert str(report(level=level, unproven=unproven)) == text + seal


def test_notes_are_the_last_lines() -> None:
    noted = dataclasses.replace(report(), notes=("it is weak",))
    assert str(noted) == "present: 9 of 9 files of '/d'\nnote: it is weak"
    assert noted.to_dict()["notes"] == ["it is weak"]


def test_exit_codes() -> None:
    missing = finding(FindingKind.MISSING, "a", errno.ENOENT)
    denied = finding(FindingKind.UNREADABLE, "b", errno.EACCES)
    stale = finding(FindingKind.UNREADABLE, "c", errno.ESTALE)

    assert report().exit_code == 0
    assert report(missing, denied).exit_code == 1
    assert report(stale).exit_code == 3
    assert report(missing, stale, denied).exit_code == 3


def test_what_could_not_be_looked_at_says_so() -> None:
    for name in ("EIO", "ESTALE", "EMFILE", "ETIMEDOUT"):
        unseen = finding(FindingKind.UNREADABLE, "a", getattr(errno, name))
        assert (unseen.conclusive, unseen.to_dict()["errno"]) == (False, name)
    assert finding(FindingKind.UNREADABLE, "a", 9999).to_dict()["errno"] == "9999"
    for number in (None, errno.ENOENT, errno.EACCES, errno.ELOOP, errno.ENOTDIR):
        assert finding(FindingKind.UNREADABLE, "a", number).conclusive


def test_to_dict_is_json() -> None:
    unproven = (ROOT / "u",)
    data = report(finding(FindingKind.SIZE, "a"), level="valid", unproven=unproven).to_dict()

    assert json.loads(json.dumps(data)) == {
        "schema_version": 1,
        "path": "/d",
        "format": "saev",
        "level": "valid",
        "ok": False,
        "exit_code": 1,
        "n_files": 9,
        "n_findings": 1,
        "counts": {"size": 1},
        "findings": [
            {
                "kind": "size",
                "path": "/d/a",
                "expected": "this",
                "found": "that",
                "errno": None,
                "index": None,
                "conclusive": True,
                "mend": "",
            }
        ],
        "unproven": ["/d/u"],
        "n_proven": None,
        "n_unread": 0,
        "n_agreed": 0,
        "notes": [],
    }


def test_raise_for_findings() -> None:
    whole = report()
    assert whole.raise_for_findings() is whole
    broken = report(finding(FindingKind.EMPTY, "a"))
    with pytest.raises(ShardValidationError) as caught:
        broken.raise_for_findings()
    assert caught.value.report is broken
    assert str(caught.value) == str(broken)


def test_a_report_is_true_if_and_only_if_it_is_ok() -> None:
    assert report()
    assert report(unproven=(ROOT / "u",), level="valid")
    assert not report(finding(FindingKind.SIZE, "a"))
    assert not report(finding(FindingKind.UNREADABLE, "a", errno.ESTALE))


def test_the_other_verdicts_are_true_if_and_only_if_they_are_good(make_checkpoint) -> None:
    prefix = make_checkpoint()
    verifier = ShardFileVerifier()
    assert verifier.verify_checkpoint(prefix)
    assert not verifier.verify_checkpoint(f"{prefix}_that_is_none")
    assert Verdict(3, True, "completed", "as recorded")
    assert not Verdict(3, False, "absent", "there is no receipt")


@pytest.mark.parametrize(
    ("level", "n_unproven", "said"),
    [
        ("present", 0, ""),
        ("complete", 0, ""),
        ("complete", 2, "complete: 6 proven, 2 without a size or structure, 1 not as expected"),
        ("valid", 3, "valid: 5 proven, 3 without a digest, 1 not as expected"),
        ("valid", 0, "valid: 8 proven, 0 without a digest, 1 not as expected"),
    ],
)
def test_a_failure_says_what_was_proven_too(level: str, n_unproven: int, said: str) -> None:
    unproven = tuple(ROOT / str(index) for index in range(n_unproven))
    broken = (finding(FindingKind.SIZE, "a"),)
    listed = "Shard validation failed in '/d':\n\nFiles of another size (1):\n  - /d/a"

    text = str(Report(ROOT, "saev", level, 9, broken, unproven, 8 - n_unproven))

    assert text == (f"{listed}\n\n{said}, of 9 files of '/d'" if said else listed)


def test_a_failure_that_lies_in_the_manifest_counts_no_files() -> None:
    broken = (finding(FindingKind.STRUCTURE, "shards.json"),)

    text = str(Report(ROOT, "saev", "valid", 2, broken, (ROOT / "0", ROOT / "1"), 0))

    assert text.endswith("\n\nvalid: 0 proven, 2 without a digest, of 2 files of '/d'")


def test_a_failed_assertion_about_a_report_shows_the_kinds_and_the_first_names() -> None:
    kinds = [FindingKind.SIZE, FindingKind.MISSING, FindingKind.MISSING, FindingKind.NOT_REGULAR]
    found = report(*(finding(kind, f"{n}\x1b[2J") for n, kind in enumerate(kinds)))

    assert found.summary == "4 findings: 2 missing, 1 not regular, 1 of another size"
    names = ", ".join(rf"{n}\x1b[2J" for n in range(3))
    assert repr(found) == f"<Report: {found.summary} [{names}, ...], present in '/d'>"
    assert repr(report()) == "<Report: no findings, present in '/d'>"
    unseen = report(finding(FindingKind.UNREADABLE, "a", errno.EIO))
    assert unseen.summary == "1 finding: 1 unreadable (1 could not be checked)"


def test_pytest_shows_the_end_of_a_long_path_and_the_beginning(pytester) -> None:
    path = f"/{'x' * 400}/{'y' * 20}"
    pytester.makepyfile(
        f"""
        from pathlib import Path
        from shardproof.report import Finding, FindingKind, Report

        def test_it():
            found = Finding(FindingKind.DIGEST, Path({path!r}, "a"), "", "")
            report = Report(Path({path!r}), "saev", "valid", 3, (found,))
            assert report.ok
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:hypothesispytest", "-p", "no:pytest_fakefs")
    text = f"<Report: 1 finding: 1 with another digest [[]a], valid in *{'y' * 20}'>.ok"
    result.stdout.fnmatch_lines([f"E*where False = {text}"])


class TestBounded:
    """A report keeps the first findings whole; of the others it is exact in what it counts."""

    @given(most=st.integers(0, 12), states=st.lists(st.sampled_from("msdx"), max_size=9))
    def test_what_is_counted_is_the_same_however_few_are_kept(self, most, states) -> None:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name).resolve()
            for n, state in enumerate(states):
                if state == "d":
                    (root / str(n)).mkdir()
                elif state != "m":
                    (root / str(n)).write_bytes(b"ab" if state == "s" else b"abc")
            odd = [Contradiction("x", "this", "that")] * 2
            files = [ExpectedFile(name=str(n), size=3) for n in range(len(states))]
            manifest = Manifest(
                root=root, path=root / "x", format="test", files=files, contradictions=lambda: odd
            )
            whole = check(manifest, level="complete")
            few = check(manifest, level="complete", most=most)
        assert few.findings == whole.findings[:most]
        assert (few.counts, few.n_findings) == (whole.counts, len(whole.findings))
        assert few.broken() == whole.broken()
        assert (few.n_proven, few.exit_code, few.ok) == (whole.n_proven, whole.exit_code, whole.ok)
        left = sum(int(n) for n in re.findall(r"(?m)^  and (\d+) more$", str(few)))
        assert str(few).count("\n  - ") + left == len(whole.findings)

    def test_what_nobody_could_look_at_counts_when_it_is_not_kept(self, make_shards_dir) -> None:
        path = make_shards_dir(3, missing=[0])
        with FileSystemFaults(path) as fs:
            fs.fail("open", errno.EIO, match="acts000002.bin", times=None)
            manifest = formats.read_manifest(formats.get("saev"), str(path))
            report = check(manifest, most=1)
        assert [each.path.name for each in report.findings] == ["acts000000.bin"]
        assert (report.exit_code, report.broken().names) == (3, ("acts000000.bin",))

    @pytest.mark.slow
    def test_an_index_of_very_many_that_are_gone_takes_little_memory(self, tmp_path: Path) -> None:
        """What `validate` needs beyond the manifest itself; of findings it was 1.2 kB for each."""
        chunk = {"chunk_bytes": 9, "chunk_size": 1, "dim": None}
        chunks = [chunk | {"filename": f"chunk-0-{n}.bin"} for n in range(20_000)]
        config = {"compression": None, "item_loader": None}
        (tmp_path / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))
        tracemalloc.start()
        report = validate(tmp_path, level="complete", workers=1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (len(report.findings), report.n_findings) == (10_000, 20_000)
        assert len(report.broken()) == 20_000
        assert str(report).endswith("\n  and 10000 more")
        assert peak < 18e6

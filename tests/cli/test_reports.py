"""What the commands print of reports, and how many findings become a few lines."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof import Finding, FindingKind, Report
from shardproof.cli import exits, reports
from shardproof.report import totals_of
from tests.helpers.commands import run, untimed
from tests.helpers.drawing import examples

LINE = re.compile(r"^  - (.*?)(?: \(([0-9]+)\))?(?:, the first)?(?: ->.*)?: expected .*$")


def lines_of(capsys, names: list[str], *, every: bool = False, sizes: bool = False) -> list[str]:
    findings = tuple(
        Finding(FindingKind.SIZE, Path("/d", name), "9 bytes", f"{n if sizes else 1} bytes")
        for n, name in enumerate(names)
    )
    report = Report(Path("/d"), "mds", "complete", len(names), findings, n_proven=0)
    reports.show([exits.PathOutcome("/d", report, "", 1, 0.5)], every=every)
    return capsys.readouterr().out.splitlines()


def spread(name: str, count: str | None) -> list[str]:
    """The names that a range stands for."""
    if count is None:
        return [name]
    before, first, last, after = re.fullmatch(r"(.*)\[([0-9]+)-([0-9]+)\](.*)", name).groups()
    names = [f"{before}{n:0{len(first)}}{after}" for n in range(int(first), int(last) + 1)]
    assert len(names) == int(count)
    return names


def test_the_command_that_mends_is_shown_without_asking_for_more(make_shards_dir) -> None:
    path = make_shards_dir(2)
    (path / "acts000001.bin").rename(path / "acts000001.bin.part")
    line = run("validate", path).stdout.splitlines()[3]
    assert line.endswith(f"; mv -n -- {path}/acts000001.bin.part {path}/acts000001.bin")
    assert "\n" not in line


class TestFolding:
    def test_it_is_as_the_page_shows(self, capsys) -> None:
        names = [f"acts{n:06}.bin" for n in [*range(3, 42), *range(50, 62)]]
        assert lines_of(capsys, names) == [
            "complete: 0 of 51 files of '/d' (mds, 0.50 s)",
            "",
            "Files of another size (51):",
            "  - /d/acts[000003-000041].bin (39): expected 9 bytes, found 1 bytes",
            "  - /d/acts[000050-000061].bin (12): expected 9 bytes, found 1 bytes",
            "",
            "51 findings: 51 of another size; --all lists each",
        ]

    def test_few_are_not_folded_and_all_are_if_that_is_asked_for(self, capsys) -> None:
        names = [f"{n}.bin" for n in range(51)]
        assert len(lines_of(capsys, names[:50])) == 50 + 5
        assert len(lines_of(capsys, names, every=True)) == 51 + 5
        assert len(lines_of(capsys, names)) == 1 + 5

    def test_where_each_has_another_size_the_first_is_shown(self, capsys) -> None:
        names = [f"{n}.bin" for n in range(60)]
        folded = "  - /d/[0-59].bin (60), the first: expected 9 bytes, found 0 bytes"
        assert folded in lines_of(capsys, names, sizes=True)

    @pytest.mark.parametrize(
        ("names", "folded"),
        [
            (["data-00001-of-00060", "data-00002-of-00060"], ["data-[00001-00002]-of-00060 (2)"]),
            (["chunk-0-9.bin", "chunk-0-10.bin"], ["chunk-0-[9-10].bin (2)"]),
            (["y=1/a1", "y=2/a1"], ["y=[1-2]/a1 (2)"]),
            (["a9", "a010"], ["a9", "a010"]),
            (["a1", "a3"], ["a1", "a3"]),
            (["a1", "b1"], ["a1", "b1"]),
            (["a1.x", "a2.y"], ["a1.x", "a2.y"]),
            (["a1-1", "a2-2"], ["a1-1", "a2-2"]),
            (["a1-1", "a1-2", "a2-2"], ["a1-[1-2] (2)", "a2-2"]),
        ],
    )
    def test_only_what_counts_up_is_a_range(self, capsys, names, folded) -> None:
        others = [f"z/{2 * n}" for n in range(60)]
        lines = [line for line in lines_of(capsys, names + others) if "/d/z/" not in line]
        assert [line.split(": ")[0] for line in lines[3:-2]] == [
            f"  - /d/{each}" for each in folded
        ]

    @examples(100)
    @given(
        numbers=st.sets(st.integers(0, 130), min_size=51, max_size=80),
        shape=st.sampled_from(["acts{:06}.bin", "{}", "a{}/7.{:03}", "x-{:02}-of-60", "0{}0"]),
    )
    def test_no_name_is_lost_or_made_up(self, numbers, shape) -> None:
        names = [shape.format(n, n) for n in sorted(numbers)]
        findings = [Finding(FindingKind.MISSING, Path("/d", name), "a", "b") for name in names]
        report = Report(Path("/d"), "mds", "present", 99, tuple(findings), n_proven=0)
        lines = reports._findings(report, verbose=False, every=False)
        found = [spread(*match.groups()) for match in map(LINE.match, lines) if match]
        assert sorted(name for names in found for name in names) == sorted(
            f"/d/{name}" for name in names
        )

    def test_findings_beyond_those_that_are_kept_are_counted(
        self, make_shards_dir, monkeypatch
    ) -> None:
        monkeypatch.setattr("shardproof.validation.MOST_KEPT", 60)
        text = run("validate", make_shards_dir(90, missing=range(90))).stdout
        assert "acts[000000-000059].bin (60): expected a regular file, found nothing\n" in text
        assert "  and 30 more\n" in text
        assert "90 findings: 90 missing; --all lists each" in text


def test_a_link_is_shown_with_its_target(make_shards_dir, tmp_path: Path) -> None:
    path = make_shards_dir(3)
    for name, target in (("acts000000.bin", "gone"), ("acts000001.bin", tmp_path / "a\nb")):
        (path / name).unlink()
        (path / name).symlink_to(target)
    text = run("validate", path).stdout
    assert "acts000000.bin -> gone: expected a regular file, found nothing\n" in text
    assert rf"acts000001.bin -> {tmp_path}/a\nb: expected a regular file" in text


def test_totals_of_several_directories(make_shards_dir, tmp_path: Path) -> None:
    damaged = [make_shards_dir(3, missing=[n], empty=[2]) for n in range(2)]
    done = run("validate", make_shards_dir(1), *damaged, tmp_path / "gone")
    assert untimed(done.stdout.splitlines()[-1]) == (
        "4 directories: 1 whole, 2 damaged, 1 unreadable; 7 files, N s; "
        "4 findings: 2 missing, 2 empty"
    )


def test_each_kind_has_its_word() -> None:
    assert totals_of(dict.fromkeys(FindingKind, 1)) == (
        "10 findings: 1 missing, 1 empty, 1 unreadable, 1 not regular, 1 something else, "
        "1 of which nothing was written, 1 of another size, 1 of another structure, "
        "1 with another digest, 1 unexpected"
    )


def test_ten_thousand_findings_take_no_time_that_grows_with_their_square(make_shards_dir) -> None:
    """Each is compared with the one before it only: what is compared is counted."""
    compared = []
    real = reports._counted_up
    findings = [Finding(FindingKind.SIZE, Path(f"/d/{n}"), "a", "b") for n in range(10_000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "_counted_up", lambda *two: compared.append(1) or real(*two))
        [(name, some)] = reports._ranges(reversed(findings))
    assert (name, len(some), len(compared)) == ("/d/[0-9999]", 10_000, 9_999)
    assert os.path.basename(some[0].path) == "0"

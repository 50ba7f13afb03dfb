"""The forms of a report: what other programs read is what those programs take."""

import dataclasses
import errno
import io
import json
import math
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shardproof import Finding, FindingKind, ManifestError, Report, rendering, seal, validate
from shardproof.report import MoreFindings
from shardproof.testing.faults import FileSystemFaults
from tests.helpers import ROOT as REPOSITORY
from tests.helpers.surveys import ROOT, file_state, large, survey_of

HOSTILE = ("</script><b>", '"}\\', "a\x1b[2J", "&amp;\n::error::%0A", "\udcff", "\ufffe", "'", "é")


@pytest.fixture
def damaged(make_shards_dir) -> Path:
    path = make_shards_dir(9, missing_shards=[1], empty_shards=[2], directory_shards=[3])
    (path / "acts000004.bin").rename(path / "acts000004.bin.part")
    return path


def surveyed(path: Path, *, since: Path | None = None, level="present", **how) -> rendering.Survey:
    since = None if since is None else str(since)
    return rendering.survey(validate(path, level=level, **how), seconds=1.5, since=since, **how)


def states(survey: rendering.Survey) -> dict[str, str]:
    return {file.name: file.state for file in survey.files}


class TestSurvey:
    def test_it_has_each_file_in_order_with_state_size_and_last_use(self, damaged: Path) -> None:
        os.utime(damaged / "acts000000.bin", (1000, 2000))
        survey = surveyed(damaged)
        assert [*states(survey)] == [f"acts{index:06d}.bin" for index in range(9)]
        assert [*states(survey).values()][:6] == [
            *("as-expected", "missing", "empty", "not-regular", "missing", "as-expected")
        ]
        assert (survey.files[0].size, survey.files[0].used) == (1024, 2000)
        assert (survey.files[1].size, survey.files[1].used) == (None, None)

    def test_what_is_not_verified_says_so_and_strays_come_last(self, tmp_path: Path) -> None:
        for name in "ab":
            (tmp_path / name).write_text(name)
        seal(tmp_path)
        (tmp_path / "c").write_text("c")
        report = validate(tmp_path, strict=True)
        assert states(rendering.survey(report, seconds=0))["c"] == "stray"
        assert states(surveyed(tmp_path)) == dict.fromkeys("ab", "as-expected")
        assert states(surveyed(tmp_path, level="complete")) == dict.fromkeys("ab", "unproven")

    def test_what_can_not_be_looked_at_is_not_called_missing(self, damaged: Path) -> None:
        report = validate(damaged)
        with FileSystemFaults(damaged) as faults:
            faults.fail("stat", errno.EIO, match="acts000005.bin", times=None)
            file = rendering.survey(report, seconds=0).files[5]
        assert (file.state, file.size, file.used) == ("as-expected", None, None)
        unseen = Finding(FindingKind.UNREADABLE, damaged / "acts000006.bin", "", "", 5, 6)
        survey = rendering.survey(dataclasses.replace(report, findings=(unseen,)), seconds=0)
        assert survey.files[6].state == "unseen"

    def test_findings_that_were_only_counted_are_seen(self, damaged: Path) -> None:
        more = MoreFindings()
        more.add(
            Finding(FindingKind.SIZE, damaged / "acts000007.bin", "", "", index=7), "acts000007.bin"
        )
        survey = rendering.survey(dataclasses.replace(validate(damaged), more=more), seconds=0)
        assert survey.files[7].state == "other"
        assert b'failures="5"' in rendering.junit(survey)

    def test_a_checkpoint_is_named_by_its_prefix(self, tmp_path: Path) -> None:
        np = pytest.importorskip("numpy")
        from shardproof import MultiShardSaver

        prefix = tmp_path / "model"
        MultiShardSaver().save_shard(prefix, 0, {"a": np.arange(3)})
        MultiShardSaver().save_metadata(prefix, world_size=1, step=1)
        (shard,) = tmp_path.glob("*.shard")
        old = tmp_path / "old.json"
        old.write_text(json.dumps(validate(prefix).to_dict()))
        shard.unlink()
        survey = surveyed(prefix, since=old)
        assert states(survey) == {shard.name: "missing"}
        assert survey.change.broke == [shard.name]


class TestSince:
    def test_what_broke_and_what_healed(self, damaged: Path, tmp_path: Path) -> None:
        old = tmp_path / "old.json"
        old.write_text(json.dumps([validate(damaged).to_dict()]))
        (damaged / "acts000004.bin.part").rename(damaged / "acts000004.bin")
        (damaged / "acts000008.bin").unlink()
        change = surveyed(damaged, since=old).change
        assert (change.broke, change.healed) == (["acts000008.bin"], ["acts000004.bin"])
        assert change.notes == []

    def test_what_makes_two_reports_hard_to_compare_is_said(self, damaged, tmp_path) -> None:
        old, data = tmp_path / "old.json", validate(damaged, level="complete").to_dict()
        data |= {"path": "/a\x1b", "n_findings": 99}
        data["findings"][0]["path"] = "/a\x1b/gone"
        old.write_text(json.dumps(data))
        assert surveyed(damaged, since=old).change.notes == [
            r"It is of another directory: '/a\x1b'",
            "Its level was complete, not present",
            f"It lists {len(data['findings'])} of its 99 findings",
            "4 of its files are not expected any more",
        ]

    def test_of_several_that_of_the_directory_counts(self, damaged, tmp_path) -> None:
        old, data = tmp_path / "old.json", validate(damaged).to_dict()
        failure = {"schema_version": 1, "path": "/b", "ok": False, "exit_code": 2, "error": "no"}
        old.write_text(json.dumps([failure, data]))
        assert surveyed(damaged, since=old).change.broke == []
        old.write_text(json.dumps([failure, failure]))
        with pytest.raises(ManifestError, match="found 2 of other directories"):
            surveyed(damaged, since=old)

    @pytest.mark.parametrize(
        "text",
        ["", "{}", "[]", '{"path": "/a"}', '{"schema_version": 2, "path": "/"}', "[" * 9999, "NaN"],
    )
    def test_what_is_no_report_is_refused(self, damaged, tmp_path, text: str) -> None:
        (tmp_path / "old.json").write_text(text)
        with pytest.raises(ManifestError, match=r"old\.json"):
            surveyed(damaged, since=tmp_path / "old.json")

    def test_a_device_is_not_read(self, damaged, tmp_path) -> None:
        (tmp_path / "old.json").symlink_to("/dev/zero")
        with pytest.raises(ManifestError, match="expected a regular file"):
            surveyed(damaged, since=tmp_path / "old.json")


def hostile() -> rendering.Survey:
    kinds = [*FindingKind] * 2
    files = [
        file_state(n, name, kind)
        for n, (name, kind) in enumerate(zip(HOSTILE, kinds, strict=False))
    ]
    return survey_of(files, format='a"b\\c')


class Scripts(HTMLParser):
    """Which elements a page has, and the text of its first script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.data = [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)

    def handle_data(self, data) -> None:
        if self.tags[-1:] == ["script"] and self.data is None:
            self.data = json.loads(data)


class TestPage:
    def test_it_is_one_file_that_loads_nothing(self) -> None:
        text = rendering.page(survey_of([file_state(0, "a")])).decode()
        assert not re.search(r"(?:https?:|//\w|\ssrc=|\shref=|@import|url\()", text)
        assert "default-src 'none'" in text

    def test_names_are_data(self) -> None:
        text = rendering.page(hostile()).decode()
        found, plain = (
            Scripts(text),
            Scripts(rendering.page(survey_of([file_state(0, "a")])).decode()),
        )
        assert found.tags == plain.tags
        assert found.data["names"][:3] == ["</script><b>", '"}\\', r"a\x1b[2J"]
        assert found.data["details"]["0"][:2] == ["4096 bytes", "nothing"]

    def test_its_numbers_are_those_of_the_survey(self, damaged: Path) -> None:
        survey = surveyed(damaged)
        data = Scripts(rendering.page(survey).decode()).data
        assert data["title"] == f"{damaged.name}: 4 findings"
        assert (data["n_files"], data["n_proven"], data["since"]) == (9, 5, None)
        kinds = {kind: n for kind, _, n in data["kinds"] if n}
        assert kinds == {"as-expected": 5, "missing": 2, "empty": 1, "not-regular": 1}
        assert [data["kinds"][n][0] for n in data["states"]] == [*states(survey).values()]
        assert data["sizes"] == [file.size for file in survey.files]

    def test_every_state_has_a_color_in_light_and_dark(self) -> None:
        text = rendering.page(hostile()).decode()
        for state in rendering._survey.STATES:
            assert len(re.findall(rf"--{state}: #", text)) == 2, state


class TestJunit:
    def test_each_file_is_a_test(self, damaged: Path) -> None:
        junit = pytest.importorskip("junitparser")
        (suite,) = junit.JUnitXml.fromstring(rendering.junit(surveyed(damaged)))
        assert (suite.tests, suite.failures, suite.errors) == (9, 4, 0)
        results = {case.name: case.result for case in suite}
        assert results["acts000000.bin"] == []
        (failure,) = results["acts000004.bin"]
        assert failure.type == "missing"
        assert "found nothing, but there is 'acts000004.bin.part'" in failure.message
        assert failure.text.startswith("mv -n -- ")

    def test_what_could_not_be_checked_is_an_error_and_names_are_text(self) -> None:
        junit = pytest.importorskip("junitparser")
        survey = hostile()
        unseen = survey.files[0]._replace(state="unseen")
        survey = survey._replace(files=[unseen, *survey.files[1:]])
        (suite,) = junit.JUnitXml.fromstring(rendering.junit(survey))
        assert (suite.errors, suite.failures) == (1, len(HOSTILE) - 1)
        names = [case.name for case in suite]
        assert names[0] == "</script><b>"
        assert names[2] == r"a\x1b[2J"


class TestGithub:
    def test_there_is_an_annotation_for_each_kind_on_a_line_of_its_own(self) -> None:
        lines = list(rendering.github(hostile()))
        assert len(lines) == len(HOSTILE)
        for line in lines:
            assert re.fullmatch(r"::error title=[\w ]+ \(\d+\)::[^\n\r\x1b]*", line)
        assert r"&amp;\n::error::%250A: nothing" in lines[3]

    def test_of_many_the_first_are_named(self) -> None:
        files = [file_state(n, f"{n}.bin", FindingKind.SIZE) for n in range(50)]
        (line,) = rendering.github(survey_of(files))
        assert line.count("%0A") == 20
        assert line.endswith("%0Aand 30 more")


class TestPrometheus:
    def test_its_own_parser_reads_it(self, damaged: Path) -> None:
        parser = pytest.importorskip("prometheus_client.parser")
        for survey in (surveyed(damaged), hostile(), survey_of([])):
            text = rendering.prometheus(survey).decode()
            families = {
                each.name: each for each in parser.text_fd_to_metric_families(io.StringIO(text))
            }
            counts = {s.labels["kind"]: s.value for s in families["shardproof_findings"].samples}
            assert counts == {kind: survey.report.counts.get(kind, 0) for kind in FindingKind}
            (files,) = families["shardproof_files"].samples
            assert (files.value, files.labels["format"]) == (
                survey.report.n_files,
                survey.report.format,
            )
            assert {each.type for each in families.values()} == {"gauge"}
        (oldest,) = families["shardproof_oldest_use_timestamp_seconds"].samples
        assert math.isnan(oldest.value)


class TestMap:
    def test_each_file_is_a_letter(self, damaged: Path) -> None:
        text = rendering.terminal_map(surveyed(damaged), 5, 9).plain
        assert text.splitlines()[:2] == ["·MERM", "····"]
        assert "M Missing files (2)" in text

    def test_of_many_the_worst_is_shown(self) -> None:
        survey = large(5000)
        text = rendering.terminal_map(survey, 20, 10).plain
        rows = text.splitlines()
        assert [len(row) for row in rows[:10]] == [20] * 10
        assert rows[10] == "Each letter stands for 25 files, and shows the worst."
        assert "M" in rows[3]

    def test_of_no_files_there_is_none(self) -> None:
        assert rendering.terminal_map(survey_of([]), 5, 5).plain == ""


SCHEMA = REPOSITORY / "docs" / "report-schema.json"


class TestSchema:
    @pytest.fixture
    def check(self):
        jsonschema = pytest.importorskip("jsonschema")
        schema = json.loads(SCHEMA.read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        return jsonschema.Draft202012Validator(schema)

    @pytest.mark.parametrize("level", ["present", "complete", "valid"])
    def test_reports_are_as_it_says(self, check, damaged: Path, make_shards_dir, level) -> None:
        for path in (damaged, make_shards_dir(2)):
            data = json.loads(json.dumps(validate(path, level=level).to_dict()))
            check.validate(data)
            check.validate([data])
            for key in data:
                with pytest.raises(Exception, match="is not valid under any"):
                    check.validate({name: data[name] for name in data if name != key})

    def test_it_names_each_field_and_kind_and_no_other(self, damaged: Path) -> None:
        defs = json.loads(SCHEMA.read_text())["$defs"]
        data = validate(damaged).to_dict()
        for name, found in {"report": data, "finding": data["findings"][0]}.items():
            fields = defs[name]["properties"].keys() - {"host", "since"}  # where there are several
            assert fields == found.keys() == {*defs[name]["required"]}
        assert defs["kind"]["enum"] == [*FindingKind]

    def test_each_kind_of_finding_fits(self, check) -> None:
        findings = tuple(Finding(kind, ROOT / kind, "", "", 5) for kind in FindingKind)
        data = Report(ROOT, "saev", "valid", 9, findings).to_dict()
        check.validate(json.loads(json.dumps(data)))

"""`pytest --validate-shards`: the items, how pytest treats them, and what is left alone."""

import errno
import os
import shutil
import subprocess
import sys
import time
import typing
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np  # noqa: F401 - it can't be loaded again by each run inside this process
import pytest

import shardproof
from shardproof import formats
from shardproof._base.imports import import_all
from shardproof.formats import signs
from shardproof.pytest_plugin import _hooks as plugin
from shardproof.testing import Layout, write_layout
from shardproof.testing.faults import FileSystemFaults

import_all()  # nor may a run import a class anew that another one has

Run = Callable[..., pytest.RunResult]
Make = Callable[..., Path]

# Warnings are errors, but for the one about a run inside a run with --assert=plain; and the plugins
# of others, which cost two seconds a run, stay out.
WARNINGS = ("-Werror", "-Wignore::pytest.PytestAssertRewriteWarning")
ARGS = (*WARNINGS, "-p", "no:hypothesispytest", "-p", "no:pytest_fakefs")


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Run pytest in this process."""
    pytester.makeini("[pytest]")  # or pytest would look for one in the directories above

    def run(*args: object) -> pytest.RunResult:
        return pytester.runpytest_inprocess(*ARGS, *map(str, args))

    return run


@pytest.fixture
def run_all(pytester: pytest.Pytester) -> Run:
    """Run pytest, which validates what it meets because the ini file says so."""
    pytester.makeini("[pytest]\nvalidate_shards = true")
    return lambda *args: pytester.runpytest_inprocess(*ARGS, "-v", *args)


@pytest.fixture
def inside(pytester: pytest.Pytester) -> Make:
    """Write a shards directory into the project under test."""

    def inside(value: Layout | None = None, where: str = "data") -> Path:
        layout = value or Layout()
        return write_layout(layout, pytester.path / where / layout.folder)

    return inside


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Write a shards directory elsewhere."""

    def outside(value: Layout | None = None) -> Path:
        layout = value or Layout()
        return write_layout(layout, tmp_path_factory.mktemp("outside") / layout.folder)

    return outside


@pytest.fixture
def passing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_other="def test_other(): pass")


@pytest.fixture
def beside(pytester: pytest.Pytester) -> Path:
    """A directory with a test, a fixture of its own, a package and a test in a folder."""
    here = pytester.mkdir("unit")
    for name in ("", "deeper", "package"):
        (here / name).mkdir(exist_ok=True)
        code = "def test_it(fine): assert fine"
        (here / name / f"test_in_{name or 'it'}.py").write_text(code)
    (here / "package" / "__init__.py").touch()
    fixture = "import pytest\n@pytest.fixture\ndef fine(): return True"
    (here / "conftest.py").write_text(fixture)
    return here


def plant_code(directory: Path, marker: Path) -> None:
    """Write what pytest might import: each leaves a mark and then fails."""
    code = f"open({str(marker)!r}, 'w').close(); raise RuntimeError('imported')"
    for name in ("conftest.py", "__init__.py", "test_planted.py"):
        (directory / name).write_text(code)


def ids(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line and " " not in line]


@pytest.mark.usefixtures("passing")
def test_without_the_option_nothing_is_collected(run: Run, inside: Make) -> None:
    inside(Layout(missing=[0]))
    result = run()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*shards*.json*")
    result.stdout.no_fnmatch_line("*shards director*")


class TestInTheTestTree:
    @pytest.mark.usefixtures("passing")
    def test_findings(self, run: Run, inside: Make) -> None:
        path = inside(Layout(4, missing=[1], empty=[2]))
        result = run("--validate-shards")
        result.assert_outcomes(passed=1, failed=1)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines(
            [
                f"*shards directory {path} (present)*",
                f"Shard validation failed in '{path}':",
                "",
                "Missing files (1):",
                f"  - {path / 'acts000001.bin'}",
                "",
                "Empty files (1):",
                f"  - {path / 'acts000002.bin'}",
            ],
            consecutive=True,
        )
        counts = "present: 1 shards directory with 4 files validated, 1 failed"
        result.stdout.fnmatch_lines(
            ["*= shards directories =*", counts, f"FAILED {path}: 2 findings: 1 missing, 1 empty"]
        )
        result.stdout.no_fnmatch_line("*Traceback*")
        result.stdout.no_fnmatch_line("*pytest_plugin.py*")

    @pytest.mark.parametrize("broken", ["", "{", "[]]", '[{"name": "../x", "n_examples": 1}]'])
    @pytest.mark.usefixtures("passing")
    def test_a_broken_manifest_is_one_failure(self, run: Run, inside: Make, broken: str) -> None:
        manifest = inside() / "shards.json"
        manifest.write_text(broken)
        inside(Layout(2))
        result = run("--validate-shards")
        result.assert_outcomes(passed=2, failed=1)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines([f"Could not read the manifest at '{manifest}'*"])

    @pytest.mark.usefixtures("passing")
    def test_code_in_it_is_not_imported(self, run, inside, outside, tmp_path) -> None:
        named = outside()
        for planted in (inside(where="tests"), named, named.parent):
            plant_code(planted, tmp_path / "imported")
        run("--validate-shards", f"--shards-dir={named}").assert_outcomes(passed=3)
        assert not (tmp_path / "imported").exists()

    @pytest.mark.usefixtures("passing")
    def test_a_directory_and_an_id_can_be_given(self, run: Run, inside: Make) -> None:
        inside(Layout(2, missing=[1]))
        path = inside()
        nodeid = f"data/saev/shards/{path.name}/shards.json::present"
        for given in (path, path / "shards.json", nodeid):
            run("--validate-shards", given).assert_outcomes(passed=1)

    @pytest.mark.parametrize("args", [[], ["tests"], ["tests/test_inner.py"]])
    def test_tests_beside_a_manifest_still_run_where_they_are_asked_for(
        self, run: Run, pytester: pytest.Pytester, args: list[str]
    ) -> None:
        pytester.makeini("[pytest]\nvalidate_shards = true\ntestpaths = tests")
        tests = pytester.mkdir("tests")
        write_files(write_layout(Layout(), pytester.path / "aside"), tests)
        (tests / "test_inner.py").write_text("def test_inner(): pass")
        run(*args).assert_outcomes(passed=1 if "test_inner" in str(args) else 2)


class TestNamesThatOthersUse:
    """``plan.json`` and ``*.metadata.json``: whatever they are, they hide no test."""

    @pytest.mark.parametrize(
        "text", ['{"tickets": [1, 2]}', "[]", "", '{"version": "1.0", "steps": []}']
    )
    def test_files_of_something_else(self, run_all: Run, beside: Path, text: str) -> None:
        for name in ("plan.json", "table.metadata.json", ".metadata.json"):
            (beside / name).write_text(text)
        os.mkfifo(beside / "x.metadata.json")
        (beside / "other_shard_0.shard").write_bytes(b"x")
        (beside / "receipts").mkdir()
        (beside / "receipts" / "march.pdf").write_bytes(b"%PDF")
        result = run_all()
        result.assert_outcomes(passed=3)
        result.stdout.fnmatch_lines(["present: 0 shards directories with 0 files validated*"])

    @pytest.mark.parametrize(
        ("plan", "told"), [(None, "1 finding: 1 missing"), ("{", "could not be validated")]
    )
    def test_a_plan(self, run_all, beside, make_receipts_dir, plan, told) -> None:
        write_files(make_receipts_dir(n_shards=2, missing_bin=[1]), beside)
        if plan is not None:
            (beside / "plan.json").write_text(plan)
        result = run_all()
        result.assert_outcomes(passed=3, failed=1)
        result.stdout.fnmatch_lines(["*unit/plan.json::present*"])
        result.stdout.fnmatch_lines([f"FAILED {beside}: {told}"])

    def test_checkpoints(self, run_all: Run, beside: Path, make_checkpoint: Make) -> None:
        prefix = make_checkpoint(directory=beside, step=1)
        make_checkpoint(directory=beside, step=2, prefix="later", missing_ranks=[0])
        result = run_all()
        result.assert_outcomes(passed=3, failed=1)
        name = os.path.basename(prefix)
        result.stdout.fnmatch_lines([f"*unit/{min(name, 'later')}.metadata.json::present*"])
        result.stdout.fnmatch_lines([f"FAILED {beside}: 1 finding: 1 missing"])


class TestWhatNobodyCouldLookAt:
    """It is an item that fails and says so: nothing is silently not collected."""

    @pytest.mark.parametrize(
        ("number", "times", "told"),
        [
            # Looked at anew, it tells what is there; where that fails too, that.
            (errno.EIO, 1, "*Missing files (1):"),
            (errno.EACCES, 1, "*Missing files (1):"),
            (errno.EIO, None, "*could not be looked at*"),
            (errno.EACCES, None, "*shards.json': permission denied*"),
        ],
    )
    def test_a_directory_of_data(self, run_all, inside, pytester, number, times, told) -> None:
        path = inside(Layout(2, missing=[1]))
        with FileSystemFaults(pytester.path) as fs:
            fs.fail("stat", number, match=f"*/{path.name}/shards.json", times=times)
            result = run_all()
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f"FAILED {path}: *"])
        result.stdout.fnmatch_lines([told])

    @pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
    @pytest.mark.parametrize(
        ("call", "match"), [("open", "*/plan.json"), ("scandir", "*/receipts")]
    )
    def test_a_plan(self, run_all, beside, make_receipts_dir, number, call, match) -> None:
        write_files(make_receipts_dir(n_shards=2), beside)
        if call == "scandir":  # asked for where the plan's own text says nothing
            begin = (beside / "plan.json").read_text()
            (beside / "plan.json").write_text(" " * 5000 + begin)
        with FileSystemFaults(beside) as fs:
            fs.fail(call, number, match=match, times=1)
            result = run_all()
        outcomes = result.parseoutcomes()
        assert outcomes.pop("passed", 0) + outcomes.pop("failed", 0) == 4
        assert not outcomes
        result.stdout.fnmatch_lines(["*unit/plan.json::present*"])

    @pytest.mark.parametrize(("call", "match"), [("open", "*/x.metadata.json"), ("scandir", "*")])
    def test_what_might_be_a_checkpoint(self, run_all, beside, call, match) -> None:
        (beside / "x.metadata.json").write_text("{}")
        with FileSystemFaults(beside) as fs:
            fs.fail(call, errno.EIO, match=match)
            result = run_all("--continue-on-collection-errors")
        assert result.ret in {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}
        result.stdout.fnmatch_lines(["*Input/output error*"])


def write_files(source: Path, target: Path) -> None:
    for entry in source.iterdir():
        entry.rename(target / entry.name)


class TestNamedDirectories:
    def test_a_relative_path_starts_where_pytest_does(
        self, run: Run, inside: Make, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = inside()
        pytester.makeini("[pytest]")
        monkeypatch.chdir(path.parents[1])
        pytester.mkdir("empty")
        result = run("--validate-shards", "--shards-dir=shards/" + path.name, "../../empty")
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(["present: 1 shards directory with 3 files validated*"])

    def test_ini_paths_start_at_the_ini_file(self, run, inside, pytester, monkeypatch) -> None:
        path = inside().relative_to(pytester.path)
        pytester.makeini(
            f"[pytest]\nvalidate_shards = true\nshards_dirs = {path}\n  gone\nnorecursedirs = data"
        )
        monkeypatch.chdir(pytester.mkdir("sub"))
        run().assert_outcomes(passed=1, failed=1)

    @pytest.mark.parametrize("name", ["it's my data", 'a "b', "a\\b", "x#y"])
    def test_a_line_of_the_ini_file_is_a_path_as_it_is(self, run, inside, pytester, name) -> None:
        paths = [inside(where=f"{name} {n}").relative_to(pytester.path) for n in range(2)]
        lines = "".join(f"  {path}\n" for path in paths)
        pytester.makeini(f"[pytest]\nnorecursedirs = *\nshards_dirs =\n{lines}")
        run("--validate-shards").assert_outcomes(passed=2)

    @pytest.mark.parametrize(
        ("how", "text"),
        [
            ("gone", "there is no such directory"),
            ("file", "found a file; give the directory"),
            ("half-written", "there is no such file. *half-written"),
            ("empty", "found nothing; is the path right?"),
        ],
    )
    @pytest.mark.usefixtures("passing")
    def test_what_is_no_whole_directory_fails(self, run, outside, how, text) -> None:
        path = outside()
        if how == "half-written":
            (path / "shards.json").unlink()
        else:
            shutil.rmtree(path)
            {"file": path.touch, "empty": path.mkdir, "gone": str}[how]()
        result = run("--validate-shards", f"--shards-dir={path}")
        result.assert_outcomes(passed=1, failed=1)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines([f"Could not read the manifest at *: *{text}*"])

    def test_the_rootdir_stays_and_nothing_is_written(self, run, outside, pytester) -> None:
        path = outside()
        before = sorted(path.parents[2].rglob("*"))
        result = run("--validate-shards", f"--shards-dir={path}")
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines([f"rootdir: {pytester.path}"])
        assert sorted(path.parents[2].rglob("*")) == before

    def test_each_directory_is_validated_once(self, run, inside, outside, pytester) -> None:
        in_tree, elsewhere = inside(), outside(Layout(2))
        (pytester.path / "link").symlink_to(in_tree)
        elsewhere.with_name("link").symlink_to(elsewhere)
        named = [in_tree, elsewhere, elsewhere, f"{elsewhere}/", elsewhere.with_name("link")]
        options = ("--validate-shards", *(f"--shards-dir={path}" for path in named))
        run(*options).assert_outcomes(passed=2)
        assert ids(run(*options, "--collect-only", "-q")) == [
            f"{path}/shards.json::present" for path in (in_tree, elsewhere)
        ]


def test_the_conftest_of_the_project_has_its_say_about_the_items(
    run: Run, inside: Make, outside: Make, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        "def pytest_runtest_setup(item): print('asked', item.nodeid)\n"
        "def pytest_itemcollected(item): print('collected', item.nodeid)"
    )
    path = outside()
    for nodeid in (f"{path}/shards.json::present", f"data/saev/shards/{inside().name}/shards.json"):
        result = run("--validate-shards", "-s", f"--shards-dir={path}")
        result.stdout.fnmatch_lines([f"*collected {nodeid}*"])
        result.stdout.fnmatch_lines([f"*asked {nodeid}*"])


@pytest.mark.usefixtures("passing")
def test_the_flag_without_a_directory_fails(run: Run, pytester: pytest.Pytester) -> None:
    result = run("--validate-shards")
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "No shards directory was found, and --validate-shards was given.",
            "*--shards-dir=PATH*",
            "present: 0 shards directories with 0 files validated, 0 failed",
        ]
    )
    pytester.makeini("[pytest]\nvalidate_shards = true")  # which asks for none
    result = run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["present: 0 shards directories with 0 files validated*"])


class TestSelection:
    @pytest.fixture
    def three(self, inside: Make, pytester: pytest.Pytester) -> tuple[Path, Path]:
        """A healthy directory, one with findings, and a test."""
        pytester.makepyfile(test_other="def test_other(): pass")
        return inside(), inside(Layout(2, missing=[1]))

    def test_as_any_test(self, run: Run, three: tuple[Path, Path], outside: Make) -> None:
        healthy, damaged = three
        run("--validate-shards", "-k", healthy.name).assert_outcomes(passed=1, deselected=2)
        named = outside(Layout(4))
        result = run("--validate-shards", f"--shards-dir={named}", "-k", named.name)
        result.assert_outcomes(passed=1, deselected=3)
        result = run("--validate-shards", "--strict-markers", "-m", "shards")
        result.assert_outcomes(passed=1, failed=1, deselected=1)
        run("--validate-shards", "-m", "not shards").assert_outcomes(passed=1, deselected=2)
        run("--validate-shards").assert_outcomes(passed=2, failed=1)
        result = run("--validate-shards", "--lf")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f"FAILED {damaged}: 1 finding: 1 missing"])
        deselect = f"--deselect=data/saev/shards/{damaged.name}/shards.json::present"
        result = run("--validate-shards", deselect)
        result.assert_outcomes(passed=2, deselected=1)

    def test_a_name_that_would_paint_the_terminal(self, run, inside, beside) -> None:
        name, shown = "a\x1b]0;b\x07\nc\u202e", "a?x1b]0;b?x07?nc?u202e"
        path = inside().rename(inside(where="other").with_name(name))
        (beside / f"{name}.metadata.json").write_text('{"schema_version": 1, "world_size": 1}')
        for args, lines in (
            ([], [f"*<ShardsDirectory {shown}>", f"*<ShardsManifest {shown}.metadata.json>"]),
            ([f"--shards-dir={path}"], [f"<ShardsManifest *{shown}/shards.json>"]),
        ):
            result = run("--validate-shards", "--collect-only", *args)
            result.stdout.fnmatch_lines(lines)
            assert not {"\x1b", "\x07", "\u202e"} & set(str(result.stdout))

    def test_collect_only_looks_at_nothing(self, run, three, monkeypatch) -> None:
        (three[0] / "shards.json").write_text("{")
        monkeypatch.setattr(shardproof, "validate", None)
        result = run("--validate-shards", "--collect-only", "-q")
        assert result.ret == pytest.ExitCode.OK
        assert ids(result) == [
            *sorted(f"data/saev/shards/{path.name}/shards.json::present" for path in three),
            "test_other.py::test_other",
        ]
        result.stdout.no_fnmatch_line("*validated*")


class TestOptions:
    def test_the_option_wins_over_the_ini_file(self, run, inside, pytester) -> None:
        inside()
        pytester.makeini("[pytest]\nvalidate_shards = true\nshards_level = complete")
        result = run("--shards-level=valid", "-v")
        result.stdout.fnmatch_lines(["*shards.json::valid PASSED*"])
        run("-o", "validate_shards=false").assert_outcomes()

    @pytest.mark.parametrize(
        ("args", "text"),
        [
            ("-o shards_level=best", "ini option shards_level: expected one of present, *'best'"),
            ("--shards-level=best", "--shards-level: expected one of present, *, found 'best'"),
            ("--shards-dir data", "--shards-dir PATH, with a space, *: write --shards-dir=PATH"),
            ("--shards-dir=", "--shards-dir=PATH: expected a path*"),
            ("--shards-format=nope", "--shards-format: *one of saev,*'nope'"),
            ("--shards-against=", "--shards-against=SOURCE: expected a *"),
            ("--shards-against data", "--shards-against PATH, with a space, *: write *=PATH"),
        ],
    )
    @pytest.mark.usefixtures("passing")
    def test_wrong_use(self, run: Run, pytester: pytest.Pytester, args: str, text: str) -> None:
        pytester.mkdir("data")
        result = run("--validate-shards", *args.split())
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: {text}"])
        result.stdout.no_fnmatch_line("*passed*")

    @pytest.mark.parametrize("option", ["--shards-dir=data", "--shards-against="])
    def test_an_option_that_would_do_nothing_is_refused(self, run: Run, option: str) -> None:
        result = run(option)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        name = option.partition("=")[0]
        result.stderr.fnmatch_lines([f"ERROR: {name} does nothing without --validate-shards*"])


class TestFailures:
    def test_a_file_system_that_fails(self, run: Run, inside: Make) -> None:
        path = inside()
        with FileSystemFaults(path) as fs:
            fs.fail("open", errno.EIO, match="shards.json")
            result = run("--validate-shards")
        result.assert_outcomes(failed=1)
        reason = "could not be looked at: *Errno 5*shards.json*"
        result.stdout.fnmatch_lines([f"The shards directory '{path}' {reason}"])
        result.stdout.fnmatch_lines([f"FAILED {path}: could not be validated"])
        result.stdout.no_fnmatch_line("*Traceback*")
        result.stdout.no_fnmatch_line("*pytest_plugin.py*")

    def test_files_that_could_not_be_looked_at(self, run: Run, inside: Make) -> None:
        path = inside(Layout(4))
        with FileSystemFaults(path) as fs:
            for name, number in [("0", errno.EACCES), ("1", errno.ESTALE), ("[23]", errno.EIO)]:
                fs.fail("open", number, match=f"acts*{name}.bin")
            result = run("--validate-shards")
        result.stdout.fnmatch_lines(
            [
                "Unreadable files (4):",
                "Of these, 3 files could not be looked at (?nput/output error, ?tale file handle).",
                "present: 1 shards directory with 4 files validated, 1 failed",
            ]
        )

    def test_a_bug_shows_its_traceback(self, run, inside, monkeypatch) -> None:
        def validate(*_: object, **__: object) -> None:
            raise RuntimeError("a bug")

        inside()
        monkeypatch.setattr(shardproof, "validate", validate)
        run("--validate-shards").stdout.fnmatch_lines(["E * RuntimeError: a bug"])


class TestSummary:
    def test_what_could_not_be_proven(self, run: Run, inside: Make) -> None:
        inside(Layout(1, labels=True))
        result = run("--validate-shards", "--shards-level=valid")
        result.stdout.fnmatch_lines(
            [
                "valid: 1 shards directory with 2 files validated, 0 failed",
                "2 files without a digest to prove: `shardproof seal` gives them one",
            ],
            consecutive=True,
        )

    @pytest.mark.usefixtures("passing")
    def test_junit(self, run, outside, pytester, tmp_path) -> None:
        path, gone = outside(Layout(4, missing=[1])), outside()
        odd = write_layout(Layout(missing=[0]), tmp_path / os.fsdecode(b"caf\xe9"))  # no UTF-8
        shutil.rmtree(gone)
        named = [f"--shards-dir={each}" for each in (path, gone, odd)]
        run("--validate-shards", *named, "--junitxml=junit.xml").assert_outcomes(passed=1, failed=3)
        cases = read_junit(pytester.path / "junit.xml")
        assert cases[str(path)] == {
            "shards_dir": str(path),
            "shards_level": "present",
            "shards_files": "4",
            "shards_unproven": "0",
            "shards_findings": "1",
            "shards_summary": "1 finding: 1 missing",
            "failure": f"Missing files (1):\n  - {path}/acts000001.bin",
        }
        assert set(cases[str(gone)]) == {"shards_dir", "shards_level", "failure"}
        assert f"{tmp_path}/caf\\xe9" in cases


def read_junit(path: Path) -> dict[str, dict[str, str]]:
    """The properties of each item of ours, and how its failure text ends."""
    cases = {}
    for case in ET.parse(path).iter("testcase"):
        found = {str(p.get("name")): str(p.get("value")) for p in case.iter("property")}
        for failure in case.iter("failure"):
            found["failure"] = (failure.text or "").partition("\n\n")[2]
        if "shards_dir" in found:
            cases[found["shards_dir"]] = found
    return cases


@pytest.mark.slow
@pytest.mark.usefixtures("passing")
def test_with_xdist_each_item_runs_once(inside, outside, pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makeini("[pytest]")
    inside(Layout(2))
    damaged, healthy = outside(Layout(4, missing=[1])), outside()
    named = [f"--shards-dir={path}" for path in (damaged, healthy)]
    options = ("-n2", "--validate-shards", *named, "--junitxml=junit.xml")
    result = pytester.runpytest_subprocess(*ARGS, *options)
    result.assert_outcomes(passed=3, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "present: 3 shards directories with 9 files validated, 1 failed",
            f"FAILED {damaged}: 1 finding: 1 missing",
        ],
        consecutive=True,
    )
    cases = read_junit(pytester.path / "junit.xml")
    assert cases[str(damaged)]["shards_files"] == "4"
    assert len(cases) == 3


class TestOtherFormats:
    def test_a_named_directory(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "a.bin").write_bytes(b"a")
        shardproof.seal(tmp_path)
        (tmp_path / "a.bin").write_bytes(b"b")
        result = run("--validate-shards", f"--shards-dir={tmp_path}", "--shards-level=valid")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*Files with another digest (1):", f"*{tmp_path}/a.bin"])

    def test_against_a_promise(self, run, tmp_path, make_shards_dir, pytester) -> None:
        one = make_shards_dir(2)
        backup = os.path.relpath(shutil.copytree(one, tmp_path / "backup"), pytester.path)
        os.truncate(one / "acts000001.bin", 1)
        for level, passed in (("present", 1), ("complete", 0)):
            result = run(
                "--validate-shards",
                f"--shards-dir={one}",
                f"--shards-against={backup}",
                f"--shards-level={level}",
            )
            result.assert_outcomes(passed=passed, failed=1 - passed)

    @pytest.mark.parametrize("address", ["nope://", "backup"])
    def test_against_no_promise(self, run: Run, make_shards_dir: Make, address: str) -> None:
        named = f"--shards-dir={make_shards_dir(2)}"
        result = run("--validate-shards", named, f"--shards-against={address}x")
        result.assert_outcomes(failed=1)
        result.stdout.no_fnmatch_line("*Traceback*")
        result.stdout.no_fnmatch_line("*.py:*")
        result.stdout.fnmatch_lines([f"*{address}*"])

    def test_a_tree(self, run: Run, tmp_path: Path, make_shards_dir: Make) -> None:
        (tmp_path / "x/.hidden").mkdir(parents=True)
        make_shards_dir(2).rename(tmp_path / "x/one")
        make_shards_dir(3, missing=[1]).rename(tmp_path / "two")
        one, below = "--shards-format=saev", "--shards-recursive"
        for root, more, passed in (
            ("", [], 1),
            ("", [one], 0),  # of which the format is given, the path is the directory
            ("", [one, below], 1),
            ("x/.hidden", [], 0),  # nothing is below it, so it fails itself
        ):
            result = run("--validate-shards", f"--shards-dir={tmp_path / root}", *more)
            result.assert_outcomes(passed=passed, failed=1)

    def test_a_directory_that_lost_its_manifest_is_no_root(
        self, run: Run, tmp_path: Path, make_shards_dir: Make
    ) -> None:
        lost = make_shards_dir(2)
        (lost / "shards.json").unlink()
        make_shards_dir(2).rename(lost / "copy")
        run("--validate-shards", f"--shards-dir={lost}").assert_outcomes(failed=1)


class TestPatterns:
    @pytest.fixture
    def tree(self, tmp_path: Path, make_shards_dir: Make) -> Path:
        """``run[1]/a/data``, ``run[1]/b/data``, a file, a hidden directory and a dead link."""
        root = tmp_path / "runs" / "run[1]"
        for name in ("a", "b", ".hidden"):
            (root / name).mkdir(parents=True)
            make_shards_dir(2).rename(root / name / "data")
        (root / "notes").write_text("not a directory")
        (root / "gone").symlink_to("nowhere")
        return root

    @pytest.mark.parametrize(
        ("pattern", "passed", "failed"),
        [
            ("run[[]1]/*/data", 2, 0),
            ("run?1?/[ac]/data", 1, 0),
            ("run[[]1]/[ab]", 2, 0),  # roots
            ("run[1]/a/data", 1, 0),  # it is there, so it is no pattern
            ("*/*", 2, 1),  # the dead link is not passed over
            ("*/n*", 0, 0),
            ("run/*", 0, 0),
        ],
    )
    def test_each_part_may_be_one(
        self, run: Run, tree: Path, pattern: str, passed: int, failed: int
    ) -> None:
        result = run("--validate-shards", f"--shards-dir={tree.parent / pattern}")
        if passed:
            result.assert_outcomes(passed=passed, failed=failed)
        else:
            assert result.ret == pytest.ExitCode.USAGE_ERROR
            result.stderr.fnmatch_lines([f"ERROR: no directory matches '{tree.parent}*'"])

    def test_those_of_the_ini_file_begin_there_and_brackets_there_are_no_pattern(
        self, tree: Path, pytester: pytest.Pytester
    ) -> None:
        (tree / "pytest.ini").write_text("[pytest]\nvalidate_shards = true\nshards_dirs = ?/data")
        result = pytester.runpytest_inprocess(*ARGS, "-c", str(tree / "pytest.ini"))
        result.assert_outcomes(passed=2)

    def test_a_directory_that_may_not_be_listed_is_not_passed_over(
        self, run: Run, tree: Path
    ) -> None:
        with FileSystemFaults(tree) as fs:
            fs.fail("scandir", errno.EACCES)
            result = run("--validate-shards", f"--shards-dir={tree.parent}/run?1?/*/data")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["ERROR: '*' not searched: *Permission denied*"])


class TestLoading:
    def test_the_manifest_files_are_those_of_the_formats(self) -> None:
        for sign in signs.FORMATS:
            assert formats.get(sign.name) is sign

    def test_the_levels_are_those_of_the_library(self) -> None:
        assert typing.get_args(shardproof.Level) == plugin._LEVELS

    def test_an_empty_run_imports_nothing_heavy(self, tmp_path: Path) -> None:
        code = (
            "import pytest, sys; "
            "pytest.main(['--collect-only', '-p', 'shardproof.pytest_plugin']); "
            "print(*sys.modules)"
        )
        run = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )
        loaded = set(run.stdout.splitlines()[-1].split())
        heavy = {"numpy", "hypothesis", "pyfakefs", "beartype", "click", "msgspec", "rich"}
        assert not loaded & heavy
        assert {name for name in loaded if name.startswith("shardproof.")} == {
            *(f"shardproof._base{name}" for name in ("", ".addresses", ".imports", ".messages")),
            "shardproof._base.opening",
            *(f"shardproof.formats{name}" for name in ("", "._format", ".signs")),
            *(f"shardproof.pytest_plugin{name}" for name in ("", "._hooks", "._needs", "._nodes")),
        }


class TestForecast:
    def test_a_directory_that_a_purge_takes_soon_fails(self, run: Run, outside: Make) -> None:
        path = outside()
        os.utime(path / "acts000000.bin", (0, 0))
        args = ("--validate-shards", f"--shards-dir={path}")
        assert run(*args, "--shards-purge-after=9999w").ret == 0
        result = run(*args, "--shards-purge-after=60d", "--shards-clock=atime")
        assert result.ret == 1
        result.stdout.fnmatch_lines(
            ["*- acts000000.bin: 1970-03-02T00:00:00Z", "FAILED*1 of *may go*"]
        )
        assert run(*args, "--shards-policy=purdue", "--shards-clock=ctime").ret == 0
        late = ("--shards-policy=purdue", "--shards-clock=ctime", "--shards-fail-within=61d")
        assert run(*args, *late).ret == 1

    @pytest.mark.skipif(not hasattr(os, "O_NOATIME"), reason="no O_NOATIME here")
    def test_a_check_does_not_make_a_manifest_look_as_read(self, run: Run, outside: Make) -> None:
        path = outside()
        old = time.time() - 59 * 86400
        os.utime(path / "shards.json", (old, old))
        result = run("--validate-shards", f"--shards-dir={path}", "--shards-purge-after=60d")
        assert result.ret == 1
        result.stdout.fnmatch_lines(["*- shards.json: *"])

    def test_wrong_usage_is_said_in_a_line(self, run: Run, outside: Make) -> None:
        args = ("--validate-shards", f"--shards-dir={outside()}")
        assert run(*args, "--shards-clock=xtime", "--shards-purge-after=1d").ret == 4
        result = run(*args, "--shards-purge-after=soon")
        assert result.ret == 1
        result.stdout.fnmatch_lines(["purge_after: expected a time such as '60d', found 'soon'"])
        assert run(*args, "--shards-purge-after=").ret == 1, "a variable that is not set"
        result = run("--shards-purge-after=60d")
        assert result.ret == 4
        result.stderr.fnmatch_lines(["*--shards-purge-after does nothing without*"])

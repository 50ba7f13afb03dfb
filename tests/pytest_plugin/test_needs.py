"""`@pytest.mark.needs_shards`: one check a run, a skip or a failure."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import shardproof
from shardproof.testing import Layout, write_layout
from shardproof.testing.faults import FileSystemFaults
from tests.pytest_plugin.test_plugin import ARGS

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Run tests that need shards, one for each text of a mark's arguments."""
    pytester.makeini("[pytest]")

    def run(*marks: str, args: tuple[str, ...] = (), times: int = 1) -> pytest.RunResult:
        tests = [
            f"@pytest.mark.needs_shards({mark})\n"
            f"@pytest.mark.parametrize('n', range({times}))\n"
            f"def test_{number}(n, tmp_path): pass\n"
            for number, mark in enumerate(marks)
        ]
        pytester.makepyfile("import pytest\n" + "\n".join(tests))
        return pytester.runpytest_inprocess(*ARGS, "--strict-markers", *args)

    return run


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_layout(Layout(), tmp_path / "whole")


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    return write_layout(Layout(4, missing=[0, 2], directory=[1], truncated=[3]), tmp_path / "d")


def test_a_test_runs_where_all_that_it_needs_is_whole(
    run: Run, whole: Path, pytester: pytest.Pytester
) -> None:
    relative = os.path.relpath(whole, pytester.path)
    result = run(f"{str(whole)!r}, {relative!r}", f"{relative!r}, level='valid', format='saev'")
    result.assert_outcomes(passed=2)


def test_a_skip_says_what_is_wrong(run: Run, whole: Path, damaged: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    marks = (f"{str(whole)!r}, {str(damaged)!r}", f"{str(gone)!r}", f"{str(whole)!r}")
    result = run(*marks, times=2, args=("-rs",))
    result.assert_outcomes(skipped=4, passed=2)
    result.stdout.fnmatch_lines(
        [
            f"SKIPPED [[]2[]] *: 3 findings: 2 missing, 1 not regular, present in '{damaged}'",
            f"SKIPPED [[]2[]] *: Could not read the manifest at '{gone}': there is no such dir*",
        ]
    )


def test_the_ini_option_lets_them_fail(run: Run, damaged: Path) -> None:
    result = run(f"{str(damaged)!r}, level='complete'", args=("-o", "needs_shards=fail"))
    result.assert_outcomes(errors=1)
    assert result.ret == 1
    why = "4 findings: 2 missing, 1 not regular, 1 of another size, complete in "
    result.stdout.fnmatch_lines([f"{why}'{damaged}'"])


def test_the_ini_option_has_two_words(run: Run, whole: Path) -> None:
    result = run(repr(str(whole)), args=("-o", "needs_shards=error"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: ini option needs_shards: expected skip or fail"])


def test_the_level_is_that_of_the_run_unless_the_mark_has_one(run: Run, pytester) -> None:
    short = write_layout(Layout(2, truncated=[1]), pytester.path / "short")
    marks = (repr(str(short)), f"{str(short)!r}, level='present'")
    run(*marks).assert_outcomes(passed=2)
    run(*marks, args=("--shards-level=complete",)).assert_outcomes(skipped=1, passed=1)


@pytest.mark.slow
@pytest.mark.parametrize("args", [(), ("-n2",)], ids=["here", "workers"])
def test_a_directory_is_checked_once_a_process_however_it_is_called(
    run: Run, whole: Path, args, tmp_path: Path, pytester
) -> None:
    (pytester.path / "link").symlink_to(whole)
    log = tmp_path / "log"
    pytester.makeconftest(
        "import os, shardproof\n"
        "validate = shardproof.validate\n"
        "def counted(path, **options):\n"
        f"    with open({str(log)!r}, 'a') as file: print(os.getpid(), options, file=file)\n"
        "    return validate(path, **options)\n"
        "shardproof.validate = counted\n"
    )
    try:
        run(
            repr(str(whole)), "'link'", "'link', level='valid'", times=4, args=args
        ).assert_outcomes(passed=12)
    finally:
        shardproof.validate = shardproof.validation.validate
    lines = log.read_text().splitlines()
    assert len(lines) == len(set(lines))
    assert {line.partition(" ")[2] for line in lines} == {
        "{'level': 'present'}",
        "{'level': 'valid'}",
    }


def test_what_could_not_be_looked_at_fails_whatever_the_ini_option_says(
    run: Run, whole: Path
) -> None:
    with FileSystemFaults(whole) as fs:
        fs.fail("open", errno.EIO, match="acts000001.bin")
        run(repr(str(whole))).assert_outcomes(errors=1)
    with FileSystemFaults(whole) as fs:
        fs.fail("any", errno.ESTALE)
        result = run(repr(str(whole)))
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["@pytest.mark.needs_shards: [[]Errno 116]*"])


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("'x', levle='valid'", "there is no 'levle'; did you mean 'level'?"),
        ("'x', level='all'", "expected 'present', 'complete' or 'valid', found 'all'"),
        ("", "expected a path, found an empty text"),
        ("''", "expected a path, found an empty text"),
        ("3", "expected str, bytes or os.PathLike object, not int"),
    ],
)
def test_a_wrong_mark_fails(run: Run, mark: str, text: str) -> None:
    result = run(mark)
    result.assert_outcomes(errors=1)
    assert text in str(result.stdout)
    result.stdout.no_fnmatch_line("*During handling*")


def test_nothing_is_checked_for_a_test_that_is_skipped_anyway_or_only_collected(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        "import pytest\n@pytest.mark.skip\n@pytest.mark.needs_shards()\ndef test_it(): pass"
    )
    pytester.runpytest_inprocess(*ARGS).assert_outcomes(skipped=1)
    assert run("", args=("--collect-only",)).ret == 0

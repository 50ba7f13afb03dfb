"""Which files a pattern means: those that pathlib finds, or an error; never fewer in silence."""

import errno
import os
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardproof import ReceiptError, receipts
from shardproof.receipts._input_files import files_below
from shardproof.testing import without_root_override
from shardproof.testing.faults import FileSystemFaults

PARTS = ["**", "*", "?", "a", "b.txt", "*.txt", "[ab]", "[!a]*", "a*", ".h", ".*", "link", "."]
patterns = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("/".join)


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """Directories in directories, with hidden ones and links, one of them round in a circle."""
    root = tmp_path_factory.mktemp("tree")
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a").mkdir()
    for name in ("b.txt", "a/b.txt", "a/x"):
        (outside / name).touch()
    names = ("a", "b", ".h")
    for place in ("", *names, *(f"{one}/{other}" for one in names for other in names)):
        directory = root / place
        directory.mkdir(exist_ok=True)
        for name in ("b.txt", ".b.txt", "ab", "x", "new\nline.txt", "A"):
            (directory / name).touch()
        (directory / "file").symlink_to(outside / "b.txt")
        (directory / "nowhere").symlink_to("gone")
        os.mkfifo(directory / "fifo.txt")
    (root / "link").symlink_to(outside)
    (root / "b" / "link").symlink_to(outside)
    (root / "a" / "round").symlink_to(root)
    return root


def found_by_pathlib(root: Path, pattern: str) -> list[str]:
    paths = (path.relative_to(root) for path in root.glob(pattern))
    shown = (path for path in paths if not any(part.startswith(".") for part in path.parts))
    return sorted({path.as_posix() for path in shown if (root / path).is_file()})


@given(patterns)
@example("**/*")
@example("*/link/**/*.txt")
@example("a/round/b/*")
def test_the_files_that_pathlib_finds(tree, pattern: str) -> None:
    last = next((part for part in reversed(pattern.split("/")) if part != "."), None)
    if last is None:
        return
    if last == "**" and sys.version_info < (3, 13):
        pattern += "/*"  # what Python 3.13 takes it for
    assert files_below(os.fspath(tree), pattern) == found_by_pathlib(tree, pattern)


def test_what_is_in_a_directory_of_files_alone(tree) -> None:
    assert files_below(os.fspath(tree), "*/") == []
    assert files_below(os.fspath(tree / "gone"), "*") == []
    assert files_below(os.fspath(tree / "b.txt"), "*") == []


@pytest.mark.parametrize("pattern", ["", "/", "/etc/*", "."])
def test_patterns_that_mean_nothing(tree, pattern: str) -> None:
    with pytest.raises(ValueError, match="relative to the directory"):
        receipts.input_files(tree, pattern)


@pytest.mark.parametrize("pattern", ["**/*", "*/*", "**", "**/b/*.txt"])
def test_a_directory_that_may_not_be_listed(tmp_path, pattern: str) -> None:
    for name in ("a", "b"):
        (tmp_path / "c" / name).mkdir(parents=True)
        (tmp_path / "c" / name / "x.txt").touch()
    (tmp_path / "c" / "b").chmod(0)
    with without_root_override(), pytest.raises(PermissionError) as caught:
        receipts.input_files(tmp_path / "c", pattern)
    (tmp_path / "c" / "b").chmod(0o755)
    text = str(caught.value)
    assert caught.value.filename == str(tmp_path / "c" / "b")
    assert text.startswith("[Errno 13] Permission denied: the directory could not be listed")
    assert text.endswith(f"leave it out by the pattern: '{tmp_path / 'c' / 'b'}'")


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE])
@pytest.mark.parametrize("pattern", ["**/*", "*/*.txt", "a/b.txt"])
def test_each_call_fails_once(tmp_path, number: int, pattern: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").touch()
    with FileSystemFaults(tmp_path) as fs:
        expected = receipts.input_files(tmp_path, pattern)
        n_calls = len(fs.calls)
    assert n_calls >= 3
    for nth in range(1, n_calls + 1):
        with FileSystemFaults(tmp_path) as fs:
            fs.fail("any", number, nth=nth, times=1)
            try:
                found = receipts.input_files(tmp_path, pattern)
            except OSError as error:
                found = error.errno
        assert found in [expected, number]


def test_none_at_all(tmp_path) -> None:
    with pytest.raises(ReceiptError, match="found none"):
        receipts.input_files(tmp_path / "gone")

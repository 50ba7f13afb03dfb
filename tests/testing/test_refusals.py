"""What an error reports of a file: by its findings, its words, its class, in this order."""

import errno
import os
from types import SimpleNamespace

import pytest
from hypothesis import given

from shardproof import ShardValidationError, validate
from shardproof.testing import (
    Layout,
    ShardState,
    expected_findings,
    reported_kinds,
    shards_dir,
    wrong_kinds,
)
from shardproof.testing.samples._oracle import WORDS
from shardproof.testing.strategies import layouts
from tests.helpers.drawing import examples

PATH = "/scratch/missing/not found/a.bin"
TWO = ("empty", "digest")


@examples(100)
@given(layouts(states=[*ShardState]))
def test_findings_say_what_the_oracle_says(value: Layout) -> None:
    with shards_dir(value) as path:
        expected = expected_findings(value, path, level="complete")
        report = validate(path, level="complete")
        if report.ok:
            assert not expected
            return
        with pytest.raises(ShardValidationError) as raised:
            report.raise_for_findings()
        by_text = FileNotFoundError(str(raised.value))
        for kind, shard in expected:
            assert reported_kinds(raised.value, shard) == {kind}
            assert kind in reported_kinds(by_text, shard)
        assert reported_kinds(raised.value, path / "other.bin") == set()


@pytest.mark.parametrize("kind", WORDS)
def test_each_kind_is_a_word_for_itself(kind: str) -> None:
    assert reported_kinds(RuntimeError(f"{PATH}: {kind}"), PATH) == {kind}


@pytest.mark.parametrize(
    "text",
    [
        f"{PATH}: missing",
        f"Missing files:\n\n  - {PATH}",
        "missing shards",
        "a.bin can't be found",
        "a.bin vanished",
        f"unable to locate {PATH}",
        f"unreadable: /scratch/missing/not found/b.bin\nmissing: {PATH}",
    ],
)
def test_missing_is_said_in_many_ways(text: str) -> None:
    for error in (FileNotFoundError, PermissionError, RuntimeError):
        assert reported_kinds(error(text), PATH) == {"missing"}


@pytest.mark.parametrize(
    "text",
    [
        f"{PATH}: Permission denied",
        f"{PATH}: missing read permission",
        "a.bin is not readable; it is not missing",
        f"[Errno 5] Input/output error: '{PATH}'",
        f"Missing files (1):\n  - /b.bin\n\nUnreadable files (1):\n  - {PATH}",
        f"missing: /b.bin\n{PATH}: EIO",
        "Unreadable files:\n  ../missing/not found/a.bin",
    ],
)
def test_unreadable_is_said_in_many_ways(text: str) -> None:
    assert reported_kinds(FileNotFoundError(text), PATH) == {"unreadable"}


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        *((OSError(n, os.strerror(n), PATH), {"unreadable"}) for n in (errno.EACCES, errno.ESTALE)),
        (OSError(errno.ENOENT, os.strerror(errno.ENOENT), PATH), {"missing"}),
        (FileNotFoundError(PATH), {"missing"}),
        (FileNotFoundError(f"could not read {PATH}"), set()),
        (FileNotFoundError(f"{PATH} can't be read"), set()),
        (PermissionError(f"could not read {PATH}"), {"unreadable"}),
        (FileNotFoundError(f"could not open {PATH}: it is missing"), {"missing"}),
        (FileNotFoundError(f"could not read /b.bin\n{PATH}"), {"missing"}),
        (FileNotFoundError(f"shard {PATH} of 512 bytes could not be loaded"), {"missing"}),
        (FileNotFoundError(f"{PATH} of size 512, 512 bytes long, is broken"), {"missing"}),
        (OSError(PATH), set()),
        (type("MissingShardError", (Exception,), {})(PATH), {"missing"}),
        (type("ShardNotFoundError", (Exception,), {})("permission denied"), {"unreadable"}),
        (ValueError("mmap length is greater than file size"), {"size"}),
        (FileNotFoundError(), {"missing"}),
        (ExceptionGroup("bad", [FileNotFoundError(PATH), OSError("/b.bin: empty")]), {"missing"}),
        (ExceptionGroup("", [ExceptionGroup("bad", [PermissionError(PATH)])]), {"unreadable"}),
        (ExceptionGroup("", [OSError(f"{PATH}: {kind}") for kind in TWO]), {*TWO}),
        (ExceptionGroup(f"{PATH}: empty", [ValueError("broken")]), {"empty"}),
        (ExceptionGroup("bad", [ValueError("broken")]), set()),
    ],
)
def test_the_class_and_members_count_where_nothing_is_said(error, kinds) -> None:
    assert reported_kinds(error, PATH) == kinds


def test_whatever_else_is_called_a_report_says_nothing() -> None:
    error = FileNotFoundError(f"{PATH}: permission denied")
    for report in ("text", None, [1]):
        error.report = report  # type: ignore[attr-defined]
        assert reported_kinds(error, PATH) == {"unreadable"}


@pytest.mark.parametrize(
    "text",
    [
        "expected 512 bytes, found 100",
        "100 of 512 bytes",
        "too few bytes",
        "is 100 bytes too short",
    ],
)
def test_a_number_of_bytes_is_a_size_where_it_is_compared(text: str) -> None:
    assert reported_kinds(FileNotFoundError(f"{PATH}: {text}"), PATH) == {"size"}


def with_findings(error: Exception, *findings: tuple[str, str]) -> Exception:
    told = [SimpleNamespace(kind=kind, path=path) for kind, path in findings]
    error.report = SimpleNamespace(findings=told)  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("findings", "kinds"),
    [
        ([("empty", PATH), ("size", PATH), ("digest", "a.bin")], {"empty", "size"}),
        ([("empty", "a.bin"), ("size", "b.bin")], {"empty"}),
        ([("empty", "x/a.bin"), ("size", "y/a.bin")], {"missing"}),
        ([("empty", "/elsewhere/a.bin")], {"missing"}),
        ([("Empty", PATH)], {"empty"}),
    ],
)
def test_findings_of_other_files_do_not_hide_what_is_said(findings: list, kinds: set) -> None:
    error = with_findings(FileNotFoundError(f"{PATH} is missing"), *findings)
    assert reported_kinds(error, PATH) == kinds
    other = with_findings(FileNotFoundError("/b.bin is missing"), ("missing", "/b.bin"))
    assert reported_kinds(other, PATH) == set()


@pytest.mark.parametrize(
    ("state", "text", "kinds"),
    [
        ("empty", "size", set()),
        ("unreadable", "missing or unreadable", {"missing"}),
        ("loop", "missing: a symbolic link to itself", {"missing"}),
        ("dangling", "missing: a symbolic link to nothing", set()),
        ("truncated", "truncated: half of it is missing", set()),
    ],
)
def test_wrong_is_what_the_table_does_not_have(state: str, text: str, kinds: set[str]) -> None:
    assert wrong_kinds(reported_kinds(OSError(f"{PATH}: {text}"), PATH), state) == kinds

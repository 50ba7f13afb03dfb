"""What an error reports of a file: by its findings, its words, its class, in this order."""

import errno
import os

import pytest
from hypothesis import given

from shardproof import ShardValidationError, validate
from shardproof.testing import Layout, expected_findings, reported_kinds, shards_dir
from shardproof.testing.contracts.strategies import layouts
from shardproof.testing.samples._refusals import WORDS
from tests.helpers.drawing import examples

PATH = "/scratch/missing/not found/a.bin"


@examples(100)
@given(layouts())
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
        f"Missing: {PATH}",
        f"Missing files:\n\n  - {PATH}",
        "missing shards",
        "a.bin is not there",
        "a.bin can't be found",
        "could not find a.bin",
        f"no such shard: {PATH}",
        f"{PATH} does not exist",
        "a.bin doesn't exist",
        "a.bin is no longer there",
        "a.bin vanished",
        f"unreadable: /scratch/missing/not found/b.bin\nmissing: {PATH}",
    ],
)
@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError, RuntimeError])
def test_missing_is_said_in_many_ways(error: type[Exception], text: str) -> None:
    assert reported_kinds(error(text), PATH) == {"missing"}


@pytest.mark.parametrize(
    "text",
    [
        f"{PATH}: unreadable",
        f"{PATH}: Permission denied",
        f"{PATH}: missing read permission",
        "a.bin is not readable; it is not missing",
        f"[Errno 5] Input/output error: '{PATH}'",
        f"Missing files (1):\n  - /b.bin\n\nUnreadable files (1):\n  - {PATH}",
        f"missing: /b.bin\nunreadable: {PATH}",
        f"missing: /b.bin\n{PATH}: EIO",
        "Unreadable files:\n  ../missing/not found/a.bin",
    ],
)
def test_unreadable_is_said_in_many_ways(text: str) -> None:
    assert reported_kinds(FileNotFoundError(text), PATH) == {"unreadable"}


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EIO, errno.ESTALE])
def test_what_the_system_says_is_understood(number: int) -> None:
    expected = "missing" if number == errno.ENOENT else "unreadable"
    error = OSError(number, os.strerror(number), PATH)
    assert reported_kinds(error, PATH) == {expected}


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (FileNotFoundError(PATH), {"missing"}),
        (FileNotFoundError("a.bin"), {"missing"}),
        (FileNotFoundError(f"could not read {PATH}"), {"missing"}),
        (PermissionError(PATH), {"unreadable"}),
        (OSError(PATH), set()),
        (type("MissingShardError", (Exception,), {})(PATH), {"missing"}),
        (type("ShardNotFoundError", (Exception,), {})("broken"), {"missing"}),
        (type("ShardNotFoundError", (Exception,), {})("permission denied"), {"unreadable"}),
        (ValueError("broken"), set()),
        (ValueError("mmap length is greater than file size"), {"size"}),
        (ValueError("missing or unreadable"), {"missing", "unreadable"}),
        (FileNotFoundError(), {"missing"}),
    ],
)
def test_the_class_counts_where_nothing_is_said(error: Exception, kinds: set[str]) -> None:
    assert reported_kinds(error, PATH) == kinds


def test_whatever_else_is_called_a_report_says_nothing() -> None:
    error = FileNotFoundError(f"{PATH}: permission denied")
    for report in ("text", None, [1]):
        error.report = report  # type: ignore[attr-defined]
        assert reported_kinds(error, PATH) == {"unreadable"}

"""Text from outside: how it is quoted and cut, and that every message of the source does so."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardproof
from shardproof import _messages
from shardproof._messages import printable, quoted, shown, told

SOURCE = Path(shardproof.__file__).parent


@pytest.mark.parametrize("path", ["/data/acts000001.bin", "/d/it's", "/d/été/日本", "/d/a b\\c", ""])
def test_a_path_that_can_be_printed_stays_as_it_is(path: str) -> None:
    assert shown(path) == path
    assert shown(Path("/d")) == "/d"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a\nb", r"a\nb"),
        ("a\x1b]0;b\x07", r"a\x1b]0;b\x07"),
        ("a\x9b2Jb", r"a\x9b2Jb"),
        ("a\x7f\r\t\0", r"a\x7f\r\t\x00"),
        ("é\u202ebin", r"é\u202ebin"),
        ("a\u2028b\u200b\ufeff", r"a\u2028b\u200b\ufeff"),
        ("a\udcff", r"a\udcff"),
        ("x" * 5000, f"{'x' * 4096}... (5000 characters)"),
    ],
)
def test_the_rest_of_a_path_is_escaped_and_cut(path: str, text: str) -> None:
    assert shown(path) == text


def test_quoted_text_is_ascii_and_short() -> None:
    assert quoted("\u202ea\n") == r"'\u202ea\n'"
    assert quoted(b"\x1b[2J" + b"x" * 100, 8) == r"b'\x1b[2Jxxxx'... (104 characters)"


def test_what_is_printable_keeps_its_lines_and_nothing_else() -> None:
    assert printable("a\n  - b\x1b[2J\r\n\x85c") == "a\n  - b\\x1b[2J\\r\n\\x85c"


def test_another_librarys_exception_is_told_on_one_line_and_cut() -> None:
    assert told(ValueError("no\nMissing files (0):\x1b[2J")) == r"no\nMissing files (0):\x1b[2J"
    assert len(told(ValueError("x" * 10**6))) < 5000


def test_an_exception_of_ours_keeps_its_lines() -> None:
    error = shardproof.ReceiptError("two:\n  - a\n  - \x1b[2J")

    assert told(error) == "two:\n  - a\n  - \\x1b[2J"


# What may stand inside a message: all of it is quoted, or a number, or a word of ours.
SAFE_CALLS = {*_messages.__all__}


@functools.cache
def modules() -> list[Path]:
    """All but the kit: who tests with it wrote what it speaks of."""
    return [path for path in SOURCE.rglob("*.py") if "testing" not in path.parts]


def nodes(kind: type) -> Iterator[tuple[str, ast.AST]]:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kind):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(node)}", node


def is_safe(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id in SAFE_CALLS
    )


def unsafe_texts() -> Iterator[str]:
    """What an f-string quotes by itself, which neither cuts nor, but for ``!r``, escapes."""
    for where, node in nodes(ast.JoinedStr):
        before = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                before = part.value
                continue
            converted = part.conversion in {ord("r"), ord("a")}
            if (converted or before.endswith("'")) and not is_safe(part.value):
                yield where
            before = ""


def unsafe_exceptions() -> Iterator[str]:
    """What another library says: put into a text as it is."""
    for where, node in nodes(ast.FormattedValue):
        if isinstance(node.value, ast.Name) and node.value.id in {"error", "exc", "exception"}:
            yield where
    for where, node in nodes(ast.Call):
        if ast.unparse(node) in {"str(error)", "str(exc)", "repr(error)"}:
            yield where


def unnamed_exceptions() -> Iterator[str]:
    """Those that the rule above would not know by their name."""
    for where, node in nodes(ast.ExceptHandler):
        if node.name not in {None, "error"}:
            yield where.splitlines()[0]


def unsafe_log_records() -> Iterator[str]:
    """What is written to a log: by ``%s`` nothing but what is quoted."""
    for where, node in nodes(ast.Call):
        called = node.func
        if not (isinstance(called, ast.Attribute) and ast.unparse(called.value) == "logger"):
            continue
        if called.attr not in {"debug", "info", "warning", "error", "exception", "critical", "log"}:
            continue
        template, *values = node.args
        assert isinstance(template, ast.Constant), where
        kinds = [piece.lstrip("0123456789.")[:1] for piece in template.value.split("%")[1:]]
        if any(kind == "s" and not is_safe(v) for kind, v in zip(kinds, values, strict=True)):
            yield where


@pytest.mark.parametrize(
    "unsafe", [unsafe_texts, unsafe_exceptions, unnamed_exceptions, unsafe_log_records]
)
def test_every_text_from_outside_is_quoted_where_the_message_is_made(unsafe) -> None:
    assert list(unsafe()) == []

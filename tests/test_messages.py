"""Text from outside: how it is quoted and cut, and that every message of the source does so."""

import ast
import functools
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import shardproof
from shardproof import _messages
from shardproof._messages import printable, quoted, shown, told

SOURCE = Path(shardproof.__file__).parent


@pytest.mark.parametrize(
    "path", ["/data/acts000001.bin", "/d/it's", "/d/été/日本", "/d/a b\\c", ""]
)
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


# What may stand in a message: all of it is quoted, or a number, or a word of ours.
SAFE = _messages.__all__

# What is no message: a receipt keeps what an error said, as JSON.
NO_MESSAGES = {"_text(str(error))"}


class Place(NamedTuple):
    """A piece of source, and where it is."""

    where: str
    node: Any
    exceptions: set[str]

    def __repr__(self) -> str:
        return f"{self.where}:{self.node.lineno}: {ast.unparse(self.node)}"


@functools.cache
def places() -> list[Place]:
    """All of the source but what is quoted. Without the kit: who uses it wrote what it tells of."""
    paths = [path for path in SOURCE.rglob("*.py") if "testing" not in path.parts]
    return [place for path in paths if path.stem != "_messages" for place in in_file(path)]


def in_file(path: Path) -> Iterator[Place]:
    tree = ast.parse(path.read_text())
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)}
    for node in outside_of_safe(tree):
        yield Place(str(path.relative_to(SOURCE)), node, {*names, "error"} - {None})


def outside_of_safe(node: ast.AST) -> Iterator[ast.AST]:
    if not is_safe(node) and not is_repr(node) and ast.unparse(node) not in NO_MESSAGES:
        yield node
        for child in ast.iter_child_nodes(node):
            yield from outside_of_safe(child)


def is_safe(node: ast.AST) -> bool:
    """Whether it is ``shown(...)`` or one of its kin, or several of them: ``*map(shown, ...)``."""
    text = ast.unparse(node)
    return any(text.startswith((f"{name}(", f"*map({name}, ")) for name in SAFE)


def is_repr(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "__repr__"


def quoted_by_hand() -> Iterator[Place]:
    """What an f-string quotes by itself, which does not cut and seldom escapes."""
    for place in places():
        if isinstance(place.node, ast.JoinedStr):
            before = ""
            for part in place.node.values:
                is_text = isinstance(part, ast.Constant)
                is_quoted = not is_text and (part.conversion > 0 or before.endswith("'"))
                if is_quoted and not is_safe(part.value):
                    yield place
                before = part.value if is_text else ""


def exceptions_as_they_are() -> Iterator[Place]:
    """What another library says, put into a text as it is."""
    for place in places():
        values = [getattr(place.node, "value", None)] * isinstance(place.node, ast.FormattedValue)
        if isinstance(place.node, ast.Call) and ast.unparse(place.node.func) in {"str", "repr"}:
            values = place.node.args
        if any(isinstance(value, ast.Name) and value.id in place.exceptions for value in values):
            yield place


def logged_as_it_is() -> Iterator[Place]:
    """What a log gets by ``%s`` and is not quoted."""
    for place in places():
        if isinstance(place.node, ast.Call) and ast.unparse(place.node.func).startswith("logger."):
            template, *values = place.node.args or [None]
            if not isinstance(template, ast.Constant):
                continue
            kinds = [piece.lstrip("0123456789.")[:1] for piece in template.value.split("%")[1:]]
            pairs = itertools.zip_longest(kinds, values, fillvalue=values[-1] if values else None)
            if any(kind == "s" and not is_safe(value) for kind, value in pairs):
                yield place


PATHS = {"path", "root", "prefix", "address", "url", "owner", "reason_phrase"}


def paths_as_they_are() -> Iterator[Place]:
    """A path, or its like, in a sentence."""
    for place in places():
        if isinstance(place.node, ast.JoinedStr):
            texts = [part.value for part in place.node.values if isinstance(part, ast.Constant)]
            values = [
                part.value for part in place.node.values if not isinstance(part, ast.Constant)
            ]
            names = {getattr(value, "attr", getattr(value, "id", "")) for value in values}
            if names & PATHS and " " in "".join(texts):
                yield place


RULES = [quoted_by_hand, exceptions_as_they_are, logged_as_it_is, paths_as_they_are]


@pytest.mark.parametrize("unsafe", RULES)
def test_every_text_from_outside_is_quoted_where_the_message_is_made(unsafe) -> None:
    assert list(unsafe()) == []


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (quoted_by_hand, """problem = f"there is no '{name}'" """),
        (quoted_by_hand, """problem = f"there is no {name!r}" """),
        (exceptions_as_they_are, """problem = f"it says {error}" """),
        (exceptions_as_they_are, "try: x\nexcept ValueError as wrong: y = str(wrong)"),
        (logged_as_it_is, """logger.info("%d of '%s'", n, path)"""),
        (paths_as_they_are, """problem = f"nothing at {self.path}" """),
    ],
)
def test_each_rule_sees_what_breaks_it(rule, code, tmp_path, monkeypatch) -> None:
    (tmp_path / "module.py").write_text(code)
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "places", places.__wrapped__)

    assert len(list(rule())) == 1

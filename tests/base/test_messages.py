"""Text from outside: how it is quoted and cut, and that every message of the source does so."""

import ast
import builtins
import errno
import functools
import inspect
import itertools
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import shardproof
from shardproof._base import messages
from shardproof._base.messages import joined, printable, quoted, shown, told, traced, with_kind

SOURCE = Path(shardproof.__file__).parent


@pytest.mark.parametrize(
    ("path", "text"),
    [
        *((each, each) for each in ("/d/it's", "/d/été/日本", "/d/a b\\c", "")),
        ("a\nb\x1b]0;b\x07", r"a\nb\x1b]0;b\x07"),
        ("a\x9b2J\x7f\r\t\0", r"a\x9b2J\x7f\r\t\x00"),
        ("é\u202ea\u2028b\u200b\ufeff\udcff", r"é\u202ea\u2028b\u200b\ufeff\udcff"),
        ("x" * 5000, f"{'x' * 4096}... (5000 characters)"),
    ],
)
def test_a_path_stays_as_it_is_where_it_can_be_printed_and_is_cut(path: str, text: str) -> None:
    assert shown(path) == text


def test_other_text_is_quoted_and_cut_and_lists_are_shortened() -> None:
    assert quoted("\u202ea\n") == r"'\u202ea\n'"
    assert quoted(b"\x1b[2J" + b"x" * 100, 8) == r"b'\x1b[2Jxxxx'... (104 characters)"
    assert joined([]) == ""
    assert joined(["a"] * 20) == "; ".join(["a"] * 20)
    assert joined(["a"] * 23) == "; ".join(["a"] * 20) + "; and 3 more"
    assert printable("a\n  - b\x1b[2J\r\n\x85c") == "a\n  - b\\x1b[2J\\r\n\\x85c"


class SilentError(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_an_exception_of_ours_keeps_its_lines_and_any_other_is_on_one_line_and_cut() -> None:
    assert told(shardproof.ReceiptError("two:\n  - \x1b[2J")) == "two:\n  - \\x1b[2J"
    assert told(ValueError("no\nMissing files (0):\x1b[2J")) == r"no\nMissing files (0):\x1b[2J"
    assert len(told(ValueError("x" * 10**6))) < 5000
    assert told(SilentError()) == "it has no text: ValueError"
    assert with_kind(SilentError()) == "SilentError: it has no text: ValueError"


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error from cause
    return caught.value


def test_an_exception_that_can_be_shown_is_a_cause_and_what_came_before_counts_if_shown() -> None:
    round_about, before = ValueError("a"), KeyError("a")
    round_about.__cause__ = round_about
    before.__context__ = ValueError("\x1b")
    assert traced(before) is None
    before.__suppress_context__ = True
    for error in (
        raised(ValueError("é"), OSError(5, "no", "a\x1b")),
        SilentError(),
        round_about,
        before,
    ):
        assert traced(error) is error


@pytest.mark.parametrize("text", ["a\nb", "\x1b[2J", "\x9b", "\u202e", "x" * 5000])
def test_one_that_paints_the_terminal_is_none_but_its_like_where_its_class_tells(text: str) -> None:
    """Wrong usage has another exit code, and so has that nobody could look."""
    noted = RuntimeError("a")
    noted.add_note(text)
    beneath = raised(KeyError("a"), raised(ValueError(text)))
    for error in (RuntimeError(text), beneath, ExceptionGroup("a", [ValueError(text)]), noted):
        assert traced(error) is None
    of_values = [ValueError(text), UnicodeDecodeError("utf-8", b"", 0, 1, text)]
    of_disks = [OSError(errno.EIO, text), raised(OSError(errno.EIO, "a"), RuntimeError(text))]
    likes = [traced(error) for error in (*of_values, *of_disks)]
    assert [type(like) for like in likes] == [ValueError, ValueError, OSError, OSError]
    assert [getattr(like, "errno", None) for like in likes] == [None, None, errno.EIO, errno.EIO]
    assert not any(text in "".join(traceback.format_exception(like)) for like in likes)
    assert traced(OSError(text)) is traced(OSError(10**6, text)) is None  # no system gives those


# What may stand in a message: all of it is quoted, or a number, or a word of ours. In text of
# `printable` the ends of lines stay: in a line nobody can tell any more which of them are ours.
SAFE = sorted(
    name
    for name, value in vars(messages).items()
    if inspect.isfunction(value) and not name.startswith("_") and name != "printable"
)
SAFE_STARTS = tuple(start for name in SAFE for start in (f"{name}(", f"*map({name}, "))
OF_LINES = ("printable(", "*map(printable, ")
PATHS = {"path", "root", "prefix", "address", "url", "owner", "reason_phrase"}
PATH_MAKERS = {"os.path.abspath", "os.path.join", "os.fspath", "os.fsdecode", "real_path"}

# Whoever made the first two of these errors had the cause from `traced`; the third is Python's own.
EXCEPTED = {
    "raise again from cause",
    # Of an error of ours:
    "raise type(error)(problem, url=error.url, path=error.path, causes=error.causes) from cause",
    "raise translated from translated.__cause__",
    "raise ModuleNotFoundError(text, name=error.name) from error",
}

# Of these, what they say is the system's, which quotes, or ours: what is there, what is installed.
CLEAN = (OSError, ImportError)


class Place(NamedTuple):
    """A piece of source that is not quoted, and what the names of exceptions there are."""

    where: str
    node: Any
    kinds: dict[str, ast.AST | None]

    def __repr__(self) -> str:
        return f"{self.where}:{self.node.lineno}: {ast.unparse(self.node)}"


def sources() -> Iterator[Path]:
    """Without the kit: who uses it wrote what it tells of."""
    for path in SOURCE.rglob("*.py"):
        if "testing" not in path.parts and path.stem != "messages":
            yield path


def places(path: Path) -> Iterator[Place]:
    where = str(path.relative_to(SOURCE))
    todo: list[tuple[ast.AST, dict[str, ast.AST | None]]] = [(ast.parse(path.read_text()), {})]
    while todo:
        node, kinds = todo.pop()
        if isinstance(node, ast.expr) and is_safe(node):
            continue
        if isinstance(node, ast.FunctionDef) and node.name == "__repr__":
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kinds = kinds | {each.arg: each.annotation for each in node.args.args}
        if isinstance(node, ast.ExceptHandler) and node.name:
            kinds = kinds | {node.name: node.type, f"caught {node.name}": node.type}
        if isinstance(node, ast.JoinedStr | ast.FormattedValue | ast.Call | ast.Raise | ast.Assign):
            yield Place(where, node, kinds)
        todo += [(child, kinds) for child in ast.iter_child_nodes(node)]


def is_safe(node: ast.AST) -> bool:
    """Whether it is ``shown(...)`` or one of its kin, or several of them: ``*map(shown, ...)``."""
    is_call = isinstance(node, ast.Call | ast.Starred)
    return is_call and ast.unparse(node).startswith(SAFE_STARTS)


def is_of_lines(node: ast.AST) -> bool:
    return ast.unparse(node).startswith(OF_LINES)


def name_of(node: ast.AST) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def is_path(node: ast.AST) -> bool:
    """Whether an expression is a path by its name, or made of one."""
    if isinstance(node, ast.Call):
        maker = ast.unparse(node.func)
        return maker in PATH_MAKERS or (maker == "str" and any(map(is_path, node.args)))
    return name_of(node) in PATHS


def values_in(node: ast.AST) -> list[Any]:
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return [part.value for part in parts if isinstance(part, ast.FormattedValue)]


def called(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def is_quoted_by_hand(place: Place) -> bool:
    """What an f-string quotes by itself, which does not cut and seldom escapes."""
    parts = place.node.values if isinstance(place.node, ast.JoinedStr) else []
    return any(
        not is_safe(part.value)
        and (part.conversion > 0 or str(getattr(before, "value", "")).endswith("'"))
        for before, part in itertools.pairwise([None, *parts])
        if isinstance(part, ast.FormattedValue)
    )


def is_an_exception_as_it_is(place: Place) -> bool:
    """What another library says, put into a text as it is."""
    values = [place.node.value] if isinstance(place.node, ast.FormattedValue) else []
    if called(place.node) in {"str", "repr"}:
        values = place.node.args
    names = {name_of(value) for value in values if isinstance(value, ast.Name)}
    return any(name == "error" or f"caught {name}" in place.kinds for name in names)


def is_logged_as_it_is(place: Place) -> bool:
    """What a log gets by ``%s`` and is not quoted."""
    if not called(place.node).startswith("logger."):
        return False
    template, *values = place.node.args or [None]
    if not isinstance(template, ast.Constant):
        return False
    kinds = [piece.lstrip("0123456789.")[:1] for piece in template.value.split("%")[1:]]
    pairs = itertools.zip_longest(kinds, values, fillvalue=values[-1] if values else None)
    return not all(is_safe(value) or is_of_lines(value) for kind, value in pairs if kind == "s")


def is_a_path_as_it_is(place: Place) -> bool:
    text = "".join(
        part.value
        for part in getattr(place.node, "values", [])
        if isinstance(place.node, ast.JoinedStr) and isinstance(part, ast.Constant)
    )
    return " " in text and not PATHS.isdisjoint(map(name_of, values_in(place.node)))


def keeps_lines(place: Place) -> bool:
    """What must be on one line, and keeps its line ends."""
    if isinstance(place.node, ast.FormattedValue):
        return is_of_lines(place.node.value)
    is_call = isinstance(place.node, ast.Call) and is_of_lines(place.node)
    return is_call and any(map(is_path, place.node.args))


def is_printed_as_it_is(place: Place) -> bool:
    """What the command prints in a sentence, or as bytes, which only a script can take."""
    if called(place.node) != "click.echo" or not place.node.args:
        return False
    said = place.node.args[0]
    text = ast.unparse(said)
    is_ours = [
        is_safe(value) or (name := ast.unparse(value)).isupper() or name.endswith(".__version__")
        for value in values_in(said)
    ]
    return not all(is_ours) or ("fsencode" in text and "tty" not in text)


def has_a_cause_as_it_is(place: Place) -> bool:
    """What another library raised, as the cause of an error: its traceback has it as it is."""
    cause = place.node.cause if isinstance(place.node, ast.Raise) else None
    if isinstance(place.node, ast.Assign):
        is_set = "__cause__" in map(name_of, place.node.targets)
        cause = place.node.value if is_set else None
    text = "None" if cause is None else ast.unparse(cause)
    if text == "None" or text.startswith("traced(") or ast.unparse(place.node) in EXCEPTED:
        return False
    kind = place.kinds.get(text)
    several = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return not all(isinstance(each, ast.Name) and is_clean(each.id) for each in several)


def is_clean(name: str) -> bool:
    return issubclass(getattr(builtins, name, object), CLEAN) or name in classes()


@functools.cache
def classes() -> set[str]:
    """The names of all classes of the source; there, none has that of another library's error."""
    trees = [ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")]
    return {
        node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    }


RULES = (is_quoted_by_hand, is_an_exception_as_it_is, is_logged_as_it_is, is_a_path_as_it_is)
RULES += (keeps_lines, is_printed_as_it_is, has_a_cause_as_it_is)


@pytest.mark.slow
def test_every_text_from_outside_is_quoted_where_the_message_is_made() -> None:
    found = (
        (rule.__name__, place)
        for path in sources()
        for place in places(path)
        for rule in RULES
        if rule(place)
    )
    assert list(found) == []


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (is_quoted_by_hand, """problem = f"there is no '{name}'" """),
        (is_quoted_by_hand, """problem = f"there is no {name!r}" """),
        (is_an_exception_as_it_is, """problem = f"it says {error}" """),
        (is_an_exception_as_it_is, "try: x\nexcept ValueError as wrong: y = str(wrong)"),
        (is_logged_as_it_is, """logger.info("%d of '%s'", n, path)"""),
        (is_a_path_as_it_is, """problem = f"nothing at {self.path}" """),
        (is_quoted_by_hand, """problem = printable(f"nothing at '{given}'")"""),
        (keeps_lines, """problem = f"nothing at {printable(given)}" """),
        (keeps_lines, "line = printable(str(self.path))"),
        (is_printed_as_it_is, """click.echo(f"kept in {damaged}")"""),
        (is_printed_as_it_is, "click.echo(os.fsencode(made))"),
        (has_a_cause_as_it_is, "try: x\nexcept ValueError as error: raise y from error"),
        (has_a_cause_as_it_is, "try: x\nexcept msgspec.DecodeError as error: raise y from error"),
        (has_a_cause_as_it_is, "try: x\nexcept (OSError, KeyError) as e: raise y(e) from e"),
        (has_a_cause_as_it_is, "def f(error: Exception):\n    raise y from error"),
        (has_a_cause_as_it_is, "ours.__cause__ = error"),
    ],
)
def test_each_rule_sees_what_breaks_it(rule, code, tmp_path, monkeypatch) -> None:
    (tmp_path / "module.py").write_text(code)
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    assert [rule(place) for place in places(tmp_path / "module.py")].count(True) == 1

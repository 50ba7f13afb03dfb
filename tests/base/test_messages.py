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


def test_of_very_many_texts_the_first_are_shown() -> None:
    assert joined([]) == ""
    assert joined(["a", "b"]) == "a; b"
    assert joined(["a"] * 20) == "; ".join(["a"] * 20)
    assert joined(["a"] * 23) == "; ".join(["a"] * 20) + "; and 3 more"


def test_what_is_printable_keeps_its_lines_and_nothing_else() -> None:
    assert printable("a\n  - b\x1b[2J\r\n\x85c") == "a\n  - b\\x1b[2J\\r\n\\x85c"


def test_another_librarys_exception_is_told_on_one_line_and_cut() -> None:
    assert told(ValueError("no\nMissing files (0):\x1b[2J")) == r"no\nMissing files (0):\x1b[2J"
    assert len(told(ValueError("x" * 10**6))) < 5000


def test_an_exception_that_fails_at_its_text_is_told_all_the_same() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise ValueError

    error = SilentError()
    assert told(error) == "it has no text: ValueError"
    assert with_kind(error) == "SilentError: it has no text: ValueError"
    assert traced(error) is error


def test_an_exception_of_ours_keeps_its_lines() -> None:
    error = shardproof.ReceiptError("two:\n  - a\n  - \x1b[2J")

    assert told(error) == "two:\n  - a\n  - \\x1b[2J"


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error from cause
    return caught.value


@pytest.mark.parametrize("text", ["", "no such key: 'a'", "é"])
def test_an_exception_that_can_be_shown_is_a_cause(text: str) -> None:
    error = raised(ValueError(text), OSError(5, "Input/output error", "a\x1b"))
    assert traced(error) is error


@pytest.mark.parametrize("text", ["a\nb", "\x1b[2J", "\x9b", "\u202e", "x" * 5000])
def test_one_that_paints_the_terminal_is_none_nor_is_what_came_of_it(text: str) -> None:
    assert traced(RuntimeError(text)) is None
    assert traced(raised(KeyError("a"), raised(ValueError(text)))) is None
    assert traced(ExceptionGroup("a", [ValueError(text)])) is None
    noted = RuntimeError("a")
    noted.add_note(text)
    assert traced(noted) is None


@pytest.mark.parametrize("text", ["a\nb", "\x1b[2J", "\x9b", "\u202e", "x" * 5000])
def test_what_its_class_tells_is_told_by_one_of_its_like(text: str) -> None:
    """Wrong usage has another exit code, and so has that nobody could look."""
    of_values = [ValueError(text), UnicodeDecodeError("utf-8", b"", 0, 1, text)]
    of_disks = [OSError(errno.EIO, text), raised(OSError(errno.EIO, "a"), RuntimeError(text))]

    likes = [traced(error) for error in (*of_values, *of_disks)]

    assert [type(like) for like in likes] == [ValueError, ValueError, OSError, OSError]
    assert [getattr(like, "errno", None) for like in likes] == [None, None, errno.EIO, errno.EIO]
    assert not any(text in "".join(traceback.format_exception(like)) for like in likes)


@pytest.mark.parametrize("number", [[], [10**6]])
def test_a_number_that_no_system_gives_is_not_repeated(number: list[int]) -> None:
    assert traced(OSError(*number, "\x1b")) is None


def test_what_came_before_it_counts_only_where_it_is_shown() -> None:
    error = KeyError("a")
    error.__context__ = ValueError("\x1b")
    assert traced(error) is None
    error.__suppress_context__ = True
    assert traced(error) is error


def test_an_exception_that_is_its_own_cause_ends() -> None:
    error = ValueError("a")
    error.__cause__ = error
    assert traced(error) is error


# What may stand in a message: all of it is quoted, or a number, or a word of ours.
OURS = {name for name, value in vars(messages).items() if inspect.isfunction(value)}
SAFE = sorted({name for name in OURS if not name.startswith("_")} - {"printable"})
LIKE_CALLS = (
    *(ast.Expr, ast.Call, ast.Starred, ast.Attribute, ast.Subscript),
    *(ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp),
)
"""What may begin with a call."""

SAFE_STARTS = tuple(start for name in SAFE for start in (f"{name}(", f"*map({name}, "))
"""How what is safe begins."""

# Of text whose lines are ours: where one of them ends, what stands in it can't tell any more.
OF_LINES = "printable"

# What is no message: a receipt keeps what an error said, as JSON.
NO_MESSAGES = {"_text(str(error))"}


class Place(NamedTuple):
    """A piece of source, and where it is."""

    where: str
    node: Any
    exceptions: set[str]

    def __repr__(self) -> str:
        return f"{self.where}:{self.node.lineno}: {ast.unparse(self.node)}"


@pytest.fixture(autouse=True, scope="module")
def _trees_go() -> Iterator[None]:
    """Give half a million nodes back: each look for garbage goes through all that there are."""
    yield
    places.cache_clear()
    tree_of.cache_clear()


@functools.cache
def places() -> list[Place]:
    """All of the source but what is quoted. Without the kit: who uses it wrote what it tells of."""
    return [place for path in sources() for place in in_file(path)]


def sources() -> list[Path]:
    paths = [path for path in SOURCE.rglob("*.py") if "testing" not in path.parts]
    return [path for path in paths if path.stem != "messages"]


def in_file(path: Path) -> Iterator[Place]:
    tree = tree_of(path)
    where = str(path.relative_to(SOURCE))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)}
    names = {*names, "error"} - {None}
    for node in outside_of_safe(tree):
        yield Place(where, node, names)


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def outside_of_safe(node: ast.AST) -> Iterator[ast.AST]:
    text = ast.unparse(node) if isinstance(node, LIKE_CALLS) else ""
    if not is_safe_text(text) and not is_repr(node) and text not in NO_MESSAGES:
        yield node
        for child in ast.iter_child_nodes(node):
            yield from outside_of_safe(child)


def is_safe(node: ast.AST) -> bool:
    """Whether it is ``shown(...)`` or one of its kin, or several of them: ``*map(shown, ...)``."""
    return is_safe_text(ast.unparse(node))


def is_safe_text(text: str) -> bool:
    return text.startswith(SAFE_STARTS)


def is_of_lines(node: ast.AST) -> bool:
    return ast.unparse(node).startswith((f"{OF_LINES}(", f"*map({OF_LINES}, "))


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
            texts = [value for kind, value in pairs if kind == "s"]
            if not all(is_safe(value) or is_of_lines(value) for value in texts):
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


PATH_MAKERS = {"os.path.abspath", "os.path.join", "os.fspath", "os.fsdecode", "real_path"}


def is_path(node: ast.AST) -> bool:
    """Whether an expression is a path by its name, or made of one."""
    if isinstance(node, ast.Call):
        maker = ast.unparse(node.func)
        return maker in PATH_MAKERS or (maker == "str" and any(map(is_path, node.args)))
    return getattr(node, "attr", getattr(node, "id", "")) in PATHS


def kept_lines() -> Iterator[Place]:
    """What must be on one line, and keeps its line ends."""
    for place in places():
        in_a_line = isinstance(place.node, ast.FormattedValue) and is_of_lines(place.node.value)
        is_call = isinstance(place.node, ast.Call) and is_of_lines(place.node)
        if in_a_line or (is_call and any(map(is_path, place.node.args))):
            yield place


def printed_as_it_is() -> Iterator[Place]:
    """What the command prints in a sentence, or as bytes, which only a script can take."""
    for place in places():
        if isinstance(place.node, ast.Call) and ast.unparse(place.node.func) == "click.echo":
            said = place.node.args[0] if place.node.args else ast.Constant("")
            parts = said.values if isinstance(said, ast.JoinedStr) else []
            values = [part.value for part in parts if isinstance(part, ast.FormattedValue)]
            text = ast.unparse(said)
            if not all(map(is_word_of_ours, values)) or ("fsencode" in text and "tty" not in text):
                yield place


def is_word_of_ours(node: ast.AST) -> bool:
    text = ast.unparse(node)
    return is_safe(node) or text.isupper() or text.endswith(".__version__")


# Of these, what they say is the system's, which quotes, or ours: what is there, what is installed.
CLEAN = (OSError, ImportError)

# Whoever made the first of the two errors had it from `traced`.
CAUSES = {"raise again from cause"}


def causes_as_they_are() -> Iterator[Place]:
    """What another library raised, as the cause of an error: its traceback has it as it is."""
    for path in sources():
        where = str(path.relative_to(SOURCE))
        for node in raising(tree_of(path), {}):
            yield Place(where, node, set())


def raising(node: ast.AST, kinds: dict[str, ast.AST | None]) -> Iterator[ast.AST]:
    """Yield each statement that makes a cause of an error; ``kinds`` are those of the names."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        kinds = kinds | {each.arg: each.annotation for each in node.args.args}
    if isinstance(node, ast.ExceptHandler) and node.name:
        kinds = kinds | {node.name: node.type}
    cause = cause_in(node)
    if cause is not None and not is_clean(cause, kinds) and ast.unparse(node) not in CAUSES:
        yield node
    for child in ast.iter_child_nodes(node):
        yield from raising(child, kinds)


def cause_in(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Assign):
        targets = [getattr(target, "attr", "") for target in node.targets]
        return node.value if "__cause__" in targets else None
    return node.cause if isinstance(node, ast.Raise) else None


def is_clean(cause: ast.AST, kinds: dict[str, ast.AST | None]) -> bool:
    text = ast.unparse(cause)
    if text == "None" or text.startswith("traced("):
        return True
    kind = kinds.get(text)
    several = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return all(isinstance(each, ast.Name) and is_clean_kind(each.id) for each in several)


def is_clean_kind(name: str) -> bool:
    kind = getattr(builtins, name, object)
    return issubclass(kind, CLEAN) or name in classes()


@functools.cache
def classes() -> set[str]:
    """The names of all classes of the source; there, none has that of another library's error."""
    nodes = (node for path in SOURCE.rglob("*.py") for node in ast.walk(tree_of(path)))
    return {node.name for node in nodes if isinstance(node, ast.ClassDef)}


RULES = [
    quoted_by_hand,
    exceptions_as_they_are,
    logged_as_it_is,
    paths_as_they_are,
    kept_lines,
    printed_as_it_is,
    causes_as_they_are,
]


@pytest.mark.once
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
        (quoted_by_hand, """problem = printable(f"nothing at '{given}'")"""),
        (quoted_by_hand, """problem = f"nothing at '{printable(given)}'" """),
        (kept_lines, """problem = f"nothing at {printable(given)}" """),
        (kept_lines, "row = Text(printable(os.path.abspath(given)))"),
        (kept_lines, "line = printable(str(self.path))"),
        (printed_as_it_is, """click.echo(f"kept in {damaged}")"""),
        (printed_as_it_is, "click.echo(os.fsencode(made))"),
        (causes_as_they_are, "try: x\nexcept ValueError as error: raise y from error"),
        (causes_as_they_are, "try: x\nexcept msgspec.DecodeError as error: raise y from error"),
        (causes_as_they_are, "try: x\nexcept (OSError, KeyError) as e: raise y(e) from e"),
        (causes_as_they_are, "def f(error: Exception):\n    raise y from error"),
        (causes_as_they_are, "ours.__cause__ = error"),
    ],
)
def test_each_rule_sees_what_breaks_it(rule, code, tmp_path, monkeypatch) -> None:
    (tmp_path / "module.py").write_text(code)
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "places", places.__wrapped__)

    assert len(list(rule())) == 1

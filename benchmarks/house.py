"""The figures of the house: how large its parts are, how they hang together, and what stands twice.

    python benchmarks/house.py [TREE ...]

prints them for each checkout, side by side: run it on two commits to see what a change did. It
reads files; the walks run `_walks.py` with each tree's package, in this Python, which must have
what the package needs.

- *Lines* are those of modules and of the stubs beside them; *lines of code* leave out blank lines,
  docstrings and comments.
- A *walk* is what a second call of the same kind goes through in one process: named functions of
  the package, and the files that they are in.
- A *function* is counted from the first line of its body to its last, without the docstring.
- A *room* is a folder of the package, or a module at its top; an *arrow* is that one room imports
  another, wherever in the file. What lies in a folder of a room belongs to the inner folder.
- A module has a *single importer* if one other module of the package imports it; what tests and
  users import is not counted.
- A *helper* is a function of a module, or a method, whose name begins with one underscore; it is
  *called once* if its module mentions it in one place.
- A *class name defined twice* is one that two classes have, with or without an underscore.
"""

import ast
import io
import json
import os
import statistics
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_PACKAGE = "shardproof"
_PARTS = ("_base", "testing", "fetching", "cli")
_SHORT_MODULE, _LONG_MODULE, _LONG_FUNCTION = 60, 400, 45
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def main(trees: Sequence[str]) -> None:
    """Print the figures of checkouts, a column each."""
    columns = [figures(Path(tree)) | walks(Path(tree)) for tree in trees or ["."]]
    width = max(map(len, columns[0]))
    for name in columns[0]:
        print(f"{name:{width}}", *(f"{column[name]:>10}" for column in columns))


def figures(tree: Path) -> dict[str, str]:
    """Return the figures of one checkout, by name."""
    sources = _sources(tree / "src")
    parsed = {name: ast.parse(text) for name, text in sources.items()}
    lines = {name: text.count("\n") for name, text in sources.items()}
    src = tree / "src" / _PACKAGE
    files = [*src.rglob("*.py"), *src.rglob("*.pyi")]
    is_short = [lines[name] < _SHORT_MODULE for name in lines if not _is_folder(name, lines)]
    functions = [_length(node) for module in parsed.values() for node in _functions(module)]
    imports = {name: set(_imports(name, parsed)) for name in parsed}
    arrows = {
        (_room(name, parsed), _room(other, parsed)) for name in imports for other in imports[name]
    }
    arrows = {(one, other) for one, other in arrows if one != other}
    importers = Counter(other for names in imports.values() for other in names)
    helpers = [uses for module in parsed.values() for uses in _helper_uses(module)]
    classes = Counter(name for module in parsed.values() for name in _class_names(module))
    total = sum(map(_lines, files))
    tests = _text_lines(tree / "tests", "py")
    return {
        "lines of src": f"{total:,}",
        "lines of code": f"{sum(map(_code_lines, files)):,}",
        **{f"lines of {part}": f"{_text_lines(src / part, 'py', 'pyi'):,}" for part in _PARTS},
        "lines of tests": f"{tests:,}",
        "lines of CHANGELOG": f"{_lines(tree / 'CHANGELOG.md'):,}",
        "modules": f"{len(lines)}",
        "lines of a module, median": f"{statistics.median(lines.values()):.0f}",
        "lines of a module, p90": f"{_p90([*lines.values()])}",
        f"modules under {_SHORT_MODULE} lines, not __init__": f"{sum(is_short)}",
        f"modules over {_LONG_MODULE} lines": f"{sum(n > _LONG_MODULE for n in lines.values())}",
        "modules with a single importer": f"{sum(n == 1 for n in importers.values())}",
        "functions": f"{len(functions)}",
        "lines of a function, median": f"{statistics.median(functions):.0f}",
        "lines of a function, p90": f"{_p90(functions)}",
        f"functions over {_LONG_FUNCTION} lines": f"{sum(n > _LONG_FUNCTION for n in functions)}",
        "private helpers": f"{len(helpers)}",
        "private helpers called once": f"{sum(uses == 1 for uses in helpers)}",
        "class names defined twice": f"{sum(n > 1 for n in classes.values())}",
        "rooms": f"{len({_room(name, parsed) for name in parsed})}",
        "arrows between rooms": f"{len(arrows)}",
        "lines of tests per line of src": f"{tests / total:.2f}",
        "lines of docs per line of src": f"{_text_lines(tree / 'docs', 'md') / total:.2f}",
    }


def walks(tree: Path) -> dict[str, str]:
    """Return the walks of one checkout: how many functions in how many files, by name."""
    script = Path(__file__).with_name("_walks.py")
    env = {**os.environ, "PYTHONPATH": str((tree / "src").absolute())}
    command = [sys.executable, str(script)]
    run = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return {f"walk: {name}": f"{n}/{files}" for name, (n, files) in json.loads(run.stdout).items()}


def _code_lines(path: Path) -> int:
    """Count the lines that have more on them than a comment or a part of a docstring."""
    text, found = path.read_text(encoding="utf-8"), set[int]()
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in nothing and token.string:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            is_text = isinstance(node.value.value, str)
            found -= {*range(node.lineno, (node.end_lineno or 0) + 1)} if is_text else set()
    return len(found)


def _sources(src: Path) -> dict[str, str]:
    """Return the text of each module of the package, by its dotted name."""
    found = {}
    for path in sorted((src / _PACKAGE).rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return found


def _functions(module: ast.Module) -> Iterator[_Function]:
    return (node for node in ast.walk(module) if isinstance(node, _Function))


def _length(function: _Function) -> int:
    body = function.body
    if ast.get_docstring(function) is not None and len(body) > 1:
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1


def _p90(values: Sequence[int]) -> int:
    return round(statistics.quantiles(values, n=10)[-1])


def _imports(name: str, parsed: dict[str, ast.Module]) -> Iterator[str]:
    """Yield the modules of the package that one imports, each as far down as it is a module."""
    for node in ast.walk(parsed[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in parsed)
        elif isinstance(node, ast.ImportFrom) and node.module in parsed:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from inner.intersection(parsed) - {name}
            if inner - parsed.keys() and node.module != name:
                yield node.module


def _room(name: str, parsed: dict[str, ast.Module]) -> str:
    room = name if _is_folder(name, parsed) else name.rpartition(".")[0]
    return name if room == _PACKAGE else room


def _is_folder(name: str, names: Iterable[str]) -> bool:
    return any(other.startswith(f"{name}.") for other in names)


def _helper_uses(module: ast.Module) -> Iterator[int]:
    """Yield for each private helper of a module how often it is mentioned there."""
    names = {node.name for node in _functions(module) if _is_private(node.name)}
    uses: dict[str, int] = defaultdict(int)
    for node in ast.walk(module):
        if isinstance(node, ast.Name):
            uses[node.id] += 1
        elif isinstance(node, ast.Attribute):
            uses[node.attr] += 1
    return (uses[name] for name in names)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _class_names(module: ast.Module) -> Iterator[str]:
    return (node.name.strip("_") for node in ast.walk(module) if isinstance(node, ast.ClassDef))


def _text_lines(folder: Path, *suffixes: str) -> int:
    return sum(_lines(path) for suffix in suffixes for path in folder.rglob(f"*.{suffix}"))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])

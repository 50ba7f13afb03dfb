"""The public names of two checkouts, and which of them left and came.

    python benchmarks/api.py BEFORE AFTER [--all]

A public name is one in the ``__all__`` of the package, of a room that ``dir(shardproof)`` lists, or
of a module in one that has no underscore in its path; a method, property or parameter of it; an
option of the command; a fixture. ``--all`` prints those too that stayed. Each checkout is imported
by a process of its own, with this Python.
"""

import contextlib
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_PACKAGE = "shardproof"


def main(arguments: Sequence[str]) -> None:
    """Print which names left, which came, and, where that is wanted, which stayed."""
    before, after = (_names_of(Path(tree)) for tree in arguments[:2])
    kinds = {"left": before - after, "came": after - before}
    if "--all" in arguments:
        kinds["stayed"] = before & after
    print(f"{len(before)} names before, {len(after)} after")
    for kind, names in kinds.items():
        print(f"\n{kind} ({len(names)}):", *sorted(names), sep="\n  ")


def _names_of(tree: Path) -> set[str]:
    env = {**os.environ, "PYTHONPATH": str((tree / "src").absolute())}
    command = [sys.executable, __file__]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return set(done.stdout.splitlines())


def public_names() -> Iterator[str]:
    """Yield the public names of the shardproof that this process imports."""
    package = importlib.import_module(_PACKAGE)
    rooms = {name for name in dir(package) if inspect.ismodule(getattr(package, name))}
    found = pkgutil.walk_packages(package.__path__, f"{_PACKAGE}.", onerror=lambda _: None)
    modules = (each.name for each in found if "._" not in each.name)
    for module in [_PACKAGE, *(name for name in modules if name.split(".")[1] in rooms)]:
        with contextlib.suppress(ImportError):  # of a package that is not installed
            public = importlib.import_module(module)
            for name in getattr(public, "__all__", ()):
                yield from _of_value(f"{module}.{name}", getattr(public, name))
    yield from _of_command(importlib.import_module(f"{_PACKAGE}.cli.app").app, _PACKAGE)
    for name in importlib.import_module(f"{_PACKAGE}.pytest_plugin").__all__:
        yield f"pytest: {name}"


def _of_value(name: str, value: Any) -> Iterator[str]:
    yield name
    if inspect.isclass(value):
        members = [each for each in dir(value) if not each.startswith("_")]
        own = [each for each in members if _is_ours(value, each)]
        for each in own:
            yield from _of_value(f"{name}.{each}", inspect.getattr_static(value, each))
    with contextlib.suppress(TypeError, ValueError):  # it can't be called, or nobody knows how
        for parameter in inspect.signature(getattr(value, "__func__", value)).parameters:
            if parameter not in {"self", "cls", "args", "kwargs", "_", "__"}:
                yield f"{name}({parameter})"


def _is_ours(kind: type, name: str) -> bool:
    """Whether a member of a class is not of a class of another package that it is made of."""
    home = next(base for base in kind.__mro__ if name in vars(base))
    return home.__module__.partition(".")[0] == _PACKAGE


def _of_command(command: Any, words: str) -> Iterator[str]:
    yield words
    for option in command.params:
        yield from (f"{words} {text}" for text in option.opts if text.startswith("-"))
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from _of_command(command.get_command(None, name), f"{words} {name}")


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1:])
    else:
        print(*sorted(set(public_names())), sep="\n")

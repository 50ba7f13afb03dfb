"""The cases, each with what has to be there to write it."""

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

Write = Callable[[Path], None]
"""Writes a case into an empty directory."""

Writer = Callable[[], str | None]
"""Tells what writes it, with its version; None where that is not there."""


class Case(NamedTuple):
    write: Write
    writer: Writer


CASES: dict[str, Case] = {}
CHECKOUTS: dict[str, Path | None] = {"llm.c": None, "nanoGPT": None, "templar": None}
"""Where code is that is no package, by what it is called."""


def cases(writer: Writer, **writes: Write) -> None:
    CASES.update({name.replace("_", "-"): Case(write, writer) for name, write in writes.items()})


def case(writer: Writer) -> Callable[[Write], Write]:
    """Make a function a case, which is called as the function is."""

    def register(write: Write) -> Write:
        cases(writer, **{write.__name__: write})
        return write

    return register


def asked(doc: str | None, names: Iterable[str], to: Path) -> tuple[list[str], Path]:
    """Return for which cases the command line asks, and where to; it says where checkouts are."""
    found = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    found.add_argument("cases", nargs="*", choices=[[], *names], metavar="CASE")
    found.add_argument("--to", type=Path, default=to)
    for name in CHECKOUTS:
        option = f"--{name.replace('.', '')}"
        found.add_argument(option, dest=name, type=Path, metavar="CHECKOUT")
    options = found.parse_args()
    CHECKOUTS.update({name: getattr(options, name) for name in CHECKOUTS})
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    return options.cases or [name for name in names if CASES[name].writer()], options.to


def package(name: str, *others: str) -> Writer:
    """Return what tells the version of a package, if others are there that its case needs."""

    def writer() -> str | None:
        try:
            version, *_ = map(importlib.metadata.version, (name, *others))
        except importlib.metadata.PackageNotFoundError:
            return None
        return by_python(f"{name} {version}")

    return writer


def tool(name: str, command: str) -> Writer:
    def writer() -> str | None:
        if shutil.which(command) is None:
            return None
        said = output([command, "--version"])
        return f"{name} {said.splitlines()[0].split()[-1]}"

    return writer


def checkout(name: str) -> Writer:
    """Return what tells the commit of code that is no package."""

    def writer() -> str | None:
        path = CHECKOUTS[name]
        if path is None:
            return None
        commit = output(["git", "-C", str(path), "rev-parse", "--short=12", "HEAD"])
        return by_python(f"{name} {commit.strip()}")

    return writer


def imported(name: str, file: str) -> ModuleType:
    path = CHECKOUTS[name] or Path()
    spec = importlib.util.spec_from_file_location("module_of_a_checkout", path / file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def by_python(what: str) -> str:
    return f"{what}, Python {platform.python_version()}"


def output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout

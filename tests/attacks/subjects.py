"""What is attacked while it works: a subject, its directory, and the law that it is judged by."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.attacks.tally import Harm

Told = Iterator[tuple[Harm, str]]
State = dict[str, str]
"""What is committed: a text for each thing."""

NOTHING = "$^"


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    prepare: Callable[[Path], object]  # fills an empty directory
    act: Callable[[Path], object]  # returns an answer that JSON can hold
    state: Callable[[Path], State] | None = None  # of what writes: reads back what is committed
    redo: Callable[[Path], object] | None = None  # the next run, where that is not the same
    kept: str = NOTHING  # may stay after a failure, since the next run takes it up
    left: str = NOTHING  # may stay after the next run, too
    refused: tuple[int, ...] = (3,)  # how a command ends that could not be done
    given_up: str = NOTHING  # is committed and may be gone, since it is to be replaced
    again: bool = False  # it was done once before, without a fault


def damage(subject: Subject, found: State, old: State, new: State, *, is_done: bool) -> Told:
    for name in sorted({*old, *new, *found}):
        there = found.get(name)
        is_given_up = there is None and re.search(subject.given_up, name)
        if there not in {old.get(name), new.get(name)} and not is_given_up:
            yield "lost" if there is None else "torn", f"{name} is {there}, was {old.get(name)}"
        elif is_done and there != new.get(name):
            yield "lie", f"told to be done, and {name} is {there} instead of {new.get(name)}"


def tree_of(root: Path) -> dict[str, str]:
    """Every name below a directory with what it is: its size, or that it is a directory."""
    found: dict[str, str] = {}
    for path, directories, names in os.walk(root):
        for name in directories:
            found[os.path.relpath(os.path.join(path, name), root)] = "directory"
        for name in names:
            file = os.path.join(path, name)
            found[os.path.relpath(file, root)] = str(os.lstat(file).st_size)
    return found


def put_back(root: Path, template: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root, symlinks=True)

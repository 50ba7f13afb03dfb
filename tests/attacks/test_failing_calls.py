"""A call fails: the outcome is the right one, or that nobody could look.

Each subject is run on directories that are whole, and on ones that are damaged: an error that is
swallowed hides what is wrong with them.
"""

import glob
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.attacks import failing
from tests.attacks.failing import Subject, prepared
from tests.attacks.failing_subjects import COMMANDS, READERS, WRITERS
from tests.attacks.tally import Harm, Tally

FEW_SUBJECTS, FEW = 2, 4
"""In the gate, so many subjects of each part of them, and so many cases of each."""

PARTS = range(4)


def try_(subject: Subject, path: Path, tally: Tally) -> None:
    attacked = prepared(subject, path)
    for case in tally.sample(attacked.cases(), FEW):
        came, harms = attacked.run(case)
        tally.count(came)
        for kind, what in harms:
            tally.harm(kind, what)


def try_part(subjects: Sequence[Subject], part: int, path: Path, tally: Tally) -> None:
    for number, subject in enumerate(tally.sample(subjects[part :: len(PARTS)], FEW_SUBJECTS)):
        directory = path / str(number)
        directory.mkdir()
        try_(subject, directory, tally)


in_parts = pytest.mark.parametrize("part", PARTS)


@pytest.mark.attack("a call fails: readers")
@in_parts
def test_readers_are_right_or_could_not_look(part: int, tmp_path: Path, tally: Tally) -> None:
    try_part(READERS, part, tmp_path, tally)


@pytest.mark.attack("a call fails: commands")
@in_parts
def test_commands_are_right_or_could_not_look(part: int, tmp_path: Path, tally: Tally) -> None:
    try_part(COMMANDS, part, tmp_path, tally)


@pytest.mark.attack("a call fails: writers")
@in_parts
def test_writers_are_done_or_could_not(part: int, tmp_path: Path, tally: Tally) -> None:
    try_part(WRITERS, part, tmp_path, tally)


# Controls: what must not be done, done.


def three_files(root: Path) -> None:
    for name in ("a", "b", "c/d"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(name)


def looks_with_lexists(root: Path) -> object:
    return [name for name in ("a", "b") if os.path.lexists(root / name)]


def lists_with_glob(root: Path) -> object:
    return sorted(glob.glob(f"{root}/**", recursive=True))


def walks(root: Path) -> object:
    return sorted(name for _, _, names in os.walk(root) for name in names)


def calls_it_damaged(root: Path) -> object:
    try:
        (root / "a").read_text()
    except OSError:
        return {"findings": [{"path": f"{root}/a", "kind": "structure", "errno": None}]}
    return {"findings": []}


def says_not_there(root: Path) -> object:
    try:
        return (root / "a").read_text()
    except OSError as error:
        raise FileNotFoundError(error.errno, "there is no such file") from error


def raises_its_own(root: Path) -> object:
    try:
        return (root / "a").read_text()
    except OSError:
        raise KeyError("a") from None


def forgets_a_descriptor(root: Path) -> object:
    fd = os.open(root / "a", os.O_RDONLY)
    size = os.fstat(fd).st_size
    os.close(fd)
    return size


def waits_for_ever(root: Path) -> object:
    while True:
        try:
            return os.stat(root / "a").st_size
        except OSError:
            time.sleep(0.01)


def removes_what_it_cannot_read(root: Path) -> None:
    try:
        (root / "a").read_text()
    except OSError:
        (root / "a").unlink()


def ends(code: int, text: str) -> object:
    return {"code": code, "out": "", "err": text}


def ends_by_one(root: Path) -> object:
    try:
        (root / "a").read_text()
    except OSError as error:
        return ends(1, f"it is damaged: {error}")
    return ends(0, "")


def ends_by_nothing(root: Path) -> object:
    return ends(0, "") | {"out": str(looks_with_lexists(root))}


def prints_a_traceback(root: Path) -> object:
    try:
        (root / "a").read_text()
    except OSError:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type] # within an except there is one
        raise
    return ends(0, "")


def replaces_in_place(root: Path) -> None:
    with open(root / "a", "w", buffering=1) as file:
        file.write("new\n")
        file.write("er\n")


def removes_first(root: Path) -> None:
    (root / "a").unlink()
    (root / "a").write_text("newer")


def leaves_its_temporary_file(root: Path) -> None:
    (root / "a.tmp").write_text("newer")
    os.replace(root / "a.tmp", root / "a")


def ignores_that_it_failed(root: Path) -> None:
    try:
        (root / "new").write_text("x")
    except OSError:
        return


def text_of(root: Path) -> dict[str, str]:
    return {name: (root / name).read_text() for name in ("a", "new") if (root / name).exists()}


CONTROLS: dict[Callable[[Path], object], Harm] = {
    looks_with_lexists: "lie",
    lists_with_glob: "lie",
    walks: "lie",
    calls_it_damaged: "wrong class",
    says_not_there: "wrong class",
    raises_its_own: "wrong class",
    forgets_a_descriptor: "leftover",
    waits_for_ever: "hang",
    removes_what_it_cannot_read: "lost",
    ends_by_one: "wrong class",
    ends_by_nothing: "lie",
    prints_a_traceback: "wrong class",
}

WRITING: dict[Callable[[Path], object], Harm] = {
    replaces_in_place: "torn",
    removes_first: "lost",
    leaves_its_temporary_file: "leftover",
    ignores_that_it_failed: "lie",
}


@pytest.mark.once
@pytest.mark.parametrize("act", [*CONTROLS, *WRITING], ids=lambda act: act.__name__)
def test_what_must_not_be_done_is_seen(
    act: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if act is waits_for_ever:
        monkeypatch.setattr(failing, "PATIENCE", 1)
    tally = Tally("control", is_exhaustive=True)
    subject = Subject(act.__name__, three_files, act, text_of if act in WRITING else None)
    try_(subject, tmp_path, tally)
    assert (CONTROLS | WRITING)[act] in tally.harms, tally.harms


def reads_all(root: Path) -> object:
    return [(root / name).read_text() for name in ("a", "b", "c/d")]


def writes_whole(root: Path) -> None:
    temporary = root / "a.tmp"
    try:
        temporary.write_text("newer")
        os.replace(temporary, root / "a")
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


@pytest.mark.once
@pytest.mark.parametrize("act", [reads_all, writes_whole], ids=lambda act: act.__name__)
def test_who_does_right_is_not_accused(act: Callable[[Path], object], tmp_path: Path) -> None:
    tally = Tally("control", is_exhaustive=True)
    subject = Subject(act.__name__, three_files, act, text_of if act is writes_whole else None)
    try_(subject, tmp_path, tally)
    tally.assert_harmless()

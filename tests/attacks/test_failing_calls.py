"""A call fails: the outcome is the right one, or that nobody could look."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks import children
from tests.attacks.failing import fail
from tests.attacks.readers import COMMANDS, READERS
from tests.attacks.subjects import Subject
from tests.attacks.tally import Harm, Tally
from tests.attacks.writers import WRITERS

N_SUBJECTS, N = 2, 4
"""In the gate, so many subjects of each part of them, and so many cases of each."""

PARTS = 4

ROOMS = {
    **{
        f"{name} ({part + 1})": subjects[part::PARTS]
        for name, subjects in (("readers", READERS), ("commands", COMMANDS))
        for part in range(PARTS)
    },
    **WRITERS,
}


@pytest.mark.parametrize(
    "room",
    [
        pytest.param(room, marks=pytest.mark.attack(f"a call fails: {room.partition(' (')[0]}"))
        for room in ROOMS
    ],
)
@pytest.mark.usefixtures("settled")
def test_what_could_not_be_done_is_told(room: str, tmp_path: Path, tally: Tally) -> None:
    for number, subject in enumerate(tally.each(ROOMS[room], N_SUBJECTS)):
        path = tmp_path / str(number)
        path.mkdir()
        fail(subject, path, tally, N)


def three_files(root: Path) -> None:
    for name in ("a", "b", "c/d"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(name)


def looks_with_lexists(root: Path) -> object:
    return [name for name in ("a", "b") if os.path.lexists(root / name)]


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
        sys.excepthook(*sys.exc_info())  # within an except there is one
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
    calls_it_damaged: "wrong class",
    says_not_there: "wrong class",
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


@pytest.mark.parametrize(
    "act",
    [
        *(
            pytest.param(act, marks=pytest.mark.control(harm))
            for act, harm in (CONTROLS | WRITING).items()
        ),
        *(pytest.param(act, marks=pytest.mark.control()) for act in (reads_all, writes_whole)),
    ],
)
def test_what_must_not_be_done_is_seen_and_nothing_else(act, tmp_path, tally, monkeypatch) -> None:
    if act is waits_for_ever:
        monkeypatch.setattr(children, "PATIENCE", 1)
    state = text_of if act in {*WRITING, writes_whole} else None
    fail(Subject(act.__name__, three_files, act, state), tmp_path, tally, 1)

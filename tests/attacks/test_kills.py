"""Whatever moment a writer is killed at, or the power cut: nothing is lost, torn or a lie."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from shardproof._base import files
from shardproof.checkpoint import _safetensors
from shardproof.repairing import _fetch
from shardproof.staging import CopyDirectory, _copy, _make_own, _proofs, _source
from tests.attacks import directories as made
from tests.attacks.moments import cut, kill, moments_of
from tests.attacks.subjects import Subject
from tests.attacks.tally import Tally
from tests.attacks.writers import CUT, KILLED, SYNCED, whole_checkpoints

N_SUBJECTS, N_KILLS, N_CUTS = 3, 4, 3
"""In the gate, so many subjects of each room, so many kills of each, and so many power cuts."""


pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(files, "sync", lambda _: None)


def of_rooms(attack: str, rooms: dict[str, tuple[Subject, ...]]) -> pytest.MarkDecorator:
    cases = [
        pytest.param(room, id=room, marks=pytest.mark.attack(f"{attack}: {room}")) for room in rooms
    ]
    return pytest.mark.parametrize("room", cases)


def each_in(path: Path, subjects: Iterator[Subject]) -> Iterator[tuple[Path, Subject]]:
    for number, subject in enumerate(subjects):
        (path / str(number)).mkdir()
        yield path / str(number), subject


def subject_of(name: str) -> Subject:
    return next(each for room in KILLED.values() for each in room if each.name == name)


@of_rooms("kill at a system call", KILLED)
@pytest.mark.usefixtures("no_waiting_for_disks")
def test_what_is_killed_leaves_what_was_or_what_is_to_be(room, tmp_path, tally) -> None:
    for path, subject in each_in(tmp_path, tally.each(KILLED[room], N_SUBJECTS)):
        kill(moments_of(subject, path), tally, N_KILLS)


@of_rooms("power cut", SYNCED)
def test_what_was_done_is_there_after_a_power_cut(room, tmp_path, tally, monkeypatch) -> None:
    for path, subject in each_in(tmp_path, tally.each(SYNCED[room], 1)):
        cut(moments_of(subject, path), tally, N_CUTS, monkeypatch)


def metadata_first(root: Path) -> None:
    with tempfile.TemporaryDirectory() as beside:
        made.save(Path(beside, "m9"), 9)
        for path in sorted(Path(beside).iterdir()):  # "m9.metadata.json" is before "m9_shard_0"
            files.write_whole(root / path.name, path.read_bytes())


def in_place(source: str, target: str, *, target_fd: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with open(os.open(target, flags, dir_fd=target_fd), "wb", buffering=0) as file:
        file.write(Path(source).read_bytes())


def at_once_in_place(home: CopyDirectory) -> None:
    home.place = home.final
    for name in ("", *home._folders):
        _make_own(os.path.join(home.final, name))


def unlinks_first(part: str, _part_fd: int, path: str, base_fd: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=base_fd)
    files.move(part, path, target_fd=base_fd)


def writes_in_place(part: str, _part_fd: int, path: str, base_fd: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666, dir_fd=base_fd)
    os.write(fd, Path(part).read_bytes()[:10])
    os.write(fd, Path(part).read_bytes()[10:])
    os.ftruncate(fd, os.stat(part).st_size)
    os.close(fd)


def breaking(name: str, room: object, what: str, bug: object, *harms: str) -> object:
    marks = pytest.mark.control(*harms)
    name_of_bug = getattr(bug, "__name__", what)
    return pytest.param(name, room, what, bug, id=f"{name}: {name_of_bug}", marks=marks)


@pytest.mark.parametrize(
    ("name", "room", "what", "bug"),
    [
        breaking("completes, purged", files, "move", in_place, "torn"),
        breaking("seal, plain", files, "sweep_leftovers", lambda _: [], "leftover"),
        breaking("stage, checkpoint", CopyDirectory, "prepare", at_once_in_place, "torn"),
        breaking("repair, sealed", _fetch, "exchange", unlinks_first, "lost"),
        breaking("repair, sealed", _fetch, "exchange", writes_in_place, "torn"),
    ],
)
@pytest.mark.usefixtures("no_waiting_for_disks")
def test_what_must_not_be_done_is_seen(name, room, what, bug, tmp_path, tally, monkeypatch) -> None:
    moments = moments_of(subject_of(name), tmp_path)
    monkeypatch.setattr(room, what, bug)
    kill(moments, tally, 1)


@pytest.mark.control("torn")
@pytest.mark.usefixtures("no_waiting_for_disks")
def test_files_that_say_of_no_set_are_seen(tmp_path: Path, tally: Tally, monkeypatch) -> None:
    other = SimpleNamespace(**{**vars(_safetensors), "SET": "of_nothing"})
    monkeypatch.setattr("shardproof.checkpoint._to_safetensors._safetensors", other)
    kill(moments_of(subject_of("to_safetensors, over a set"), tmp_path), tally, 1)


@pytest.mark.control("torn")
@pytest.mark.usefixtures("no_waiting_for_disks")
def test_a_wrong_order_of_a_checkpoints_files_is_seen(tmp_path: Path, tally: Tally) -> None:
    act = metadata_first
    subject = Subject(act.__name__, made.steps, act, whole_checkpoints, redo=lambda _: None)
    kill(moments_of(subject, tmp_path), tally, 1)


@pytest.mark.control("lie")
@pytest.mark.parametrize("name", ["overwrites", "completes, new", "seal, plain", "repair, sealed"])
@pytest.mark.usefixtures("no_syncs")
def test_who_waits_for_no_disk_is_seen(name, tmp_path, tally, monkeypatch) -> None:
    cut(moments_of(subject_of(name), tmp_path), tally, 1, monkeypatch)


@pytest.mark.control("lost")
def test_a_copy_that_is_believed_after_a_power_cut_is_seen(tmp_path, tally, monkeypatch) -> None:
    monkeypatch.setattr(_proofs.Proofs, "fit", lambda *_, hashed: True)
    monkeypatch.setattr(_copy.StagedCopy, "_doubted", lambda _: [])
    monkeypatch.setattr(_source.StageSource, "write_listing", write_listing_if_there_is_none)
    cut(moments_of(CUT[0], tmp_path), tally, 1, monkeypatch)


def write_listing_if_there_is_none(source: _source.StageSource, root: str) -> None:
    path = Path(root, source.listing)
    if not path.exists():
        path.write_bytes(source.stated[source.listing])

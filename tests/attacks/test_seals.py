"""A seal is raced, and its journal spoiled: no list is a lie, torn, or of what lies outside."""

import contextlib
import hashlib
import itertools
import json
import multiprocessing
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardproof import SealError, ShardproofError, ShardValidationError, seal, validate
from shardproof._base import digest
from tests.attacks.directories import FILES, LIST, listed, plain
from tests.attacks.mutations import mutated
from tests.attacks.swapping import swapping
from tests.attacks.tally import Tally

JOURNAL = ".SHA256SUMS.journal"


def tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): b"" if path.name == JOURNAL else path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def raised_by(act: Callable[[], object]) -> Exception | None:
    try:
        act()
    except Exception as error:
        return error
    return None


SPOILED = {
    "a hard link": lambda root, other: os.link(other, root / JOURNAL),
    "a link": lambda root, other: (root / JOURNAL).symlink_to(other),
    "a link within": lambda root, _: (root / JOURNAL).symlink_to("a"),
    "a hard link within": lambda root, _: os.link(root / "a", root / JOURNAL),
    "a link to nothing": lambda root, _: (root / JOURNAL).symlink_to("nothing"),
    "a FIFO": lambda root, _: os.mkfifo(root / JOURNAL),
    "a directory": lambda root, _: (root / JOURNAL).mkdir(),
    "another's": lambda root, other: (
        shutil.copy(other, root / JOURNAL),
        os.chown(root / JOURNAL, 4711, 4711),
    ),
}


@pytest.mark.attack("a hostile journal")
@pytest.mark.parametrize("how", SPOILED)
def test_what_is_no_journal_is_neither_written_nor_believed(tmp_path, tally, settled, how) -> None:
    if how == "another's" and os.geteuid():
        pytest.skip("only root gives files away")
    root, other = tmp_path / "root", tmp_path / "other"
    root.mkdir()
    plain(root)
    lie = json.dumps(["a", "sha256:" + "0" * 64, _stamp(root / "a")])
    other.write_text(lie + "\n")
    SPOILED[how](root, other)
    before = tree(root)
    tally.count()
    raised = raised_by(lambda: seal(root))
    if not isinstance(raised, SealError) or str(root / JOURNAL) not in str(raised):
        tally.harm("wrong class", f"{how}: {raised!r}")
    if other.read_text() != lie + "\n" or tree(root) != before:
        tally.harm("lost", f"{how}: it was written through")
    if how != "another's" or not os.geteuid():
        (root / LIST).write_bytes(listed())
        report = validate(root, level="valid", quick=True)
        if report.n_unread or not report.ok:
            tally.harm("lie", f"{how}: it was believed")


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


@pytest.mark.attack("a hostile journal")
def test_journals_that_are_spoiled(tmp_path: Path, tally: Tally, settled: None) -> None:
    """Whoever writes a digest there is believed, as he is of the list: that is no harm."""
    root = tmp_path / "root"
    root.mkdir()
    plain(root)
    seal(root)
    digests = {line.split()[0] for line in listed().splitlines()}
    text = (root / JOURNAL).read_bytes()
    for seed in tally.each(range(20_000), 150):
        data = b"\n".join(mutated(line, seed + n) for n, line in enumerate(text.split(b"\n")))
        (root / LIST).unlink(missing_ok=True)
        (root / JOURNAL).write_bytes(data)
        tally.count()
        raised = raised_by(lambda: seal(root, workers=1))
        if raised is not None:
            tally.harm("wrong class", f"{data!r}: {raised!r}")
            continue
        found = (root / LIST).read_bytes()
        is_forged = not digests.issuperset(re.findall(rb"[0-9a-fA-F]{64}", data))
        if found != listed() and not is_forged:
            tally.harm("lie", f"{data!r}: {found!r}")


def _seal(root: str, queue: "multiprocessing.SimpleQueue[str]") -> None:
    try:
        seal(root, workers=2)
        queue.put("sealed")
    except (ShardproofError, OSError) as error:
        queue.put(f"{type(error).__name__}: {error}")


@pytest.mark.attack("a race: seals")
def test_many_seals_of_one_directory(tmp_path: Path, tally: Tally) -> None:
    context = multiprocessing.get_context("fork")
    for turn in tally.each(range(60), 3):
        root = tmp_path / str(turn)
        root.mkdir()
        plain(root)
        queue = context.SimpleQueue()
        crowd = [context.Process(target=_seal, args=(root, queue)) for _ in range(8)]
        for each in crowd:
            each.start()
        told = [queue.get() for _ in crowd]
        for each in crowd:
            each.join(60)
        tally.count(len(crowd))
        if (root / LIST).read_bytes() != listed():
            tally.harm("torn", repr((root / LIST).read_bytes()))
        for text in told:
            if text != "sealed" and "it is sealed already" not in text:
                tally.harm("wrong class", text)
        if extra := tree(root).keys() - {*FILES, LIST, JOURNAL}:
            tally.harm("leftover", str(extra))


@pytest.mark.attack("a race: seals")
@pytest.mark.parametrize("place", [".", "sub"])
def test_a_folder_that_is_swapped_for_a_link_out(tmp_path: Path, tally: Tally, place: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for where in (root, outside):
        where.mkdir()
        plain(where)
    for name in ("c", *FILES):
        (outside / name).write_bytes(b"SECRET" * 77)
    secret = hashlib.sha256(b"SECRET" * 77).hexdigest()
    (tmp_path / "stand-in").symlink_to(outside)
    swapped = root if place == "." else root / place
    with swapping(swapped, tmp_path):
        for _ in tally.each(range(1_000), 60):
            tally.count()
            told = str(raised_by(lambda: seal(root, workers=1)))
            if secret in told:
                tally.harm("lie", told)
            for text in taken_lists(outside):  # it may be what the path led to from the beginning
                if place != "." or text.count(secret.encode()) != len(FILES) + 1:
                    tally.harm("lie", f"written outside: {text!r}")
            for text in (*taken_lists(root), *taken_lists(tmp_path / "kept")):
                if secret.encode() in text:
                    tally.harm("lie", f"of what lies outside: {text!r}")


def taken_lists(root: Path) -> Iterator[bytes]:
    try:
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        with contextlib.suppress(OSError):
            with open(os.open(LIST, os.O_RDONLY, dir_fd=fd), "rb") as file:
                yield file.read()
            os.unlink(LIST, dir_fd=fd)
    finally:
        os.close(fd)


@pytest.mark.attack("a race: seals")
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, tally: Tally, monkeypatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    plain(root)
    changes: list[Callable[[Path], object]] = [
        lambda path: path.write_bytes(b"z" * path.stat().st_size),
        lambda path: path.write_bytes(b"z"),
        lambda path: os.truncate(path, 5000),
        os.utime,
        lambda path: (path.unlink(), path.write_bytes(b"z")),
    ]
    real = digest.each_of_file
    for change, name in itertools.product(changes, FILES):
        plain(root)
        (root / LIST).unlink(missing_ok=True)
        turn = itertools.count()

        def each_of_file(*args, change=change, name=name, turn=turn, **keywords):
            found = real(*args, **keywords)
            if next(turn) == [*FILES].index(name):
                change(root / name)
            return found

        monkeypatch.setattr(digest, "each_of_file", each_of_file)
        tally.count()
        raised = raised_by(lambda: seal(root, workers=1))
        if not isinstance(raised, (SealError, ShardValidationError)) or (root / LIST).exists():
            if (root / LIST).exists() and (root / name).read_bytes() == FILES[name]:
                continue
            tally.harm("lie", f"{name}: {raised!r}")

"""Whatever moment a seal is killed at, fails at or is raced at: no list is a lie, torn or lost."""

import contextlib
import errno
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardproof import SealError, ShardproofError, ShardValidationError, seal, validate
from shardproof._base import files as _files
from shardproof.testing.faults import FileSystemFaults
from tests.attacks.swapping import swapping
from tests.attacks.tally import Tally
from tests.helpers.killing import Begin, at_some_calls, skip_where_not_permitted

LIST, JOURNAL = "SHA256SUMS", ".SHA256SUMS.journal"
FILES = {"a": b"a" * 1000, "b": b"b" * 2000, "sub/c": b"c" * 3000}
ERRNOS = (errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE, errno.ENOSPC, errno.EROFS)


def listed(algorithm: str = "sha256") -> bytes:
    """What a list of all files is to be, made without the code under test."""
    lines = (f"{hashlib.new(algorithm, FILES[name]).hexdigest()}  {name}\n" for name in FILES)
    return "".join(lines).encode()


def plain(root: Path) -> None:
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def half(root: Path) -> None:
    """The list has one file, and another list has all."""
    plain(root)
    (root / LIST).write_bytes(listed()[: listed().index(b"\n") + 1])
    (root / "MD5SUMS").write_bytes(listed("md5"))


def begun(root: Path) -> None:
    """An attempt ended before the list was written; all files are older than that."""
    plain(root)
    seal(root)
    (root / LIST).unlink()


def sealed(root: Path) -> None:
    plain(root)
    (root / "B2SUMS").write_bytes(listed("blake2b"))


DIRECTORIES = {"plain": plain, "half": half, "begun": begun, "sealed": sealed}


def sealing(root: Path) -> object:
    return seal(root, workers=1, update=(root / LIST).exists())


def tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): b"" if path.name == JOURNAL else path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file has changed lately: a change time can't be set back."""
    monkeypatch.setattr("shardproof._base.proofs.SETTLED_SECONDS", -3600.0)


class Attacked:
    """One directory, which is sealed again and again while something happens.

    Args:
        prepare: Fills it.
        root: Where it is.
        tally: What is told of each case.
    """

    def __init__(self, prepare: Callable[[Path], None], root: Path, tally: Tally) -> None:
        self.root, self.tally, self._prepare = root, tally, prepare
        self.prepare()
        self.old = (root / LIST).read_bytes() if (root / LIST).exists() else None
        sealing(root)
        self.whole = tree(root)
        assert self.whole[LIST] == listed()

    def prepare(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        self._prepare(self.root)

    def check(self, case: object) -> None:
        """Look at what is there; then what is undone is done, and all is as if undisturbed."""
        self.tally.count()
        path = self.root / LIST
        found = path.read_bytes() if path.exists() else None
        if found not in {self.old, listed()}:
            self.tally.harm("lost" if found is None else "torn", f"{case}: {found!r}")
        with contextlib.suppress(SealError):  # it is sealed
            seal(self.root, workers=1, update=found is not None and found == self.old)
        now = tree(self.root)
        if self.whole.keys() < now.keys():
            self.tally.harm("leftover", f"{case}: {now.keys() - self.whole.keys()}")
        elif now != self.whole:
            self.tally.harm("lost", f"{case}: {now.keys() ^ self.whole.keys()}")


@pytest.fixture(params=DIRECTORIES)
def attacked(request, tmp_path: Path, tally: Tally, settled: None) -> Attacked:
    return Attacked(DIRECTORIES[request.param], tmp_path / "root", tally)


def kill(attacked: Attacked, n: int, last: int = 0) -> int:
    def act(begin: Begin) -> None:
        begin()
        sealing(attacked.root)

    return at_some_calls(
        act,
        prepare=attacked.prepare,
        check=attacked.check,
        choose=lambda numbers: attacked.tally.sample(numbers[-last:], n),
    )


@pytest.mark.attack("kill at a system call: seals")
def test_killed_at_any_call(attacked: Attacked, no_waiting_for_disks: None) -> None:
    skip_where_not_permitted()
    assert kill(attacked, 5) > 4


def control() -> Tally:
    """A tally for code that does harm, which must be seen."""
    return Tally("control", is_exhaustive=True)


def test_a_seal_that_sweeps_nothing_leaves_something(tmp_path, settled, monkeypatch) -> None:
    """Control: as it was."""
    skip_where_not_permitted()
    monkeypatch.setattr(_files, "sweep_leftovers", lambda _: [])
    monkeypatch.setattr(os, "fsync", lambda _: None)
    found = Attacked(plain, tmp_path / "root", control())
    kill(found, 0, last=40)
    assert {*found.tally.harms} == {"leftover"}


def fail(attacked: Attacked, n: int) -> None:
    """Let each call fail once with each errno, and with all after it."""
    with FileSystemFaults(attacked.root) as fs:
        attacked.prepare()
        before = len(fs.calls)
        sealing(attacked.root)
        n_calls = len(fs.calls) - before
    cases = [*itertools.product(range(1, n_calls + 1), ERRNOS, (1, None))]
    for nth, number, times in attacked.tally.sample(cases, n):
        attacked.prepare()
        case = f"{errno.errorcode[number]} at call {nth}{'' if times else ' and all after it'}"
        with FileSystemFaults(attacked.root) as fs:
            fs.fail("any", number, nth=nth, times=times, optional=True)
            raised = raised_by(lambda: sealing(attacked.root))
        if raised is None and (attacked.root / LIST).read_bytes() != listed():
            attacked.tally.harm("lie", f"{case}: it is told to be sealed")
        if raised is not None and not could_not_look(raised):
            attacked.tally.harm("wrong class", f"{case}: {raised!r}")
        for path in attacked.root.glob(".shardproof-*.tmp") if times is None else ():
            path.unlink()  # as the next process does: this one lives, and could remove nothing
        attacked.check(case)


def raised_by(act: Callable[[], object]) -> Exception | None:
    try:
        act()
    except Exception as error:
        return error
    return None


def could_not_look(error: Exception) -> bool:
    """Whether an error says that nobody could look, or may: not that something is wrong."""
    if isinstance(error, ShardValidationError):
        report = error.report
        return all(
            not each.conclusive or each.errno == errno.EACCES for each in report.findings
        ) and bool(report.findings)
    return isinstance(error, OSError) or isinstance(error.__cause__, OSError)


@pytest.mark.attack("a call fails: seals")
def test_each_call_fails(attacked: Attacked, no_waiting_for_disks: None) -> None:
    fail(attacked, 40)


def test_a_seal_that_passes_over_what_it_can_not_read_is_caught(
    tmp_path, settled, monkeypatch
) -> None:
    """Control."""
    from shardproof.report import Report

    found = Attacked(plain, tmp_path / "root", control())
    monkeypatch.setattr(Report, "raise_for_findings", lambda self: self)
    with contextlib.suppress(KeyError):
        fail(found, 0)
    assert "wrong class" in found.tally.harms or "lie" in found.tally.harms


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
def test_what_is_no_journal_is_neither_written_nor_believed(
    tmp_path: Path, tally: Tally, settled: None, how: str
) -> None:
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


def journals(root: Path, n: int) -> Iterator[bytes]:
    """Journals that no seal wrote: of other files, stamps, digests, and of no sense at all."""
    rng = random.Random(n)
    text = (root / JOURNAL).read_bytes()
    for _ in range(n):
        data = bytearray(text)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            choice = rng.randrange(4)
            if choice == 0:
                data[at] = rng.randrange(256)
            elif choice == 1:
                del data[at : at + rng.randrange(1, 60)]
            elif choice == 2:
                data[at:at] = rng.choice([b"\n", b"[", b"]" * 9, b'"../x"', b"\0", b"1e999", b"-1"])
            else:
                data[at:at] = data[: rng.randrange(200)]
            data = data or bytearray(b"\n")
        yield bytes(data)


@pytest.mark.attack("a hostile journal")
def test_journals_that_are_spoiled(tmp_path: Path, tally: Tally, settled: None) -> None:
    """Whoever writes a digest there is believed, as he is of the list: that is no harm."""
    root = tmp_path / "root"
    root.mkdir()
    plain(root)
    seal(root)
    digests = {line.split()[0] for line in listed().splitlines()}
    for data in journals(root, 20_000 if tally.is_exhaustive else 150):
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


def _seal_in_turns(root: str, n: int, queue: "multiprocessing.Queue[str]") -> None:
    for _ in range(n):
        try:
            seal(root, workers=2)
            queue.put("sealed")
        except (ShardproofError, OSError) as error:
            queue.put(f"{type(error).__name__}: {error}")


@pytest.mark.attack("a race: seals")
def test_many_seals_of_one_directory(tmp_path: Path, tally: Tally) -> None:
    context = multiprocessing.get_context("fork")
    for turn in range(60 if tally.is_exhaustive else 3):
        root = tmp_path / str(turn)
        root.mkdir()
        plain(root)
        queue = context.SimpleQueue()
        crowd = [context.Process(target=_seal_in_turns, args=(root, 1, queue)) for _ in range(8)]
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
    """Nothing is written outside, and no digest of what lies there is in a list."""
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
        for _ in range(1_000 if tally.is_exhaustive else 60):
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
    """Yield what was written to a directory, if it is there and none that it was swapped for."""
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
    """At each read something else is written: then nobody is told that it is sealed."""
    from shardproof._base import digest

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

"""One call of a subject fails, and what comes of it is judged.

A subject is run in a child, once without a fault, which tells its calls; then once for each call
and each errno, and once for each call that fails with all after it. What it may come to is its
right answer, or "nobody could look", told as such.
"""

import contextlib
import errno as errors
import gc
import importlib
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from shardproof.testing.faults import FileSystemFaults
from shardproof.testing.faults import file_system as _faults
from tests.attacks.tally import Harm

__all__ = ["ERRNOS", "Attacked", "Subject", "command", "findings_of", "prepared"]

Told = Iterator[tuple[Harm, str]]

ERRNOS = (errors.EIO, errors.ESTALE, errors.EACCES, errors.EMFILE)

_KIT = os.path.dirname(_faults.__file__)

PATIENCE = 30
"""Seconds after which a child is said to hang."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is run while a call fails.

    Attributes:
        name: For people.
        prepare: Fills an empty directory.
        act: Does the work there; returns an answer that JSON can hold.
        state: Of what writes: reads back what is committed there, a text for each thing.
        kept: Files that may stay after a failure, since the next run takes them up: a pattern.
        refused: Exit codes that say of a command that it could not be done.
        given_up: What is committed and may be gone, since it is to be replaced: a pattern.
        again: Whether it was done once before, without a fault.
    """

    name: str
    prepare: Callable[[Path], object]
    act: Callable[[Path], object]
    state: Callable[[Path], dict[str, str]] | None = None
    kept: str = "$^"
    refused: tuple[int, ...] = (3,)
    given_up: str = "$^"
    again: bool = False


class Case(NamedTuple):
    """Which call fails, how, and whether all after it do."""

    nth: int
    errno: int
    lasts: bool

    def __str__(self) -> str:
        until = " and all after it" if self.lasts else ""
        return f"{errors.errorcode[self.errno]} at call {self.nth}{until}"


class Command(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Run(NamedTuple):
    """What one child told."""

    answer: Any
    error: dict[str, Any] | None
    err: str
    calls: list[tuple[str, str]]
    sites: list[str]
    failed: list[tuple[str, str]]
    left: list[str]
    imported: list[str]
    tree: dict[str, str]
    state: dict[str, str]


# The work of a child


def command(*arguments: object) -> dict[str, Any]:
    """Run the command line here, and return how it ended as an answer."""
    from shardproof.cli.app import main

    sys.argv = ["shardproof", *map(str, arguments)]
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    sys.stdout.flush()
    sys.stderr.flush()
    return {"code": code, "out": _text_of(1), "err": _text_of(2)}


def _text_of(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode(errors="replace")


def _described(error: BaseException) -> dict[str, Any]:
    chain = list(_chain(error))
    return {
        "class": type(error).__name__,
        "is": [cls.__name__ for cls in type(error).__mro__],
        "errnos": [number for each in chain if (number := getattr(each, "errno", None))],
        "text": "\n".join([str(error), *getattr(error, "__notes__", [])]),
        "findings": [f for each in chain for f in findings_of(getattr(each, "report", None))],
        "traceback": "".join(traceback.format_exception(error))[-3000:],
    }


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        for inner in getattr(error, "exceptions", ()):
            yield from _chain(inner)
        error = error.__cause__


def findings_of(report: Any) -> list[dict[str, Any]]:
    """Return the findings of a report as JSON has them."""
    return [finding.to_dict() for finding in getattr(report, "findings", ())]


def _child(subject: Subject, root: Path, case: Case | None, out: int) -> NoReturn:
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        _redirect()
        if subject.again:
            subject.act(root)
        modules, before = {*sys.modules}, _open_things()
        told: dict[str, Any] = {"answer": None, "error": None}
        with FileSystemFaults(root) as fs:
            sites = _sites(fs) if case is None else []
            if case is not None:
                times = None if case.lasts else 1
                fs.fail("any", case.errno, nth=case.nth, times=times, optional=True)
            try:
                told["answer"] = subject.act(root)
            except BaseException as error:
                told["error"] = _described(error)
            told["left"] = _left_since(before)
            calls = [(c.operation, str(c.path), c.outcome.value) for c in fs.calls]
        told |= {"calls": [(op, path) for op, path, _ in calls], "sites": sites}
        told["failed"] = [(op, path) for op, path, outcome in calls if outcome == "failed"]
        told["imported"] = sorted({*sys.modules} - modules)
        sys.stderr.flush()
        told["err"] = _text_of(2)
        with open(out, "w") as file:
            json.dump(told, file)
    except BaseException:
        os.write(out, traceback.format_exc().encode())
    finally:
        os._exit(0)


def _sites(fs: FileSystemFaults) -> list[str]:
    """Note from now on where each call is made: by all lines that lead there."""
    sites: list[str] = []
    schedule = fs._schedule
    begin = schedule.begin

    def begin_and_note(operation: str, paths: Sequence[str | None]) -> Any:
        turn = begin(operation, paths)
        if turn is not None:
            sites.append(_stack())
        return turn

    schedule.begin = begin_and_note  # type: ignore[method-assign] # of this one, in a child
    return sites


def _stack() -> str:
    frame: FrameType | None = sys._getframe(2)
    lines = []
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_KIT):
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back
    return " ".join(lines)


def _redirect() -> None:
    """Let files in memory take what is printed, which are below no root."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.memfd_create(name), number)
        setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr


def _open_things() -> Counter[str]:
    """The threads and the descriptors that there are, by what they are."""
    threads = [f"thread {re.sub('[0-9]+', '', thread.name)}" for thread in threading.enumerate()]
    found = Counter(threads)
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            found[f"descriptor of {os.readlink(f'/proc/self/fd/{number}')}"] += 1
    return found


def _left_since(before: Counter[str]) -> list[str]:
    """Which threads and descriptors are new; they are given a moment to go."""
    for pause in (0, 0, 0.02, 0.1, 0.4, 1.5):
        left = sorted((_open_things() - before).elements())
        left = [what for what in left if "/proc/" not in what]
        if not left:
            break
        gc.collect()
        time.sleep(pause)
    return left


# What a child came to

_RANDOM = re.compile(r"[0-9a-f]{8,}|-[0-9]+(?=-)")
"""What a name is told apart by in each run: tokens, numbers of processes."""


@dataclass(frozen=True, slots=True)
class Attacked:
    """A subject in its directory, ready to be attacked.

    Attributes:
        subject: What is run.
        root: The directory that it works in.
        template: The same as it was before.
        clean: What a run without a fault told.
        old: What was committed before.
    """

    subject: Subject
    root: Path
    template: Path
    clean: Run
    old: dict[str, str]
    before: dict[str, str]

    def cases(self) -> list[Case]:
        """Return every case: each call, or of those that one place makes of one file, the first.

        It fails once with each errno; and with all after it, as on a disk that is gone.
        """
        firsts: dict[tuple[str, str, str], int] = {}
        calls = zip(self.clean.calls, self.clean.sites, strict=True)
        for number, ((operation, path), site) in enumerate(calls, start=1):
            firsts.setdefault((operation, _RANDOM.sub("", path), site), number)
        how = [*((errno, False) for errno in ERRNOS), (errors.EIO, True)]
        return [Case(n, errno, lasts) for n in firsts.values() for errno, lasts in how]

    def run(self, case: Case) -> tuple[bool, list[tuple[Harm, str]]]:
        """Run one case; return whether the call came, and the harm that was done."""
        if self.subject.state is not None:
            put_back(self.root, self.template)
        run = run_in_child(self.subject, self.root, case)
        where = f"{self.subject.name}: {case}"
        if run is None:
            return True, [("hang", where)]
        if not run.failed:
            return False, []
        operation, path = run.failed[0]
        where = f"{where}: {operation} of '{os.path.relpath(path, self.root)}'"
        harms = [*_judged(self.subject, run, self.clean, case), *_leaks(run, self.clean)]
        harms += self._changed(run) if self.subject.state is None else self._damage(run, case)
        return True, [(kind, f"{where}: {what}") for kind, what in harms]

    def _changed(self, run: Run) -> Told:
        """Who only reads changes nothing."""
        if run.tree != self.before:
            changes = {*run.tree.items()} ^ {*self.before.items()}
            yield "lost", f"the directory changed: {sorted(changes)[:3]}"
            put_back(self.root, self.template)

    def _damage(self, run: Run, case: Case) -> Told:
        yield from _state_judged(self.subject, run, self.old, self.clean.state)
        removing = run.failed[0][0] in {"unlink", "rmdir", "rename", "scandir"}
        stray = run.tree.keys() - self.before.keys() - self.clean.tree.keys()
        kept = {name for name in stray if re.search(self.subject.kept, name)}
        stray -= kept | {name for name in stray if any(k.startswith(f"{name}/") for k in kept)}
        if stray and not case.lasts and not removing:
            yield "leftover", f"{sorted(stray)[:3]}"


def prepared(subject: Subject, path: Path) -> Attacked:
    """Make a subject's directory, and run it without a fault.

    What it imported, its children find imported.
    """
    root, template = path / "root", path / "template"
    template.mkdir()
    subject.prepare(template)
    for _ in range(2):
        put_back(root, template)
        clean = run_in_child(subject, root)
        assert clean is not None, f"{subject.name}: it hangs without a fault"
        if clean.error is not None:
            assert "ShardproofError" in clean.error["is"], clean.error["traceback"]
        for name in clean.imported:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    gc.freeze()  # or each child would copy all of it, to mark what it can't reach
    old = subject.state(template) if subject.state else {}
    if subject.again:
        old = clean.state
    return Attacked(subject, root, template, clean, old, tree_of(template))


def run_in_child(subject: Subject, root: Path, case: Case | None = None) -> Run | None:
    """Run a subject; return what it told, or None if it hung."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # From Python 3.12 on: threads of the parent may hold locks. SIGALRM ends such a child.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        os.close(reading)
        _child(subject, root, case, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == -signal.SIGALRM:
        return None
    try:
        told = json.loads(said)
    except ValueError:
        raise AssertionError(f"{subject.name}: {case}: {code}: {said.decode()}") from None
    state = subject.state(root) if subject.state else {}
    return Run(tree=tree_of(root), state=state, **told)


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
    """Make a directory what it was, times and all."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root, symlinks=True)


_MISLEADING = re.compile(
    r"\b(missing|not there|there is no|no such|none found|found none|was deleted|"
    r"no known format|known format|make it again|was killed|not completed)\b",
    re.IGNORECASE,
)


def _judged(subject: Subject, run: Run, clean: Run, case: Case) -> Told:
    if "Traceback (most recent" in run.err or "Exception ignored" in run.err:
        yield "wrong class", f"a traceback on standard error: {run.err[-1500:]}"
    elif isinstance(clean.answer, dict) and "code" in clean.answer:
        yield from _command_judged(subject, run, clean, case)
    elif run.error is not None:
        yield from _error_judged(run.error, clean, case)
    elif not same(run.answer, clean.answer):
        yield from _answer_judged(run, clean, case)


def same(answer: Any, expected: Any) -> bool:
    """Whether an answer is the right one."""
    return bool(answer == expected)


def _command_judged(subject: Subject, run: Run, clean: Run, case: Case) -> Told:
    if run.error is not None:
        yield "wrong class", f"a traceback: {run.error['traceback']}"
        return
    ended, expected = Command(**run.answer), Command(**clean.answer)
    if ended.code == expected.code and _says_as_much(ended.out, expected.out, case):
        return
    said = f"exit {ended.code} instead of {expected.code}: {(ended.out + ended.err)[-500:]!r}"
    may_not = case.errno == errors.EACCES and _tells(ended, case)
    if ended.code in {0, expected.code} and ended.code not in subject.refused and not may_not:
        yield "lie", said
    elif ended.code not in subject.refused and not may_not:
        yield "wrong class", said
    elif not _tells(ended, case):
        yield "wrong class", f"untold: {said}"
    elif misleading := _misleads(ended.out + ended.err, expected.out + expected.err):
        yield "wrong class", f"it says {misleading!r}: {said}"


def _says_as_much(out: str, expected: str, case: Case) -> bool:
    """Whether nothing is told but what is right, and what could not be seen beside it."""
    lines, right = out.splitlines(), expected.splitlines()
    more = [line for line in lines if line not in right]
    return lines == right or (
        [line for line in lines if line in right] == right
        and all(_told(line, case) for line in more)
    )


def _tells(ended: Command, case: Case) -> bool:
    """Whether the reason is told, or that a file could not be read."""
    said = ended.out + ended.err
    return _told(said, case) or "Unreadable files" in said


def _told(text: str, case: Case) -> bool:
    return any(
        name.lower() in text.lower()
        for name in (os.strerror(case.errno), errors.errorcode[case.errno])
    )


def _misleads(text: str, expected: str) -> str:
    words = {word.lower() for word in _MISLEADING.findall(text)}
    return ", ".join(words - {word.lower() for word in _MISLEADING.findall(expected)})


def _error_judged(error: dict[str, Any], clean: Run, case: Case) -> Told:
    said = f"{error['class']}: {error['text'][:500]}"
    expected = clean.error["text"] if clean.error else json.dumps(clean.answer)
    if clean.error and (error["class"], error["text"]) == (clean.error["class"], expected):
        return
    if case.errno not in error["errnos"] and not _unseen(error["findings"], case):
        yield "wrong class", f"{said}\n{error['traceback']}"
    elif not {"OSError", "ShardproofError"} & {*error["is"]}:
        yield "wrong class", said
    elif misleading := _misleads(error["text"], expected):
        yield "wrong class", f"it says {misleading!r}: {said}"


def _unseen(findings: list[dict[str, Any]], case: Case) -> list[dict[str, Any]]:
    name = errors.errorcode[case.errno]
    return [found for found in findings if found["errno"] == name and found["kind"] == "unreadable"]


def _answer_judged(run: Run, clean: Run, case: Case) -> Told:
    answer, expected = run.answer, clean.answer
    if case.errno == errors.EACCES and _told(run.err, case):
        return  # of two steps, say, the one that nobody may read is passed over, and that is told
    if not (isinstance(expected, dict) and "findings" in expected and isinstance(answer, dict)):
        yield "lie", f"answered {str(answer)[:400]} instead of {str(expected or clean.error)[:400]}"
        return
    unseen = _unseen(answer["findings"], case)
    blind = {found["path"] for found in unseen}
    wrong = [found for found in answer["findings"] if found not in unseen + expected["findings"]]
    lost = [
        found
        for found in expected["findings"]
        if found not in answer["findings"] and not _hidden(found["path"], blind)
    ]
    if wrong:
        yield "wrong class", f"findings: {wrong}"
    if lost or not unseen:
        yield "lie", f"answered {str(answer)[:600]} instead of {str(expected)[:600]}"


def _hidden(path: str, blind: set[str]) -> bool:
    """Whether a finding could not be made: it is of what was not seen, or of what that promises."""
    promisers = [other.removesuffix(".metadata.json") for other in blind]
    return any(path == other or path.startswith(f"{other}/") for other in blind) or any(
        path.startswith(f"{other}_shard_") for other in promisers if other not in blind
    )


def _leaks(run: Run, clean: Run) -> Told:
    if len(run.left) > len(clean.left):
        yield "leftover", f"{run.left}"


def _state_judged(subject: Subject, run: Run, old: dict[str, str], new: dict[str, str]) -> Told:
    code = run.answer.get("code") if isinstance(run.answer, dict) else None
    told_done = run.error is None and not code and not run.err
    for name in sorted({*old, *new, *run.state}):
        found = run.state.get(name)
        given_up = found is None and re.search(subject.given_up, name)
        if found not in {old.get(name), new.get(name)} and not given_up:
            kind: Harm = "lost" if found is None else "torn"
            yield kind, f"{name} is {found}, was {old.get(name)}"
        elif told_done and found != new.get(name):
            yield "lie", f"told to be done, and {name} is {found} instead of {new.get(name)}"

"""A subject is run in a child, through the faults of the kit, and tells what it did."""

import contextlib
import errno as errors
import gc
import importlib
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from shardproof.testing.faults import FileSystemFaults
from shardproof.testing.faults import file_system as _faults
from tests.attacks.subjects import State, Subject, put_back, tree_of
from tests.helpers.forking import ended, forked

_KIT = os.path.dirname(_faults.__file__)

PATIENCE = 30


class Case(NamedTuple):
    """Which call fails, how, and whether all after it do."""

    nth: int
    errno: int
    lasts: bool

    def __str__(self) -> str:
        until = " and all after it" if self.lasts else ""
        return f"{errors.errorcode[self.errno]} at call {self.nth}{until}"


class Run(NamedTuple):
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


def command(*arguments: object) -> dict[str, Any]:
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

    schedule.begin = begin_and_note  # of this one, in a child
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
    threads = [f"thread {re.sub('[0-9]+', '', thread.name)}" for thread in threading.enumerate()]
    found = Counter(threads)
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            found[f"descriptor of {os.readlink(f'/proc/self/fd/{number}')}"] += 1
    return found


def _left_since(before: Counter[str]) -> list[str]:
    for pause in (0, 0, 0.02, 0.1, 0.4, 1.5):
        left = sorted((_open_things() - before).elements())
        left = [what for what in left if "/proc/" not in what]
        if not left:
            break
        gc.collect()
        time.sleep(pause)
    return left


@dataclass(frozen=True, slots=True)
class Attacked:
    subject: Subject
    root: Path
    template: Path  # the same as it was before
    before: dict[str, str]  # what is in that
    clean: Run  # without a fault
    old: State

    def put_back(self) -> None:
        put_back(self.root, self.template)


def prepared(subject: Subject, path: Path) -> Attacked:
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
    return Attacked(subject, root, template, tree_of(template), clean, old)


def run_in_child(subject: Subject, root: Path, case: Case | None = None) -> Run | None:
    reading, writing = os.pipe()
    pid = forked(lambda: _child(subject, root, case, writing))
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    code = ended(pid)
    if code == -signal.SIGALRM:
        return None
    try:
        told = json.loads(said)
    except ValueError:
        raise AssertionError(f"{subject.name}: {case}: {code}: {said.decode()}") from None
    state = subject.state(root) if subject.state else {}
    return Run(tree=tree_of(root), state=state, **told)

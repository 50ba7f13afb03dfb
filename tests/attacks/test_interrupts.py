"""One interrupt at any moment comes out as one, soon, and leaves nothing behind."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_entry import CODES, said, started, until
from tests.helpers import ROOT

SUBJECTS = (
    *("a new loader", "a prefetcher that nobody closes", "a shard of tokens", "adopt"),
    *("checkpoint", "few rows", "fetch", "indexed rows", "metadata", "one row", "ordered loader"),
    *("pending", "prefetch", "saver", "shuffled loader", "stage", "tensor by tensor", "validate"),
    *("validate present", "verifier"),
)
CONTROL = "a pool of concurrent.futures"
N_MOMENTS = 1120
FORKED = ("validate", "one row", "prefetch")
N_FORKED = 200
N_STEPS = 100_000
"""More than there are: each subject ends before."""


MILLISECONDS = range(400)

Case = dict[str, Any]


def cases(subjects: Sequence[str], way: str, numbers: range, base: Path) -> Iterator[Case]:
    """Interrupt subjects in processes of their own; a new one follows each that is spoilt."""
    todo, first, seen = list(subjects), numbers.start, set[str]()
    # Interrupts fall into a tracer of lines, too, and are long in coming back.
    env = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
    env["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-W", "ignore", "-m", "tests.attacks.interrupting"]
    for attempt in itertools.count():
        span = (str(first), str(numbers.stop), str(numbers.step))
        args = [",".join(todo), way, *span, str(base / f"{way}-{attempt}")]
        run = subprocess.run([*command, *args], capture_output=True, text=True, env=env)
        assert run.stdout, run.stderr
        *lines, last = [json.loads(line) for line in run.stdout.splitlines()]
        for line in lines:
            if "said" in line:
                seen.add(line["subject"])
                yield line
        if "ended" in last:
            assert seen == {*subjects}, "a subject was not interrupted at all"
            return
        seen.add(last["subject"])
        yield {"said": "a hang", "where": run.stderr, "left": []} | last
        todo = todo[todo.index(last["subject"]) :]
        first = last["case"] + numbers.step


def told(tally, case: Case) -> None:
    if case["said"] == "lost by Python":  # in a callback, or where it drops what nobody closed
        return
    tally.count()
    if case["said"] == "a hang" or case["said"].startswith("late"):
        tally.harm("hang", f"{case}")
    elif case["said"] != "KeyboardInterrupt":
        tally.harm("wrong class", f"{case}")
    elif case["left"]:
        tally.harm("leftover", f"{case}")


in_parts = pytest.mark.parametrize("part", range(3))


@pytest.mark.attack("interrupt at a random moment of a reader, a validator, a fetch")
@in_parts
def test_an_interrupt_at_a_random_moment_comes_out_and_leaves_nothing(
    part, tally, tmp_path
) -> None:
    numbers = range(N_MOMENTS) if tally.is_exhaustive else range(0, N_MOMENTS, N_MOMENTS // 6)
    for case in cases(SUBJECTS[part::3], "moments", numbers, tmp_path):
        told(tally, case)


@pytest.mark.attack("interrupt of a process that was forked")
def test_of_a_process_that_was_forked(tally, tmp_path: Path) -> None:
    numbers = range(N_FORKED) if tally.is_exhaustive else range(0, N_FORKED, N_FORKED // 10)
    for case in cases(FORKED, "forks", numbers, tmp_path):
        told(tally, case)


@pytest.mark.attack("interrupt wherever the main thread looks for one")
@in_parts
def test_an_interrupt_at_any_step_comes_out_and_leaves_nothing(part, tally, tmp_path) -> None:
    numbers = range(N_STEPS) if tally.is_exhaustive else range(7, N_STEPS, 97)
    for case in cases(SUBJECTS[part::3], "steps", numbers, tmp_path):
        told(tally, case)


@pytest.mark.control("wrong class", "leftover")
def test_a_pool_of_concurrent_futures_does_not_stand_it(tally, tmp_path: Path) -> None:
    for case in tally.until_found(cases([CONTROL], "steps", range(N_STEPS), tmp_path)):
        told(tally, case)


ENTRIES = {
    "module": [sys.executable, "-m", "shardproof"],
    "script": [sys.executable, "-c", "from shardproof.__main__ import main; main()"],
}


@pytest.mark.attack("signal while the command is imported")
@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_signal_while_it_imports(tally, entry: str, name: str) -> None:
    """From the moment on at which the command has taken the signals; before, it is Python's."""
    number = signal.Signals[name]
    for case in tally.each(MILLISECONDS[:: len(CODES)], 4):
        with started([*ENTRIES[entry], "--version"]) as child:
            # Python itself handles SIGINT; the command takes SIGTERM a moment later.
            until(lambda child=child: handles(child, signal.SIGHUP) or child.poll() is not None)
            time.sleep(case / 1000)
            child.send_signal(number)
            code, out, error = said(child)
        tally.count()
        if code == -number and "shardproof" in out and not error:
            continue  # all is said; Python takes handlers away as it ends, and the signal ends it
        if code not in {CODES[name], 0} or error or (code == 0 and "shardproof" not in out):
            tally.harm("wrong class", f"{entry}, {name} after {case} ms: {code}, {error}")


def handles(child: subprocess.Popen[str], number: int) -> bool:
    text = Path(f"/proc/{child.pid}/status").read_text()
    caught = int(re.findall(r"SigCgt:\s*([0-9a-f]+)", text)[0], 16)
    return bool(caught >> (number - 1) & 1)

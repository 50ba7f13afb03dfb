"""Each file that the product reads, spoiled in every way: it is refused in words of the product."""

import json
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.mutations import harms_of, mutated
from tests.attacks.tally import Harm, Tally
from tests.attacks.targets import TARGETS, Read, Target, said_by


def outcome_of(read: Read, root: Path) -> list[str]:
    try:
        return [*harms_of("\n".join(said_by(lambda: "\n".join(read(root)))))]
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return [f"{type(error).__name__} in {last.filename}:{last.lineno}: {ascii(error)[:200]}"]


def cases_of(target: Target, n: int) -> list[tuple[str, int]]:
    return [(file, seed) for seed in range(n // len(target.files)) for file in target.files]


def run(target: Target, cases: Sequence[tuple[str, int]], base: Path) -> Iterator[str]:
    """Yield the harms of all cases; in children, whom the kernel ends when one takes too long."""
    root = target.make(base)
    done = 0
    while done < len(cases):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            in_child(target, cases[done:], root, writer)
        os.close(writer)
        with open(reader, "rb") as pipe:
            while (found := next_of(pipe)) is not None:
                done += 1
                yield from (f"{target.name}, {cases[done - 1]}: {harm}" for harm in found)
        _, status = os.waitpid(child, 0)
        assert not os.WIFEXITED(status) or not status, f"the harness broke: {cases[done]}"
        if status:
            yield f"{target.name}, {cases[done]}: ended by signal {os.WTERMSIG(status)}"
            done += 1


def next_of(pipe: Any) -> list[str] | None:
    try:
        return pickle.load(pipe)
    except EOFError:
        return None


def in_child(target: Target, cases: Sequence[tuple[str, int]], root: Path, writer: int) -> None:
    try:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        whole = {file: (root / file).read_bytes() for file in target.files}
        room = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = room + target.memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        with open(writer, "wb") as pipe:
            for file, seed in cases:
                (root / file).write_bytes(target.seal(mutated(whole[file], seed)))
                signal.setitimer(signal.ITIMER_PROF, target.patience)
                found = outcome_of(target.read, root)
                signal.setitimer(signal.ITIMER_PROF, 0)
                (root / file).write_bytes(whole[file])
                pickle.dump(found, pipe)
                pipe.flush()
        os._exit(0)
    finally:
        traceback.print_exc(file=sys.__stderr__)
        os._exit(1)


def attack(target: Target, tally: Tally, n: int, base: Path, n_cases: int = 10_000) -> None:
    cases = [*tally.each(cases_of(target, n_cases), n)]
    tally.count(len(cases))
    for harm in run(target, cases, base):
        kind: Harm = "lie" if "forged" in harm else "wrong class"
        tally.harm("hang" if "ended by signal" in harm else kind, harm)


@pytest.mark.attack("hostile files")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_spoiled_file_is_refused_in_our_words(target, tmp_path, tally) -> None:
    attack(target, tally, 250, tmp_path)


def naive(root: Path) -> Iterator[str]:
    shards = json.loads((root / "shards.json").read_text())
    yield "\n".join(shard["name"] for shard in shards)


@pytest.mark.control("wrong class", "lie")
def test_a_reader_that_trusts_its_files_is_caught(tmp_path: Path, tally: Tally) -> None:
    attack(TARGETS[0]._replace(read=naive), tally, 1, tmp_path, n_cases=400)

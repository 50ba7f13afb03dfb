"""Children that run what is measured, in turns: a slow minute of the machine hits all of them."""

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
NO_COMPILER = "not measured: no C compiler"


@dataclasses.dataclass(frozen=True)
class Command:
    """One contender as its section runs it."""

    what: str
    argv: Sequence[str]
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)


def child(what: str, *arguments: object, env: Mapping[str, str] | None = None) -> Command:
    """Return what lets this script play one contender in a process of its own."""
    script = os.path.abspath(sys.argv[0])
    return Command(what, [sys.executable, script, "--play", *map(str, arguments)], env or {})


def play_or(main: Callable[[], object], play: Callable[..., object]) -> None:
    """Run a benchmark, or be a `child` of it: then ``play`` is given the child's arguments."""
    if sys.argv[1:2] == ["--play"]:
        play(*sys.argv[2:])
    else:
        main()


@contextlib.contextmanager
def started(command: Command) -> Iterator[Callable[[], float]]:
    """Start a child and yield what makes it run once; it answers with its seconds."""
    process = subprocess.Popen(
        command.argv,
        env={**os.environ, **command.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        ask, answers = process.stdin, process.stdout
        assert ask is not None
        assert answers is not None
        if answers.readline() != "ready\n":
            raise SystemExit(f"{command.what}: the child did not start")

        def go() -> float:
            ask.write("go\n")
            ask.flush()
            return float(answers.readline())

        yield go
    if process.returncode:
        raise SystemExit(f"{command.what}: exit code {process.returncode}")


def warm_race(commands: Sequence[Command], rounds: int) -> Iterator[list[float]]:
    """Yield the seconds of each round; the children stay, after one round that is not timed."""
    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(started(command)) for command in commands]
        for number in range(rounds + 1):
            seconds = [go() for go in runs]
            if number:
                yield seconds


def cold_race(commands: Sequence[Command], rounds: int) -> Iterator[list[float]]:
    """Yield the seconds of each round; every run has a fresh process."""
    for _ in range(rounds):
        yield [_once(command) for command in commands]


def _once(command: Command) -> float:
    with started(command) as go:
        return go()


def process_race(commands: Sequence[Command], rounds: int, cwd: Path) -> Iterator[list[float]]:
    """Yield the seconds that whole processes take; the first round, not timed, fills the caches."""
    for number in range(rounds + 1):
        seconds = [_whole_process(command, cwd) for command in commands]
        if number:
            yield seconds


def _whole_process(command: Command, cwd: Path) -> float:
    begin = time.perf_counter()
    done = subprocess.run(command.argv, cwd=cwd, capture_output=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode not in {0, 5}:  # 5: pytest collected nothing, as it should
        raise SystemExit(f"{command.what}: {done.stderr.decode()}{done.stdout.decode()}")
    return seconds


def compiled(source: str, into: Path, *flags: str) -> Path | None:
    """Compile one of the C sources beside this script; None without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    target = into / f"{source}.out"
    argv = [compiler, "-O2", *flags, "-o", os.fspath(target), os.fspath(HERE / source), "-ldl"]
    subprocess.run(argv, check=True)
    return target

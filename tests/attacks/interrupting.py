"""A process that interrupts itself while it reads shards, and says what that did.

Run as ``python -m attacks.interrupting SUBJECTS WAY FIRST LAST STEP DIR``. It prints a line
of JSON before each case, and one after it: what came out, and what was left behind. A case that
hangs ends the process with 1.
"""

import _thread
import contextlib
import copy
import dis
import faulthandler
import functools
import gc
import itertools
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import shardproof
from shardproof import testing
from shardproof.checkpoint import MultiShardLoader, ShardFileVerifier
from shardproof.datasets import SharedShardedDataset
from shardproof.fetching import ShardPrefetcher, adopt, fetch_file, open_source
from shardproof.loaders import IndexedDataset, OrderedDataLoader, ShuffledDataLoader
from tests.helpers.saving import saved
from tests.helpers.token_files import write_shard

HANGS_AFTER = 20.0
PATIENCE = 5.0
LATER = 1e-3
LATE = 2.0  # seconds: ten times what is promised, since other tests may run beside it
SECONDS = 0.02
N_STEPS = 10**9  # more than there are
LOST = "lost by Python"
AUDIT = "_audit_fork_safety"
"""filelock's audit hook, which is called of what is lost before `sys.unraisablehook` is."""
MADE = "made"
"""Below it is what a case makes, and what the next one begins without."""

Subject = Callable[[], object]


def subjects(base: Path) -> dict[str, Subject]:
    numbers, made = itertools.count(), base / MADE
    shards = testing.write_layout(testing.Layout(n_shards=12, d_model=64), base / "saev")
    run = testing.write_layout(testing.Layout(n_shards=12, format="receipts"), base / "run")
    prefix = testing.write_layout(
        testing.Layout(n_shards=4, format="checkpoint"), base / "checkpoint/model"
    )
    names = sorted(path.name for path in shards.glob("acts*.bin"))[:4]
    write_shard(base / "tokens", 0, np.arange(64, dtype=np.uint32))
    url = shards.as_uri()
    store = shardproof.ReceiptStore(run)
    ordered = OrderedDataLoader(shards, layer="all", tokens="all", batch_size=16)
    shuffled = ShuffledDataLoader(shards, layer="all", tokens="all", batch_size=16, seed=0)
    dataset = IndexedDataset(shards, layer="all", tokens="all")
    rows = np.arange(2048) % len(dataset)
    kept: list[object] = []

    def new(what: str) -> Path:
        path = made / what / str(next(numbers))
        path.mkdir(parents=True)
        return path

    def read(loader: Any) -> None:
        with closed(loader):
            for _ in loader:
                pass

    def reading(*indices: Any) -> Subject:
        def read_rows() -> None:
            mine = copy.copy(dataset)
            kept[:] = [mine._open()]  # so that closing ends it, and not that nothing refers to it
            with closed(mine):
                for index in indices:
                    mine[index]

        return read_rows

    def prefetch() -> None:
        prefetcher = ShardPrefetcher(url, names, new("cache"), lookahead=2)
        with closed(prefetcher):
            for path in prefetcher:
                path.stat()

    def forget() -> None:
        ShardPrefetcher(url, names, new("cache"), lookahead=2).wait_for(names[0]).stat()

    def fetch() -> None:
        source = open_source(url)
        with closed(source):
            fetch_file(source, names[0], new("fetched") / "0.bin")

    def read_tokens() -> None:
        dataset = SharedShardedDataset(0, 4, shards_path=base / "tokens")
        with closed(dataset):
            for index in range(len(dataset)):
                dataset[index]

    def make_loader() -> None:
        with closed(OrderedDataLoader(shards, layer="all", tokens="all")):
            pass

    def save() -> None:
        saved(new("saved") / "model", [{"weight": rows}])

    def adopted() -> None:
        to = new("adopted")
        (to / "0.bin").write_bytes(b"1234")
        adopt(to)

    loader, verifier = MultiShardLoader(workers=2), ShardFileVerifier()
    return {
        "one row": reading(*range(0, len(dataset), len(dataset) // 12)),
        "few rows": reading(rows[:512]),
        "a shard of tokens": read_tokens,
        "a new loader": make_loader,
        "tensor by tensor": lambda: [*loader.iter_tensors(prefix)],
        "metadata": lambda: loader.load_metadata(prefix),
        "verifier": lambda: verifier.verify_checkpoint(prefix),
        "saver": save,
        "adopt": adopted,
        "ordered loader": lambda: read(ordered),
        "shuffled loader": lambda: read(shuffled),
        "indexed rows": reading(rows),
        "validate": lambda: shardproof.validate(run, level="valid", workers=4),
        "validate present": lambda: shardproof.validate(shards),
        "pending": lambda: store.pending(workers=4),
        "checkpoint": lambda: MultiShardLoader(workers=2).load_all_shards(prefix),
        "stage": lambda: shardproof.stage(shards, new("staged")),
        "fetch": fetch,
        "prefetch": prefetch,
        "a prefetcher that nobody closes": forget,
        "a pool of concurrent.futures": a_pool,
    }


class closed:  # noqa: N801 - as contextlib.closing, whose own steps would be interrupted
    """Closes something, and once more if that is interrupted before it has begun."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        try:
            self.thing.close()
        finally:
            self.thing.close()


def a_pool() -> None:
    executor = ThreadPoolExecutor(4)
    try:
        futures = [executor.submit(os.stat, "/") for _ in range(8)]
        for future in futures:
            future.done()
            future.result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


class Timer:
    def __init__(self) -> None:
        self.rang = 0.0
        signal.signal(signal.SIGALRM, self.ring)

    def start(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def ring(self, number: int, frame: FrameType | None) -> None:
        # Where `close` is not called yet: no code of ours could do anything about that.
        is_closing = frame is not None and frame.f_code is closed.__exit__.__code__
        if is_closing or is_where_python_drops_it(frame):
            self.start(LATER)
            return
        self.rang = time.monotonic()
        raise KeyboardInterrupt

    def lost(self, seen: Any) -> None:
        """Ring again for an interrupt that was raised in a callback of the interpreter's own."""
        if isinstance(seen.exc_value, KeyboardInterrupt):
            self.start(LATER)
        else:
            sys.__unraisablehook__(seen)


def is_where_python_drops_it(frame: FrameType | None) -> bool:
    """Whether an interrupt that is raised there is lost, whoever is at work."""
    while frame is not None:
        if frame.f_code is Timer.lost.__code__ or frame.f_code.co_name == AUDIT:
            return True
        frame = frame.f_back
    return False


class Tracer:
    """An interrupt where the interpreter looks for one the k-th time, in code that holds something.

    It looks at the beginning of a function, behind a call and at a jump back (CHECK_EVAL_BREAKER in
    CPython's ceval.c), and nowhere else: not between the last step of a ``with`` and its end.
    """

    ROOMS = (os.path.dirname(shardproof.__file__), threading.__file__, contextlib.__file__)

    def __init__(self, at: int) -> None:
        self.at, self.n = at, 0
        self.where = ""

    def __enter__(self) -> None:
        # Or the first one that is traced has no opcodes to tell of, in CPython 3.12.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(self.ROOMS) and "concurrent/futures" not in name:
            return None
        frame.f_trace_opcodes = True
        looking = looking_steps(frame.f_code)
        last = None

        def seen(frame: FrameType, event: str, _: object) -> Any:
            nonlocal last
            if event == "opcode":
                before = max(0, frame.f_lasti - 2) if last is None else last
                last = frame.f_lasti
                if before in looking:
                    self._looked(frame)
            elif event == "exception":
                last = -1  # a call that raises is followed by no look
            return seen

        return seen

    def _looked(self, frame: FrameType) -> None:
        self.n += 1
        if self.n == self.at:
            name = os.path.basename(frame.f_code.co_filename)
            self.where = f"{name}:{frame.f_lineno}"
            raise KeyboardInterrupt


@functools.cache
def looking_steps(code: CodeType) -> frozenset[int]:
    return frozenset(step.offset for step in dis.get_instructions(code) if _looks(step))


def _looks(step: dis.Instruction) -> bool:
    if step.opname == "RESUME":
        return (step.arg or 0) & 3 < 2  # not where a generator only hands on what another yields
    if step.opname.startswith("CALL"):
        return not step.opname.startswith("CALL_INTRINSIC")
    return "JUMP_BACKWARD" in step.opname and not step.opname.endswith("NO_INTERRUPT")


def descriptors() -> dict[str, str]:
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
    return {fd: to for fd, to in found.items() if not to.endswith("/fd")}


def temporary(base: Path) -> set[str]:
    """What somebody was writing or holds; but for what has come of a file, for the next fetch."""
    found = (path for path in base.rglob("*") if ".part" not in str(path))
    return {str(path) for path in found if path.suffix in {".tmp", ".hold", ".reader"}}


def left(before: dict[str, str], base: Path) -> list[str]:
    end = time.monotonic() + PATIENCE
    while True:
        gc.collect()
        threads = [thread.name for thread in threading.enumerate()[1:]]
        n_others = _thread._count()  # also those that Python does not list
        files = [to for fd, to in descriptors().items() if before.get(fd) != to]
        found = [*threads, *files] or ["a thread"] * n_others
        if not found or time.monotonic() > end:
            return [*found, *temporary(base)]
        time.sleep(1e-3)


def outcome_of(act: Callable[[], object]) -> str:
    try:
        act()
    except KeyboardInterrupt:
        return "KeyboardInterrupt"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def again_and_again(subject: Subject, lost: Sequence[object] = ()) -> None:
    while not lost:  # in a callback of the interpreter's own, which nobody can mend
        subject()


def at_moments(subject: Subject, cases: range) -> Iterator[tuple[str, str]]:
    timer = Timer()
    sys.unraisablehook = timer.lost
    for case in cases:
        seconds = max(1e-6, random.Random(case).uniform(0, SECONDS))
        said = outcome_of(lambda s=seconds: (timer.start(s), again_and_again(subject)))
        late = time.monotonic() - timer.rang
        yield (said if late < LATE else f"late by {late:.3f}s: {said}"), f"{seconds}"


def at_step(subject: Subject, number: int) -> tuple[str, str]:
    tracer = Tracer(number)

    def traced() -> None:
        with tracer:
            subject()

    return outcome_of(traced), tracer.where


def at_steps(subject: Subject, cases: range) -> Iterator[tuple[str, str]]:
    """Interrupt at each step; ends when the subject ends before its step comes."""
    lost: list[Any] = []  # in a callback of the interpreter's own, which nobody can mend
    sys.unraisablehook = lost.append
    for case in cases:
        said, where = at_step(subject, case + 1)
        if not where:  # also where CPython 3.12 and 3.13 forget after an interrupt what they trace
            with Tracer(N_STEPS):
                subject()
            said, where = at_step(subject, case + 1)
            if not where:
                return
        if lost:
            said = LOST if isinstance(lost.pop().exc_value, KeyboardInterrupt) else "an error"
            lost.clear()
        yield said, where


def at_moments_of_forks(subject: Subject, cases: range) -> Iterator[tuple[str, str]]:
    for case in cases:
        seconds = random.Random(case).uniform(0, SECONDS)
        from_child, to_parent = os.pipe()
        pid = os.fork()
        if not pid:
            _as_child(subject, to_parent)
        os.close(to_parent)
        with open(from_child) as pipe:
            pipe.read(1)  # it has begun
            time.sleep(seconds)
            os.kill(pid, signal.SIGINT)
            said = pipe.read()
        _, status = os.waitpid(pid, 0)
        if said == LOST:
            yield LOST, f"{seconds}"
        else:
            yield (said if not status else f"status {status}: {said}"), f"{seconds}"


def _interrupt(number: int, frame: FrameType | None) -> None:
    if is_where_python_drops_it(frame):
        os.kill(os.getpid(), number)  # once more, a few steps on
    else:
        raise KeyboardInterrupt


def _as_child(subject: Subject, to_parent: int) -> None:
    """Call the subject until an interrupt comes, and say what that left."""
    before, lost = descriptors(), list[Any]()
    sys.unraisablehook = lost.append
    signal.signal(signal.SIGINT, _interrupt)
    signal.alarm(int(HANGS_AFTER))  # faulthandler's own thread is not there after a fork
    begin = functools.partial(os.write, to_parent, b".")
    said = outcome_of(lambda: (begin(), again_and_again(subject, lost)))
    said = LOST if said == "nothing" else said
    found = left(before, Path("/nowhere"))
    os.write(to_parent, f"{said}{found or ''}".encode())
    os._exit(0)


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


WAYS = {"moments": at_moments, "forks": at_moments_of_forks, "steps": at_steps}


def main(names: str, way: str, first: str, last: str, step: str, directory: str) -> None:
    base = Path(directory)
    known = subjects(base)
    start = int(first)
    for name in names.split(","):
        run(known[name], name, way, range(start, int(last), int(step)), base)
        start %= int(step)
    say({"ended": True})
    os._exit(0)


def run(subject: Subject, name: str, way: str, numbers: range, base: Path) -> None:
    """Run some cases of one subject; end the process after one that leaves something behind."""
    subject()  # what is imported is imported
    subject()
    gc.collect()
    gc.freeze()  # then a look at what is left takes no time
    before = descriptors()
    outcomes = WAYS[way](subject, numbers)
    for case in numbers:
        say({"subject": name, "case": case})
        faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
        outcome = next(outcomes, None)
        if outcome is None:
            break
        found = left(before, base)
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(base / MADE, ignore_errors=True)
        told = {"said": outcome[0], "where": outcome[1], "left": found}
        say({"subject": name, "case": case, **told})
        if found:  # the next case begins with none of it
            os._exit(0)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(*sys.argv[1:])

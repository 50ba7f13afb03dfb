"""Workers that are lost, and what was seen of it: a line of JSON each, for the table of faults."""

import contextlib
import functools
import json
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shardproof.manifest import ExpectedFile, Manifest, Mismatch

RECORD = "SHARDPROOF_FAULTS"
"""The environment variable that names the file to which the lines are added."""

SIZE = 64


@contextlib.contextmanager
def recorded(engine: str, fault: str, who: str = "caller") -> Iterator[list[object]]:
    """Take what somebody saw of a fault; note it with how long that took, if anybody wants it.

    A number at the end is the seconds.
    """
    begin, saw = time.monotonic(), list[object]()
    yield saw
    if path := os.environ.get(RECORD):
        elapsed = time.monotonic() - begin
        seconds = round(saw.pop() if isinstance(saw[-1], float) else elapsed, 2)
        told = ", ".join(map(str, saw)).replace(f"'{socket.gethostname()}'", "'node1'")
        line = {"engine": engine, "fault": fault, "who": who, "saw": told, "seconds": seconds}
        with Path(path).open("a") as file:
            file.write(json.dumps(line) + "\n")


class OthersError(Exception):
    """No other process can make it anew."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


def harm(how: str) -> None:
    if how == "raises":
        raise RuntimeError("a probe with a bug")
    if how == "raises its own":
        raise OthersError("a", "b")
    if how == "MemoryError":
        raise MemoryError
    if how.startswith("sleeps "):
        _, begun, ended = how.split(" ")
        Path(begun).touch()
        time.sleep(3)
        Path(ended).touch()
        return
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.Signals[how])
    time.sleep(60)


class Deadly(NamedTuple):
    """Stands for what a worker is sent."""

    question: object
    place: object
    files: object

    def __call__(self) -> None:
        os._exit(3)


def probe(how: str, caller: int, file: ExpectedFile, fd: int, size: int) -> Mismatch | None:
    """A probe that harms the process which looks at some files, but not the caller."""
    del fd, size
    if "deadly" in file.name:
        assert os.getpid() != caller, "it would have killed the caller"
        harm(how)
    return None


def shards(
    root: Path | str, how: str = "SIGKILL", *, n: int = 300, deadly: tuple[int, ...] = ()
) -> Manifest:
    """Write files, and return what is expected of them; some harm whoever looks at them."""
    root = Path(root)
    root.mkdir(exist_ok=True)
    names = [f"{i:06}{'-deadly' if i in deadly else ''}" for i in range(n)]
    for name in names:
        (root / name).write_bytes(b"x" * SIZE)
    return Manifest.at(
        os.path.realpath(root),
        "",
        "test",
        [ExpectedFile(name=name, size=SIZE) for name in names],
        probe=functools.partial(probe, how, os.getpid()),
    )


def context() -> Any:
    """How pools of the tests begin their processes: with no thread of pytest's around."""
    return multiprocessing.get_context("forkserver")

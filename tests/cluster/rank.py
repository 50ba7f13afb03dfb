"""One rank of a job that checks a directory again and again, each time with another fault.

``python -m tests.cluster.rank ENGINE DIRECTORY RECORDS``: of each call a line in the file of this
rank says what it saw, and after how many seconds.
"""

import contextlib
import datetime
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import shardproof
from shardproof import distributed, validation

FAULTS = ("none", "failing", "blind", "stopped", "interrupted", "rank 0 stopped", "killed")
"""In this order: after each but the last one, the ranks go on."""

TIMEOUT = 2.5


def main(engine: str, path: str, records: str) -> None:
    group, rank = torch_group() if engine == "torch" else mpi_group()
    with open(Path(records, f"{rank}.jsonl"), "a") as file:
        for fault in FAULTS:
            begin = time.monotonic()
            record: dict[str, Any] = {"fault": fault, "rank": rank, "pid": os.getpid()}
            file.write(json.dumps(record) + "\n")
            file.flush()
            with faulty(fault, rank):
                found = seen(group, blinded(path, fault, rank))
            record |= {"saw": found, "seconds": round(time.monotonic() - begin, 1)}
            file.write(json.dumps(record) + "\n")
            file.flush()
    os._exit(0)  # MPI would wait for whom it was not told to do without


def torch_group() -> tuple[Any, int]:
    from torch import distributed as ranks

    ranks.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
    return None, ranks.get_rank()


def mpi_group() -> tuple[Any, int]:
    from mpi4py import MPI

    return MPI.COMM_WORLD, MPI.COMM_WORLD.Get_rank()


def seen(group: Any, path: str) -> str:
    try:
        report = distributed.validate(path, group=group, timeout=TIMEOUT)
        return f"report: {report.summary}"
    except KeyboardInterrupt:
        return "KeyboardInterrupt"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def blinded(path: str, fault: str, rank: int) -> str:
    return f"{path}/elsewhere" if (fault, rank) == ("blind", 1) else path


@contextlib.contextmanager
def faulty(fault: str, rank: int) -> Iterator[None]:
    """Let something happen to one rank in the midst of its share."""
    real = shardproof.checks.look_at_all, validation.promise_of
    numbers = {"stopped": signal.SIGSTOP, "interrupted": signal.SIGINT, "killed": signal.SIGKILL}
    number = numbers.get(fault.removeprefix("rank 0 "))
    if number and rank == (0 if fault.startswith("rank 0") else 1):
        todo = [number]

        def look(*args: Any) -> Any:
            while todo:
                os.kill(os.getpid(), todo.pop())
                time.sleep(0.3)  # until it has come
            return real[0](*args)

        shardproof.checks.look_at_all = look

    def failing(path: str, **_: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    if (fault, rank) == ("failing", 1):
        validation.promise_of = failing
    try:
        yield
    finally:
        shardproof.checks.look_at_all, validation.promise_of = real


if __name__ == "__main__":
    main(*sys.argv[1:])

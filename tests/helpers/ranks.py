"""Ranks of a job without an engine: threads or forked processes, which have pipes to each other."""

import itertools
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Any


class PipeGroup:
    """An engine of a few lines: a pipe between every two ranks."""

    def __init__(self, rank: int, pipes: dict[int, Connection], host: str) -> None:
        self.rank, self.size, self.host = rank, len(pipes) + 1, host
        self.pipes = pipes

    def send(self, data: bytes, to: int) -> None:
        self.pipes[to].send_bytes(data)

    def receive(self, source: int, timeout: float) -> bytes | None:
        pipe = self.pipes[source]
        return pipe.recv_bytes() if pipe.poll(timeout) else None


def groups_of(hosts: Sequence[str]) -> list[PipeGroup]:
    """As many ranks as there are hosts, each on its own one of them."""
    pipes: list[dict[int, Connection]] = [{} for _ in hosts]
    for one, other in itertools.combinations(range(len(hosts)), 2):
        pipes[one][other], pipes[other][one] = multiprocessing.Pipe()
    return [PipeGroup(*each) for each in zip(range(len(hosts)), pipes, hosts, strict=True)]


def on_ranks(call: Callable[[PipeGroup], Any], *hosts: str) -> list[Any]:
    """What a call returns on each rank, or the error that it raises; each in a thread."""
    found: list[Any] = [None] * len(hosts)

    def run(group: PipeGroup) -> None:
        try:
            found[group.rank] = call(group)
        except BaseException as error:
            found[group.rank] = error

    groups = groups_of(hosts)
    threads = [threading.Thread(target=run, args=[group]) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for group in groups:
        _close(group.pipes.values())
    return found


def in_processes(call: Callable[[PipeGroup], Any], *hosts: str) -> list[int]:
    """The numbers of forked processes, one for each rank, that make a call."""
    groups, pids = groups_of(hosts), []
    for group in groups:
        own, pid = {*group.pipes.values()}, os.fork()
        if pid == 0:
            try:
                _close({pipe for other in groups for pipe in other.pipes.values()} - own)
                call(group)
            finally:
                os._exit(0)
        pids.append(pid)
    _close({pipe for group in groups for pipe in group.pipes.values()})
    return pids


def _close(pipes: Iterable[Connection]) -> None:
    for pipe in pipes:
        pipe.close()

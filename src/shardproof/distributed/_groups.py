"""The ranks of a job, and how bytes go from one to another: by torch, by MPI, or otherwise.

Only calls are used that can be polled: a collective neither times out on every rank nor names who
is silent, and to duplicate an MPI communicator is one. Of torch that is the store: with gloo (2.13)
an irecv is completed only by a wait, which closes the connections to all ranks if it times out.
"""

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from shardproof._base.messages import quoted
from shardproof._base.work import TICK, go_on

_TAG = 29_041  # MPI allows at least 32 767
_PIECE = 2**22  # bytes; torch's TCPStore takes 8 MiB in one value
_PAUSE = 0.002


@runtime_checkable
class Group(Protocol):
    """The processes that take part in a call; anything with these five is one.

    Messages from one rank to another arrive whole, in order, and once. A call may raise any
    exception where a rank can't be reached.

    Attributes:
        rank: Which of them this process is, from 0.
        size: How many there are.
        host: Name of the host on which this process runs, the same for all ranks on it.
    """

    rank: int
    size: int
    host: str

    def send(self, data: bytes, to: int) -> None:
        """Send a message to a rank, without a wait until it receives it."""

    def receive(self, source: int, timeout: float) -> bytes | None:
        """Return the next message of a rank; None if there is none within so many seconds."""


class TorchGroup:
    """A process group of torch: its store holds each piece of a message until it is read."""

    def __init__(self, group: Any) -> None:
        self.rank, self.size, self.host = group.rank(), group.size(), os.uname().nodename
        self._store = group.get_group_store()
        self._n_read, self._pieces = defaultdict[int, int](int), defaultdict[int, bytes](bytes)

    def send(self, data: bytes, to: int) -> None:
        """Put down each piece; its first byte says whether it is the last."""
        way = f"shardproof/{self.rank}>{to}"
        for start in range(0, len(data), _PIECE):
            piece = bytes([start + _PIECE >= len(data)]) + data[start : start + _PIECE]
            self._store.set(f"{way}/{self._store.add(way, 1)}", piece)

    def receive(self, source: int, timeout: float) -> bytes | None:
        """Take pieces away until one is the last."""
        way = f"shardproof/{source}>{self.rank}"
        while _polled(lambda: self._store.check([f"{way}/{self._n_read[source] + 1}"]), timeout):
            go_on()  # what was stuck so long that it was given up takes nothing
            piece = self._store.get(key := f"{way}/{self._n_read[source] + 1}")
            self._n_read[source] += 1
            self._pieces[source] += piece[1:]
            self._store.delete_key(key)
            if piece[0]:
                return self._pieces.pop(source)
        return None


# One for each process group, since it knows what was read, also by a call that was stuck.
_of_torch: WeakKeyDictionary[Any, TorchGroup] = WeakKeyDictionary()
_unsent: list[tuple[Any, bytes]] = []  # by MPI, and so its memory has to stay


class MpiGroup:
    """A communicator of mpi4py."""

    def __init__(self, communicator: Any) -> None:
        from mpi4py import MPI  # noqa: PLC0415 - the caller has it

        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            tip = "leave mpi4py.rc.thread_level as it is"
            raise ValueError(f"group: MPI was initialized for one thread, and others wait: {tip}")
        self._mpi, self._communicator, self.host = MPI, communicator, MPI.Get_processor_name()
        self.rank, self.size = communicator.Get_rank(), communicator.Get_size()

    def send(self, data: bytes, to: int) -> None:
        """Begin to send."""
        _unsent[:] = [each for each in _unsent if not each[0].Test()]
        request = self._communicator.Isend([data, self._mpi.BYTE], dest=to, tag=_TAG)
        _unsent.append((request, data))

    def receive(self, source: int, timeout: float) -> bytes | None:
        """Match a message, whose size is known then, and take it."""
        status = self._mpi.Status()
        found = _polled(lambda: self._communicator.Improbe(source, _TAG, status), timeout)
        if not found:
            return None
        data = bytearray(status.Get_count(self._mpi.BYTE))
        found.Recv([data, self._mpi.BYTE])
        return bytes(data)


def _polled(look: Callable[[], Any], timeout: float) -> Any:
    """Return the first answer that is true, or the last one; a thousand ranks ask one store."""
    end, pause = time.monotonic() + timeout, _PAUSE
    while not (found := look()) and time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, TICK)
    return found


def group_of(group: object) -> Group:
    """Return the ranks that a caller means: of torch, of MPI, or as they are."""
    if group is None:
        torch: Any = sys.modules.get("torch.distributed")
        if torch is None or not (torch.is_available() and torch.is_initialized()):
            tip = "call torch.distributed.init_process_group() first, or pass MPI.COMM_WORLD"
            raise ValueError(f"group: expected a process group, found none: {tip}")
        group = torch.group.WORLD
    if all(hasattr(group, name) for name in ("Get_rank", "Get_size", "isend", "iprobe")):
        return MpiGroup(group)
    if hasattr(group, "get_group_store"):
        return _of_torch.setdefault(group, TorchGroup(group))
    if isinstance(group, Group):
        return group
    expected = "a process group of torch.distributed, a communicator of mpi4py or a Group"
    raise TypeError(f"group: expected {expected}, found {quoted(group)}")

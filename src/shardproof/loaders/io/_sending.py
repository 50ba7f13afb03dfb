"""Batches go to a device before they are asked for, by a thread of their own.

A copy reads host memory after the call that begins it has returned, and the caller's work reads
what was copied later still. So a batch on the host is kept until the caller's work has passed its
delivery; only then may its memory be filled again.
"""

import collections
import contextlib
import itertools
from collections.abc import Generator
from typing import Protocol

from shardproof.loaders.io._crew import Crew
from shardproof.loaders.io._row_source import Batch

MOST_BEHIND = 2  # deliveries that the device may not have come to when a further batch is sent


class Event(Protocol):
    """A moment in the work of a device, as torch's events are."""

    def synchronize(self) -> None:
        """Wait until the device has come to it."""


class Sending(Event, Protocol):
    """A batch on its way to a device; its moment is the end of the copies."""

    def receive(self) -> Batch:
        """Return the batch, once; what is asked of the device from now on waits for the copies."""


class Device(Protocol):
    """Where batches go."""

    def send(self, batch: Batch, /) -> Sending:
        """Begin to copy a batch, which stays as it is until the copies have ended."""

    def now(self) -> Event:
        """Return the moment when all is done that was asked of the device so far."""


def send_ahead(
    batches: Generator[Batch, None, None], device: Device, n_ahead: int
) -> Generator[Batch, None, None]:
    """Yield batches on a device, of which so many are sent before they are asked for."""
    crew = Crew("shardproof-sender")
    sent: collections.deque[tuple[Sending, Batch]] = collections.deque()
    delivered: collections.deque[Event] = collections.deque()  # for the first of them

    def send() -> Sending | None:
        while len(delivered) > MOST_BEHIND:
            delivered[0].synchronize()
            delivered.popleft()
            sent.popleft()
        batch = next(batches, None)
        if batch is None:
            return None
        transfer = device.send(batch)
        sent.append((transfer, batch))
        return transfer

    try:
        for transfer in crew.results(itertools.repeat(send), 1, n_ahead + 1):
            if transfer is None:
                return
            received = [transfer.receive()]
            delivered.append(device.now())
            yield received.pop()
    finally:
        crew.is_over = True
        crew.end()
        with contextlib.suppress(ValueError):  # a read that hangs: its thread ends it
            batches.close()
        for transfer, _ in list(sent):  # a thread that hangs may still send
            transfer.synchronize()

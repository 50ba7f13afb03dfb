"""A device that does what it is asked when it likes: copies in any order, the caller's work later.

It has what the loaders ask of one, and two streams, of which none moves by itself: a test moves
them, or whoever waits for what they have not come to.
"""

import collections
import threading
from collections.abc import Callable

import numpy as np


class SlowDevice:
    def __init__(self, fails_at: int | None = None) -> None:
        self.copies: list[Copy] = []
        self.work: collections.deque[Callable[[], bool]] = collections.deque()
        self.n_sent, self._fails_at = 0, fails_at
        self.lock = threading.RLock()

    def send(self, batch):
        with self.lock:
            self.n_sent += 1
            if self.n_sent - 1 == self._fails_at:
                raise RuntimeError("the device is gone")
            self.copies.append(Copy(self, batch))
            return self.copies[-1]

    def now(self):
        moment = Moment(self)
        self.ask(moment.pass_by)
        return moment

    def ask(self, task: Callable[[], bool]) -> None:
        """Add to the caller's work what is tried again until it says that it is done."""
        with self.lock:
            self.work.append(task)

    def copy(self, nth: int) -> None:
        """Do one of the copies that are left."""
        with self.lock:
            if left := [copy for copy in self.copies if not copy.is_done]:
                left[nth % len(left)].do()

    def go_on(self) -> bool:
        """Do the next of the caller's work, if that waits for no copy."""
        with self.lock:
            is_done = bool(self.work) and self.work[0]()
            if is_done:
                self.work.popleft()
            return is_done


class Copy:
    """A batch that is copied at any moment, from the memory of the host as it is then."""

    def __init__(self, device: SlowDevice, batch) -> None:
        self._device, self.is_done = device, False
        self._source = {name: memory_of(values) for name, values in batch.items()}
        self._target = {name: np.zeros_like(values) for name, values in batch.items()}

    def do(self) -> None:
        for name, target in self._target.items():
            target[...] = self._source[name]()
        self.is_done = True

    def receive(self):
        self._device.ask(lambda: self.is_done)
        return self._target

    def synchronize(self) -> None:
        with self._device.lock:
            if not self.is_done:
                self.do()


class Moment:
    def __init__(self, device: SlowDevice) -> None:
        self._device, self.is_past = device, False

    def pass_by(self) -> bool:
        self.is_past = True
        return True

    def synchronize(self) -> None:
        with self._device.lock:
            while not self.is_past:
                if not self._device.go_on():
                    self._device.copy(-1)


def memory_of(values: np.ndarray) -> Callable[[], np.ndarray]:
    """Look at memory by its address, without a reference that would keep it."""
    interface = dict(values.__array_interface__)

    class Address:
        __array_interface__ = interface

    return lambda: np.asarray(Address()).copy()

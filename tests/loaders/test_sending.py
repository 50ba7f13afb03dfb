"""Batches on a device: the right bytes, however late it copies them, and no more than so many."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof import OrderedDataLoader, ShuffledDataLoader
from shardproof.loaders.io._sending import MOST_BEHIND, send_ahead
from tests.helpers.slow_device import SlowDevice
from tests.helpers.waiting import until

LOADERS = {
    "ordered": (OrderedDataLoader, {"batch_size": 4}),
    "shuffled": (ShuffledDataLoader, {"batch_size": 4, "buffer_size": 16}),
}
PERMUTED = (ShuffledDataLoader, {"batch_size": 4, "buffer_size": None})


@pytest.fixture(scope="module")
def path(request):
    make = request.getfixturevalue("shards_dir_factory")
    return make(n_shards=4, examples_per_shard=6, labels=True)


def loader_of(path, kind):
    make, options = kind
    return make(path, layer=6, **options)


def values_of(batch) -> list[bytes]:
    return [np.asarray(batch[name]).tobytes() for name in sorted(batch)]


class Run:
    """An iteration over a device, with what the caller's work on it has seen."""

    def __init__(self, path, kind, n_ahead: int = 2, device: SlowDevice | None = None) -> None:
        self.device = device or SlowDevice()
        self.loader = loader_of(path, kind)
        self.expected = [values_of(batch) for batch in loader_of(path, kind)]
        self.seen: list[list[bytes]] = []
        self.batches = send_ahead(iter(self.loader), self.device, n_ahead)

    def ask(self) -> bool:
        """Take a batch, and ask for work on it; the caller keeps nothing of it."""
        batch = next(self.batches, None)
        if batch is not None:
            self.device.ask(lambda: self._see(batch))
        return batch is not None

    def _see(self, batch) -> bool:
        self.seen.append(values_of(batch))
        return True

    def finish(self) -> None:
        while self.ask():
            pass
        while self.device.go_on():
            pass


def senders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "shardproof" in thread.name]


@pytest.mark.parametrize("n_ahead", [0, 1, 2, 5])
@pytest.mark.parametrize("kind", [*LOADERS.values(), PERMUTED], ids=[*LOADERS, "permuted"])
def test_what_is_copied_as_late_as_possible_is_right(path, kind, n_ahead):
    run = Run(path, kind, n_ahead)
    run.finish()
    assert run.seen == run.expected
    assert not senders()


MOVES = st.one_of(st.sampled_from(["ask", "work"]), st.integers(0, 5))


@given(kind=st.sampled_from(sorted(LOADERS)), n_ahead=st.integers(0, 3), moves=st.lists(MOVES))
def test_in_whatever_order_the_device_works_the_bytes_are_right(path, kind, n_ahead, moves):
    run = Run(path, LOADERS[kind], n_ahead)
    for move in moves:
        if move == "ask":
            run.ask()
        elif move == "work":
            run.device.go_on()
        else:
            run.device.copy(move)
    run.finish()
    assert run.seen == run.expected


@pytest.mark.parametrize("n_ahead", [0, 2])
def test_a_caller_who_never_waits_is_a_few_batches_ahead_of_the_device(path, n_ahead):
    run, most = Run(path, LOADERS["ordered"], n_ahead), 0
    while run.ask():
        most = max(most, run.device.n_sent - len(run.seen))
    assert n_ahead < most <= n_ahead + 1 + MOST_BEHIND + 1


def test_batches_are_on_the_device_before_they_are_asked_for(path):
    run = Run(path, LOADERS["ordered"], 3)
    run.ask()
    until(lambda: run.device.n_sent == 4)
    run.batches.close()


@pytest.mark.parametrize("fails_at", [0, 1, 3])
def test_a_copy_that_fails_is_raised_in_its_turn(path, fails_at):
    run = Run(path, LOADERS["ordered"], device=SlowDevice(fails_at))
    for _ in range(fails_at):
        assert run.ask()
    with pytest.raises(RuntimeError, match="the device is gone"):
        run.ask()
    while run.device.go_on():
        pass
    assert run.seen == run.expected[:fails_at]
    assert not senders()


def test_an_iteration_that_is_broken_off_leaves_no_copy_and_no_thread(path):
    run = Run(path, LOADERS["shuffled"])
    for _ in range(3):
        run.ask()
    run.batches.close()
    assert all(copy.is_done for copy in run.device.copies)
    assert not senders()
    assert next(iter(run.loader), None) is not None


def test_what_can_not_be_read_is_raised_by_the_loader_in_its_turn(path):
    def failing():
        yield from itertools.islice(iter(loader_of(path, LOADERS["ordered"])), 2)
        raise OSError(5, "no")

    batches = send_ahead(failing(), SlowDevice(), 2)
    assert len(list(itertools.islice(batches, 2))) == 2
    with pytest.raises(OSError, match="no"):
        next(batches)

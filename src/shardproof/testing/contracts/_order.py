"""What loaders that shuffle, and loaders that resume, owe their users besides."""

import functools
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from shardproof.testing.contracts._child import fingerprint
from shardproof.testing.contracts._contract import Harm, asks_for_manners
from shardproof.testing.contracts._loader import OpenLoader, ShardLoaderContract
from shardproof.testing.samples._layout import Layout

_SEEDS = (0, 1, 17)


class SeededLoaderContract(ShardLoaderContract):
    """`ShardLoaderContract` for a loader that shuffles: define ``open_seeded_loader``.

    ::

        class TestMyLoader(SeededLoaderContract):
            @pytest.fixture
            def open_seeded_loader(self):
                return lambda path, seed: MyLoader(path, shuffle=True, seed=seed)
    """

    @pytest.fixture
    def open_loader(self, open_seeded_loader: OpenLoader) -> OpenLoader:
        """Open with one seed, for all that does not depend on it."""
        return functools.partial(open_seeded_loader, seed=_SEEDS[0])

    @pytest.fixture
    def orders(self, open_seeded_loader: OpenLoader) -> Callable[[int], list[str]]:
        """Return a function that gives the order of a seed, from a loader and a process anew."""
        self._open, path = open_seeded_loader, self.new_dir(Layout(n_shards=8)).path
        return lambda seed: self.delivered(path, seed=seed)

    @asks_for_manners
    def test_a_seed_gives_one_order(self, orders: Callable[[int], list[str]]) -> None:
        """Whatever threads and timing do."""
        for seed in _SEEDS:
            self.demand(orders(seed) == orders(seed), f"seed {seed}: two orders")

    @asks_for_manners
    def test_another_seed_gives_another_order(self, orders: Callable[[int], list[str]]) -> None:
        """Or it is not used."""
        distinct = {tuple(orders(seed)) for seed in _SEEDS}
        self.demand(len(distinct) == len(_SEEDS), "two seeds gave the same order")

    def test_every_seed_delivers_the_same_samples(self, orders: Callable[[int], list[str]]) -> None:
        """None twice, none lost."""
        found = [Counter(orders(seed)) for seed in _SEEDS]
        same = all(samples == found[0] for samples in found)
        self.demand(same, "a seed lost or repeated samples", Harm.UNSAFE)

    @asks_for_manners
    def test_the_seed_is_the_loaders_own(self, open_seeded_loader: OpenLoader) -> None:
        """The global generators of random numbers are neither read nor moved."""
        path = self.new_dir(Layout(n_shards=8)).path
        self._open = functools.partial(open_seeded_loader, seed=_SEEDS[0])

        def with_global_seed(seed: int) -> list[str]:
            self.deliver(path)  # a generator that it imports by itself can be seeded then
            random.seed(seed)
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed(seed)
            if "torch" in sys.modules:
                sys.modules["torch"].manual_seed(seed)
            before = _global_states()
            order = self.deliver(path)
            return order if _global_states() == before else []

        runs = [functools.partial(with_global_seed, seed) for seed in (1, 2)]
        tried = "two passes, with global generators of another seed"
        one, other = (self.returned(self.look(run, tried, looks=2)) for run in runs)
        self.demand(one and other, "a global generator was moved")
        self.demand(one == other, "the order depends on a global generator")


def _global_states() -> list[str]:
    states = [repr(random.getstate())]
    if "numpy" in sys.modules:
        states.append(repr(sys.modules["numpy"].random.get_state(legacy=False)))
    if "torch" in sys.modules:
        states.append(fingerprint(sys.modules["torch"].get_rng_state()))
    return states


class ResumableLoaderContract(ShardLoaderContract):
    """`ShardLoaderContract` for a loader that goes on where another one stopped.

    By default it is expected to have ``state_dict()`` and ``load_state_dict(state)``, like those of
    torchdata; override `state_of` and `restore` for others.
    """

    def state_of(self, loader: Any, n_taken: int) -> Any:
        """Return the state of a loader from which so many samples were taken."""
        del n_taken  # for a subclass that counts outside of the loader
        return loader.state_dict()

    def restore(self, loader: Any, state: Any) -> None:
        """Bring a new loader into a state, before anything is taken from it."""
        loader.load_state_dict(state)

    @pytest.mark.parametrize("stop", ["at-once", "after-one", "half-way", "before-the-end"])
    def test_resuming_loses_and_repeats_nothing(self, stop: str) -> None:
        """What came before the stop and what comes after it are an undisturbed run."""
        path = self.new_dir(Layout(n_shards=4)).path
        whole = self.delivered(path)
        early = {"at-once": 0, "after-one": 1, "half-way": len(whole) // 2}
        n_taken = early.get(stop, len(whole) - 1)
        first, state = self.returned(self.look(lambda: self._stopped(path, n_taken)))
        resume = functools.partial(self._stopped, path, None, state, n_taken)
        rest, _ = self.returned(self.look(resume, f"stop {stop}; resume in another process"))
        what = f"stopped after {n_taken} of {len(whole)} samples, other ones came"
        self.demand([*first, *rest] == whole, what, Harm.UNSAFE)

    def test_a_run_may_be_resumed_again_and_again(self) -> None:
        """A week-long job is stopped more than once."""
        path = self.new_dir(Layout(n_shards=4)).path
        whole = self.delivered(path)
        step = max(1, len(whole) // 3)
        found: list[str] = []
        state: str | None = None
        while len(found) < len(whole):
            run = functools.partial(self._stopped, path, step, state, len(found))
            more, state = self.returned(self.look(run, "stop again and again, and resume"))
            what = f"nothing came after {len(found)} of {len(whole)} samples"
            self.demand(more, what, Harm.UNSAFE)
            found += more
        self.demand(found == whole, "other samples than in one run", Harm.UNSAFE)

    def _stopped(
        self, path: Path, n_taken: int | None, state: str | None = None, n_before: int = 0
    ) -> tuple[list[str], str]:
        """Take some samples, and the state as the text that a checkpoint would hold."""
        with self.opened(path) as loader:
            if state is not None:
                self.restore(loader, json.loads(state))
            run = iter(self.samples(loader))
            taken = [self.fingerprint(sample) for sample in islice(run, n_taken)]
            return taken, json.dumps(self.state_of(loader, n_before + len(taken)))

"""What every validator of shards directories owes its users."""

import errno
import functools
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis.stateful import run_state_machine_as_test

from shardproof.testing.contracts._child import left_by, snapshot
from shardproof.testing.contracts._contract import MANY, Contract
from shardproof.testing.faults import FileSystemFaults
from shardproof.testing.samples._directories import shards_dir
from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples._oracle import expected_findings
from shardproof.testing.samples._states import ShardState
from shardproof.testing.stateful import ShardsDirMachine
from shardproof.testing.strategies import layouts

FindProblems = Callable[[Any, str], Iterable[tuple[str, Path]]]


class ValidatorContract(Contract):
    """Tests for a validator of saev's directories: define the fixture ``find_problems``.

    ::

        class TestMyValidator(ValidatorContract):
            @pytest.fixture
            def find_problems(self):
                return lambda path, level: [(p.kind, p.path) for p in my_validator(path, level)]

    It is called with the directory, str or Path, and a level, and returns kind and absolute path of
    each problem, in any order; kinds and levels are those of `expected_findings`.

    Attributes:
        levels: The levels that the validator knows.
        states: What may become of a shard.
        max_examples: How many directories each property test makes.
        deadline: Seconds after which a look counts as a hang; a property test has 25 times as many.
    """

    levels: Sequence[str] = ("present", "complete", "valid")
    states: Collection[ShardState] = tuple(ShardState)
    max_examples = 200

    def _find(self, find_problems: FindProblems, path: str | Path, level: str) -> list[list[str]]:
        return sorted([str(kind), str(found)] for kind, found in find_problems(path, level))

    def _found(self, find_problems: FindProblems, path: Path, level: str) -> Any:
        look = functools.partial(self._find, find_problems, path, level)
        return self.returned(self.look(look, f"find the problems, {level}"))

    def test_a_fifo_is_not_waited_for(self, find_problems: FindProblems) -> None:
        """open(2) of a FIFO waits for a writer, and none will come."""
        self._found(find_problems, self.new_dir(Layout(fifo=[1])).path, self.levels[0])

    def test_it_says_what_the_oracle_says(self, find_problems: FindProblems) -> None:
        """Of any directory: every problem, and none where there is none."""

        @settings(
            max_examples=self.max_examples,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(value=layouts(states=self.states))
        def agrees(value: Layout) -> None:
            with shards_dir(value) as path:
                for level in self.levels:
                    expected = expected_findings(value, path, level=level)
                    found = self._find(find_problems, path, level)
                    assert found == sorted([k, str(p)] for k, p in expected), f"at {level}"

        # Chance leaves out a state now and then: two shards, and five, in each, between whole ones.
        for state in self.states:
            for n_bad in (2, 5):
                value = Layout.of((ShardState.OK, *[state] * n_bad, ShardState.OK))
                agrees = example(value=value)(agrees)
        tried = f"find the problems of {self.max_examples} directories"
        self.returned(self.look(agrees, tried, looks=MANY))

    def test_it_says_so_while_the_directory_changes(self, find_problems: FindProblems) -> None:
        """What was found once is not found for ever."""

        class Machine(ShardsDirMachine):
            levels = tuple(self.levels)

            def find_problems(self, path: Path, level: str) -> Iterable[tuple[str, Path]]:
                return find_problems(path, level)

        once = settings(max_examples=60, stateful_step_count=20, deadline=None)
        run = functools.partial(run_state_machine_as_test, Machine, settings=once)
        self.returned(self.look(run, "find the problems again and again", looks=MANY))

    @pytest.mark.parametrize("kind", [str, Path])
    def test_paths_are_absolute(self, find_problems: FindProblems, kind: type) -> None:
        """However the directory is named."""
        value = Layout(missing=[0], empty=[2])
        path, level = self.new_dir(value).path, self.levels[0]

        def from_its_parent(_: Path, level: str) -> Iterable[tuple[str, Path]]:
            os.chdir(path.parent)
            return find_problems(kind(path.name), level)

        expected = expected_findings(value, path, level=level)
        found = self._found(from_its_parent, path, level)
        assert found == sorted([k, str(p)] for k, p in expected)

    @pytest.mark.parametrize("call", ["open", "stat"])
    def test_what_could_not_be_looked_at(self, find_problems: FindProblems, call: str) -> None:
        """EIO is neither passed over nor called missing; all other shards are judged as ever."""
        path = self.new_dir(Layout(n_shards=4, missing=[2])).path

        def with_eio(path: Path, level: str) -> list[tuple[str, Path]]:
            with FileSystemFaults(path) as fs:
                fs.fail(call, errno.EIO, times=None, match="acts000001.bin", optional=True)
                try:
                    return [*find_problems(path, level)]
                except Exception as error:  # of its own, by which it may say so instead
                    return [("error", Path(str(error)))]

        problems = self._found(with_eio, path, self.levels[0])
        found = {Path(name).name: kind for kind, name in problems}
        if "error" not in found.values():
            assert found.get("acts000001.bin", "passed over") not in {"missing", "passed over"}
            assert found.get("acts000002.bin") == "missing"

    def test_nothing_is_left_behind(self, find_problems: FindProblems) -> None:
        """No thread, process or descriptor, and the directory as it was."""
        every = [state for state in self.states if state is not ShardState.SWAPPED]
        path = self.new_dir(Layout.of(every, n_examples=4 * len(every))).path
        files = snapshot(path)
        look = functools.partial(self._find, find_problems, path, self.levels[-1])
        assert not self.returned(self.look(lambda: left_by(look), "four times", looks=4))
        assert snapshot(path) == files

"""The state machine: it agrees with a right validator, and with no other."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from shardproof import validate
from shardproof.testing import ShardState
from shardproof.testing.stateful import ShardsDirMachine

runs = settings(max_examples=15, stateful_step_count=50, deadline=None, derandomize=True)
few = settings(runs, max_examples=8, phases=[Phase.generate], print_blob=False, database=None)


def found(path: Path, level: str) -> list[tuple[str, Path]]:
    return [(finding.kind, finding.path) for finding in validate(path, level=level).findings]


@pytest.mark.slow
def test_a_directory_that_changes_is_reported_as_it_is() -> None:
    seen: Counter[str] = Counter()

    class Watched(ShardsDirMachine):
        levels = ("present",)  # the contract for validators asks for all

        def find_problems(self, path: Path, level: str) -> Iterable[tuple[str, Path]]:
            seen.update(self.layout.states)
            seen.update(f"{self.layout.n_shards} shards")
            return super().find_problems(path, level)

    run_state_machine_as_test(Watched, settings=runs)
    assert set(ShardState) <= set(seen)


class Remembers(ShardsDirMachine):
    """Looks at a file again only when its directory has changed."""

    answers: ClassVar[dict] = {}

    def find_problems(self, path: Path, level: str) -> Iterable[tuple[str, Path]]:
        key = path, level, path.stat().st_mtime_ns
        if key not in self.answers:
            self.answers[key] = found(path, level)
        return self.answers[key]


class NeverAgain(ShardsDirMachine):
    """Reports each file once."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: set[Path] = set()

    def find_problems(self, path: Path, level: str) -> Iterable[tuple[str, Path]]:
        new = [problem for problem in found(path, level) if problem[1] not in self.reported]
        self.reported |= {path for _, path in new}
        return new


@pytest.mark.parametrize("machine", [Remembers, NeverAgain])
def test_a_wrong_validator_is_found_out(machine: type[ShardsDirMachine]) -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=few)


def test_levels_are_a_choice(tmp_path: Path, monkeypatch) -> None:
    asked = set()

    class Present(ShardsDirMachine):
        levels = ("present",)
        max_shards = 2

        def find_problems(self, path: Path, level: str) -> Iterable[tuple[str, Path]]:
            asked.add((level, self.layout.n_shards))
            return super().find_problems(path, level)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run_state_machine_as_test(Present, settings=few)
    assert {level for level, _ in asked} == {"present"}
    assert max(n_shards for _, n_shards in asked) <= 3  # it may begin with three
    assert os.listdir(tmp_path) == []

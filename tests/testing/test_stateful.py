"""The state machine: it agrees with a right validator, and with no other."""

import os
from collections.abc import Iterable
from pathlib import Path

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
def test_a_directory_that_changes_is_reported_as_it_is(tmp_path, monkeypatch) -> None:
    seen: set[str | int] = set()

    class Watched(ShardsDirMachine):
        levels = ("present",)  # the contract for validators asks for all
        max_shards = 4

        def find_problems(self, path: Path, level: str) -> Iterable[tuple[str, Path]]:
            seen.update([level, self.layout.n_shards, *self.layout.states])
            return super().find_problems(path, level)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run_state_machine_as_test(Watched, settings=runs)
    assert seen == {"present", *range(5), *ShardState}
    assert os.listdir(tmp_path) == []


class NeverAgain(ShardsDirMachine):
    """Reports each file once."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: set[Path] = set()

    def find_problems(self, path: Path, level: str) -> Iterable[tuple[str, Path]]:
        new = [problem for problem in found(path, level) if problem[1] not in self.reported]
        self.reported |= {path for _, path in new}
        return new


def test_a_wrong_validator_is_found_out() -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(NeverAgain, settings=few)

"""What an attack met: how many cases, and which of them did harm.

An attack is a test that is marked ``attack``. It asks for ``tally``, tells it of each case, and of
each harm that a case did; at its end the fixture fails if there was any. In the gate an attack runs
a fair sample of its cases; with ``--exhaustive`` it runs all of them, and the figures go to a file,
of which ``table.py`` makes the table in ``docs/attacks.md``.
"""

import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

__all__ = ["HARMS", "Harm", "Tally"]

Harm = Literal["lost", "torn", "lie", "hang", "leftover", "wrong class"]
"""lost: committed, and gone. torn: half of it is there. lie: called what it is not. hang: no end.
leftover: a file, thread, process or descriptor that nobody removes. wrong class: right that it
failed, wrong in what failed, such as "missing" for "could not look", or a traceback of ours."""

HARMS: tuple[Harm, ...] = ("lost", "torn", "lie", "hang", "leftover", "wrong class")

Case = TypeVar("Case")
_SHOWN = 20


class Tally:
    """The figures of one attack.

    Attributes:
        attack: A row of the table, such as ``"kill -9 at a system call"``.
        is_exhaustive: Whether all cases are to be run.
    """

    def __init__(self, attack: str, *, is_exhaustive: bool) -> None:
        self.attack = attack
        self.is_exhaustive = is_exhaustive
        self.n_cases = 0
        self.harms: Counter[Harm] = Counter()
        self._told: list[str] = []

    def sample(self, cases: Sequence[Case], n: int) -> Sequence[Case]:
        """Return all cases; in the gate ``n`` of them, the same ones in each run."""
        if self.is_exhaustive or len(cases) <= n:
            return cases
        chosen = random.Random(self.attack).sample(range(len(cases)), n)
        return [cases[index] for index in sorted(chosen)]

    def count(self, n: int = 1) -> None:
        """Count cases that were run."""
        self.n_cases += n

    def harm(self, kind: Harm, what: str) -> None:
        """Note harm that a case did."""
        self.harms[kind] += 1
        self._told.append(f"{kind}: {what}")

    @contextlib.contextmanager
    def harmless(self, kind: Harm, case: object) -> Iterator[None]:
        """Note harm of a kind where something is not as it is asserted within."""
        try:
            yield
        except (AssertionError, ValueError) as error:
            self.harm(kind, f"{case}: {error}")

    def assert_harmless(self) -> None:
        """Fail if there was any harm, or no case at all."""
        assert self.n_cases, f"no case of {self.attack!r} was run"
        shown = "\n".join(self._told[:_SHOWN])
        assert not self.harms, f"{dict(self.harms)} in {self.n_cases} cases:\n{shown}"

    def write(self, path: Path) -> None:
        """Append the figures to a file, a line of JSON for each attack of each process."""
        row = {"attack": self.attack, "cases": self.n_cases, **self.harms}
        with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), "w") as file:
            file.write(json.dumps(row) + "\n")


def read(path: Path) -> Iterator[tuple[str, Counter[str]]]:
    """Yield each attack with its figures, those of several tests added up."""
    rows: dict[str, Counter[str]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        rows.setdefault(row.pop("attack"), Counter()).update(row)
    yield from sorted(rows.items())

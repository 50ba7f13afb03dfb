"""What an attack met: how many cases, and which of them did harm.

A test that is marked ``attack(row)`` or ``control(harm, ...)`` asks for ``tally``, counts its cases
there, and notes each harm that a case did. `tests/attacks/conftest.py` judges it when the test has
ended. In the gate an attack runs a fair sample of its cases; with ``--exhaustive`` it runs all of
them, and the figures go to a file, of which ``table.py`` makes the table in ``docs/attacks.md``.
"""

import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

Harm = Literal["lost", "torn", "lie", "hang", "leftover", "wrong class"]
"""lost: committed, and gone. torn: half of it is there. lie: called what it is not. hang: no end.
leftover: a file, thread, process or descriptor that nobody removes. wrong class: right that it
failed, wrong in what failed, such as "missing" for "could not look", or a traceback of ours."""

HARMS: tuple[Harm, ...] = ("lost", "torn", "lie", "hang", "leftover", "wrong class")

Case = TypeVar("Case")
_SHOWN = 20


class Tally:
    """The figures of a row of the table, or of a control, which must find some harm."""

    def __init__(self, attack, *, is_exhaustive=False, wanted=()) -> None:
        self.attack, self.is_exhaustive, self.wanted = attack, is_exhaustive, frozenset(wanted)
        self.n_cases = 0
        self.harms: Counter[Harm] = Counter()
        self._told: list[str] = []

    def each(self, cases: Sequence[Case], n: int) -> Iterator[Case]:
        """Yield all cases; in the gate ``n``, the same ones in each run; see `until_found`."""
        if self.wanted or self.is_exhaustive or len(cases) <= n:
            yield from self.until_found(cases)
        else:
            chosen = random.Random(self.attack).sample(range(len(cases)), n)
            yield from (cases[index] for index in sorted(chosen))

    def until_found(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Yield all cases; those of a control until it has found what it must."""
        for case in cases:
            if self.wanted and self.wanted <= self.harms.keys():
                return
            yield case

    def count(self, n: int = 1) -> None:
        self.n_cases += n

    def harm(self, kind: Harm, what: str) -> None:
        self.harms[kind] += 1
        self._told.append(f"{kind}: {what}")

    @contextlib.contextmanager
    def harmless(self, kind: Harm, case: object) -> Iterator[None]:
        """Note harm of a kind where something is not as it is asserted within."""
        try:
            yield
        except (AssertionError, ValueError) as error:
            self.harm(kind, f"{case}: {error}")

    def judge(self) -> None:
        """Fail if no case was run, if an attack did harm, or if a control found too little."""
        assert self.n_cases, f"no case of {self.attack!r} was run"
        shown = "\n".join(self._told[:_SHOWN])
        if self.wanted:
            assert self.wanted <= self.harms.keys(), f"found only {dict(self.harms)}:\n{shown}"
        else:
            assert not self.harms, f"{dict(self.harms)} in {self.n_cases} cases:\n{shown}"

    def write(self, path: Path) -> None:
        row = {"attack": self.attack, "cases": self.n_cases, **self.harms}
        with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), "w") as file:
            file.write(json.dumps(row) + "\n")


def read(path: Path) -> Iterator[tuple[str, Counter[str]]]:
    rows: dict[str, Counter[str]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        rows.setdefault(row.pop("attack"), Counter()).update(row)
    yield from sorted(rows.items())

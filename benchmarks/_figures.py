"""What is kept of what was measured: figures, sections of them, and the aims beside them."""

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from _races import Command


@dataclasses.dataclass
class Figure:
    """All measurements of one contender, in the section's unit."""

    what: str
    values: list[float]
    beside: list[float]
    extra: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def ratio(self) -> float:
        """Median of the rounds' ratios to the section's first contender."""
        return ratio(self.values, self.beside)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "what": self.what,
            "median": self.median,
            "min": min(self.values),
            "max": max(self.values),
            "ratio": self.ratio,
            "extra": self.extra,
            "raw": self.values,
        }


@dataclasses.dataclass
class Ruler:
    """What has to be reached, and what was."""

    what: str
    limit: float
    measured: float | None
    at_least: bool = False
    unit: str = "x"

    @property
    def kept(self) -> bool | None:
        """Whether it was reached; None where it was not measured."""
        if self.measured is None:
            return None
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {**dataclasses.asdict(self), "kept": self.kept}


@dataclasses.dataclass
class Section:
    """One table: contenders that took turns."""

    title: str
    note: str
    unit: str
    figures: list[Figure] = dataclasses.field(default_factory=list)
    rulers: list[Ruler] = dataclasses.field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "title": self.title,
            "note": self.note,
            "unit": self.unit,
            "contenders": [figure.to_dict() for figure in self.figures],
            "rulers": [ruler.to_dict() for ruler in self.rulers],
        }


def ratio(values: Sequence[float], beside: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(values, beside, strict=True))


def figures(
    commands: Sequence[Command], rounds: Iterator[list[float]], scale: float
) -> list[Figure]:
    """Run all rounds, and turn them into one figure for each contender."""
    columns = zip(*([second * scale for second in seconds] for seconds in rounds), strict=True)
    values = [list(column) for column in columns]
    return [
        Figure(command.what, column, values[0])
        for command, column in zip(commands, values, strict=True)
    ]


def ratio_of(found: Mapping[str, Figure], what: str, beside: str) -> float | None:
    """How many times ``what`` is ``beside``; None where one of them did not run."""
    if what not in found or beside not in found:
        return None
    return ratio(found[what].values, found[beside].values)

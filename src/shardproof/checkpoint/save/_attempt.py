"""Tell the attempts to save a checkpoint apart: by what is known of each, and what it left."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shardproof._base.messages import quoted
from shardproof.checkpoint.format._metadata import RankRecord

_GIVEN = "given"  # the source of what the caller said of an attempt
_MOST_LEFT = 4096
_SHOWN = 5


class _Left(NamedTuple):
    """What was left under a path: of which attempt, if the caller named one, and its token."""

    given: str | None
    token: str


_left_here: dict[str, _Left] = {}
"""What this process left last, by path: several savers may make one attempt."""


class Attempt:
    """The attempt that a saver is a part of, as far as the caller or the environment tells."""

    def __init__(self, given: str | None = None) -> None:
        self._left: dict[str, _Left] = {}
        self.marks: dict[str, str] = {}
        if given is not None:
            self.marks[_GIVEN] = given
            return
        # What the environment tells all ranks of a run alike, and other runs differently: parts of
        # a heterogeneous job have numbers of their own, and ranks may be tasks of an array.
        say = os.environ.get
        if (job := say("SLURM_JOB_ID")) and not say("SLURM_HET_SIZE"):
            array = say("SLURM_ARRAY_JOB_ID")
            self.marks["slurm"] = array or f"{job}.{say('SLURM_RESTART_COUNT', '0')}"
        if (run := say("TORCHELASTIC_RUN_ID", "none")) not in {"", "none"}:
            self.marks["torchrun"] = run
        # Of bytes that are no text their numbers are taken: records can hold nothing else.
        for name, text in self.marks.items():
            self.marks[name] = os.fsencode(text).decode(errors="backslashreplace")

    def has_left(self, path: str, token: str) -> None:
        """Remember a shard that was written here."""
        for left in (self._left, _left_here):
            left.pop(path, None)
            left[path] = _Left(self.marks.get(_GIVEN), token)
            if len(left) > _MOST_LEFT:
                del left[next(iter(left))]

    def forget(self, path: str) -> None:
        """Forget a shard of which there is a checkpoint now."""
        for left in (self._left, _left_here):
            left.pop(path, None)

    def stranger(self, path: str, record: RankRecord) -> str:
        """Return why a shard is not of this attempt; an empty text if it may be."""
        given = self.marks.get(_GIVEN)
        left = self._left.get(path) or _left_here.get(path)
        # What was left for another attempt says nothing: ranks are dealt anew after a restart.
        if left and left.token != record.token and given in {None, left.given}:
            return "another attempt saved it after this one did"
        if given is not None and record.attempt.get(_GIVEN) != given:
            return f"expected attempt {quoted(given)}, found {_shown(record.attempt)}"
        return ""


def mixed(records: Sequence[RankRecord]) -> list[str]:
    """Return sentences about shards that are of several attempts."""
    first: dict[str, tuple[int, str]] = {}
    problems = []
    for record in records:
        for name, text in record.attempt.items():
            rank, expected = first.setdefault(name, (record.shard.rank, text))
            if text != expected:
                first_of, other = _shown({name: expected}), _shown({name: text})
                problems.append(
                    f"rank {rank} is of attempt {first_of}, rank {record.shard.rank} of {other}"
                )
    return problems


def _shown(marks: Mapping[str, str]) -> str:
    if not marks:
        return "one that is not named"
    return ", ".join(f"{quoted(text)} ({name})" for name, text in [*marks.items()][:_SHOWN])

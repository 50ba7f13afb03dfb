"""One attempt to save a checkpoint: what is known of it, and which shards it left."""

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from shardproof._base.messages import quoted
from shardproof.checkpoint.format._rank_record import Note

__all__ = ["Attempt", "mixed"]

GIVEN = "given"
"""Whence an attempt is known that the caller named."""

_MOST_LEFT = 4096
_SHOWN = 5


class _Left(NamedTuple):
    """What was left under an address: of which attempt, if the caller named one, and its token."""

    given: str | None
    token: str


_left_here: dict[str, _Left] = {}
"""What this process left last, by address: several savers may make one attempt."""


class Attempt:
    """What a saver knows of the attempt of which it is a part.

    Args:
        given: What the caller says that all ranks of the attempt have in common.
    """

    def __init__(self, given: str | None = None) -> None:
        self.marks = dict(_known()) if given is None else {GIVEN: given}
        self._left: dict[str, _Left] = {}

    def new_token(self) -> str:
        """Return a token that no other shard has."""
        return secrets.token_hex(8)

    def has_left(self, address: str, token: str) -> None:
        """Remember a shard that was written here."""
        for left in (self._left, _left_here):
            left.pop(address, None)
            left[address] = _Left(self.marks.get(GIVEN), token)
            if len(left) > _MOST_LEFT:
                del left[next(iter(left))]

    def forget(self, address: str) -> None:
        """Forget a shard of which there is a checkpoint now."""
        for left in (self._left, _left_here):
            left.pop(address, None)

    def stranger(self, address: str, note: Note) -> str:
        """Return why a shard is not one of this attempt; nothing if it may be one."""
        given = self.marks.get(GIVEN)
        left = self._left.get(address) or _left_here.get(address)
        # What was left for another attempt says nothing: ranks are dealt anew after a restart.
        if left and left.token != note.token and given in {None, left.given}:
            return "another attempt saved it after this one did"
        if given is not None and note.attempt.get(GIVEN) != given:
            return f"expected attempt {quoted(given)}, found {_shown(note.attempt)}"
        return ""


def _known() -> Iterator[tuple[str, str]]:
    """Yield what the environment says that is the same for all ranks, and other for other runs.

    Of bytes that are no text their numbers are taken: notes can hold nothing else.
    """
    say = os.environ.get
    # Parts of a heterogeneous job have numbers of their own, and ranks may be tasks of an array.
    if (job := say("SLURM_JOB_ID")) and not say("SLURM_HET_SIZE"):
        array = say("SLURM_ARRAY_JOB_ID")
        yield "slurm", _as_text(array or f"{job}.{say('SLURM_RESTART_COUNT', '0')}")
    if (run := say("TORCHELASTIC_RUN_ID", "none")) not in {"", "none"}:
        yield "torchrun", _as_text(run)


def _as_text(found: str) -> str:
    return os.fsencode(found).decode(errors="backslashreplace")


def mixed(notes: Sequence[Note]) -> list[str]:
    """Return in words what says that shards are of several attempts."""
    first: dict[str, tuple[int, str]] = {}
    problems = []
    for note in notes:
        for name, text in note.attempt.items():
            rank, expected = first.setdefault(name, (note.shard.rank, text))
            if text != expected:
                problems.append(_differs(rank, note.shard.rank, {name: expected}, {name: text}))
    return problems


def _differs(rank: int, other: int, expected: Mapping[str, str], found: Mapping[str, str]) -> str:
    return f"rank {rank} is of attempt {_shown(expected)}, rank {other} of {_shown(found)}"


def _shown(marks: Mapping[str, str]) -> str:
    if not marks:
        return "one that is not named"
    return ", ".join(f"{quoted(text)} ({name})" for name, text in [*marks.items()][:_SHOWN])

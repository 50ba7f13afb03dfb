"""Tell the attempts to save a checkpoint apart, by what is known of each."""

import os
from collections.abc import Mapping, Sequence

from shardproof._base.messages import quoted
from shardproof.checkpoint.format._metadata import RankRecord

_GIVEN = "given"  # the source of what the caller said of an attempt
_SHOWN = 5


class Attempt:
    """The attempt that a saver is a part of, as far as the caller or the environment tells."""

    def __init__(self, given: str | None = None) -> None:
        self.tokens: dict[str, str] = {}  # of its own shards, by path, until they are committed
        self.marks: dict[str, str] = {}  # what all its ranks have in common, by who says so
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

    def stranger(self, path: str, record: RankRecord) -> str:
        """Return why a shard is not of this attempt; an empty text if it may be."""
        given = self.marks.get(_GIVEN)
        if self.tokens.get(path, record.token) != record.token:
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

"""What the receipts of a plan say together: the verdict on each shard, and the plan's manifest.

Where two receipts name one output, one of the two shards wrote over the other's, though by its own
receipt and sizes each of them looks done. So outputs are counted over all receipts; and where one
is named twice, neither shard is done until its own receipt is another.
"""

import functools
import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shardproof._base import fanout
from shardproof._base.messages import quoted
from shardproof._base.names import folded
from shardproof._base.work import apart, go_on
from shardproof.manifest import Contradiction, ExpectedFile, Manifest
from shardproof.receipts._directories import (
    PLAN_FILE,
    RECEIPTS,
    PlanHeader,
    read_header,
    receipt_name,
)
from shardproof.receipts._records import opened_receipts, provable
from shardproof.receipts._verdict import Verdict, judge_receipt, look_at, usual_files, verdict
from shardproof.report import Level

_RECEIPT = re.compile(r"shard_([0-9]{6})\.json")

_Promises = tuple[list[ExpectedFile], list[Contradiction], int]  # the last: completed


class _Named(NamedTuple):
    """When a shard was completed by its receipt, and the outputs that this names."""

    completed_at: float | None = None
    names: tuple[str, ...] = ()
    folded: frozenset[str] = frozenset()


class PlanVerdicts:
    """The verdicts on the shards of a plan, and what is known of the outputs that receipts name."""

    def __init__(self, header: PlanHeader) -> None:
        self._header = header
        self._by_name: dict[str, dict[int, None]] | None = None
        self._spoilt: dict[int, tuple[_Named, str]] = {}

    def one(self, index: int, level: Level) -> Verdict:
        """Return the verdict on one shard; of other receipts the last full look counts."""
        found = verdict(self._header, index, level)
        twin = self._twin_of(index, self._says) if found.completed else None
        return found if twin is None else twin

    def unless_completed(self, index: int, level: Level) -> Verdict | None:
        """Return the verdict on a shard that is not done; None if it is, which takes less time."""
        found, _ = look_at(self._header, [index], level)
        return found[0] if found else self._twin_of(index, self._says)

    def all(self, level: Level, workers: int | None, *, pending: bool) -> list[Verdict]:
        """Return the verdicts on all shards, or on those that are not done, ascending."""
        indices = range(self._header.n_shards)
        found, names = look_at(self._header, indices, level, workers, pending=pending)
        # No two names are one file, mostly, so all are folded at once.
        text = "\n".join(names)  # no name has a control character
        keys = folded(text)
        if len(set(names if keys == text else keys.split("\n"))) >= len(names):
            return found
        self._by_name = self._read_all()
        shared = [indices for indices in self._by_name.values() if len(indices) > 1]
        says = functools.cache(self._says)
        twins = [self._twin_of(index, says) for index in sorted(set().union(*shared))]
        # Of shards that others wrote over, those that are not done by their own receipt stay so.
        by_index = {one.index: one for one in found if one.completed}
        by_index |= {twin.index: twin for twin in twins if twin is not None}
        by_index |= {one.index: one for one in found if not one.completed}
        return [by_index[index] for index in sorted(by_index)]

    def _twin_of(self, index: int, says: Callable[[int], _Named]) -> Verdict | None:
        """Return why a shard that looks done is not; None where no other names its own outputs."""
        if self._by_name is None:
            self._by_name = self._read_all()
        said = says(index)
        for name in said.names:
            key = folded(name)
            others = self._by_name.setdefault(key, {})
            others[index] = None
            named = (other for other in others if other != index and key in says(other).folded)
            if (other := next(named, None)) is not None:
                self._spoil(index, said, name, other)
                self._spoil(other, says(other), name, index)
        spoilt, why = self._spoilt.get(index, (None, ""))
        return Verdict(index, False, "completed", why) if spoilt == said else None

    def _spoil(self, index: int, said: _Named, name: str, other: int) -> None:
        """Note why a receipt is not believed, unless that is known; an earlier one's is past."""
        if index not in self._spoilt or self._spoilt[index][0] != said:
            why = f"completed, but its output {quoted(name)} is that of shard {other} too"
            advice = "one of them wrote over the other's: give each outputs of its own"
            self._spoilt[index] = said, f"{why}, by its receipt; {advice}"

    def _read_all(self) -> dict[str, dict[int, None]]:
        """Return by the names of outputs the shards whose receipts name them."""
        by_name: dict[str, dict[int, None]] = {}
        with opened_receipts(self._header.root) as (_, receipts_fd):
            if receipts_fd is not None:
                indices = range(self._header.n_shards)
                usual = usual_files(self._header, receipts_fd, indices, harmless=False)
                for index, files in zip(indices, usual, strict=True):
                    go_on()
                    names: Sequence[str] = [file.path for file in files or ()]
                    # A file of 0 bytes may be an empty shard's, which owes none.
                    if not files or not all(file.bytes for file in files):
                        names = self._says(index).names
                    for name in names:
                        by_name.setdefault(folded(name), {})[index] = None
        return by_name

    def _says(self, index: int) -> _Named:
        go_on()
        said = judge_receipt(self._header, index)
        names = tuple(file.name for file in said.files)
        return _Named(said.completed_at, names, frozenset(map(folded, names)))


def read_manifest(root: str) -> Manifest:
    """Return what the receipts of a plan directory promise; ``root`` is its real absolute path."""
    header = read_header(root)
    files: list[ExpectedFile] = []
    damaged: list[Contradiction] = []
    n_completed = 0
    with opened_receipts(root) as (_, receipts_fd):
        if receipts_fd is not None:
            read = functools.partial(_promises, header, receipts_fd)
            names = map(_RECEIPT.fullmatch, os.listdir(receipts_fd))
            indices = sorted(int(match[1]) for match in names if match)
            for promises, problems, n_more in apart(lambda _: fanout.collected(read, indices)):
                files += promises
                damaged += problems
                n_completed += n_more
    n_to_make = 0 if n_completed else header.n_shards
    return Manifest.at(root, PLAN_FILE, "receipts", files, damaged=damaged, n_to_make=n_to_make)


def _promises(header: PlanHeader, receipts_fd: int, indices: Sequence[int]) -> list[_Promises]:
    promises: list[ExpectedFile] = []
    damaged: list[Contradiction] = []
    n_completed = 0

    def refuse(index: int, expected: str, found: str) -> None:
        damaged.append(Contradiction(f"{RECEIPTS}/{receipt_name(index)}", expected, found))

    for index, files in zip(indices, usual_files(header, receipts_fd, indices), strict=True):
        if index >= header.n_shards:
            refuse(index, f"receipts of {header.n_shards} shards", f"one of shard {index}")
        # A file of 0 bytes may be an empty shard's, which owes none.
        elif files and all(file.bytes for file in files):
            promises += [
                ExpectedFile(name=file.path, size=file.bytes, digest=provable(file.checksum))
                for file in files
            ]
            n_completed += 1
        else:
            said = judge_receipt(header, index)
            promises += said.files
            n_completed += said.status == "completed"
            if said.status == "foreign":
                refuse(index, "a receipt of this plan and shard", said.reason)
            elif said.status == "damaged":
                refuse(index, "a receipt", said.reason)
    return [(promises, damaged, n_completed)]

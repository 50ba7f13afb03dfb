"""Names that imply how many there are: ``train-00003-of-00042.parquet``."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shardproof._base.messages import quoted
from shardproof.manifest import Contradiction, Mismatch

_NAME = re.compile(
    r"(?P<before>.*?)(?P<index>\d{4,6})-of-(?P<count>\d{4,6})(?P<own>-[0-9a-f]{16}(?=\.))?"
    r"(?P<after>.*)",
    re.DOTALL,
)
"""Each shard may have a fingerprint of its own, as `push_to_hub` of datasets gave it."""

_MOST = 100_000
"""A set that claims more is taken for files that only look like one."""
_UNFINISHED = Mismatch("how many there are", "NNNNN: datasets has not ended yet")


class CountedSet(NamedTuple):
    """What names imply: all that are promised, in order, and which can't belong together."""

    names: Sequence[str]
    contradictions: Sequence[Contradiction]


def promised_by_names(names: Iterable[str], *, first: int = 0) -> CountedSet:
    """Return what names promise; the first is 0 for the Hub's data, 1 for a model's weights."""
    sets: dict[tuple[str, str, str, bool], list[re.Match[str]]] = {}
    promised, odd = [], list[Contradiction]()
    for name in sorted(names):
        found = _NAME.fullmatch(name)
        if found is None or not 0 < int(found["count"]) <= _MOST:
            promised.append(name)
        else:
            key = (found["before"], found["count"], found["after"], bool(found["own"]))
            sets.setdefault(key, []).append(found)
    odd += [Contradiction(name, *_UNFINISHED) for name in promised if "-of-NNNNN" in name]
    for (before, count, after, _), members in sets.items():
        indices = {int(member["index"]) for member in members}
        begin = 0 if 0 in indices else 1 if int(count) in indices else first
        width = len(members[0]["index"])
        owns = {member["own"] or "" for member in members}
        own, there = owns.pop() if len(owns) == 1 else "-*", dict[int, list[str]]()
        for member in members if owns else ():
            there.setdefault(int(member["index"]), []).append(member[0])
        numbers = range(begin, begin + int(count))
        names_of = ([f"{before}{n:0{width}}-of-{count}{own}{after}"] for n in numbers)
        whole = [
            name for n, new in zip(numbers, names_of, strict=True) for name in there.get(n, new)
        ]
        promised += whole
        odd += _beyond(members, {*whole}, count)
    return CountedSet(sorted(promised), odd)


def _beyond(
    members: Sequence[re.Match[str]], whole: set[str], count: str
) -> Iterable[Contradiction]:
    expected = f"a number of a set of {int(count)}"
    for name, index in ((member[0], quoted(member["index"])) for member in members):
        if name not in whole:
            yield Contradiction(name, expected, index)

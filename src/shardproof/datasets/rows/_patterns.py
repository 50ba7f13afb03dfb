"""Patterns of file names as the library datasets reads them, and which names each means.

``*``, ``?`` and ``[...]`` stay within one part of a path, ``**`` stands for parts. What begins with
a dot, and directories that begin with ``__``, are meant only by patterns that say so. The files of
one pattern come sorted by name, those of several in the order of the patterns.

A name is compared part by part, in a time that grows with the name and the pattern: a pattern comes
from outside, and one regular expression for all of it could take for ever.
"""

import bisect
import fnmatch
import functools
import re
from collections.abc import Callable, Iterator, Sequence

from shardproof._base.messages import quoted
from shardproof._base.names import MAX_PATH_BYTES
from shardproof._base.opening import MAX_NAME_BYTES

_MAGIC = re.compile(r"[*?\[]")
_WILD = re.compile(r"\[[^\]]*\]|[*?]")
_MOST_COMPARISONS = 150_000_000  # of a part of a name with one of a pattern: some minutes
_NEVER = re.compile(r"(?!)").match  # fits no part
_NO_DATA = {
    "README.md",
    "config.json",
    "dataset_dict.json",
    "dataset_info.json",
    "dataset_infos.json",
    "dummy_data.zip",
}


def has_magic(pattern: str) -> bool:
    """Whether a text is a pattern, and not the name of one file."""
    return _MAGIC.search(pattern) is not None


class Budget:
    """How much may be compared with the patterns of one card, which comes from outside."""

    def __init__(self) -> None:
        self._left = _MOST_COMPARISONS

    def spend(self, effort: int, name: str) -> None:
        """Take off what a name costs; a ValueError where all is spent."""
        self._left -= effort * (name.count("/") + 1 + len(name) // MAX_NAME_BYTES)
        if self._left < 0:
            raise ValueError("the card has too many patterns for so many files")


def matching(pattern: str, names: Sequence[str], budget: Budget | None = None) -> list[str]:
    """Return which of all files, sorted, a pattern means; a ValueError says why it can't."""
    return [*meant(pattern, names, budget)]


def meant(pattern: str, names: Sequence[str], budget: Budget | None = None) -> Iterator[str]:
    """Yield the same one by one."""
    parts = pattern.split("/")
    _refuse_parts(pattern, parts)
    ignored = _NO_DATA - {parts[-1]}
    fits, hidden, has = _matcher(pattern), _n_hidden(parts), ""
    if "[]" not in pattern and "[!]" not in pattern:  # where a set ends is less plain there
        pieces = [piece.strip("/") for piece in _WILD.split(pattern)]
        has = max((piece for piece in pieces if "]" not in piece), key=len, default="")
    start, effort = _MAGIC.split(pattern)[0], _effort(pattern)
    for name in map(names.__getitem__, range(bisect.bisect_left(names, start), len(names))):
        if not name.startswith(start):
            return
        if budget is not None:
            budget.spend(effort, name)
        if (
            has in name  # a text of every name that is meant: most others are out at once
            and fits(found := name.split("/"))
            and found[-1] not in ignored
            and _n_hidden(found) == hidden
        ):
            yield name


def _effort(pattern: str) -> int:
    """Return how often a part of a name is compared: those behind a ``**`` take turns."""
    behind = pattern.split("**")[1:] or [""]
    return max(parts.strip("/").count("/") + 1 for parts in behind)


def _refuse_parts(pattern: str, parts: Sequence[str]) -> None:
    problem = None
    if len(pattern) > MAX_PATH_BYTES:
        problem = f"it is over {MAX_PATH_BYTES} characters"
    elif any(len(_WILD.sub("?", part)) > MAX_NAME_BYTES for part in parts):
        problem = f"a part of it is over {MAX_NAME_BYTES} characters"
    elif "://" in pattern or "::" in pattern:
        problem = "it is an address, and not a path in the repository"
    elif not {"", ".", ".."}.isdisjoint(parts):
        problem = "it has an empty, '.' or '..' part"
    elif any("**" in part and part != "**" for part in parts):
        problem = "'**' can only be a whole part of a path"
    if problem:
        raise ValueError(f"{quoted(pattern)}: {problem}")


def _n_hidden(parts: Sequence[str]) -> tuple[int, int]:
    """Return how many parts begin with a dot, and how many directories with ``__``."""
    dotted = sum(part.startswith(".") for part in parts)
    return dotted, sum(part.startswith("__") for part in parts[:-1])


@functools.lru_cache(maxsize=256)
def _matcher(pattern: str) -> Callable[[Sequence[str]], bool]:
    """Return a function that says whether the parts of a name fit a pattern."""
    parts = pattern.split("/")
    parts += ["*"] if parts[-1] == "**" else []  # at the end, it means files and no directories
    fits: list[Callable[[str], object] | None] = [None] * len(parts)  # None for a "**"
    for n, part in enumerate(parts):
        if part != "**":
            is_one = not has_magic(part)
            fits[n] = part.__eq__ if is_one else re.compile(fnmatch.translate(part)).match

    def is_meant(name: Sequence[str]) -> bool:
        at, wanted, after, begin = 0, 0, -1, 0
        while at < len(name):
            fit = fits[wanted] if wanted < len(fits) else _NEVER
            if fit is None:
                wanted, after, begin = wanted + 1, wanted + 1, at
            elif fit(name[at]):
                at, wanted = at + 1, wanted + 1
            elif after >= 0:
                begin += 1
                at, wanted = begin, after
            else:
                return False
        return all(fit is None for fit in fits[wanted:])

    return is_meant

"""Outputs that two receipts name: one of the two shards wrote over the other's.

By its own receipt and sizes each of the two looks done. So outputs are counted over all receipts;
and where one is named twice, neither shard is done until its own receipt is another.
"""

import functools
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from shardproof._base.liveness import Stamp, settled_stamp_of
from shardproof._base.messages import quoted
from shardproof._base.names import open_root
from shardproof._base.work import go_on
from shardproof.errors import ManifestError, ManifestPermissionError
from shardproof.receipts.plan._layout import RECEIPTS, Scope, receipt_name
from shardproof.receipts.verdict._quick import UsualFile, usual_files
from shardproof.receipts.verdict._verdict import (
    may_not_read,
    open_receipts,
    promised,
    read_receipt,
    why_foreign,
)

__all__ = ["NamedOutputs", "has_twins"]


class _Named(NamedTuple):
    """What a completed receipt says, as far as it matters here."""

    completed_at: float | None = None
    names: tuple[str, ...] = ()
    folded: frozenset[str] = frozenset()


class _FullLook(NamedTuple):
    """When all receipts were read.

    Attributes:
        began: By the store's clock.
        ended: Likewise.
        stamp: What `NamedOutputs._stamp` was before.
    """

    began: float
    ended: float
    stamp: Stamp | None


class NamedOutputs:
    """The outputs that the receipts of a plan name, as far as a store has looked.

    Args:
        scope: Whose receipts.
        n_shards: How many shards there are.
        clock: What time is measured by.
    """

    def __init__(self, scope: Scope, n_shards: int, clock: Callable[[], float]) -> None:
        self._scope = scope
        self._n_shards = n_shards
        self._clock = clock
        self._by_name: dict[str, set[int]] = {}
        self._last: _FullLook | None = None
        self._spoilt: dict[int, tuple[_Named, str]] = {}
        self._n_compared: dict[str, int] = {}  # of how many who name an output, each with each

    def twins(self) -> dict[int, str]:
        """Read all receipts; return the shards whose outputs others name too, each with why."""
        self._read_all()
        shared = [indices for indices in self._by_name.values() if len(indices) > 1]
        candidates = sorted(set().union(*shared))
        says = functools.cache(self._says)
        found = {index: self._twin_of(index, says) for index in candidates}
        return {index: why for index, why in found.items() if why is not None}

    def twin_of(self, index: int) -> str | None:
        """Return why a shard that looks done is not, in words; None where no other names its own.

        The first call reads all receipts, and so does one after any got its name since.
        """
        if self._last is None or self._is_outdated(self._last):
            self._read_all()
        return self._twin_of(index, functools.cache(self._says))

    def _is_outdated(self, last: _FullLook) -> bool:
        """Whether receipts may have changed since a look, and that is worth another one.

        What is asked of each of many shards while others work must not read all for each: at most
        every other moment goes into that, and what a look found is never much older than a look
        takes.
        """
        if self._clock() - last.ended < last.ended - last.began:
            return False
        stamp = self._stamp()
        return stamp is None or stamp != last.stamp

    def _stamp(self) -> Stamp | None:
        """Return the stamp of the directory of receipts; None while it can't tell of changes.

        A directory that just changed may change again without another time.
        """
        try:
            status = os.lstat(os.path.join(self._scope.root, RECEIPTS))
        except OSError:
            return None
        return settled_stamp_of(status)

    def _twin_of(self, index: int, says: Callable[[int], _Named]) -> str | None:
        """Compare a shard with all who name its outputs; ``says`` reads each receipt once."""
        go_on()
        said = says(index)
        is_spoilt = self._is_spoilt(index, said)
        for name in said.names:
            others = self._by_name.setdefault(_folded(name), set())
            others.add(index)
            # One look spoils all who name it. If each looked, that would be the square of them.
            if not is_spoilt or self._n_compared.get(_folded(name)) != len(others):
                self._compare_all(index, name, others, says)
        return self._spoilt[index][1] if self._is_spoilt(index, said) else None

    def _is_spoilt(self, index: int, said: _Named) -> bool:
        return index in self._spoilt and self._spoilt[index][0] == said

    def _compare_all(
        self, index: int, name: str, others: set[int], says: Callable[[int], _Named]
    ) -> None:
        for other in sorted(others - {index}):
            go_on()
            if _folded(name) in says(other).folded:
                self._spoil(index, says(index), _why(name, other))
                self._spoil(other, says(other), _why(name, index))
        self._n_compared[_folded(name)] = len(others)

    def _spoil(self, index: int, said: _Named, why: str) -> None:
        """Note why a receipt is not believed, unless that is known; an earlier one's is past."""
        known = self._spoilt[index][1] if self._is_spoilt(index, said) else why
        self._spoilt[index] = (said, known)

    def _read_all(self) -> None:
        began, stamp = self._clock(), self._stamp()
        by_name: dict[str, set[int]] = {}
        root_fd = open_root(self._scope.root)
        try:
            with open_receipts(self._scope.root, root_fd) as receipts_fd:
                if receipts_fd is not None:
                    for index, names in self._all_names(receipts_fd):
                        for name in names:
                            by_name.setdefault(_folded(name), set()).add(index)
        finally:
            os.close(root_fd)
        self._by_name, self._n_compared = by_name, {}
        self._last = _FullLook(began, self._clock(), stamp)

    def _all_names(self, receipts_fd: int) -> Iterator[tuple[int, Iterable[str]]]:
        indices = range(self._n_shards)
        usual = usual_files(self._scope, receipts_fd, indices)
        for index, files in zip(indices, usual, strict=True):
            go_on()
            yield index, _names(files) or self._says(index).names

    def _says(self, index: int) -> _Named:
        try:
            receipt = read_receipt(self._scope.root, index)
            if receipt.status != "completed" or why_foreign(self._scope, receipt, index):
                return _Named()
            path = os.path.join(self._scope.root, RECEIPTS, receipt_name(index))
            files = promised(self._scope, receipt, path)
        except ManifestPermissionError as error:
            raise may_not_read(error) from error
        except ManifestError:
            return _Named()
        names = tuple(file.name for file in files)
        return _Named(receipt.completed_at, names, frozenset(map(_folded, names)))


def _names(files: Iterable[UsualFile] | None) -> list[str]:
    """Return the names of a usual receipt's files; none where an empty shard may owe none."""
    found = [] if files is None else list(files)
    return [file.path for file in found] if all(file.bytes for file in found) else []


def has_twins(names: Sequence[str]) -> bool:
    """Whether two of these names may be one file."""
    # All at once, since most of the time none are; no name has a control character.
    return len(set(_folded("\n".join(names)).split("\n"))) < len(names)


def _folded(name: str) -> str:
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _why(name: str, other: int) -> str:
    return (
        f"completed, but its output {quoted(name)} is that of shard {other} too, by its receipt; "
        "one of them wrote over the other's: give each outputs of its own"
    )

"""What a correct validator must report of a layout, known from the layout alone.

This module imports nothing of shardproof: an oracle must not share the code that it judges.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from shardproof.testing.samples.saev._content import content, shard_content
from shardproof.testing.samples.saev._layout import Layout
from shardproof.testing.samples.saev._states import ShardState

__all__ = ["ExpectedFinding", "Promise", "expected_findings", "expected_unproven", "promises"]

_LEVELS = ("present", "complete", "valid")


class Promise(NamedTuple):
    """What a manifest that leaves nothing out states about one file."""

    name: str
    size: int
    digest: str
    """``"sha256:<hex>"`` of the whole file."""


class ExpectedFinding(NamedTuple):
    """One promise that is not kept."""

    kind: str
    """In which way: a value of `shardproof.FindingKind`."""
    path: Path
    """Absolute path of the file."""


def promises(value: Layout) -> tuple[Promise, ...]:
    """Return what a manifest that leaves nothing out would state, file by file.

    For formats that write digests down: saev's does not.

    Example:
        >>> first, second = promises(layout(n_shards=2))
        >>> first.name, first.size
        ('acts000000.bin', 1024)
    """
    return tuple(_promise(value, name) for name in value.file_names)


def _promise(value: Layout, name: str) -> Promise:
    whole = content(value, name)
    return Promise(name, len(whole), f"sha256:{hashlib.sha256(whole).hexdigest()}")


def expected_findings(
    value: Layout, root: str | os.PathLike[str], level: str = "present", *, digests: bool = False
) -> tuple[ExpectedFinding, ...]:
    """Return every finding that a correct validator reports, in the manifest's order.

    Unreadable shards are expected to be unreadable: for root that takes `without_root_override`.

    Args:
        value: What was written.
        root: Where it was written.
        level: ``"present"``: there, a regular file inside the directory, not empty, opens;
            ``"complete"``: and has its size; ``"valid"``: and has its digest.
        digests: Whether the manifest states digests (`promises`); saev's does not, so at ``valid``
            nothing more is found than at ``complete``.

    Raises:
        ValueError: Another level.

    Example:
        >>> value = layout(n_shards=4, missing=[1], truncated=[2])
        >>> tuple(kind for kind, path in expected_findings(value, "/data"))
        ('missing',)
        >>> tuple(kind for kind, path in expected_findings(value, "/data", "complete"))
        ('missing', 'size')
    """
    _refuse_level(level)
    seen = _seen(value, level, digests=digests)
    kinds = ((index, seen(index)) for index in range(value.n_shards))
    directory = Path(os.path.abspath(root))
    return tuple(
        ExpectedFinding(kind, directory / value.shard_name(index)) for index, kind in kinds if kind
    )


def expected_unproven(
    value: Layout, root: str | os.PathLike[str], level: str = "present", *, digests: bool = False
) -> tuple[Path, ...]:
    """Return the files without a finding about which the manifest states nothing to prove.

    Those are, at ``valid`` and without digests, all of them: a flipped bit is never called proven.

    Args:
        value: What was written.
        root: Where it was written.
        level: As for `expected_findings`.
        digests: As for `expected_findings`.

    Raises:
        ValueError: Another level.

    Example:
        >>> expected_unproven(layout(n_shards=1, flipped=[0]), "/data", "valid")
        (PosixPath('/data/acts000000.bin'),)
    """
    if digests or level != "valid":
        _refuse_level(level)
        return ()
    broken = {finding.path for finding in expected_findings(value, root, level)}
    directory = Path(os.path.abspath(root))
    paths = (directory / name for name in value.file_names)
    return tuple(path for path in paths if path not in broken)


def _refuse_level(level: str) -> None:
    if level not in _LEVELS:
        raise ValueError(f"level: expected one of {', '.join(_LEVELS)}, found {level!r}")


_NOT_PRESENT = {
    ShardState.MISSING: "missing",
    ShardState.DANGLING: "missing",
    ShardState.UNFINISHED: "missing",
    ShardState.EMPTY: "empty",
    ShardState.UNREADABLE: "unreadable",
    ShardState.LOOP: "unreadable",
    ShardState.DIRECTORY: "not-regular",
    ShardState.OUTSIDE: "not-regular",
    ShardState.FIFO: "not-regular",
    ShardState.SOCKET: "not-regular",
}
_NOT_COMPLETE = _NOT_PRESENT | {ShardState.TRUNCATED: "size", ShardState.EXTENDED: "size"}


def _seen(value: Layout, level: str, *, digests: bool) -> Callable[[int], str | None]:
    """Return how a shard looks at a level."""
    if level == "present":
        return lambda index: _NOT_PRESENT.get(value.states[index])
    if level == "complete" or not digests:
        return lambda index: _NOT_COMPLETE.get(value.states[index])
    ring = value.indices(ShardState.SWAPPED)
    following = dict(zip(ring, ring[1:] + ring[:1], strict=True))
    return lambda index: _seen_with_digests(value, index, following)


def _seen_with_digests(value: Layout, index: int, following: Mapping[int, int]) -> str | None:
    if kind := _NOT_COMPLETE.get(value.states[index]):
        return kind
    whole = shard_content(value, index)
    if value.states[index] is ShardState.SWAPPED:
        found = shard_content(value, following[index])
    else:
        found = _found_content(whole, value.states[index])
    return "digest" if found != whole else None


def _found_content(whole: bytes, state: ShardState) -> bytes:
    """The bytes of a shard of the right size, as its state left them.

    They may be the right ones: a shard that holds no example is all zeros, written or not.
    """
    if state is ShardState.SPARSE:
        return bytes(len(whole))
    if state is ShardState.FLIPPED:
        middle = len(whole) // 2
        return whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    return whole

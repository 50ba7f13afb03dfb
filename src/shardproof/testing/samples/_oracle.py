"""What a correct validator must report of a layout, known from the layout alone."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples._states import ShardState

__all__ = [
    "LEVELS",
    "ExpectedFile",
    "ExpectedFinding",
    "expected_files",
    "expected_findings",
    "expected_unproven",
    "refuse_level",
]

LEVELS = ("present", "complete", "valid")


class ExpectedFile(NamedTuple):
    """What a manifest that leaves nothing out states about one file."""

    name: str
    size: int
    digest: str
    """``"sha256:<hex>"`` of the whole file."""


class ExpectedFinding(NamedTuple):
    """One promise that is not kept."""

    kind: str
    """In which way: a value of `shardproof.FindingKind`; of the metadata of a checkpoint that no
    reader may believe, ``refused``."""
    path: Path
    """Absolute path of the file."""


def expected_files(layout: Layout) -> tuple[ExpectedFile, ...]:
    """Return what a manifest that leaves nothing out would state, file by file.

    For formats that write digests down: saev's does not.

    Example:
        >>> first, second = expected_files(Layout(n_shards=2))
        >>> first.name, first.size
        ('acts000000.bin', 1024)
    """
    whole = {name: layout.read_bytes(name) for name in layout.file_names}
    return tuple(
        ExpectedFile(name, len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")
        for name, content in whole.items()
    )


def expected_findings(
    layout: Layout,
    path: str | os.PathLike[str],
    *,
    level: str = "present",
    digests: bool = False,
) -> tuple[ExpectedFinding, ...]:
    """Return every finding that a correct validator reports, in the manifest's order.

    Unreadable shards are expected to be unreadable: for root that takes `without_root_override`.

    Args:
        layout: What was written.
        path: What `write_layout` returned; of a checkpoint its prefix.
        level: ``"present"``: there, a regular file inside the directory, not empty, opens;
            ``"complete"``: and has its size; ``"valid"``: and has its digest.
        digests: Whether the manifest states digests (`expected_files`) that the format's own does
            not: at ``valid`` nothing more is found in saev's than at ``complete``.

    Raises:
        ValueError: Another level.

    Example:
        >>> layout = Layout(n_shards=4, missing=[1], truncated=[2])
        >>> tuple(kind for kind, path in expected_findings(layout, "/data"))
        ('missing',)
        >>> tuple(kind for kind, path in expected_findings(layout, "/data", level="complete"))
        ('missing', 'size')
    """
    refuse_level(level)
    directory = _directory(layout, path)
    problems = (layout.format.problems or _seen_problems)(layout, level, digests)
    return tuple(ExpectedFinding(kind, directory / name) for kind, name in problems)


def expected_unproven(
    layout: Layout,
    path: str | os.PathLike[str],
    *,
    level: str = "present",
    digests: bool = False,
) -> tuple[Path, ...]:
    """Return the files without a finding about which the manifest states nothing to prove.

    Those are, at ``valid`` and without digests, all of them: a flipped bit is never called proven.

    Args:
        layout: What was written.
        path: As for `expected_findings`.
        level: As for `expected_findings`.
        digests: As for `expected_findings`.

    Raises:
        ValueError: Another level.

    Example:
        >>> expected_unproven(Layout(n_shards=1, flipped=[0]), "/data", level="valid")
        (PosixPath('/data/acts000000.bin'),)
    """
    refuse_level(level)
    directory = _directory(layout, path)
    unproven = (layout.format.unproven or _seen_unproven)(layout, level, digests)
    return tuple(directory / name for name in unproven)


def refuse_level(level: str) -> None:
    """Raise a ValueError for another level."""
    if level not in LEVELS:
        raise ValueError(f"level: expected one of {', '.join(LEVELS)}, found {level!r}")


def _directory(layout: Layout, path: str | os.PathLike[str]) -> Path:
    absolute = Path(os.path.abspath(path))
    return absolute.parent if layout.format.is_prefix else absolute


_NOT_PRESENT: dict[str, str] = {
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


def _seen_problems(layout: Layout, level: str, digests: bool) -> Iterator[tuple[str, str]]:
    """Yield kind and name of the shards whose `ShardState` shows at a level."""
    kinds = _NOT_PRESENT if level == "present" else _NOT_COMPLETE
    ring = layout.indices(ShardState.SWAPPED)
    following = dict(zip(ring, ring[1:] + ring[:1], strict=True))
    proven = digests and level == "valid"
    for index, state in enumerate(layout.states):
        name = layout.options.shard_name(index)
        kind = kinds.get(state)
        if kind is None and proven and state != ShardState.OK:
            whole = layout.read_bytes(name)
            other = layout.options.shard_name(following.get(index, index))
            if _left(whole, state, layout.read_bytes(other)) != whole:
                kind = "digest"
        if kind:
            yield kind, name


def _left(whole: bytes, state: str, other: bytes) -> bytes:
    """Return the bytes of a shard of the right size, as its state left them.

    They may be the right ones: a shard that holds no example is all zeros, written or not.
    """
    if state == ShardState.SWAPPED:
        return other
    if state == ShardState.SPARSE:
        return bytes(len(whole))
    if state == ShardState.FLIPPED:
        middle = len(whole) // 2
        return whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    return whole


def _seen_unproven(layout: Layout, level: str, digests: bool) -> Iterator[str]:
    """Yield the files of a manifest without digests that have no problem."""
    if level == "valid" and not digests:
        broken = {name for _, name in _seen_problems(layout, level, digests)}
        yield from (name for name in layout.file_names if name not in broken)

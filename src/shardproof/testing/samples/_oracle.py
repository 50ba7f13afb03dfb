"""What a correct validator must report of a layout, known from the layout alone."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from shardproof.testing.samples._keywords import one_of
from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples._refusals import MAY_REPORT
from shardproof.testing.samples._states import ShardState

LEVELS = ("present", "complete", "valid")


class ExpectedFinding(NamedTuple):
    """One problem of one file."""

    kind: str
    """In which way: a value of `shardproof.FindingKind`; of the metadata of a checkpoint that no
    reader may believe, ``refused``."""
    path: Path
    """Absolute path of the file."""


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
        digests: Whether the manifest states digests that the format's own does not: with saev's own
            nothing more is found at ``valid`` than at ``complete``.

    Raises:
        ValueError: Another level.

    Example:
        >>> layout = Layout(n_shards=4, missing=[1], truncated=[2])
        >>> tuple(kind for kind, path in expected_findings(layout, "/data"))
        ('missing',)
        >>> tuple(kind for kind, path in expected_findings(layout, "/data", level="complete"))
        ('missing', 'size')
    """
    one_of("level", level, LEVELS)
    directory = _directory(layout, path)
    problems = (layout.format.problems or seen_problems)(layout, level, digests)
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
    one_of("level", level, LEVELS)
    directory = _directory(layout, path)
    names: Iterable[str] = ()
    if layout.format.unproven is not None:
        names = layout.format.unproven(layout, level, digests)
    elif level == "valid" and not digests:
        broken = {name for _, name in seen_problems(layout, level, digests)}
        names = (name for name in layout.file_names if name not in broken)
    return tuple(directory / name for name in names)


def _directory(layout: Layout, path: str | os.PathLike[str]) -> Path:
    absolute = Path(os.path.abspath(path))
    return absolute.parent if layout.format.is_prefix else absolute


_PRESENT = {"missing", "empty", "unreadable", "not-regular"}
KINDS = {
    level: {str(state): kinds[0] for state, kinds in MAY_REPORT.items() if seen & {*kinds[:1]}}
    for level, seen in zip(LEVELS, [_PRESENT, *[_PRESENT | {"size"}] * 2], strict=True)
}
"""What each level finds of a state, whatever the format: the same harm has the same word."""


def swapped_with(layout: Layout) -> dict[int, int]:
    """Return for each swapped shard the one whose bytes it has: they go round in a ring."""
    ring = layout.indices(ShardState.SWAPPED)
    return dict(zip(ring, ring[1:] + ring[:1], strict=True))


def seen_problems(layout: Layout, level: str, digests: bool) -> Iterator[tuple[str, str]]:
    """Yield kind and name of the shards whose `ShardState` shows at a level."""
    others = swapped_with(layout)
    for index, state in enumerate(layout.states):
        name = layout.options.shard_name(index)
        kind = KINDS[level].get(state)
        # The bytes may be the right ones in spite of the state: a shard that holds no example is
        # all zeros, written or not.
        if state == ShardState.SPARSE and level != "present" and any(layout.read_bytes(name)):
            kind = "digest" if digests and level == "valid" else "unwritten"
        elif kind is None and digests and level == "valid":
            if state == ShardState.SWAPPED:
                whole = layout.read_bytes(name)
                other = layout.options.shard_name(others[index])
                kind = "digest" if layout.read_bytes(other) != whole else None
            elif state == ShardState.FLIPPED:
                kind = "digest"
        if kind:
            yield kind, name

"""What is right to report of each state: by a validator, all of it; by a loader, what it may."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from shardproof.testing.samples._keywords import one_of
from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples._states import ShardState

LEVELS = ("present", "complete", "valid")

_SIZE = ("size", "structure", "digest")
_NO_FILE = ("not-regular", "unreadable")
MAY_REPORT: dict[ShardState, tuple[str, ...]] = {
    ShardState.MISSING: ("missing",),
    ShardState.UNFINISHED: ("missing",),
    ShardState.DANGLING: ("missing", "not-regular"),
    ShardState.UNREADABLE: ("unreadable",),
    ShardState.LOOP: ("unreadable", "not-regular"),
    ShardState.EMPTY: ("empty", *_SIZE),
    **dict.fromkeys([ShardState.DIRECTORY, ShardState.OUTSIDE], _NO_FILE),
    **dict.fromkeys([ShardState.FIFO, ShardState.SOCKET], _NO_FILE),
    **dict.fromkeys([ShardState.TRUNCATED, ShardState.EXTENDED], _SIZE),
    ShardState.SPARSE: ("unwritten", "structure", "digest"),
    **dict.fromkeys([ShardState.FLIPPED, ShardState.SWAPPED], ("digest", "structure")),
    **dict.fromkeys([ShardState.LINKED, ShardState.LEFTOVER], ()),
}
"""The kinds as which a loader may report each state; the first is the oracle's."""

_PRESENT = {"missing", "empty", "unreadable", "not-regular"}
KINDS = {
    level: {str(state): kinds[0] for state, kinds in MAY_REPORT.items() if seen & {*kinds[:1]}}
    for level, seen in zip(LEVELS, [_PRESENT, *[_PRESENT | {"size"}] * 2], strict=True)
}
"""What each level finds of a state, whatever the format: the same harm has the same word."""


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

    It takes the arguments of `expected_findings`, and raises the same error.

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
        # The bytes may be right all the same: a shard without examples is zeros, written or not.
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


WORDS = {
    "missing": r"(?<!not )missing(?! (\w+ )?permission)"
    r"|(not|n't|unable to|failed to) (be )?(f(i|ou)nd|located?)\b|no such (file|shard)"
    r"|(not|n't) (exist|there|present)|no longer|vanished|deleted|absent|nowhere|\bgone\b",
    "empty": r"\bempty\b|\b(0|zero|no) bytes",
    "unreadable": r"(un|not )readable|permission|denied|not permitted|too many levels"
    r"|input/output error|\bstale\b|\b(EACCES|EIO|ESTALE|ELOOP)\b",
    "not-regular": r"not[ -](an? )?regular|is an? (directory|fifo|pipe|socket|device|link)|outside"
    r"|fifo|socket|symlink|symbolic link|\bpipe\b|\bdevice\b",
    "unwritten": r"unwritten|never written|nothing was written",
    # A number alone is none: "shard 2 of 512 bytes could not be loaded".
    "size": r"\bsize(?!( of| is)? \d)|(few|fewer|many|more|enough) bytes|truncat|\bshort"
    r"|(?<!no )(?<!bytes )\blong|larger|smaller|end of file|\bEOF\b"
    r"|^(?=.*\b(bytes|size)\b).*(?<!shard )(?<!file )\b\d+( bytes)?\W+(\w+\W+){0,3}"
    r"(expected|instead of|rather than|not|found|got|read|has|be|of|only|than)\W+\d",
    "structure": r"structure",
    "digest": r"digest|checksum",
}
"""By which words of a message each kind is known, in any case."""

_CLASSES = {"missing": "Missing|NotFound", "unreadable": "Permission|Unreadable"}
# It may be there: beside these words the class of a FileNotFoundError says nothing.
_UNREAD = r"(not|n't|unable to|failed to) (be )?(read|open|access)"


def reported_kinds(error: BaseException, path: str | os.PathLike[str]) -> frozenset[str]:
    r"""Return as what an error reports a file: kinds of `expected_findings`, or none.

    The first of these counts that says anything, as docs/testing-kit.md describes: findings that
    the error carries (``error.report.findings``, each with ``kind`` and ``path``); the members of
    an exception group; the words of the message about the file; the class.

    Example:
        >>> reported_kinds(FileNotFoundError("a.bin: permission denied"), "/data/a.bin")
        frozenset({'unreadable'})
        >>> reported_kinds(PermissionError("Missing files:\n  /data/a.bin"), "/data/a.bin")
        frozenset({'missing'})
        >>> reported_kinds(FileNotFoundError("/data/a.bin"), "/data/a.bin")
        frozenset({'missing'})
    """
    where, name, text = os.fspath(path), os.path.basename(path), str(error)
    if findings := getattr(getattr(error, "report", None), "findings", ()):
        said = [(os.fspath(each.path), str(each.kind)) for each in findings]
        near = {at for at, _ in said if not os.path.isabs(at) and os.path.basename(at) == name}
        here = {where} & {at for at, _ in said} or (near if len(near) == 1 else set())
        kinds = [_words(kind, where) or {kind} for at, kind in said if at in here]
        if kinds or name not in text:
            return frozenset[str]().union(*kinds)
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    about = [each for each in members if name in f"{each}{each!r}"] or members
    of_members = frozenset[str]().union(*(reported_kinds(each, path) for each in about))
    if found := of_members or _in_words(text, where):
        return found
    classes = " ".join(known.__name__ for known in type(error).__mro__)
    by_class = {kind for kind, names in _CLASSES.items() if re.search(names, classes)}
    lines = [each for each in text.splitlines() if name in each or each.endswith(":")]
    if re.search(_UNREAD, "\n".join(lines) if name in text else text, re.IGNORECASE):
        by_class -= {"missing"}
    return frozenset(by_class)


def wrong_kinds(kinds: Iterable[str], state: str) -> frozenset[str]:
    """Return which of the kinds that an error reports (`reported_kinds`) are wrong of a state.

    None, where it reports nothing, or a right one too: those are the table in docs/testing-kit.md.
    But *missing* is never right of what could not be checked.

    Example:
        >>> wrong_kinds({"missing", "unreadable"}, "unreadable")
        frozenset({'missing'})
    """
    found, right = frozenset(kinds), MAY_REPORT[ShardState(state)]
    never = {"missing"} if right[:1] == ("unreadable",) else set()
    return found & never if found & {*right} else found


def _in_words(text: str, path: str) -> frozenset[str]:
    if (name := os.path.basename(path)) not in text:
        return _words(text, path)
    found = heading = frozenset[str]()
    for line in text.splitlines():
        said = _words(line, path)
        found |= (said or heading) if name in line else frozenset()
        heading = said or heading if line.endswith(":") else heading
    return found


def _words(line: str, path: str) -> frozenset[str]:
    """Return the kinds that a line names, but for the words that are parts of the path."""
    for part in filter(None, (path, os.path.dirname(path), os.path.basename(path))):
        line = line.replace(part, " ")
    folders = {*path.split(os.sep)} - {""}
    rest = re.sub(r"\S*/\S*", lambda at: "" if folders & {*at[0].split("/")} else at[0], line)
    return frozenset(kind for kind, word in WORDS.items() if re.search(word, rest, re.IGNORECASE))

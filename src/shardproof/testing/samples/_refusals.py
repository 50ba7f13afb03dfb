"""What a loader may raise for each state of a shard, and what an error reports of a file."""

import os
import re

from shardproof.testing.samples._states import ShardState

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
"""As which kinds of findings a loader may report each state; the first is the oracle's.

Where that is ``missing``, the error must be a FileNotFoundError; elsewhere it may be one only if
its findings or its words say another kind. Of no kind is what nothing is wrong with.
"""

WORDS = {
    "missing": r"(?<!not )missing(?! (\w+ )?permission)|(not|n't) (be )?f(i|ou)nd|unable to find"
    r"|no such (file|shard)|(not|n't) (exist|there|present)|no longer|vanished|absent|\bgone\b",
    "empty": r"\bempty\b|\b(0|zero|no) bytes",
    "unreadable": r"(un|not )readable|permission|denied|not permitted|too many levels"
    r"|input/output error|\bstale\b|\b(EACCES|EIO|ESTALE|ELOOP)\b",
    "not-regular": r"not[ -](an? )?regular|is an? (directory|fifo|pipe|socket|device|link)|outside"
    r"|fifo|socket|symlink|symbolic link|\bpipe\b|\bdevice\b",
    "unwritten": r"unwritten|never written|nothing was written",
    "size": r"\bsize|\bbytes|truncat|\bshort|(?<!no )\blong|larger|smaller|end of file|\bEOF\b",
    "structure": r"structure",
    "digest": r"digest|checksum",
}
"""By which words of a message each kind is known, in any case, as regular expressions."""

_CLASSES = {"missing": "Missing|NotFound", "unreadable": "Permission|Unreadable"}


def reported_kinds(error: BaseException, path: str | os.PathLike[str]) -> frozenset[str]:
    r"""Return as what an error reports a file: kinds of `expected_findings`, or none.

    The class alone does not tell: `shardproof.ShardValidationError` is a FileNotFoundError whatever
    it found. So the first of these counts that says anything: the findings that it carries
    (``error.report.findings``, each with ``kind`` and ``path``); the words of the message, in the
    line that names the file, else in the heading before it (as ``Missing files:``), and in all of
    it where it does not name the file; the class of the error.

    Args:
        error: What was raised.
        path: The file.

    Example:
        >>> reported_kinds(FileNotFoundError("a.bin: permission denied"), "/data/a.bin")
        frozenset({'unreadable'})
        >>> reported_kinds(PermissionError("Missing files:\n  /data/a.bin"), "/data/a.bin")
        frozenset({'missing'})
        >>> reported_kinds(FileNotFoundError("/data/a.bin"), "/data/a.bin")
        frozenset({'missing'})
    """
    where, report = os.fspath(path), getattr(error, "report", None)
    if findings := getattr(report, "findings", ()):
        return frozenset(str(each.kind) for each in findings if os.fspath(each.path) == where)
    classes = " ".join(known.__name__ for known in type(error).__mro__)
    by_class = (kind for kind, names in _CLASSES.items() if re.search(names, classes))
    return _in_words(str(error), where) or frozenset(by_class)


def _in_words(text: str, path: str) -> frozenset[str]:
    lines, name = text.splitlines(), os.path.basename(path)
    naming = [number for number, line in enumerate(lines) if name in line]
    if not naming:
        return _words(text, path)
    return frozenset[str]().union(*(_words_at(lines, number, path) for number in naming))


def _words_at(lines: list[str], number: int, path: str) -> frozenset[str]:
    headings = [line for line in lines[number - 1 :: -1] if line.endswith(":")] if number else []
    return next(
        filter(None, (_words(each, path) for each in [lines[number], *headings])), frozenset()
    )


def _words(line: str, path: str) -> frozenset[str]:
    """Return the kinds that a line names, but for the words that are parts of the path."""
    for part in (path, os.path.dirname(path), os.path.basename(path)):
        line = line.replace(part, " ")
    folders = {*path.split(os.sep)} - {""}
    rest = re.sub(r"\S*/\S*", lambda at: "" if folders & {*at[0].split("/")} else at[0], line)
    return frozenset(kind for kind, word in WORDS.items() if re.search(word, rest, re.IGNORECASE))

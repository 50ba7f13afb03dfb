"""Which file is there under nearly the name of a missing one: in another case, a copy, a part.

A listing of each folder that lacks files tells. Where none is missing, nothing is asked.
"""

import contextlib
import dataclasses
import itertools
import os
import re
import shlex
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence

from shardproof._base import fanout
from shardproof._base.addresses import remote_at
from shardproof._base.messages import shown, told
from shardproof._base.names import NotRegularError, folded, open_file
from shardproof._base.opening import mode_of, names_in
from shardproof.checks._look import Question, judge
from shardproof.manifest import ExpectedFile
from shardproof.report import Finding, FindingKind

_MOST_FOLDERS, _MOST_EACH = 100, 3
_TAIL = re.compile(r"\.(?:part|crdownload|incomplete|tmp|gz)$", re.IGNORECASE)
_COPY = re.compile(r" \(\d+\)(?=(?:\.[^.]*)?$)")  # of a browser: `x (1).bin`

_Pair = tuple[Finding, ExpectedFile, str]
"""A missing file, and a name that is nearly its own, relative to the root."""


def with_near_files(
    question: Question, dir_fd: int, files: Sequence[ExpectedFile], findings: Sequence[Finding]
) -> list[Finding]:
    """Return findings, those of missing files with what is there under nearly their names."""
    pairs = list(_pairs(question.root, files, findings))
    if not pairs:
        return [*findings]
    level, n_threads = question.level, fanout.available_cpus()
    if level != "valid":
        level, n_threads = "complete", 1
    question = question._replace(level=level, algorithm=None, proofs={})

    def work(some: Sequence[_Pair]) -> list[Finding]:
        return [_told(question, dir_fd, *pair) for pair in some]

    better = dict[Finding, Finding]()
    looks = fanout.collected(work, pairs, n_threads, chunk=1)
    for (finding, _, _), found in zip(pairs, looks, strict=True):
        if found is not finding and not (finding in better and better[finding].mend):
            better[finding] = found
    return [better.get(each, each) for each in findings]


def _pairs(
    root: str, files: Sequence[ExpectedFile], findings: Sequence[Finding]
) -> Iterator[_Pair]:
    missing = defaultdict[str, dict[str, tuple[Finding, ExpectedFile]]](dict)
    for each in findings:
        if each.kind is FindingKind.MISSING and each.index is not None:
            file = files[each.index]
            folder, _, last = file.name.rpartition("/")
            missing[folder][folded(last)] = each, file
    promised = {file.name for file in files} if missing else set[str]()
    for folder, wanted in itertools.islice(missing.items(), _MOST_FOLDERS):
        near, names = defaultdict[str, list[str]](list), list[str]()
        with contextlib.suppress(OSError):  # it is a help only
            names = names_in(os.path.join(root, folder))
        for name in names:
            path = os.path.join(folder, name)
            if path not in promised and (key := next(filter(wanted.__contains__, _keys(name)), "")):
                near[key].append(path)
        for key, paths in near.items():
            yield from ((*wanted[key], path) for path in paths[:_MOST_EACH])


def _keys(name: str) -> Iterator[str]:
    """Yield what a file may be called that has this name instead."""
    for whole in (name, _TAIL.sub("", name)):
        yield folded(whole)
        yield folded(_COPY.sub("", whole))


def _told(
    question: Question, dir_fd: int, finding: Finding, file: ExpectedFile, name: str
) -> Finding:
    """Return the finding with what a file is that has nearly the name; the same if it is none."""
    here, there = os.path.join(question.root, name), os.fspath(finding.path)
    if name.lower().endswith(".gz") and not file.name.lower().endswith(".gz"):
        known, is_plain = "it is compressed", name == f"{file.name}.gz"
        mend = f"gzip -dk -- {shlex.quote(here)}" if is_plain else ""
    else:
        try:
            known, is_right = _compared(question, dir_fd, file, name)
        except NotRegularError:
            return finding
        # Or a part might get the name of the whole. No link is replaced: the command does nothing.
        is_right = is_right and not mode_of(there) and remote_at(there) is None
        mend = f"mv -n -- {shlex.quote(here)} {shlex.quote(there)}" if is_right else ""
    names = os.path.basename(here), os.path.basename(there)
    is_other_form = len({unicodedata.is_normalized("NFC", name) for name in names}) > 1
    is_there = f"there is '{shown(names[0])}'" + " in another Unicode form" * is_other_form
    found = f"{finding.found}, but {is_there}: {known}"
    # Nothing that can't be seen goes into a shell.
    return dataclasses.replace(finding, found=found, mend=mend if mend.isprintable() else "")


def _compared(question: Question, dir_fd: int, file: ExpectedFile, name: str) -> tuple[str, bool]:
    """Return what of a file is as expected of another one, or is not; and whether any is."""
    links = question.links != "none"
    try:
        opened = open_file(name, root=question.root, dir_fd=dir_fd, links=links)
    except OSError as error:
        return f"it can't be opened: {told(error)}", False
    with contextlib.closing(opened):
        answer = judge(question, opened, file)
    if isinstance(answer, Finding):
        return f"expected {answer.expected}, found {answer.found}", False
    if answer != "kept" and file.size is None:
        return "nothing is recorded of it", False
    by_size = "structure" if file.size is None else "size"
    is_proven = question.level == "valid" and answer == "kept"
    return f"its {'digest' if is_proven else by_size} is right", True

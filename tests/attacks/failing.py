"""One call of a subject fails, and what comes of it is judged."""

import errno as errors
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from tests.attacks.children import Attacked, Case, Run, prepared, run_in_child
from tests.attacks.subjects import Subject, Told, damage
from tests.attacks.tally import Tally

ERRNOS = (errors.EIO, errors.ESTALE, errors.EACCES, errors.EMFILE)

_RANDOM = re.compile(r"[0-9a-f]{8,}|-[0-9]+(?=-)")
"""What a name is told apart by in each run: tokens, numbers of processes."""


class Command(NamedTuple):
    code: int
    out: str
    err: str


def cases_of(attacked: Attacked) -> list[Case]:
    """Return every case: each call, or of those that one place makes of one file, the first."""
    firsts: dict[tuple[str, str, str], int] = {}
    calls = zip(attacked.clean.calls, attacked.clean.sites, strict=True)
    for number, ((operation, path), site) in enumerate(calls, start=1):
        firsts.setdefault((operation, _RANDOM.sub("", path), site), number)
    full = (errors.ENOSPC,) if attacked.subject.state else ()
    how = [*((errno, False) for errno in (*ERRNOS, *full)), (errors.EIO, True)]
    return [Case(n, errno, lasts) for n in firsts.values() for errno, lasts in how]


def fail(subject: Subject, path: Path, tally: Tally, n: int) -> None:
    attacked = prepared(subject, path)
    for case in tally.each(cases_of(attacked), n):
        if subject.state is not None:
            attacked.put_back()
        run = run_in_child(subject, attacked.root, case)
        where = f"{subject.name}: {case}"
        if run is None:
            tally.count()
            tally.harm("hang", where)
        elif run.failed:  # as many calls are not made in each run
            tally.count()
            operation, file = run.failed[0]
            where = f"{where}: {operation} of '{os.path.relpath(file, attacked.root)}'"
            for kind, what in _judged(attacked, run, case):
                tally.harm(kind, f"{where}: {what}")


def _judged(attacked: Attacked, run: Run, case: Case) -> Told:
    yield from _told_well(attacked.subject, run, attacked.clean, case)
    if len(run.left) > len(attacked.clean.left):
        yield "leftover", f"{run.left}"
    if attacked.subject.state is None:
        yield from _changed(attacked, run)
    else:
        yield from _damaged(attacked, run, case)


def _changed(attacked: Attacked, run: Run) -> Told:
    if run.tree != attacked.before:
        changes = {*run.tree.items()} ^ {*attacked.before.items()}
        yield "lost", f"the directory changed: {sorted(changes)[:3]}"
        attacked.put_back()


def _damaged(attacked: Attacked, run: Run, case: Case) -> Told:
    code = run.answer.get("code") if isinstance(run.answer, dict) else None
    is_done = run.error is None and not code and not run.err
    subject, new = attacked.subject, attacked.clean.state
    yield from damage(subject, run.state, attacked.old, new, is_done=is_done)
    removing = run.failed[0][0] in {"unlink", "rmdir", "rename", "scandir"}
    stray = run.tree.keys() - attacked.before.keys() - attacked.clean.tree.keys()
    kept = {name for name in stray if re.search(subject.kept, name)}
    stray -= kept | {name for name in stray if any(k.startswith(f"{name}/") for k in kept)}
    if stray and not case.lasts and not removing:
        yield "leftover", f"{sorted(stray)[:3]}"


_MISLEADING = re.compile(
    r"\b(missing|not there|there is no|no such|none found|found none|was deleted|"
    r"no known format|known format|make it again|was killed|not completed)\b",
    re.IGNORECASE,
)


def _told_well(subject: Subject, run: Run, clean: Run, case: Case) -> Told:
    if "Traceback (most recent" in run.err or "Exception ignored" in run.err:
        yield "wrong class", f"a traceback on standard error: {run.err[-1500:]}"
    elif isinstance(clean.answer, dict) and "code" in clean.answer:
        yield from _command_judged(subject, run, clean, case)
    elif run.error is not None:
        yield from _error_judged(run.error, clean, case)
    elif run.answer != clean.answer:
        yield from _answer_judged(run, clean, case)


def _command_judged(subject: Subject, run: Run, clean: Run, case: Case) -> Told:
    if run.error is not None:
        yield "wrong class", f"a traceback: {run.error['traceback']}"
        return
    ended, expected = Command(**run.answer), Command(**clean.answer)
    if ended.code == expected.code and _says_as_much(ended.out, expected.out, case):
        return
    said = f"exit {ended.code} instead of {expected.code}: {(ended.out + ended.err)[-500:]!r}"
    may_not = case.errno == errors.EACCES and _tells(ended, case)
    if ended.code in {0, expected.code} and ended.code not in subject.refused and not may_not:
        yield "lie", said
    elif ended.code not in subject.refused and not may_not:
        yield "wrong class", said
    elif not _tells(ended, case):
        yield "wrong class", f"untold: {said}"
    elif misleading := _misleads(ended.out + ended.err, expected.out + expected.err):
        yield "wrong class", f"it says {misleading!r}: {said}"


def _says_as_much(out: str, expected: str, case: Case) -> bool:
    """Whether nothing is told but what is right, and what could not be seen beside it."""
    lines, right = out.splitlines(), expected.splitlines()
    more = [line for line in lines if line not in right]
    return lines == right or (
        [line for line in lines if line in right] == right
        and all(_told(line, case) for line in more)
    )


def _tells(ended: Command, case: Case) -> bool:
    said = ended.out + ended.err
    return _told(said, case) or "Unreadable files" in said


def _told(text: str, case: Case) -> bool:
    return any(
        name.lower() in text.lower()
        for name in (os.strerror(case.errno), errors.errorcode[case.errno])
    )


def _misleads(text: str, expected: str) -> str:
    words = {word.lower() for word in _MISLEADING.findall(text)}
    return ", ".join(words - {word.lower() for word in _MISLEADING.findall(expected)})


def _error_judged(error: dict[str, Any], clean: Run, case: Case) -> Told:
    said = f"{error['class']}: {error['text'][:500]}"
    expected = clean.error["text"] if clean.error else json.dumps(clean.answer)
    if clean.error and (error["class"], error["text"]) == (clean.error["class"], expected):
        return
    if case.errno not in error["errnos"] and not _unseen(error["findings"], case):
        yield "wrong class", f"{said}\n{error['traceback']}"
    elif not {"OSError", "ShardproofError"} & {*error["is"]}:
        yield "wrong class", said
    elif misleading := _misleads(error["text"], expected):
        yield "wrong class", f"it says {misleading!r}: {said}"


def _unseen(findings: list[dict[str, Any]], case: Case) -> list[dict[str, Any]]:
    name = errors.errorcode[case.errno]
    return [found for found in findings if found["errno"] == name and found["kind"] == "unreadable"]


def _answer_judged(run: Run, clean: Run, case: Case) -> Told:
    answer, expected = run.answer, clean.answer
    if case.errno == errors.EACCES and _told(run.err, case):
        return  # of two steps, say, the one that nobody may read is passed over, and that is told
    if not (isinstance(expected, dict) and "findings" in expected and isinstance(answer, dict)):
        yield "lie", f"answered {str(answer)[:400]} instead of {str(expected or clean.error)[:400]}"
        return
    unseen = _unseen(answer["findings"], case)
    blind = {found["path"] for found in unseen}
    wrong = [found for found in answer["findings"] if found not in unseen + expected["findings"]]
    lost = [
        found
        for found in expected["findings"]
        if found not in answer["findings"] and not _hidden(found["path"], blind)
    ]
    if wrong:
        yield "wrong class", f"findings: {wrong}"
    if lost or not unseen:
        yield "lie", f"answered {str(answer)[:600]} instead of {str(expected)[:600]}"


def _hidden(path: str, blind: set[str]) -> bool:
    """Whether a finding could not be made: it is of what was not seen, or of what that promises."""
    promisers = [other.removesuffix(".metadata.json") for other in blind]
    return any(path == other or path.startswith(f"{other}/") for other in blind) or any(
        path.startswith(f"{other}_shard_") for other in promisers if other not in blind
    )

"""What the commands print of reports: counts, findings with what was expected, and totals."""

import collections
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from shardproof._base.messages import shown
from shardproof.cli import exits, output
from shardproof.report import Finding, Report, summary_of, totals_of

_FOLDED_ABOVE = 50
_NUMBER = re.compile("([0-9]{1,18})")


def show(
    outcomes: Sequence[exits.PathOutcome[Any]], *, verbose: bool = False, every: bool = False
) -> None:
    """Print reports; ``verbose`` adds errno and advice, ``every`` has a line for each finding."""
    for outcome in outcomes:
        if (report := outcome.result) is not None:
            took = "" if outcome.seconds is None else f", {outcome.seconds:.2f} s"
            first = summary_of(report, f" ({report.format}{took})")
            output.print_lines([first], "green" if report.ok else "red")
            output.print_lines(_findings(report, verbose=verbose, every=every))
            output.print_lines(f"note: {note}" for note in report.notes)
            if not report.ok and len(outcomes) > 1:
                click.echo()


def totals(outcomes: Sequence[exits.PathOutcome[Report]]) -> str:
    """Return how many directories there are, in which state, and what was found in them."""
    codes, n = [outcome.exit_code for outcome in outcomes], len(outcomes)
    n_whole, n_damaged = codes.count(exits.KEPT), codes.count(exits.FINDINGS)
    states = f"{n_whole} whole, {n_damaged} damaged, {n - n_whole - n_damaged} unreadable"
    reports = [outcome.result for outcome in outcomes if outcome.result is not None]
    counts = sum((collections.Counter(each.counts) for each in reports), collections.Counter())
    seconds = sum(outcome.seconds or 0 for outcome in outcomes)
    looked = f"{sum(each.n_files for each in reports)} files, {seconds:.2f} s"
    return f"{n} director{'y' if n == 1 else 'ies'}: {states}; {looked}; {totals_of(counts)}"


def _findings(report: Report, *, verbose: bool, every: bool) -> Iterator[str]:
    is_folded = report.n_findings > _FOLDED_ABOVE and not every
    for kind, n_findings in report.counts.items():
        found = [finding for finding in report.findings if finding.kind is kind]
        yield from ("", f"{kind.heading} ({n_findings}):")
        for name, some in _ranges(found) if is_folded else ((str(f.path), [f]) for f in found):
            details = [_detail(finding, verbose=verbose) for finding in some]
            n_files = f" ({len(some)})" if len(some) > 1 else ""
            # Each digest is another one, and so may be the sizes of what was cut.
            first = ", the first" if any(each != details[0] for each in details) else ""
            yield f"  - {shown(name)}{n_files}{first}{details[0]}"
        if n_findings > len(found):
            yield f"  and {n_findings - len(found)} more"
    if not report.ok:
        yield from ("", totals_of(report.counts) + ("; --all lists each" if is_folded else ""))


def _detail(finding: Finding, *, verbose: bool) -> str:
    try:
        target = f" -> {shown(os.readlink(finding.path))}"
    except OSError:  # it is no link, or where no file system is
        target = ""
    name = finding.to_dict()["errno"] if verbose else None
    text = f"{target}: expected {finding.expected}, found {finding.found}"
    advice = finding.advice if verbose else finding.mend
    return text + (f" ({name})" if name else "") + (f"; {advice}" if advice else "")


def _ranges(findings: Iterable[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    """Yield findings whose paths differ in one number only, which counts up, and a name of them."""
    runs, at = list[list[tuple[list[str], Finding]]](), 0  # which number counts up in the last one
    parted = ((_NUMBER.split(str(finding.path)), finding) for finding in findings)
    for each in sorted(parted, key=_by_numbers):
        place = _counted_up(runs[-1][-1][0], each[0]) if runs else 0
        if place and (place == at or len(runs[-1]) == 1):
            runs[-1].append(each)
        else:
            runs.append([each])
        at = place
    for run in runs:
        spans = zip(run[0][0], run[-1][0], strict=True)
        name = "".join(begin if begin == end else f"[{begin}-{end}]" for begin, end in spans)
        yield name, [finding for _, finding in run]


def _by_numbers(parted: tuple[list[str], Finding]) -> list[Any]:
    return [int(part) if at % 2 else part for at, part in enumerate(parted[0])]


def _counted_up(before: list[str], after: list[str]) -> int:
    """Return which number is one more, where nothing else differs; 0 if that is not so."""
    others = [at for at, parts in enumerate(zip(before, after, strict=False)) if len({*parts}) > 1]
    if len(before) != len(after) or len(others) != 1 or others[0] % 2 == 0:
        return 0
    [at] = others
    return at if after[at] == str(int(before[at]) + 1).zfill(len(before[at])) else 0

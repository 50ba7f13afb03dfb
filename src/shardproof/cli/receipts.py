"""The command ``shardproof receipts``: what is done, what is left, and who is at it."""

import dataclasses
import datetime
import functools
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer
from rich.text import Text

from shardproof._base.messages import printable, shown
from shardproof.cli.exits import FINDINGS, KEPT, PathOutcome, outcome_of, warn
from shardproof.cli.paths import given_path
from shardproof.cli.terminal import console, print_lines, print_table
from shardproof.errors import ManifestNotFoundError, ShardproofError
from shardproof.report import Level

if TYPE_CHECKING:
    from shardproof.receipts import ObservedClaim, ReceiptStore, Verdict

__all__ = ["receipts"]

_LONGEST = 10.0**9  # seconds: 30 years, and what a clock says that is wrong


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """One shard that is not done."""

    index: int
    status: str
    reason: str


class _Progress(NamedTuple):
    """How far one plan is."""

    store: "ReceiptStore"
    rows: list[_Row]

    @property
    def exit_code(self) -> int:
        """0 all shards are done; 1 some are not."""
        return FINDINGS if self.rows else KEPT

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "path": str(self.store.path),
            "plan_hash": self.store.plan_hash,
            "n_shards": self.store.n_shards,
            "n_completed": self.store.n_shards - len(self.rows),
            "shards": [dataclasses.asdict(row) for row in self.rows],
        }


_Outcome: TypeAlias = PathOutcome[_Progress]


def receipts(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            parser=given_path,
            help="Directory with plan.json and receipts/, or an output directory that holds runs.",
        ),
    ],
    pending: Annotated[
        bool, typer.Option("--pending", help="Print only the numbers of shards that are not done.")
    ] = False,
    ranges: Annotated[
        bool,
        typer.Option("--ranges", help="Of --pending: as 3,7,12-40 for sbatch --array, on a line."),
    ] = False,
    level: Annotated[
        Level,
        typer.Option(
            help="present: outputs are there; complete: and have the recorded sizes; "
            "valid: and the recorded digests."
        ),
    ] = "complete",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which shards of a data-prep run are done: of one plan, or of all below a directory.

    Exit codes: 0 all of them, or --pending could tell; 1 some are not; 2 no readable plan; 3 could
    not look; 130 interrupted, 143 ended by SIGTERM (129: SIGHUP). Of several plans the highest
    counts.
    """
    if ranges and not pending:
        problem = "it says how --pending prints; give --pending too, or leave --ranges out"
        raise typer.BadParameter(problem, param_hint="--ranges")
    top = os.path.abspath(directory)
    outcomes = _look(top, level)
    for outcome in outcomes:
        if outcome.result is None:
            warn(outcome.error)
    code = max(outcome.exit_code for outcome in outcomes)
    if pending:
        _print_pending(top, outcomes, ranges=ranges)
        raise typer.Exit(code if code > FINDINGS else KEPT)
    if not as_json:
        _print_tables([outcome.result for outcome in outcomes if outcome.result is not None])
    elif outcomes[0].path != top:
        plans = [outcome.to_dict() for outcome in outcomes]
        typer.echo(json.dumps({"path": top, "plans": plans}, indent=2))
    elif outcomes[0].result is not None:
        typer.echo(json.dumps(outcomes[0].to_dict(), indent=2))
    raise typer.Exit(code)


def _look(top: str, level: Level) -> list[_Outcome]:
    """Look at a plan directory; or where it is none, at all that are below."""
    from shardproof.receipts import plan_dirs  # noqa: PLC0415 - not for the other commands

    try:
        found = _progress(top, level)
    except ManifestNotFoundError as error:
        not_there = error
    except (ShardproofError, OSError) as error:
        return [PathOutcome.failed(top, error)]
    else:
        return [PathOutcome(top, found, "", found.exit_code)]
    unseen: list[OSError] = []
    try:
        paths = [str(path) for path in plan_dirs(top, unseen.append)]
    except (FileNotFoundError, NotADirectoryError):
        return [PathOutcome.failed(top, not_there)]
    except OSError as error:
        return [PathOutcome.failed(top, error)]
    if not paths and not unseen:
        problem = "there is no such file, and no plan below: runs/*/datasets/*/*/plan.json"
        path = os.path.join(top, "plan.json")
        return [PathOutcome.failed(top, ManifestNotFoundError(problem, path=path))]
    outcomes = [outcome_of(path, functools.partial(_progress, path, level)) for path in paths]
    return outcomes + [PathOutcome.failed(str(error.filename), error) for error in unseen]


def _progress(path: str, level: Level) -> _Progress:
    from shardproof.receipts import ReceiptStore, claims_in  # noqa: PLC0415 - as above

    store = ReceiptStore(path)
    verdicts = store.verdicts(pending=True, level=level)
    claims = dict(claims_in(store.path))
    return _Progress(store, [_row(found, claims.get(found.index)) for found in verdicts])


def _row(verdict: "Verdict", claim: "ObservedClaim | None") -> _Row:
    if claim is None:
        return _Row(verdict.index, verdict.status, verdict.reason)
    claimant = f"by {shown(claim.owner, 300)}"
    if claim.record is not None:
        # By the clocks of two machines, and only to be read by people.
        seconds = int(min(max(0.0, time.time() - claim.record.claimed_at), _LONGEST))
        claimant += f", for {datetime.timedelta(seconds=seconds)}"
    if claim.is_dead:
        reason = f"{claimant}; that process is gone; {verdict.reason}"
        return _Row(verdict.index, "dead", reason)
    return _Row(verdict.index, "claimed", claimant)


def _print_pending(top: str, outcomes: list[_Outcome], *, ranges: bool) -> None:
    from shardproof.receipts import slurm_array  # noqa: PLC0415 - as above

    if any(outcome.result is None for outcome in outcomes):
        return
    if len(outcomes) > 1:
        problem = f"expected one plan, found {len(outcomes)} below '{shown(top)}'; name one of them"
        raise typer.BadParameter(problem, param_hint="--pending")
    found = outcomes[0].result
    if found is not None and (indices := [row.index for row in found.rows]):
        typer.echo(slurm_array(indices) if ranges else "\n".join(map(str, indices)))


def _print_tables(plans: list[_Progress]) -> None:
    out = console(wraps=True)
    for plan in plans:
        store, rows = plan
        n_done, style = store.n_shards - len(rows), "red" if rows else "green"
        title = f"{n_done} of {store.n_shards} shards completed in '{shown(store.path)}'"
        print_lines(out, [printable(title)], functools.partial(Text, style=style))
        if rows:
            cells = functools.partial(map, _cells, rows)
            print_table(out, ("Index", "Status", "Reason"), cells)


def _cells(row: _Row) -> tuple[str, str, Text]:
    return str(row.index), row.status, Text(printable(row.reason), overflow="fold")

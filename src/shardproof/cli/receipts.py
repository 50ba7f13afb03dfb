"""The command ``shardproof receipts``: what is done, what is left, and which worker is at it."""

import datetime
import functools
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from shardproof._base.messages import shown
from shardproof.cli import exits, options, output
from shardproof.errors import ManifestNotFoundError
from shardproof.report import Level

if TYPE_CHECKING:
    from shardproof.receipts import ReceiptStore

_LONGEST = 10.0**9  # seconds: 30 years, and what a clock says that is wrong


class _Progress(NamedTuple):
    """How far one plan is."""

    store: "ReceiptStore"
    rows: list[dict[str, Any]]  # of shards that are not done: index, status, reason

    @property
    def exit_code(self) -> int:
        return exits.FINDINGS if self.rows else exits.KEPT

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.store.path),
            "plan_hash": self.store.plan_hash,
            "n_shards": self.store.n_shards,
            "n_completed": self.store.n_shards - len(self.rows),
            "shards": self.rows,
        }


_Outcome: TypeAlias = exits.PathOutcome[_Progress]


@click.command()
@click.argument("directory", metavar="DIR", type=options.given_path)
@options.flag("--pending", help="Print only the numbers of shards that are not done.")
@options.flag("--ranges", help="With --pending: on one line, such as 3,7,12-40 for sbatch --array.")
@options.level_option(
    "present: outputs exist; complete: also have the recorded sizes; "
    "valid: also the recorded digests.",
    default="complete",
)
@options.json_option
def receipts(*, directory: str, pending: bool, ranges: bool, level: Level, as_json: bool) -> None:
    """Show which shards of a data-prep run are done.

    DIR holds plan.json and receipts/. Or it is an output directory that holds runs: then each plan
    below it is shown.

    Exit codes: 0 all are done, or --pending printed the others; 1 some are not; 2 no readable plan,
    or wrong usage; 3 something could not be read. Of several plans the highest code counts.
    """
    from shardproof.receipts import slurm_array  # noqa: PLC0415 - not for the other commands

    if ranges and not pending:
        raise click.UsageError("--ranges is a form of --pending: give --pending too")
    if as_json and pending:
        raise click.UsageError("--json and --pending: leave one of the two out")
    top = os.path.abspath(directory)
    outcomes = _look(top, level)
    found = [outcome.result for outcome in outcomes if outcome.result is not None]
    code = max(outcome.exit_code for outcome in outcomes)
    if pending:
        if len(found) == len(outcomes) > 1:
            problem = f"expected one plan, found {len(found)} below '{shown(top)}'"
            raise click.UsageError(f"--pending: {problem}; name one of them")
        if len(found) == len(outcomes) and (indices := [row["index"] for row in found[0].rows]):
            click.echo(slurm_array(indices) if ranges else "\n".join(map(str, indices)))
        raise click.exceptions.Exit(code if code > exits.FINDINGS else exits.KEPT)
    if as_json and outcomes[0].path != top:
        plans = [outcome.to_dict() for outcome in outcomes]
        output.print_json({"path": top, "plans": plans}, code)
    elif as_json:
        output.print_json(outcomes[0].to_dict())
    for store, rows in [] if as_json else found:
        n_done = store.n_shards - len(rows)
        title = f"{n_done} of {store.n_shards} shards completed in '{shown(store.path)}'"
        output.print_lines([title], "red" if rows else "green")
        if rows:
            output.print_table(("Index", "Status", "Reason"), (row.values() for row in rows))
    raise click.exceptions.Exit(code)


def _look(top: str, level: Level) -> list[_Outcome]:
    """Look at a plan directory; or where it is none, at all that are below."""
    from shardproof.receipts import plan_dirs  # noqa: PLC0415 - as above

    unseen: list[OSError] = []
    try:
        paths = [str(path) for path in plan_dirs(top, unseen.append)]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        paths = [top]  # which says what is wrong
    except OSError as error:
        return [exits.PathOutcome.failed(top, error)]
    if not paths and not unseen:
        problem = "there is no such file, and no plan below: runs/*/datasets/*/*/plan.json"
        path = os.path.join(top, "plan.json")
        return [exits.PathOutcome.failed(top, ManifestNotFoundError(problem, path=path))]
    outcomes = [exits.outcome_of(path, functools.partial(_progress, path, level)) for path in paths]
    return outcomes + [exits.PathOutcome.failed(str(error.filename), error) for error in unseen]


def _progress(path: str, level: Level) -> _Progress:
    from shardproof.receipts import ReceiptStore, claims_in  # noqa: PLC0415 - as above

    store = ReceiptStore(path)
    verdicts = store.verdicts(pending=True, level=level, progress=True)
    claims = dict(claims_in(store.path))
    rows = []
    for verdict in verdicts:
        status: str = verdict.status
        reason = verdict.reason
        if (claim := claims.get(verdict.index)) is not None:
            claimant = f"by {shown(claim.owner, 300)}"
            if claim.record is not None:
                # By the clocks of two machines, and only to be read by people.
                seconds = int(min(max(0.0, time.time() - claim.record.since), _LONGEST))
                claimant += f", for {datetime.timedelta(seconds=seconds)}"
            gone = f"{claimant}; that process is gone; {reason}"
            status, reason = ("dead", gone) if claim.is_dead else ("claimed", claimant)
        rows.append({"index": verdict.index, "status": status, "reason": reason})
    return _Progress(store, rows)

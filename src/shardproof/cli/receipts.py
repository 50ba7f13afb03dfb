"""The command ``shardproof receipts``: what is done, what is left, and who is at it."""

import datetime
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from shardproof._base.messages import printable, shown
from shardproof.cli.paths import code_unseen, given_path
from shardproof.cli.text import console, print_lines, print_table
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.report import Level

if TYPE_CHECKING:
    from shardproof.receipts import ReceiptStore, Verdict

__all__ = ["receipts"]

Form = Literal["lines", "slurm"]

_LONGEST = 10.0**9  # seconds: 30 years, and what a clock says that is wrong


class _Row(NamedTuple):
    """One shard that is not done."""

    shard: int
    state: str
    why: str


class _Outcome(NamedTuple):
    """What became of one directory: its receipts, or the error because of which there are none."""

    path: str
    store: "ReceiptStore | None" = None
    rows: tuple[_Row, ...] = ()
    error: ManifestError | OSError | None = None

    @property
    def exit_code(self) -> int:
        if self.error is None:
            return 1 if self.rows else 0
        return 2 if isinstance(self.error, ManifestError) else code_unseen(self.error)

    @property
    def problem(self) -> str:
        if isinstance(self.error, ManifestError):
            return str(self.error)
        return f"Could not look at '{shown(self.path)}': {self.error}"

    def to_dict(self) -> dict[str, Any]:
        if self.store is None:
            return {"root": self.path, "exit_code": self.exit_code, "error": self.problem}
        return {
            "root": str(self.store.path),
            "plan_hash": self.store.plan_hash,
            "n_shards": self.store.n_shards,
            "n_completed": self.store.n_shards - len(self.rows),
            "shards": [row._asdict() for row in self.rows],
        }


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
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            help="Of --pending: one a line, or 3,7,12-40 for sbatch --array.",
            show_default="lines",
        ),
    ] = None,
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
    if form is not None and not pending:
        problem = "it says how --pending prints; give --pending too, or leave --format out"
        raise typer.BadParameter(problem, param_hint="--format")
    top = os.path.abspath(directory)
    outcomes = _look(top, level)
    for outcome in outcomes:
        if outcome.error is not None:
            typer.echo(printable(outcome.problem), err=True)
    code = max(outcome.exit_code for outcome in outcomes)
    if pending:
        _print_pending(top, outcomes, form or "lines")
        raise typer.Exit(code if code > 1 else 0)
    if as_json:
        _print_json(top, outcomes)
    else:
        _print_tables(outcomes)
    raise typer.Exit(code)


def _look(top: str, level: Level) -> list[_Outcome]:
    """Look at a plan directory; or where it is none, at all that are below."""
    from shardproof.receipts import plan_dirs  # noqa: PLC0415 - not for the other commands

    outcome = _look_at(top, level)
    if not isinstance(outcome.error, ManifestNotFoundError):
        return [outcome]
    unseen: list[OSError] = []
    try:
        found = [_look_at(str(path), level) for path in plan_dirs(top, unseen.append)]
    except (FileNotFoundError, NotADirectoryError):
        return [outcome]
    except OSError as error:
        return [_Outcome(top, error=error)]
    found += [_Outcome(str(error.filename), error=error) for error in unseen]
    return found or [_Outcome(top, error=_no_plan(top))]


def _no_plan(top: str) -> ManifestNotFoundError:
    problem = "there is no such file, and no plan below: runs/*/datasets/*/*/plan.json"
    return ManifestNotFoundError(problem, path=os.path.join(top, "plan.json"))


def _look_at(path: str, level: Level) -> _Outcome:
    from shardproof.receipts import ReceiptStore  # noqa: PLC0415 - as above

    try:
        store = ReceiptStore(path)
        return _Outcome(path, store, _rows(store, store.pending_verdicts(level)))
    except (ManifestError, OSError) as error:
        return _Outcome(path, error=error)


def _print_pending(top: str, outcomes: list[_Outcome], form: Form) -> None:
    from shardproof.receipts import as_ranges  # noqa: PLC0415 - as above

    if any(outcome.error for outcome in outcomes):
        return
    if len(outcomes) > 1:
        problem = f"expected one plan, found {len(outcomes)} below '{shown(top)}'; name one of them"
        raise typer.BadParameter(problem, param_hint="--pending")
    indices = [row.shard for row in outcomes[0].rows]
    if indices:
        typer.echo(as_ranges(indices) if form == "slurm" else "\n".join(map(str, indices)))


def _rows(store: "ReceiptStore", verdicts: "list[Verdict]") -> tuple[_Row, ...]:
    from shardproof.receipts import claims_in  # noqa: PLC0415 - as above

    claims = dict(claims_in(os.fspath(store.path)))
    return tuple(_row(found, claims.get(found.index)) for found in verdicts)


def _row(verdict: "Verdict", claim: Any) -> _Row:
    if claim is None:
        state = "failed" if verdict.status == "failed" else "pending"
        return _Row(verdict.index, state, verdict.reason)
    if claim.is_dead:
        why = f"{_claimant(claim.record)}; that process is gone; {verdict.reason}"
        return _Row(verdict.index, "dead", why)
    return _Row(verdict.index, "claimed", _claimant(claim.record))


def _claimant(record: Any) -> str:
    if record is None:
        return "by a worker that can't be told"
    # By the clocks of two machines, and only to be read by people.
    seconds = int(min(max(0.0, time.time() - record.claimed_at), _LONGEST))
    return f"by {shown(record.owner, 300)}, for {datetime.timedelta(seconds=seconds)}"


def _print_json(top: str, outcomes: list[_Outcome]) -> None:
    said = [outcome.to_dict() for outcome in outcomes]
    if outcomes[0].path != top:
        typer.echo(json.dumps({"root": top, "plans": said}, indent=2))
    elif outcomes[0].store is not None:
        typer.echo(json.dumps(said[0], indent=2))


def _print_tables(outcomes: list[_Outcome]) -> None:
    out = console(wraps=True)
    for outcome in outcomes:
        if outcome.store is not None:
            _print_table(out, outcome.store, outcome.rows)


def _print_table(out: Console, store: "ReceiptStore", rows: tuple[_Row, ...]) -> None:
    n_done = store.n_shards - len(rows)
    title = f"{n_done} of {store.n_shards} shards completed in '{shown(store.path)}'"
    style = "red" if rows else "green"
    print_lines(out, [printable(title)], lambda line: Text(line, style))
    if rows:
        print_table(out, ("Shard", "State", "Why"), lambda: map(_cells, rows))


def _cells(row: _Row) -> tuple[str, str, Text]:
    return str(row.shard), row.state, Text(printable(row.why), overflow="fold")

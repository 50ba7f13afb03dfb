"""The command ``shardproof receipts``: what is done, what is left, and who is at it."""

import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shardproof._cli_paths import given_path
from shardproof._terminal import printable
from shardproof.errors import ManifestError
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


def receipts(
    plan_dir: Annotated[
        Path,
        typer.Argument(
            metavar="PLAN_DIR", parser=given_path, help="Directory with plan.json and receipts/."
        ),
    ],
    pending: Annotated[
        bool, typer.Option("--pending", help="Print only the numbers of shards that are not done.")
    ] = False,
    form: Annotated[
        Form,
        typer.Option("--format", help="Of --pending: one a line, or 3,7,12-40 for sbatch --array."),
    ] = "lines",
    level: Annotated[
        Level,
        typer.Option(
            help="present: outputs are there; complete: and have the recorded sizes; "
            "valid: and the recorded digests."
        ),
    ] = "complete",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which shards of a data-prep run are done.

    Exit codes: 0 all of them, or --pending could tell; 1 some are not; 2 no readable plan; 3 could
    not look.
    """
    from shardproof.receipts import ReceiptStore  # noqa: PLC0415 - not for the other commands

    try:
        store = ReceiptStore(plan_dir)
        verdicts = store.pending_verdicts(level)
        rows = _rows(store, verdicts)
    except ManifestError as error:
        _quit(str(error), 2)
    except OSError as error:
        _quit(f"Could not look at '{os.path.abspath(plan_dir)}': {error}", 3)
    if pending:
        _print_pending([found.index for found in verdicts], form)
        return
    if as_json:
        typer.echo(json.dumps(_to_dict(store, rows), indent=2))
    else:
        _print_table(store, rows)
    raise typer.Exit(1 if rows else 0)


def _quit(problem: str, code: int) -> NoReturn:
    typer.echo(printable(problem), err=True)
    raise typer.Exit(code)


def _print_pending(indices: list[int], form: Form) -> None:
    from shardproof.receipts import as_ranges  # noqa: PLC0415 - as above

    if indices:
        typer.echo(as_ranges(indices) if form == "slurm" else "\n".join(map(str, indices)))


def _rows(store: "ReceiptStore", verdicts: "list[Verdict]") -> list[_Row]:
    from shardproof.receipts import claims_in  # noqa: PLC0415 - as above

    claimed = {index: _claimant(found.record) for index, found in claims_in(os.fspath(store.path))}
    return [
        _Row(found.index, "claimed", claimed[found.index])
        if found.index in claimed
        else _Row(found.index, "failed" if found.status == "failed" else "pending", found.reason)
        for found in verdicts
    ]


def _claimant(record: Any) -> str:
    if record is None:
        return "by a worker that can't be told"
    # By the clocks of two machines, and only to be read by people.
    seconds = int(min(max(0.0, time.time() - record.claimed_at), _LONGEST))
    return f"by {record.owner}, for {datetime.timedelta(seconds=seconds)}"


def _to_dict(store: "ReceiptStore", rows: list[_Row]) -> dict[str, Any]:
    return {
        "root": str(store.path),
        "plan_hash": store.plan_hash,
        "n_shards": store.n_shards,
        "n_completed": store.n_shards - len(rows),
        "shards": [row._asdict() for row in rows],
    }


def _print_table(store: "ReceiptStore", rows: list[_Row]) -> None:
    # What is no terminal is a file or a program: they take lines as they are.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100_000)
    n_done = store.n_shards - len(rows)
    title = f"{n_done} of {store.n_shards} shards completed in '{store.path}'"
    console.print(Text(printable(title), "red" if rows else "green"))
    if rows:
        table = Table("Shard", "State", "Why", box=None, pad_edge=False)
        for row in rows:
            table.add_row(str(row.shard), row.state, Text(printable(row.why), overflow="fold"))
        console.print(table)

"""The command ``shardproof``, for job scripts.

Exit codes: 0 every promise kept; 1 findings; 2 no readable promise, or wrong usage; 3 something
could not be looked at (EIO, ESTALE), or said; 130 interrupted, 143 ended by SIGTERM, 129 by SIGHUP:
in order, with nothing left behind; 141 nobody reads what is printed. Of several directories the
highest counts.
"""

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import shardproof
from shardproof._base import files
from shardproof._base.messages import printable, shown, told, with_kind
from shardproof._base.opening import is_directory, is_there, names_in, real_path
from shardproof._base.work import apart
from shardproof.cli.adopt import adopt
from shardproof.cli.checkpoint import app as checkpoint
from shardproof.cli.fetch import fetch
from shardproof.cli.paths import code_unseen, end_unseen, given_path
from shardproof.cli.receipts import receipts
from shardproof.cli.signals import interruptible, listening, signals
from shardproof.cli.stage import stage
from shardproof.cli.terminal import standard_streams
from shardproof.cli.text import console, print_lines
from shardproof.cli.usage import Commands
from shardproof.errors import ManifestError
from shardproof.report import Finding, FindingKind, Level, Report, lines_of

__all__ = ["app", "main"]

_INTERRUPTED = 130

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Shards directories that prove themselves before a job reads them.",
    epilog="Exit codes: 0 kept, 1 findings, 2 no readable promise or wrong usage, "
    "3 could not look (EIO, ESTALE) or print, 130 interrupted, 143 ended by SIGTERM (129: SIGHUP), "
    "141 nobody reads the output.",
)


class _Outcome(NamedTuple):
    """What became of one path: a report, or the reason why there is none."""

    path: str
    report: Report | None
    error: str
    exit_code: int

    def to_dict(self) -> dict[str, Any]:
        if self.report is not None:
            return self.report.to_dict()
        root = os.path.abspath(self.path)
        return {"root": root, "ok": False, "exit_code": self.exit_code, "error": self.error}


def main() -> None:
    """Run the command line; never returns."""
    try:
        with standard_streams(), listening(), interruptible():
            app(prog_name="shardproof")
    except KeyboardInterrupt:  # before typer begins to look after it, or in its midst
        signals.end()
    except SystemExit as end:
        if end.code == _INTERRUPTED:  # as which typer takes every signal
            signals.end()
        raise
    except MemoryError:
        typer.echo("Could not go on: no memory is left", err=True)
        sys.exit(3)
    except OSError as error:  # which no command expects, as of an import
        typer.echo(f"Could not go on: {with_kind(error)}", err=True)
        sys.exit(3)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shardproof {shardproof.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Shards directories that prove themselves before a job reads them."""


@app.command()
def validate(  # noqa: PLR0917 - typer makes options of them
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", parser=given_path, help="Shards directories."),
    ],
    level: Annotated[
        Level,
        typer.Option(
            help="present: each file is there and opens; complete: also its size and structure; "
            "valid: also its digest, reading every byte."
        ),
    ] = "present",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Threads. By default decided by how fast the file system is."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say of each finding what was expected.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no report, only why there is none.")
    ] = False,
) -> None:
    """Look at every file that shards directories promise."""
    outcomes = [_look(os.fspath(path), level, workers, show_bar=not quiet) for path in paths]
    for outcome in outcomes:
        if outcome.report is None:
            typer.echo(printable(outcome.error), err=True)
    if as_json:
        typer.echo(json.dumps([outcome.to_dict() for outcome in outcomes], indent=2))
    elif not quiet:
        _show(outcomes, verbose=verbose)
    raise typer.Exit(max(outcome.exit_code for outcome in outcomes))


def _look(path: str, level: Level, workers: int | None, *, show_bar: bool) -> _Outcome:
    try:
        report = shardproof.validate(path, level=level, workers=workers, progress=show_bar)
    except ManifestError as error:
        return _Outcome(path, None, told(error), 2)
    except OSError as error:
        problem = f"Could not look at '{shown(os.path.abspath(path))}': {told(error)}"
        return _Outcome(path, None, problem, code_unseen(error))
    return _Outcome(path, report, "", report.exit_code)


def _show(outcomes: list[_Outcome], *, verbose: bool) -> None:
    out = console(wraps=False)
    for outcome in outcomes:
        if outcome.report is not None and not (outcome.report.ok and out.is_terminal):
            print_lines(out, _lines(outcome.report, verbose=verbose), _painted)
    if out.is_terminal:
        out.print(Padding(_table(outcomes), (1, 0, 0, 0)))


def _lines(report: Report, *, verbose: bool) -> Iterator[str]:
    yield from map(printable, lines_of(report))
    if verbose and report.findings:
        yield ""
        yield from (printable(_detail(finding)) for finding in report.findings)


def _painted(line: str) -> Text:
    text = Text(line)
    text.highlight_regex(r"(?m)^.* \(\d+\):$", "bold red")
    return text


def _detail(finding: Finding) -> str:
    name = finding.to_dict()["errno"]
    code = f" ({name})" if name else ""
    advice = _ADVICE[finding.kind] if finding.looked else _ADVICE_UNSEEN
    return (
        f"{shown(finding.path)}: expected {finding.expected}, found {finding.found}{code}; {advice}"
    )


_ADVICE_UNSEEN = "it could not be looked at and may be whole: look again when the disk is well"
_ADVICE = {
    FindingKind.MISSING: "make it again, or restore it",
    FindingKind.EMPTY: "make it again, or restore it",
    FindingKind.UNREADABLE: "ask its owner for permission to read it",
    FindingKind.NOT_REGULAR: "move it away, and restore the shard",
    FindingKind.SIZE: "a copy or a writer stopped half-way: make it again, or copy it again",
    FindingKind.STRUCTURE: "the writer was killed or ran twice: make it again",
    FindingKind.DIGEST: "its bytes changed after it was written: restore it",
}


def _table(outcomes: list[_Outcome]) -> Table:
    table = Table("Directory", "Format", "Level", "Files", "Verdict", box=None, pad_edge=False)
    for outcome in outcomes:
        table.add_row(*_row(outcome))
    return table


def _row(outcome: _Outcome) -> Iterator[Text]:
    report = outcome.report
    yield Text(shown(os.path.abspath(outcome.path)), overflow="fold")
    about = ("-", "-", "-") if report is None else (report.format, report.level, report.n_files)
    yield from (Text(str(value)) for value in about)
    yield _verdict(outcome)


def _verdict(outcome: _Outcome) -> Text:
    if outcome.report is None:
        return Text("no readable promise" if outcome.exit_code == 2 else "could not look", "red")
    if outcome.report.ok:
        return Text("ok", "green")
    if outcome.exit_code == 3:
        return Text("could not look at every file", "red")
    n_findings = len(outcome.report.findings)
    return Text(f"{n_findings} finding" + "s" * (n_findings > 1), "bold red")


app.add_typer(checkpoint, name="checkpoint")
app.command()(adopt)
app.command()(fetch)
app.command()(receipts)
app.command()(stage)


@app.command()
def demo(
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=given_path,
            help="Build in this new or empty directory, and keep it.",
        ),
    ] = None,
) -> None:
    """Build a healthy and a damaged shards directory, validate both, show the reports.

    Exit codes: 0 done; 2 wrong usage; 3 could not write, look or print; 130 interrupted,
    143 ended by SIGTERM (129: SIGHUP).
    """
    try:
        code = _demonstrate_in_passing() if keep is None else _demonstrate_and_keep(keep)
    except OSError as error:
        if keep is not None:
            end_unseen(os.fspath(keep), error)
        problem = f"Could not make, or remove, the directories of the demo: {told(error)}"
        tip = "set TMPDIR to a directory that you may write to, or give one by --keep DIR"
        typer.echo(printable(f"{problem}; {tip}"), err=True)
        raise typer.Exit(3) from error
    raise typer.Exit(code)


def _demonstrate_in_passing() -> int:
    made: list[str] = []
    try:
        apart(lambda _: made.append(tempfile.mkdtemp(prefix="shardproof-demo-")))
        code = _demonstrate(Path(made[0]))
    finally:
        try:
            with contextlib.suppress(OSError):  # what failed once may work now
                _remove(made)
        finally:
            _remove(made)  # what an interrupt has cut short
    typer.echo("\nBoth directories are gone again; --keep DIR keeps them.")
    return code


def _remove(directories: list[str]) -> None:
    for directory in directories:
        files.remove_tree(directory)


def _demonstrate_and_keep(keep: Path) -> int:
    if is_there(keep) and (not is_directory(keep) or names_in(keep)):
        raise typer.BadParameter(f"expected a new or empty directory, found '{shown(keep)}'")
    code = _demonstrate(keep)
    typer.echo(f"\nBoth directories are kept in '{shown(real_path(keep))}'.")
    return code


def _demonstrate(base: Path) -> int:
    """Return 3 where nobody could look, else 0."""
    from shardproof import testing  # noqa: PLC0415 - only the demo builds directories

    healthy = testing.write_layout(testing.layout(n_shards=6), base / "healthy")
    damaged = testing.write_layout(
        testing.layout(n_shards=6, missing=[1, 3], empty=[2], unreadable=[4], directory=[5]),
        base / "damaged",
    )
    outcomes: list[_Outcome] = []
    with testing.without_root_override():
        for path in (healthy, damaged):
            typer.echo(f"$ shardproof validate {shown(path)}")
            outcome = _look(os.fspath(path), "present", None, show_bar=False)
            outcomes.append(outcome)
            if outcome.error:
                typer.echo(printable(outcome.error), err=True)
            _show([outcome], verbose=False)
            typer.echo()
    typer.echo("The same in a test run or a job prolog, for the damaged one:")
    typer.echo(f"$ pytest --validate-shards --shards-dir={shown(damaged)}")
    if os.geteuid() == 0:
        typer.echo("(Root may read the unreadable file; the demo gave that power up for a moment.)")
    return 3 if any(outcome.exit_code > 1 for outcome in outcomes) else 0

"""The command ``shardproof checkpoint verify``: which checkpoints are whole."""

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.text import Text

from shardproof._base.messages import printable
from shardproof.cli.checkpoint._paths import prefixes_of
from shardproof.cli.exits import (
    COULD_NOT_LOOK,
    NO_PROMISE,
    PathOutcome,
    may_be_whole,
    outcome_of,
    warn,
)
from shardproof.cli.paths import given_text
from shardproof.cli.terminal import console, print_lines
from shardproof.errors import CheckpointNotFoundError
from shardproof.formats.signs import METADATA
from shardproof.report import Level, lines_of

if TYPE_CHECKING:
    from shardproof.checkpoint import VerificationResult

__all__ = ["LevelOption", "verify"]

LevelOption = Annotated[
    Level,
    typer.Option(
        help="present: files open; complete: also sizes and headers; valid: also every byte."
    ),
]
_Outcome: TypeAlias = "PathOutcome[VerificationResult]"


def verify(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            parser=given_text,
            help="Prefixes, metadata files, or directories: every checkpoint in them, and in the "
            "directories in them.",
        ),
    ],
    level: LevelOption = "valid",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only errors; the exit code says the rest.")
    ] = False,
) -> None:
    """Prove checkpoints: each shard is there, and has the bytes that were written.

    Steps of which there are shards but no metadata are told on standard error, with their age.

    Exit codes: 0 all are whole; 1 findings; 2 no checkpoint, or one whose metadata can't be read;
    3 something could not be looked at; 130 interrupted, 143 ended by SIGTERM (129: SIGHUP). The
    highest counts.
    """
    outcomes = []
    for outcome in (one for path in paths for one in _outcomes_of(path, level, quiet=quiet)):
        outcomes.append(outcome)
        if outcome.result is not None and not quiet and not as_json:
            _print_result(outcome.path, outcome.result)  # the next one may take an hour
        elif outcome.error:
            warn(outcome.error)
    if as_json:
        typer.echo(json.dumps(list(map(_json_of, outcomes)), indent=2))
    raise typer.Exit(max(outcome.exit_code for outcome in outcomes))


def _print_result(prefix: str, result: "VerificationResult") -> None:
    named = dataclasses.replace(result, path=Path(prefix))
    errors = ["", *named.errors] if named.errors else []
    style, out = "green" if named.ok else "red", console(wraps=False)
    lines = map(printable, (*lines_of(named), *errors))
    print_lines(out, lines, lambda line: Text(line, style))
    print_lines(out, map(printable, named.warnings), lambda line: Text(line, "yellow"))


def _json_of(outcome: _Outcome) -> dict[str, Any]:
    said = {"prefix": outcome.path} | outcome.to_dict() | {"exit_code": outcome.exit_code}
    if outcome.result is not None:
        said["warnings"] = list(outcome.result.warnings)
    if outcome.error:
        said["error"] = outcome.error
    return said


def _outcomes_of(path: str, level: Level, *, quiet: bool) -> Iterator[_Outcome]:
    """Yield what became of each checkpoint that a path means; warn of unfinished steps."""
    prefixes = []
    try:
        prefixes = prefixes_of(path)
    except CheckpointNotFoundError as error:
        yield PathOutcome.failed(path, error)
    except OSError as error:
        yield PathOutcome.failed(path, error)
        return
    for prefix in prefixes:
        yield _verified(prefix, level)
    prefix = path.removesuffix(METADATA)
    if prefixes == [prefix if "://" in path else os.path.abspath(prefix)]:
        return  # that one checkpoint was meant, and nothing more of its directory
    from shardproof.checkpoint import unfinished_steps  # noqa: PLC0415 - not for other commands

    try:
        steps = unfinished_steps(prefix)
    except OSError as error:
        yield PathOutcome.failed(path, error)
        return
    for step in [] if quiet else steps:
        warn(step)


def _verified(prefix: str, level: Level) -> _Outcome:
    from shardproof.checkpoint import ShardFileVerifier  # noqa: PLC0415 - not for other commands

    verifier = ShardFileVerifier()
    outcome = outcome_of(prefix, lambda: verifier.verify_checkpoint(prefix, level=level))
    result = outcome.result
    if result is None or result.n_files:
        return outcome
    is_unseen = any(may_be_whole(finding.errno) for finding in result.findings)
    code = COULD_NOT_LOOK if is_unseen else NO_PROMISE
    # Its metadata, which would name the shards, can't be read.
    return PathOutcome(prefix, result, "\n".join(result.errors), code)

"""The command ``shardproof checkpoint``: which are whole, what is in them, other forms of them."""

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from shardproof._base import opening
from shardproof._base.messages import printable, shown
from shardproof.cli.checkpoint._outcomes import Level, outcomes_of
from shardproof.cli.checkpoint._paths import (
    METADATA,
    SHOWN,
    end_with,
    only_prefix,
    prefixes_of,
    refusals_end_it,
    told_log,
)
from shardproof.cli.checkpoint._tables import print_metadata
from shardproof.cli.paths import given_text, print_path
from shardproof.cli.text import console, print_lines
from shardproof.errors import CheckpointNotFoundError
from shardproof.report import lines_of

if TYPE_CHECKING:
    from shardproof.checkpoint import VerificationResult

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Checkpoints of which each rank wrote a shard.",
    epilog="Exit codes: 0 whole, 1 findings, 2 nothing there that can be read, or wrong usage, "
    "3 could not look (EIO, ESTALE), 130 interrupted, 143 ended by SIGTERM (129: SIGHUP).",
)

_THEIRS = (".safetensors", ".safetensors.index.json")

_Where = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        parser=given_text,
        help="A prefix, its metadata file, or a directory with one checkpoint.",
    ),
]


@app.command()
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
    level: Annotated[
        Level,
        typer.Option(help="complete: sizes and headers; valid: also every byte."),
    ] = "valid",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no result, only why there is none.")
    ] = False,
) -> None:
    """Prove checkpoints: each shard is there, and has the bytes that were written.

    Steps of which there are shards but no metadata are told on standard error, with their age.

    Exit codes: 0 all are whole; 1 findings; 2 no checkpoint, or one whose metadata can't be read;
    3 something could not be looked at. The highest counts.
    """
    outcomes = []
    for outcome in (outcome for path in paths for outcome in outcomes_of(path, level, quiet=quiet)):
        outcomes.append(outcome)
        if outcome.result is not None and not quiet and not as_json:
            _print_result(outcome.prefix, outcome.result)  # the next one may take an hour
        elif outcome.error:
            typer.echo(printable(outcome.error), err=True)
    if as_json:
        typer.echo(json.dumps([outcome.to_dict() for outcome in outcomes], indent=2))
    raise typer.Exit(max(outcome.exit_code for outcome in outcomes))


def _print_result(prefix: str, result: "VerificationResult") -> None:
    named = dataclasses.replace(result, root=Path(prefix))
    errors = ["", *named.errors] if named.errors else []
    style, out = "green" if named.ok else "red", console(wraps=False)
    lines = map(printable, (*lines_of(named), *errors))
    print_lines(out, lines, lambda line: Text(line, style))
    print_lines(out, map(printable, named.warnings), lambda line: Text(line, "yellow"))


@app.command()
def show(
    path: _Where,
    all_tensors: Annotated[
        bool, typer.Option("--tensors", help=f"List all tensors, not only {SHOWN}.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all tensors.")] = False,
) -> None:
    """Show what a checkpoint's metadata says; the shards are not looked at.

    Exit codes: 0 it could be read; 2 it could not, or there is none; 3 could not look.
    """
    import msgspec  # noqa: PLC0415 - not for other commands

    from shardproof.checkpoint import MultiShardLoader  # noqa: PLC0415 - as above

    with refusals_end_it("look at", path, 2):
        prefix = only_prefix(path)
        metadata = MultiShardLoader().load_metadata(prefix)
    if as_json:
        typer.echo(json.dumps({"prefix": prefix} | msgspec.to_builtins(metadata), indent=2))
    else:
        print_metadata(prefix, metadata, None if all_tensors else SHOWN)


@app.command()
def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            parser=given_text,
            help="A checkpoint, or files of safetensors: one, an index, or a directory of them.",
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DESTINATION",
            parser=given_text,
            help="A directory for safetensors; a prefix for a checkpoint.",
        ),
    ],
    step: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Of a checkpoint that is made: 0.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Convert a checkpoint to safetensors, or safetensors to a checkpoint; print what was made.

    Exit codes: 0 it was; 1 the source is not whole, has what the other form can't hold, or
    something is in the way; 2 nothing to convert, or it can't be told what is meant; 3 could not
    read or write.
    """
    from shardproof import checkpoint  # noqa: PLC0415 - not for other commands

    with refusals_end_it("convert", source, 1):
        prefix = _prefix_to_convert(source)
        if prefix is None:
            made = [
                checkpoint.from_safetensors(
                    source, destination, step=step or 0, overwrite=overwrite
                )
            ]
        elif step is not None:
            end_with("--step: a checkpoint has its own; files of safetensors have none", 2)
        else:
            made = checkpoint.to_safetensors(prefix, destination, overwrite=overwrite)
    for path in made:
        print_path(path)


def _prefix_to_convert(source: str) -> str | None:
    """Return the prefix of the checkpoint that a source is; None where it is safetensors."""
    theirs = _safetensors_in(source)
    try:
        prefixes = prefixes_of(source)
    except CheckpointNotFoundError:
        if not theirs:
            end_with(
                f"'{shown(source)}': expected a checkpoint or files of safetensors, found neither",
                2,
            )
        return None
    if theirs or len(prefixes) > 1:
        found = "".join(f"\n  - {shown(path)}" for path in (*prefixes, *theirs)[:SHOWN])
        end_with(f"'{shown(source)}': expected one thing to convert; give one of these:{found}", 2)
    return prefixes[0]


def _safetensors_in(source: str) -> list[str]:
    if opening.is_directory(source):
        names = sorted(name for name in os.listdir(source) if name.endswith(_THEIRS))
        return [os.path.join(source, name) for name in names]
    return [source] if opening.is_there(source) and not source.endswith(METADATA) else []


@app.command()
def latest(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", parser=given_text, help="Where checkpoints are.")
    ],
    level: Annotated[
        Level, typer.Option(help="complete: sizes and headers; valid: also every byte.")
    ] = "valid",
) -> None:
    """Print the prefix of the newest whole checkpoint in a directory, or in one of its own.

    What is passed over, and steps that are unfinished, is told on standard error.

    In a script: prefix=$(shardproof checkpoint latest DIR) || [ $? -eq 1 ] || exit; in the argument
    of another command the exit code is lost.

    Exit codes: 0 there is one; 1 there is none; 2 no such directory; 3 could not look.
    """
    from shardproof.checkpoint import latest_checkpoint  # noqa: PLC0415 - not for other commands

    with refusals_end_it("look at", directory, 2), told_log():
        if "://" not in directory and not opening.is_directory(directory):
            end_with(f"'{shown(directory)}': there is no such directory", 2)
        prefix = latest_checkpoint(directory, level=level)
    if prefix is None:
        end_with(f"'{shown(directory)}': expected a whole checkpoint, found none", 1)
    print_path(prefix)

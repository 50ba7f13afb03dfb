"""The command ``shardproof checkpoint``: which are whole, what is in them, other forms of them."""

import json
import os
from typing import Annotated

import typer

from shardproof._base import opening
from shardproof._base.messages import shown
from shardproof.cli.checkpoint._paths import (
    SHOWN,
    only_prefix,
    prefixes_of,
    warnings_shown,
)
from shardproof.cli.checkpoint._tables import print_metadata
from shardproof.cli.checkpoint._verify import ProofLevel, verify
from shardproof.cli.exits import FINDINGS, NO_PROMISE, end_with, errors_end_it
from shardproof.cli.paths import given_text, print_path
from shardproof.errors import CheckpointNotFoundError
from shardproof.formats.signs import METADATA

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


app.command()(verify)


@app.command()
def show(
    path: _Where,
    all_tensors: Annotated[
        bool, typer.Option("--tensors", help=f"List all tensors, not only {SHOWN}.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all tensors.")] = False,
) -> None:
    """Show what a checkpoint's metadata says; the shards are not looked at.

    Exit codes: 0 it could be read; 2 it could not, or there is none; 3 could not look;
    130 interrupted, 143 ended by SIGTERM (129: SIGHUP).
    """
    import msgspec  # noqa: PLC0415 - not for other commands

    from shardproof.checkpoint import MultiShardLoader  # noqa: PLC0415 - as above

    with errors_end_it("look at", path):
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
    read or write; 130 interrupted, 143 ended by SIGTERM (129: SIGHUP).
    """
    from shardproof import checkpoint  # noqa: PLC0415 - not for other commands

    with errors_end_it("convert", source, refused=FINDINGS):
        prefix = _prefix_to_convert(source)
        if prefix is None:
            made = [
                checkpoint.from_safetensors(
                    source, destination, step=step or 0, overwrite=overwrite
                )
            ]
        elif step is not None:
            end_with("--step: a checkpoint has its own; files of safetensors have none", NO_PROMISE)
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
                NO_PROMISE,
            )
        return None
    if theirs or len(prefixes) > 1:
        found = "".join(f"\n  - {shown(path)}" for path in (*prefixes, *theirs)[:SHOWN])
        end_with(
            f"'{shown(source)}': expected one thing to convert; give one of these:{found}",
            NO_PROMISE,
        )
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
        ProofLevel, typer.Option(help="complete: sizes and headers; valid: also every byte.")
    ] = "valid",
) -> None:
    """Print the prefix of the newest whole checkpoint in a directory, or in one of its own.

    What is passed over, and steps that are unfinished, is told on standard error.

    In a script: prefix=$(shardproof checkpoint latest DIR) || [ $? -eq 1 ] || exit; in the argument
    of another command the exit code is lost.

    Exit codes: 0 there is one; 1 there is none; 2 no such directory; 3 could not look;
    130 interrupted, 143 ended by SIGTERM (129: SIGHUP).
    """
    from shardproof.checkpoint import latest_checkpoint  # noqa: PLC0415 - not for other commands

    with errors_end_it("look at", directory), warnings_shown():
        if "://" not in directory and not opening.is_directory(directory):
            end_with(f"'{shown(directory)}': there is no such directory", NO_PROMISE)
        prefix = latest_checkpoint(directory, level=level)
    if prefix is None:
        end_with(f"'{shown(directory)}': expected a whole checkpoint, found none", FINDINGS)
    print_path(prefix)

"""The command ``shardproof checkpoint``: show, convert, and find the newest."""

import itertools
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from shardproof._base import opening
from shardproof._base.messages import printable, shown
from shardproof.cli.checkpoint._paths import SHOWN, only_prefix, prefixes_of, warnings_shown
from shardproof.cli.checkpoint._verify import LevelOption, verify
from shardproof.cli.exits import FINDINGS, NO_PROMISE, end_with, errors_end_it
from shardproof.cli.paths import given_text, print_path
from shardproof.cli.terminal import console, print_lines, print_table
from shardproof.errors import CheckpointNotFoundError
from shardproof.formats.signs import METADATA

if TYPE_CHECKING:
    from shardproof.checkpoint import CheckpointMetadata

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Checkpoints of which each rank wrote a shard.",
    epilog="Exit codes: 0 whole, 1 findings, 2 nothing there that can be read, or wrong usage, "
    "3 could not look (EIO, ESTALE), 130 interrupted, 143 ended by SIGTERM (129: SIGHUP).",
)

_SHARDS = ("Rank", "File", "Bytes", "Tensors", "Checksum")
_TENSORS = ("Rank", "Tensor", "Type", "Shape", "Bytes")
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
        _print_metadata(prefix, metadata, None if all_tensors else SHOWN)


def _print_metadata(prefix: str, metadata: "CheckpointMetadata", limit: int | None) -> None:
    """Print what metadata say, and of all tensors the first ``limit``."""
    out, sharding = console(wraps=True), metadata.sharding
    print_lines(out, [printable(f"'{shown(prefix)}'")], lambda line: Text(line, "bold"))
    about = {
        "step": str(metadata.step),
        "world size": str(metadata.world_size),
        "written": metadata.timestamp,
        "strategy": sharding.strategy,
        "precision": sharding.precision,
    }
    print_lines(out, [*(f"{name}: {_on_one_line(text)}" for name, text in about.items()), ""])
    print_table(out, _SHARDS, lambda: _shard_rows(metadata))
    print_lines(out, [""])
    print_table(out, _TENSORS, lambda: itertools.islice(_tensor_rows(metadata), limit))
    n_tensors = sum(len(shard.tensors) for shard in metadata.shards)
    if limit is not None and n_tensors > limit:
        print_lines(out, [f"and {n_tensors - limit} more; --tensors lists all"])


def _shard_rows(metadata: "CheckpointMetadata") -> Iterator[tuple[str | Text, ...]]:
    for shard in metadata.shards:
        counts = str(shard.file_size), str(len(shard.tensors))
        checksum = _folded(shard.checksum or "none")
        yield str(shard.rank), _folded(shard.file), *counts, checksum


def _tensor_rows(metadata: "CheckpointMetadata") -> Iterator[tuple[str | Text, ...]]:
    for shard in metadata.shards:
        for tensor in shard.tensors:
            shape = _folded("x".join(map(str, tensor.shape)) or "-")
            name = _folded(tensor.name)
            yield str(shard.rank), name, tensor.dtype, shape, str(tensor.size)


def _folded(text: str) -> Text:
    return Text(_on_one_line(text), overflow="fold")


def _on_one_line(text: str) -> str:
    return printable(text).replace("\n", r"\n")


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
    """Return the prefix of the checkpoint to convert; None where the source is safetensors."""
    if opening.is_directory(source):
        names = sorted(name for name in os.listdir(source) if name.endswith(_THEIRS))
        theirs = [os.path.join(source, name) for name in names]
    else:
        is_theirs = opening.is_there(source) and not source.endswith(METADATA)
        theirs = [source] if is_theirs else []
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


@app.command()
def latest(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", parser=given_text, help="Where checkpoints are.")
    ],
    level: LevelOption = "valid",
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

"""The command ``shardproof checkpoint``: verify, show, convert, and find the newest."""

import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from shardproof._base import opening
from shardproof._base.errnos import may_be_whole
from shardproof._base.messages import printable, shown
from shardproof.cli.commands import ShellGroup
from shardproof.cli.exits import (
    COULD_NOT_LOOK,
    FINDINGS,
    NO_PROMISE,
    PathOutcome,
    end_with,
    errors_end_it,
    outcome_of,
    warn,
)
from shardproof.cli.logs import log_shown
from shardproof.cli.paths import (
    SHOWN,
    argument,
    json_option,
    level_option,
    only_one,
    prefixes_of,
    print_path,
    quiet_option,
)
from shardproof.cli.terminal import console, print_lines, print_table
from shardproof.errors import CheckpointNotFoundError
from shardproof.formats.signs import METADATA
from shardproof.report import Level, lines_of

if TYPE_CHECKING:
    from shardproof.checkpoint import CheckpointMetadata, VerificationResult

__all__ = ["checkpoint"]


@click.group(
    cls=ShellGroup,
    epilog="Exit codes: 0 whole, 1 findings, 2 nothing there that can be read, or wrong usage, "
    "3 could not look (EIO, ESTALE), 130 interrupted, 143 ended by SIGTERM (129: SIGHUP).",
)
def checkpoint() -> None:
    """Checkpoints of which each rank wrote a shard."""


_THEIRS = (".safetensors", ".safetensors.index.json")

_level_option = level_option(
    "present: files open; complete: also sizes and headers; valid: also every byte.",
    default="valid",
)
_Outcome: TypeAlias = "PathOutcome[VerificationResult]"


@checkpoint.command()
@argument(
    "paths",
    "PATH",
    "Prefixes, metadata files, or directories: every checkpoint in them, and in the directories "
    "in them.",
    many=True,
)
@_level_option
@json_option
@quiet_option()
def verify(*, paths: Sequence[str], level: Level, as_json: bool, quiet: bool) -> None:
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
            # The next one may take an hour.
            result = dataclasses.replace(outcome.result, path=Path(outcome.path))
            errors = ["", *result.errors] if result.errors else []
            style, out = "green" if result.ok else "red", console(wraps=False)
            lines = map(printable, (*lines_of(result), *errors))
            print_lines(out, lines, style)
            print_lines(out, map(printable, result.warnings), "yellow")
        elif outcome.error:
            warn(outcome.error)
    if as_json:
        said = []
        for outcome in outcomes:
            about = {"prefix": outcome.path} | outcome.to_dict() | {"exit_code": outcome.exit_code}
            if outcome.result is not None:
                about["warnings"] = list(outcome.result.warnings)
            said.append(about | ({"error": outcome.error} if outcome.error else {}))
        click.echo(json.dumps(said, indent=2))
    raise click.exceptions.Exit(max(outcome.exit_code for outcome in outcomes))


def _outcomes_of(path: str, level: Level, *, quiet: bool) -> Iterator[_Outcome]:
    """Yield what became of each checkpoint that a path means; warn of unfinished steps."""
    prefixes = []
    try:
        prefixes = prefixes_of(path)
    except OSError as error:
        yield PathOutcome.failed(path, error)
        if not isinstance(error, CheckpointNotFoundError):
            return
    # Not for other commands.
    from shardproof.checkpoint import ShardFileVerifier, unfinished_steps  # noqa: PLC0415

    for prefix in prefixes:
        look = functools.partial(ShardFileVerifier().verify_checkpoint, prefix, level=level)
        outcome = outcome_of(prefix, look)
        result = outcome.result
        if result is not None and not result.n_files:
            # Its metadata, which would name the shards, can't be read.
            is_unseen = any(may_be_whole(finding.errno) for finding in result.findings)
            code = COULD_NOT_LOOK if is_unseen else NO_PROMISE
            outcome = PathOutcome(prefix, result, "\n".join(result.errors), code)
        yield outcome
    prefix = path.removesuffix(METADATA)
    if prefixes == [prefix if "://" in path else os.path.abspath(prefix)]:
        return  # that one checkpoint was meant, and nothing more of its directory
    try:
        steps = unfinished_steps(prefix)
    except OSError as error:
        yield PathOutcome.failed(path, error)
        return
    for step in [] if quiet else steps:
        warn(step)


@checkpoint.command()
@argument("path", "PATH", "A prefix, its metadata file, or a directory with one checkpoint.")
@click.option("--tensors", "all_tensors", is_flag=True, help=f"List all tensors, not only {SHOWN}.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all tensors.")
def show(*, path: str, all_tensors: bool, as_json: bool) -> None:
    """Show what a checkpoint's metadata says; the shards are not looked at.

    Exit codes: 0 it could be read; 2 it could not, or there is none; 3 could not look;
    130 interrupted, 143 ended by SIGTERM (129: SIGHUP).
    """
    import msgspec  # noqa: PLC0415 - not for other commands

    from shardproof.checkpoint import MultiShardLoader  # noqa: PLC0415 - as above

    with errors_end_it("look at", path):
        prefix = only_one(prefixes_of(path), path, "one checkpoint")
        metadata = MultiShardLoader().load_metadata(prefix)
    if as_json:
        click.echo(json.dumps({"prefix": prefix} | msgspec.to_builtins(metadata), indent=2))
        return
    out, sharding = console(wraps=True), metadata.sharding
    print_lines(out, [printable(f"'{shown(prefix)}'")], "bold")
    about = {
        "step": str(metadata.step),
        "world size": str(metadata.world_size),
        "written": metadata.timestamp,
        "strategy": sharding.strategy,
        "precision": sharding.precision,
    }
    print_lines(out, [*(f"{name}: {_on_one_line(text)}" for name, text in about.items()), ""])
    titles = ("Rank", "File", "Bytes", "Tensors", "Checksum")
    print_table(out, titles, lambda: _shard_rows(metadata))
    print_lines(out, [""])
    limit = None if all_tensors else SHOWN
    titles = ("Rank", "Tensor", "Type", "Shape", "Bytes")
    print_table(out, titles, lambda: itertools.islice(_tensor_rows(metadata), limit))
    n_tensors = sum(len(shard.tensors) for shard in metadata.shards)
    if limit is not None and n_tensors > limit:
        print_lines(out, [f"and {n_tensors - limit} more; --tensors lists all"])


def _shard_rows(metadata: "CheckpointMetadata") -> Iterator[tuple[str, ...]]:
    for shard in metadata.shards:
        counts = str(shard.file_size), str(len(shard.tensors))
        yield (
            str(shard.rank),
            _on_one_line(shard.file),
            *counts,
            _on_one_line(shard.checksum or "none"),
        )


def _tensor_rows(metadata: "CheckpointMetadata") -> Iterator[tuple[str, ...]]:
    for shard in metadata.shards:
        for tensor in shard.tensors:
            shape = _on_one_line("x".join(map(str, tensor.shape)) or "-")
            yield str(shard.rank), _on_one_line(tensor.name), tensor.dtype, shape, str(tensor.size)


def _on_one_line(text: str) -> str:
    return printable(text).replace("\n", r"\n")


@checkpoint.command()
@argument(
    "source",
    "SOURCE",
    "A checkpoint, or files of safetensors: one, an index, or a directory of them.",
)
@argument("destination", "DESTINATION", "A directory for safetensors; a prefix for a checkpoint.")
@click.option(
    "--step", type=click.IntRange(min=0), metavar="N", help="Of a checkpoint that is made: 0."
)
@click.option("--overwrite", is_flag=True, help="Replace what is there.")
def convert(*, source: str, destination: str, step: int | None, overwrite: bool) -> None:
    """Convert a checkpoint to safetensors, or safetensors to a checkpoint; print what was made.

    Exit codes: 0 it was; 1 the source is not whole, has what the other form can't hold, or
    something is in the way; 2 nothing to convert, or it can't be told what is meant; 3 could not
    read or write; 130 interrupted, 143 ended by SIGTERM (129: SIGHUP).
    """
    # Not for other commands.
    from shardproof.checkpoint import from_safetensors, to_safetensors  # noqa: PLC0415

    with errors_end_it("convert", source, refused=FINDINGS):
        prefix = _prefix_to_convert(source)
        if prefix is None:
            made = [from_safetensors(source, destination, step=step or 0, overwrite=overwrite)]
        elif step is not None:
            end_with("--step: a checkpoint has its own; files of safetensors have none", NO_PROMISE)
        else:
            made = to_safetensors(prefix, destination, overwrite=overwrite)
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
            problem = "expected a checkpoint or files of safetensors, found neither"
            end_with(f"'{shown(source)}': {problem}", NO_PROMISE)
        return None
    return only_one([*prefixes, *theirs], source, "one thing to convert")


@checkpoint.command()
@argument("directory", "DIR", "Where checkpoints are.")
@_level_option
def latest(*, directory: str, level: Level) -> None:
    """Print the prefix of the newest whole checkpoint in a directory, or in one of its own.

    What is passed over, and steps that are unfinished, is told on standard error.

    In a script: prefix=$(shardproof checkpoint latest DIR) || [ $? -eq 1 ] || exit; in the argument
    of another command the exit code is lost.

    Exit codes: 0 there is one; 1 there is none; 2 no such directory; 3 could not look;
    130 interrupted, 143 ended by SIGTERM (129: SIGHUP).
    """
    from shardproof.checkpoint import latest_checkpoint  # noqa: PLC0415 - not for other commands

    with errors_end_it("look at", directory), log_shown("checkpoint"):
        if "://" not in directory and not opening.is_directory(directory):
            end_with(f"'{shown(directory)}': there is no such directory", NO_PROMISE)
        prefix = latest_checkpoint(directory, level=level)
    if prefix is None:
        end_with(f"'{shown(directory)}': expected a whole checkpoint, found none", FINDINGS)
    print_path(prefix)

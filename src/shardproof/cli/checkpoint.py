"""The command ``shardproof checkpoint``: verify, show, convert, and find the newest."""

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from shardproof._base import opening
from shardproof._base.messages import shown
from shardproof._base.opening import may_be_whole
from shardproof.cli.exits import (
    COULD_NOT_CHECK,
    FINDINGS,
    NO_MANIFEST,
    PathOutcome,
    end_with,
    errors_end_it,
    outcome_of,
)
from shardproof.cli.output import (
    SHOWN,
    log_shown,
    print_json,
    print_lines,
    print_path,
    print_table,
    warn,
)
from shardproof.cli.paths import (
    given_text,
    json_option,
    level_option,
    only_one,
    prefixes_of,
    quiet_option,
)
from shardproof.errors import CheckpointNotFoundError
from shardproof.formats.signs import METADATA
from shardproof.report import Level, lines_of

if TYPE_CHECKING:
    from shardproof.checkpoint import VerificationResult


@click.group()
def checkpoint() -> None:
    """Work with checkpoints that have one shard for each rank."""


_THEIRS = (".safetensors", ".safetensors.index.json")

_level_option = level_option(
    "present: files open; complete: also sizes and headers; valid: also every byte.",
    default="valid",
)
_Outcome: TypeAlias = "PathOutcome[VerificationResult]"


@checkpoint.command()
@click.argument("paths", metavar="PATH...", type=given_text, nargs=-1, required=True)
@_level_option
@json_option
@quiet_option()
def verify(*, paths: Sequence[str], level: Level, as_json: bool, quiet: bool) -> None:
    """Verify checkpoints: every shard exists and has its bytes.

    Each PATH is a prefix, a metadata file, or a directory: every checkpoint in it and in its direct
    subdirectories. Steps with shards but no metadata are reported on standard error, with their
    age.

    Exit codes: 0 all are intact; 1 findings; 2 no checkpoint, or unreadable metadata; 3 something
    could not be read. Of several checkpoints the highest code counts.
    """
    outcomes = []
    for outcome in (one for path in paths for one in _outcomes_of(path, level, quiet=quiet)):
        outcomes.append(outcome)
        if outcome.result is not None and not quiet and not as_json:
            # The next one may take an hour.
            result = dataclasses.replace(outcome.result, path=Path(outcome.path))
            errors = ["", *result.errors] if result.errors else []
            print_lines([*lines_of(result), *errors], "green" if result.ok else "red")
            print_lines(result.warnings, "yellow")
        elif outcome.error:
            warn(outcome.error)
    if as_json:
        said = []
        for outcome in outcomes:
            about = {"prefix": outcome.path} | outcome.to_dict() | {"exit_code": outcome.exit_code}
            if outcome.result is not None:
                about["warnings"] = list(outcome.result.warnings)
            said.append(about | ({"error": outcome.error} if outcome.error else {}))
        print_json(said)
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
            code = COULD_NOT_CHECK if is_unseen else NO_MANIFEST
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
@click.argument("path", metavar="PATH", type=given_text)
@click.option(
    "--tensors", "all_tensors", is_flag=True, help=f"List all tensors, not only the first {SHOWN}."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all tensors.")
def show(*, path: str, all_tensors: bool, as_json: bool) -> None:
    """Show the metadata of a checkpoint, without reading its shards.

    PATH is a prefix, its metadata file, or a directory with one checkpoint.

    Exit codes: 0 shown; 2 no checkpoint, invalid metadata, or wrong usage; 3 it could not be read.
    """
    import msgspec  # noqa: PLC0415 - not for other commands

    from shardproof.checkpoint import MultiShardLoader  # noqa: PLC0415 - as above

    with errors_end_it("check", path):
        prefix = only_one(prefixes_of(path), path, "one checkpoint")
        metadata = MultiShardLoader().load_metadata(prefix)
    if as_json:
        print_json({"prefix": prefix} | msgspec.to_builtins(metadata))
        return
    about = {
        "step": metadata.step,
        "world size": metadata.world_size,
        "written": metadata.timestamp,
        "strategy": metadata.sharding.strategy,
        "precision": metadata.sharding.precision,
    }
    print_lines(
        [f"'{shown(prefix)}'", *(f"{name}: {shown(str(it))}" for name, it in about.items())]
    )
    click.echo()
    shards = metadata.shards
    rows: list[tuple[object, ...]] = [
        (shard.rank, shard.file, shard.file_size, len(shard.tensors), shard.checksum or "none")
        for shard in shards
    ]
    print_table(("Rank", "File", "Bytes", "Tensors", "Checksum"), rows)
    click.echo()
    tensors = [(shard.rank, tensor) for shard in shards for tensor in shard.tensors]
    n_shown = len(tensors) if all_tensors else SHOWN
    rows = [
        (rank, tensor.name, tensor.dtype, "x".join(map(str, tensor.shape)) or "-", tensor.size)
        for rank, tensor in tensors[:n_shown]
    ]
    print_table(("Rank", "Tensor", "Type", "Shape", "Bytes"), rows)
    if len(tensors) > n_shown:
        print_lines([f"and {len(tensors) - n_shown} more; --tensors lists all"])


@checkpoint.command()
@click.argument("source", metavar="SOURCE", type=given_text)
@click.argument("destination", metavar="DESTINATION", type=given_text)
@click.option(
    "--step",
    type=click.IntRange(min=0),
    metavar="N",
    help="Step of the new checkpoint. By default 0.",
)
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
def convert(*, source: str, destination: str, step: int | None, overwrite: bool) -> None:
    """Convert a checkpoint to safetensors, or back; print the paths written.

    SOURCE is a checkpoint, a safetensors file, an index, or a directory of safetensors files.
    DESTINATION is a directory for safetensors, or the prefix of a checkpoint.

    Exit codes: 0 converted; 1 the source is damaged, has something that the other format can't
    hold, or a file is in the way; 2 nothing to convert, several sources, or wrong usage; 3 could
    not read or write.
    """
    # Not for other commands.
    from shardproof.checkpoint import from_safetensors, to_safetensors  # noqa: PLC0415

    with errors_end_it("convert", source, refused=FINDINGS):
        prefix = _prefix_to_convert(source)
        if prefix is None:
            made = [from_safetensors(source, destination, step=step or 0, overwrite=overwrite)]
        elif step is not None:
            end_with(
                "--step: a checkpoint has its own; files of safetensors have none", NO_MANIFEST
            )
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
            end_with(f"'{shown(source)}': {problem}", NO_MANIFEST)
        return None
    return only_one([*prefixes, *theirs], source, "one thing to convert")


@checkpoint.command()
@click.argument("directory", metavar="DIR", type=given_text)
@_level_option
def latest(*, directory: str, level: Level) -> None:
    """Print the prefix of the newest intact checkpoint in DIR.

    The search includes the direct subdirectories. Skipped checkpoints and unfinished steps are
    reported on standard error.

    In a script: prefix=$(shardproof checkpoint latest DIR) || [ $? -eq 1 ] || exit; in the argument
    of another command the exit code is lost.

    Exit codes: 0 there is one; 1 there is none; 2 no such directory, or wrong usage; 3 something
    could not be read.
    """
    from shardproof.checkpoint import latest_checkpoint  # noqa: PLC0415 - not for other commands

    with errors_end_it("check", directory), log_shown("checkpoint"):
        if "://" not in directory and not opening.is_directory(directory):
            end_with(f"'{shown(directory)}': there is no such directory", NO_MANIFEST)
        prefix = latest_checkpoint(directory, level=level)
    if prefix is None:
        end_with(f"'{shown(directory)}': expected an intact checkpoint, found none", FINDINGS)
    print_path(prefix)

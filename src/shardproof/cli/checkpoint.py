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
from shardproof.cli import exits, options, output, reports
from shardproof.errors import CheckpointNotFoundError
from shardproof.formats.signs import METADATA
from shardproof.report import Level

if TYPE_CHECKING:
    from shardproof.checkpoint import VerificationResult


@click.group()
def checkpoint() -> None:
    """Work with checkpoints that have one shard for each rank.

    Exit codes: 0 done; 1 findings; 2 no checkpoint, or wrong usage; 3 could not be read.
    """


_THEIRS = (".safetensors", ".safetensors.index.json")

_level_option = options.level_option(
    "present: files open; complete: also sizes and headers; valid: also every byte.",
    default="valid",
)
_Outcome: TypeAlias = "exits.PathOutcome[VerificationResult]"


@checkpoint.command()
@click.argument("paths", metavar="PATH...", type=options.given_text, nargs=-1, required=True)
@_level_option
@options.json_option
@options.every_option
@options.quiet_option()
def verify(*, paths: Sequence[str], level: Level, as_json: bool, every: bool, quiet: bool) -> None:
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
            reports.show([dataclasses.replace(outcome, result=result)], every=every)
            output.print_lines(result.warnings, "yellow")
        elif outcome.result is not None and outcome.error:
            output.warn(outcome.error)
    if as_json:
        output.print_json([{"prefix": each.path} | each.to_dict() for each in outcomes])
    raise click.exceptions.Exit(max(outcome.exit_code for outcome in outcomes))


def _outcomes_of(path: str, level: Level, *, quiet: bool) -> Iterator[_Outcome]:
    """Yield what became of each checkpoint that a path means; warn of unfinished steps."""
    prefixes = []
    try:
        prefixes = _prefixes_of(path)
    except OSError as error:
        yield exits.PathOutcome.failed(path, error)
        if not isinstance(error, CheckpointNotFoundError):
            return
    # Not for other commands.
    from shardproof.checkpoint import ShardFileVerifier, unfinished_steps  # noqa: PLC0415

    for prefix in prefixes:
        verify = functools.partial(ShardFileVerifier().verify_checkpoint, progress=not quiet)
        look = functools.partial(verify, prefix, level=level)
        outcome = exits.outcome_of(prefix, look)
        result = outcome.result
        if result is not None and not result.n_files:
            # Its metadata, which would name the shards, can't be read.
            is_unseen = any(may_be_whole(finding.errno) for finding in result.findings)
            code = exits.COULD_NOT_CHECK if is_unseen else exits.NO_MANIFEST
            outcome = exits.PathOutcome(prefix, result, "\n".join(result.errors), code)
        yield outcome
    prefix = path.removesuffix(METADATA)
    if prefixes == [prefix if "://" in path else os.path.abspath(prefix)]:
        return  # that one checkpoint was meant, and nothing more of its directory
    try:
        steps = unfinished_steps(prefix)
    except OSError as error:
        yield exits.PathOutcome.failed(path, error)
        return
    for step in [] if quiet else steps:
        output.warn(step)


@checkpoint.command()
@click.argument("path", metavar="PATH", type=options.given_text)
@options.flag(
    "--tensors", "all_tensors", help=f"List all tensors, not only the first {output.SHOWN}."
)
@options.flag("--json", "as_json", help="Print JSON, with all tensors.")
def show(*, path: str, all_tensors: bool, as_json: bool) -> None:
    """Show the metadata of a checkpoint, without reading its shards.

    PATH is a prefix, its metadata file, or a directory with one checkpoint.

    Exit codes: 0 shown; 2 no checkpoint, invalid metadata, or wrong usage; 3 it could not be read.
    """
    import msgspec  # noqa: PLC0415 - not for other commands

    from shardproof.checkpoint import MultiShardLoader  # noqa: PLC0415 - as above

    with exits.errors_end_it("check", path):
        prefix = _only_one(_prefixes_of(path), path, "one checkpoint")
        metadata = MultiShardLoader().load_metadata(prefix)
    if as_json:
        output.print_json({"prefix": prefix, "metadata": msgspec.to_builtins(metadata)})
        return
    about = {
        "step": metadata.step,
        "world size": metadata.world_size,
        "written": metadata.timestamp,
        "strategy": metadata.sharding.strategy,
        "precision": metadata.sharding.precision,
    }
    output.print_lines(
        [f"'{shown(prefix)}'", *(f"{name}: {shown(str(it))}" for name, it in about.items())]
    )
    click.echo()
    shards = metadata.shards
    rows: list[tuple[object, ...]] = [
        (shard.rank, shard.file, shard.file_size, len(shard.tensors), shard.checksum or "none")
        for shard in shards
    ]
    output.print_table(("Rank", "File", "Bytes", "Tensors", "Checksum"), rows)
    click.echo()
    tensors = [(shard.rank, tensor) for shard in shards for tensor in shard.tensors]
    n_shown = len(tensors) if all_tensors else output.SHOWN
    rows = [
        (rank, tensor.name, tensor.dtype, "x".join(map(str, tensor.shape)) or "-", tensor.size)
        for rank, tensor in tensors[:n_shown]
    ]
    output.print_table(("Rank", "Tensor", "Type", "Shape", "Bytes"), rows)
    if len(tensors) > n_shown:
        output.print_lines([f"and {len(tensors) - n_shown} more; --tensors lists all"])


@checkpoint.command()
@click.argument("source", metavar="SOURCE", type=options.given_text)
@click.argument("destination", metavar="DESTINATION", type=options.given_text)
@click.option(
    "--step",
    type=click.IntRange(min=0),
    metavar="N",
    help="Step of the new checkpoint. By default 0.",
)
@options.flag("--overwrite", help="Replace existing files.")
@options.json_option
def convert(
    *, source: str, destination: str, step: int | None, overwrite: bool, as_json: bool
) -> None:
    """Convert a checkpoint to safetensors, or back; print the paths written.

    SOURCE is a checkpoint, a safetensors file, an index, or a directory of safetensors files.
    DESTINATION is a directory for safetensors, or the prefix of a checkpoint.

    Exit codes: 0 converted; 1 the source is damaged, has something that the other format can't
    hold, or a file is in the way; 2 nothing to convert, several sources, or wrong usage; 3 could
    not read or write.
    """
    # Not for other commands.
    from shardproof.checkpoint import from_safetensors, to_safetensors  # noqa: PLC0415

    with exits.errors_end_it("convert", source, refused=exits.FINDINGS):
        prefix = _prefix_to_convert(source)
        if prefix is None:
            made = [from_safetensors(source, destination, step=step or 0, overwrite=overwrite)]
        elif step is not None:
            problem = "a checkpoint has its own; files of safetensors have none"
            exits.end_with(f"--step: {problem}", exits.NO_MANIFEST)
        else:
            made = to_safetensors(prefix, destination, overwrite=overwrite)
    if as_json:
        output.print_json({"path": exits.absolute(source), "written": made})
    for path in [] if as_json else made:
        output.print_path(path)


def _prefix_to_convert(source: str) -> str | None:
    """Return the prefix of the checkpoint to convert; None where the source is safetensors."""
    if "://" in source:
        return source.removesuffix(METADATA)
    if opening.is_directory(source):
        names = sorted(name for name in os.listdir(source) if name.endswith(_THEIRS))
        theirs = [os.path.join(source, name) for name in names]
    else:
        theirs = [source] if opening.is_there(source) and not source.endswith(METADATA) else []
    try:
        prefixes = _prefixes_of(source)
    except CheckpointNotFoundError:
        if not theirs:
            problem = "expected a checkpoint or files of safetensors, found neither"
            exits.end_with(f"'{shown(source)}': {problem}", exits.NO_MANIFEST)
        return None
    return _only_one([*prefixes, *theirs], source, "one thing to convert")


@checkpoint.command()
@click.argument("directory", metavar="DIR", type=options.given_text)
@_level_option
@options.json_option
def latest(*, directory: str, level: Level, as_json: bool) -> None:
    """Print the prefix of the newest intact checkpoint in DIR.

    The search includes the direct subdirectories. Skipped checkpoints and unfinished steps are
    reported on standard error.

    In a script: prefix=$(shardproof checkpoint latest DIR) || [ $? -eq 1 ] || exit; in the argument
    of another command the exit code is lost.

    Exit codes: 0 there is one; 1 there is none; 2 no such directory, or wrong usage; 3 something
    could not be read.
    """
    from shardproof.checkpoint import latest_checkpoint  # noqa: PLC0415 - not for other commands

    with exits.errors_end_it("check", directory), output.log_shown("checkpoint"):
        if "://" not in directory and not opening.is_directory(directory):
            exits.end_with(f"'{shown(directory)}': there is no such directory", exits.NO_MANIFEST)
        prefix = latest_checkpoint(directory, level=level)
    if prefix is None:
        problem = "expected an intact checkpoint, found none"
        exits.end_with(f"'{shown(directory)}': {problem}", exits.FINDINGS, path=directory)
    about = {"path": exits.absolute(directory), "prefix": prefix}
    output.print_path(prefix, about if as_json else None)


def _prefixes_of(path: str) -> list[str]:
    """Return the checkpoint of a prefix or metadata file; of a directory all, two levels deep."""
    if "://" in path:
        return [path.removesuffix(METADATA)]
    path = os.path.abspath(path)
    prefix = path.removesuffix(METADATA)
    found = [prefix] if opening.is_there(prefix + METADATA) else []
    has_inside = opening.is_directory(path)
    if has_inside:
        prefixes, below = _listed(path)
        found += prefixes
        for inner in below:
            found += _listed(inner)[0]
    if not found:
        inside = f"files in it that end with {METADATA}, or " if has_inside else ""
        problem = f"there is no checkpoint: expected {inside}'{shown(prefix)}{METADATA}'"
        tip = "a save that was not completed leaves none"
        raise CheckpointNotFoundError(f"{problem}; {tip}", path=path)
    return found


def _listed(directory: str) -> tuple[list[str], list[str]]:
    """Return the prefixes in a directory, and its own directories."""
    with os.scandir(directory) as entries:
        found = sorted((entry.path, entry.is_dir()) for entry in entries)
    prefixes = [path.removesuffix(METADATA) for path, _ in found if path.endswith(METADATA)]
    below = [path for path, is_inner in found if is_inner]
    return [prefix for prefix in prefixes if not prefix.endswith("/")], below


def _only_one(found: list[str], path: str, expected: str) -> str:
    """Return the only one found at a path; of several, name them and end the command."""
    if len(found) > 1:
        choices = "".join(f"\n  - {shown(each)}" for each in found[: output.SHOWN])
        problem = f"expected {expected}; give one of these:{choices}"
        exits.end_with(f"'{shown(path)}': {problem}", exits.NO_MANIFEST)
    return found[0]

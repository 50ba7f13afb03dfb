"""What commands are given, and which files or checkpoints a path means."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from shardproof import formats
from shardproof._base.messages import quoted, shown, told
from shardproof._base.opening import EMPTY, is_directory, is_there, mode_of
from shardproof.cli.exits import COULD_NOT_CHECK, NO_MANIFEST, end_with, errors_end_it
from shardproof.cli.output import SHOWN
from shardproof.errors import CheckpointNotFoundError
from shardproof.formats.signs import METADATA
from shardproof.report import Level

F = TypeVar("F", bound=Callable[..., Any])


def given_text(text: str) -> str:
    """Return a path or an address as it was given, unless it is empty or leads nowhere."""
    if not text:
        raise click.BadParameter(EMPTY)
    if "://" not in text and not os.path.isabs(text):
        try:
            os.getcwd()
        except OSError as error:  # it is gone, as a job's may be
            problem = f"the current directory is unknown: {told(error)}"
            end_with(f"Could not check {quoted(text)}: {problem}", COULD_NOT_CHECK)
    return text


against_option = click.option(
    "--against",
    metavar="EXPECTED",
    type=given_text,
    help="Manifest from elsewhere: hf://..., a list of digests or its address, a directory, or "
    "the key of a signer.",
)


def _known_format(name: str) -> str:
    try:
        formats.get(name)
    except ValueError as error:
        raise click.BadParameter(told(error).removeprefix("format: ")) from None
    return name


format_option = click.option(
    "--format",
    metavar="NAME",
    type=_known_format,
    help="Format, if it can't be detected; `shardproof formats` lists them.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def quiet_option(text: str = "Print only errors.") -> Callable[[F], F]:
    """Return the option by which a command says less."""
    return click.option("--quiet", "-q", is_flag=True, help=text)


def level_option(text: str, *, default: Level) -> Callable[[F], F]:
    """Return the option that says how hard to look."""
    choice = click.Choice(get_args(Level))
    return click.option("--level", type=choice, default=default, show_default=True, help=text)


def workers_option(text: str) -> Callable[[F], F]:
    """Return the option that says how many threads there are."""
    return click.option("--workers", type=click.IntRange(min=1), metavar="N", help=text)


def given_path(text: str) -> str:
    """Return a path as `Path` writes it, unless it is empty."""
    return str(Path(given_text(text)))


def given_directory(text: str) -> str:
    """Return a directory that is there; end by 3 where it could not be looked at."""
    path = given_path(text)
    with errors_end_it("check", text):
        mode = mode_of(path, follow=True)
    if not stat.S_ISDIR(mode):
        found = "something else" if mode else "nothing"
        raise click.BadParameter(f"expected a directory, found {found} at '{shown(path)}'")
    return path


def prefixes_of(path: str) -> list[str]:
    """Return the checkpoint of a prefix or metadata file; of a directory all, two levels deep."""
    if "://" in path:
        return [path.removesuffix(METADATA)]
    path = os.path.abspath(path)
    prefix = path.removesuffix(METADATA)
    found = [prefix] if is_there(prefix + METADATA) else []
    has_inside = is_directory(path)
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


def only_one(found: list[str], path: str, expected: str) -> str:
    """Return the only one found at a path; of several, name them and end the command."""
    if len(found) > 1:
        choices = "".join(f"\n  - {shown(each)}" for each in found[:SHOWN])
        problem = f"expected {expected}; give one of these:{choices}"
        end_with(f"'{shown(path)}': {problem}", NO_MANIFEST)
    return found[0]

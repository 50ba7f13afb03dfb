"""What commands are given: paths and addresses, and the options that several of them have."""

import functools
import os
import pathlib
import stat
from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click
from click.shell_completion import CompletionItem

from shardproof._base.addresses import is_address
from shardproof._base.messages import quoted, shown, told
from shardproof._base.opening import EMPTY, mode_of
from shardproof.cli.exits import COULD_NOT_CHECK, end_with, errors_end_it
from shardproof.report import Level

F = TypeVar("F", bound=Callable[..., Any])


class _PathType(click.types.FuncParamType):  # type: ignore[type-arg]
    """A path or an address: a shell completes it as a path."""

    def shell_complete(self, *asked: Any) -> list[CompletionItem]:
        return [CompletionItem(asked[-1], type="file")]


@_PathType
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


def format_names(_ctx: object, _param: object, incomplete: str) -> list[str]:
    """Return the formats whose names a shell may complete."""
    from shardproof import formats  # noqa: PLC0415 - not for the other completions

    return [name for name in formats.names() if name.startswith(incomplete)]


against_option = click.option(
    "--against",
    metavar="EXPECTED",
    type=given_text,
    help="What is expected, by default by the directory's manifest: hf://..., a list of digests or "
    "its address, a directory, or the key of a signer.",
)


def _with_dtype(context: click.Context, _option: click.Parameter, dtype: str | None) -> None:
    if dtype is not None:
        if context.params["format"] != "bin":
            raise click.UsageError("--dtype: expected --format bin")
        context.params["format"] += f":{dtype}"


def format_option(command: F) -> F:
    """Add the option that names a format, and the one for a type of numbers, a part of its name."""
    text = "Format, if it can't be detected; `shardproof formats` lists them."
    how: dict[str, Any] = {"is_eager": True, "shell_complete": format_names}
    form = click.option("--format", metavar="NAME", help=text, **how)
    text = "Type of the numbers in --format bin, by default uint16."
    how = {"expose_value": False, "callback": _with_dtype}
    return form(click.option("--dtype", metavar="TYPE", help=text, **how)(command))


flag = functools.partial(click.option, is_flag=True)
every_option = flag("--all", "every", help="List each finding; more than 50 are folded by default.")
json_option = flag("--json", "as_json", help="Print JSON.")


def quiet_option(text: str = "Print only errors.") -> Callable[[F], F]:
    """Return the option by which a command says less."""
    return flag("--quiet", "-q", help=text)


def level_option(text: str, *, default: Level) -> Callable[[F], F]:
    """Return the option that says how hard to look."""
    choice = click.Choice(get_args(Level))
    return click.option("--level", type=choice, default=default, show_default=True, help=text)


check_level_option = level_option(
    "present: each file exists and opens; complete: also its size and structure; "
    "valid: also its digest, reading every byte.",
    default="present",
)


def workers_option(text: str, most: int | None = None) -> Callable[[F], F]:
    """Return the option that says how many threads there are."""
    return click.option("--workers", type=click.IntRange(1, most), metavar="N", help=text)


@_PathType
def given_path(text: str) -> str:
    """Return a path as `Path` writes it, or an address as it is, unless it is empty."""
    # Of an address, the slash behind an empty variable counts.
    return str(given_text(text)) if is_address(text) else str(pathlib.Path(given_text(text)))


@_PathType
def given_directory(text: str) -> str:
    """Return a directory that is there; end by 3 where it could not be looked at."""
    path: str = given_path(text)
    with errors_end_it("check", text):
        mode = mode_of(path, follow=True)
    if not stat.S_ISDIR(mode):
        found = "something else" if mode else "nothing"
        raise click.BadParameter(f"expected a directory, found {found} at '{shown(path)}'")
    return path

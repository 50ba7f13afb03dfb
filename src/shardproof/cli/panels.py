"""How help and wrong usage look: lines in boxes, drawn by rich, with colours on a terminal."""

import inspect
from collections.abc import Iterable
from typing import Any

import click
from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.highlighter import RegexHighlighter
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from shardproof._base.messages import quoted
from shardproof.cli.paths import ShellArgument

__all__ = ["help_of", "print_error"]

_THEME = Theme(
    {"option": "bold cyan", "switch": "bold green", "metavar": "bold yellow", "usage": "yellow"}
)


class _Highlighter(RegexHighlighter):
    """Paints what is typed."""

    highlights = [  # noqa: RUF012 - as rich has it
        r"(^|\W)(?P<switch>\-\w+)(?![a-zA-Z0-9])",
        r"(^|\W)(?P<option>\-\-[\w\-]+)(?![a-zA-Z0-9])",
        r"(?P<metavar>\<[^\>]+\>)",
        r"(?P<usage>Usage: )",
    ]


_painted = _Highlighter()


def help_of(context: click.Context) -> str:
    """Return the help of a command as it is printed on standard output."""
    command, out = context.command, Console(theme=_THEME, highlight=False)
    parameters = command.get_params(context)
    arguments = [each for each in parameters if isinstance(each, ShellArgument)]
    options = [each for each in parameters if isinstance(each, click.Option)]
    with out.capture() as drawn:
        out.print(Padding(_painted(command.get_usage(context)), 1), style="bold")
        out.print(Padding(Text(_paragraphs(command.help)), (0, 1, 1, 1)))
        _print_panel(out, "Arguments", [_row_of_argument(each) for each in arguments])
        _print_panel(out, "Options", [_row_of_option(each, context) for each in options])
        if isinstance(command, click.Group):
            _print_panel(out, "Commands", _rows_of_commands(command, context))
        if command.epilog:
            out.print(Padding(Text(_paragraphs(command.epilog)), 1))
    return drawn.get().removesuffix("\n")


def print_error(problem: str, context: click.Context | None) -> None:
    """Print on standard error what is wrong, and how a command is used."""
    out = Console(theme=_THEME, highlight=False, stderr=True)
    if context is not None:
        out.print(_painted(context.get_usage()), style="bold")
        how = quoted(f"{context.command_path} --help")
        out.print(Text(f"Try {how} for help.", "dim"))
    out.print(Panel(_painted(problem), border_style="red", title="Error", title_align="left"))


def _paragraphs(text: str | None) -> str:
    """Return a text with its lines joined, but for those that an empty one parts."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)


def _print_panel(out: Console, title: str, rows: Iterable[tuple[RenderableType, ...]]) -> None:
    table = Table(box=None, show_header=False, expand=True, pad_edge=False, highlight=False)
    for row in rows:
        table.add_row(*row)
    if table.row_count:
        out.print(Panel(table, border_style="dim", title=title, title_align="left"))


def _row_of_argument(argument: ShellArgument) -> tuple[RenderableType, ...]:
    words = Columns([Text(argument.help or ""), Text("[required]", "dim red")])
    return Text("*", "red"), Text(str(argument.metavar), "bold yellow"), words


def _row_of_option(option: click.Option, context: click.Context) -> tuple[RenderableType, ...]:
    long = ",".join(name for name in option.opts if name.startswith("--"))
    short = ",".join(name for name in option.opts if not name.startswith("--"))
    words = [Text(option.help or "")]
    if option.show_default:
        words.append(Text(f"[default: {option.default}]", "dim"))
    taken = Text(_value_of(option, context), "bold yellow", overflow="fold")
    return _painted(long), _painted(short), taken, Columns(words)


def _value_of(option: click.Option, context: click.Context) -> str:
    """Return what an option takes: ``N [x>=1]``, nothing if it is a mere switch."""
    if option.is_flag:
        return ""
    range_of: Any = getattr(option.type, "_describe_range", lambda: "")
    return f"{option.make_metavar(context)} {_in_brackets(range_of())}".rstrip()


def _in_brackets(text: str) -> str:
    return f"[{text}]" if text else ""


def _rows_of_commands(
    group: click.Group, context: click.Context
) -> Iterable[tuple[RenderableType, ...]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        words = _paragraphs(command.help if command else "")
        first = words.partition("\n\n")[0]
        yield Text(name, "bold cyan"), Text(first)

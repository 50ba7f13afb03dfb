"""The command ``shardproof formats``: what can be validated, and what that proves."""

import json
from collections.abc import Iterator

import click

from shardproof import formats as _formats
from shardproof._base.messages import printable, told
from shardproof.cli.commands import ShellCommand
from shardproof.cli.paths import json_option

__all__ = ["formats"]


@click.command(cls=ShellCommand)
@json_option
def formats(*, as_json: bool) -> None:
    """Print each format, by what it is known, what each level proves, and what none sees.

    Of packages that add formats, a broken one is told in its place.
    """
    about_all = [dict(_told(name)) for name in _formats.names()]
    if as_json:
        click.echo(json.dumps(about_all, indent=2))
        return
    for about in about_all:
        name = about.pop("name")
        click.echo(printable(f"{name}: {about.pop('description')}"))
        for title, text in about.items():
            click.echo(printable(f"  {title + ':':13}{text}"))


def _told(name: str) -> Iterator[tuple[str, str]]:
    try:
        form = _formats.get(name)
    except ValueError as error:
        yield from (("name", printable(name)), ("description", told(error)))
        return
    yield "name", form.name
    yield "description", form.description
    yield "manifest", form.manifest_file
    yield "complete", form.complete
    yield "valid", form.valid
    yield "blind spots", form.blind_spots or "none"

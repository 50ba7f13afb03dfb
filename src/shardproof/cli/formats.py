"""The command ``shardproof formats``: what can be validated, and what that proves."""

from collections.abc import Iterator

import click

from shardproof import formats as _formats
from shardproof._base.messages import printable, told
from shardproof.cli.output import print_json
from shardproof.cli.paths import json_option


@click.command()
@json_option
def formats(*, as_json: bool) -> None:
    """Print the formats, and what each level proves of them.

    A package that adds formats and is broken is named with its error.
    """
    about_all = [dict(_told(name)) for name in _formats.names()]
    if as_json:
        print_json(about_all)
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

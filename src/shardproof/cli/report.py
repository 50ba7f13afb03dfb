"""The command ``report``: a check as a page, as a map, and in forms for other programs."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

import click

import shardproof
from shardproof import remote
from shardproof._base import files
from shardproof._base.messages import shown
from shardproof._base.opening import is_regular, is_there
from shardproof._base.work import apart
from shardproof.cli import exits, options, output, reports


def _file_option(name: str, text: str) -> Callable[[options.F], options.F]:
    return click.option(name, metavar="FILE", type=options.given_path, help=text)


@click.command()
@click.argument("path", metavar="PATH", type=options.given_path)
@options.check_level_option
@options.format_option
@options.against_option
@options.workers_option("Threads. By default chosen by the speed of the file system.")
@_file_option("--since", "Compare with an earlier report, which --json of this command printed.")
@_file_option("--html", "Write a page: a map, the age of the files, a list to search.")
@_file_option("--junit", "Write JUnit's XML: a test for each file.")
@_file_option("--prometheus", "Write a text file for the node exporter of Prometheus.")
@options.flag("--github", help="Print annotations for a workflow of GitHub.")
@options.json_option
@options.quiet_option()
def report(
    *, path: str, since: str | None, github: bool, as_json: bool, quiet: bool, **how: Any
) -> None:
    """Check a directory, and show the result as a map or write it as a page.

    PATH is a shards directory, or the prefix of a checkpoint. Without --html and the like, a map is
    printed. A file that is there already is replaced only if this command wrote it.

    Exit codes: 0 all is as expected; 1 findings; 2 nothing expected (no readable manifest), or
    wrong usage; 3 a file could not be read, or the report not be written or printed.
    """
    from shardproof import rendering  # noqa: PLC0415 - not for the other commands

    forms = {form: how.pop(form) for form in ("html", "junit", "prometheus")}
    targets = {form: target for form, target in forms.items() if target}
    if len({*targets.values()}) < len(targets):
        raise click.BadParameter("expected a file for each form, found one for two")
    for target in targets.values():
        _refuse_other_file(target, rendering.MARK.encode())
    about = {"format": how["format"], "against": how["against"], "since": since}
    with exits.errors_end_it("check", path), remote.mounted(path) as place:
        begin = time.monotonic()
        found = shardproof.validate(place, progress=not quiet, **how)
        survey = rendering.survey(found, seconds=time.monotonic() - begin, **about)
    make = {"html": rendering.page, "junit": rendering.junit, "prometheus": rendering.prometheus}
    for form, target in targets.items():
        with exits.errors_end_it("write", target):
            data = make[form](survey)
            apart(lambda _: files.write_whole(target, data))  # noqa: B023 - called at once
    if as_json:
        output.print_json(survey.to_dict())
    elif github:
        output.print_lines(rendering.github(survey))
    elif not quiet:
        if not targets:
            from rich.console import Console  # noqa: PLC0415 - takes long

            columns, lines = shutil.get_terminal_size()
            text = rendering.terminal_map(survey, max(10, columns - 1), max(5, lines // 2))
            Console(file=sys.stdout, highlight=False, width=80).print(text, soft_wrap=True)
        reports.show([exits.PathOutcome(path, found, "", found.exit_code, survey.seconds)])
        if change := survey.change:
            since = f"Since '{shown(str(since))}'"
            output.print_lines(["", *(f"{since}: {note}" for note in change.notes)])
            for how_so, names in (("broke", change.broke), ("healed", change.healed)):
                output.print_lines([f"{since}: {len(names)} {how_so}"])
                output.print_lines(output.first_of([f"  - {shown(n)}" for n in names]))
    raise click.exceptions.Exit(found.exit_code)


def _refuse_other_file(target: str, mark: bytes) -> None:
    """End the command where a file would be lost that it has not written: one of the shards."""
    with exits.errors_end_it("write", target):
        if not is_there(target):
            return
        if is_regular(target):
            with open(target, "rb") as file:
                if mark in file.read(100):
                    return
    raise click.BadParameter(f"expected a new file, found another one at '{shown(target)}'")

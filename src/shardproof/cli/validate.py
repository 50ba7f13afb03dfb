"""The commands ``validate``, which checks every file that is expected, and ``formats``."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import click

import shardproof
from shardproof import formats as _formats
from shardproof._base.messages import printable, shown, told
from shardproof.checks import Links
from shardproof.cli import exits, options, output
from shardproof.report import BrokenFiles, Finding, Report, lines_of


@click.command()
@click.argument("paths", metavar="PATH...", type=options.given_path, nargs=-1, required=True)
@options.level_option(
    "present: each file exists and opens; complete: also its size and structure; "
    "valid: also its digest, reading every byte.",
    default="present",
)
@options.format_option
@click.option(
    "--recursive", "-r", is_flag=True, help="Check every shards directory below the paths."
)
@options.against_option
@click.option("--strict", is_flag=True, help="Report files that are not expected.")
@click.option(
    "--require-digests", is_flag=True, help="Fail for files without a digest; needs --level valid."
)
@click.option(
    "--quick", is_flag=True, help="Skip files that have not changed since they were sealed."
)
@click.option("--follow-links", is_flag=True, help="Follow links that lead out of a directory.")
@options.workers_option("Threads. By default chosen by the speed of the file system.")
@options.json_option
@click.option(
    "--broken",
    type=click.Choice(["names", "indices"]),
    help="Print only the damaged files: names, or numbers such as 3,7,12-40.",
)
@click.option(
    "--verbose", "-v", is_flag=True, help="Print for each finding what was expected and what to do."
)
@options.quiet_option()
def validate(
    *,
    paths: Sequence[str],
    recursive: bool,
    require_digests: bool,
    follow_links: bool,
    as_json: bool,
    broken: Literal["names", "indices"] | None,
    verbose: bool,
    quiet: bool,
    **how: Any,
) -> None:
    """Check every expected file of shards directories.

    Each PATH is a shards directory, or the prefix of a checkpoint.

    Exit codes: 0 all is as expected; 1 findings; 2 nothing expected (no readable manifest), or
    wrong usage; 3 a file could not be read, or the report not be printed. Of several paths the
    highest code counts.
    """
    if require_digests and how["level"] != "valid":
        raise click.UsageError("--require-digests: expected --level valid")
    links: Links = "follow" if follow_links else "inside"
    look = functools.partial(shardproof.validate, links=links, progress=not quiet, **how)
    found = _all_below(paths) if recursive else paths
    outcomes = [exits.outcome_of(path, functools.partial(look, path)) for path in found]
    for outcome in outcomes:
        if outcome.result is None:
            output.warn(outcome.error)
    if broken:
        for outcome in outcomes:
            files = BrokenFiles() if outcome.result is None else outcome.result.broken()
            for line in files.names if broken == "names" else filter(None, [files.ranges]):
                click.echo(shown(line))
    elif as_json:
        output.print_json([outcome.to_dict() for outcome in outcomes])
    elif not quiet:
        show_reports(outcomes, verbose=verbose)
    if recursive and not quiet:
        click.echo(_counted(outcomes), err=as_json or broken is not None)
    codes = [outcome.exit_code for outcome in outcomes]
    if require_digests:
        reports = [outcome.result for outcome in outcomes if outcome.result is not None]
        codes += map(_warn_of_unproven, reports)
    raise click.exceptions.Exit(max(codes))


def _all_below(paths: Iterable[str]) -> list[str]:
    """Return the shards directories below some paths; of none among them that is said."""
    found = []
    for path in paths:
        with exits.errors_end_it("check", path):
            below = list(_formats.find(path))
        found += below or [path]
    return found


def _counted(outcomes: Sequence[exits.PathOutcome[Report]]) -> str:
    """Return how many directories were found below the paths, and in which state."""
    codes, n = [outcome.exit_code for outcome in outcomes], len(outcomes)
    n_whole, n_damaged = codes.count(exits.KEPT), codes.count(exits.FINDINGS)
    states = f"{n_whole} whole, {n_damaged} damaged, {n - n_whole - n_damaged} unreadable"
    return f"{n} director{'y' if n == 1 else 'ies'}: {states}"


def _warn_of_unproven(report: Report) -> int:
    if not report.unproven:
        return exits.KEPT
    lacking = f"{len(report.unproven)} files have no digest, such as '{shown(report.unproven[0])}'"
    output.warn(f"{lacking}: `shardproof seal` gives them one")
    return exits.FINDINGS


def show_reports(outcomes: Iterable[exits.PathOutcome[Report]], *, verbose: bool) -> None:
    """Print reports, and where that is wanted what each finding means."""
    for outcome in outcomes:
        report = outcome.result
        if report is not None:
            output.print_lines(lines_of(report), "green" if report.ok else None)
            if verbose and report.findings:
                output.print_lines(["", *map(_detail, report.findings)])


def _detail(finding: Finding) -> str:
    name = finding.to_dict()["errno"]
    code = f" ({name})" if name else ""
    said = f"expected {finding.expected}, found {finding.found}{code}"
    return f"{shown(finding.path)}: {said}; {finding.advice}"


@click.command()
@options.json_option
def formats(*, as_json: bool) -> None:
    """Print the formats, and what each level verifies.

    A broken package that adds formats is listed with its error.
    """
    about_all = list(map(_about, _formats.names()))
    if as_json:
        output.print_json(about_all)
        return
    for about in about_all:
        name = about.pop("name")
        click.echo(printable(f"{name}: {about.pop('description')}"))
        for title, text in about.items():
            click.echo(printable(f"  {title + ':':13}{text}"))


def _about(name: str) -> dict[str, str]:
    try:
        form = _formats.get(name)
    except ValueError as error:
        return {"name": printable(name), "description": told(error)}
    about = {"name": form.name, "description": form.description, "manifest": form.manifest_file}
    about |= {"complete": form.complete, "valid": form.valid}
    return about | {"blind spots": form.blind_spots or "none"}

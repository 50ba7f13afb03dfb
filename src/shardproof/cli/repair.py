"""The commands ``seal`` and ``repair``: a directory can prove itself, and is whole again."""

import dataclasses
from typing import Any, get_args

import click

import shardproof
from shardproof._base.messages import printable, shown, told
from shardproof.cli import engines, exits, options, output, reports
from shardproof.report import MOST_KEPT
from shardproof.sealing import SealAlgorithm


@click.command()
@click.argument("path", metavar="DIR", type=options.given_path)
@click.option(
    "--algorithm",
    type=click.Choice(get_args(SealAlgorithm)),
    default="sha256",
    show_default=True,
    help="blake3 is the fastest cryptographic one; xxh3-128 detects accidents only.",
)
@options.flag("--update", help="Add files that are not in the list yet.")
@options.format_option
@options.workers_option("Files read at once. By default the number of processors.")
@options.json_option
@options.quiet_option()
@engines.engine_options
def seal(*, path: str, update: bool, as_json: bool, quiet: bool, **how: Any) -> None:
    """Record the digests of a directory's files.

    DIR is a directory, or its address (s3://bucket/folder). There the digests that the store states
    are taken, and the list is written by one request; a killed seal begins anew.

    From then on --level valid verifies them, and `sha256sum -c` accepts the list. A directory with
    findings is refused, and so is one with a file that differs from a recorded digest or checksum.
    A killed seal continues when you call it again. --update keeps the recorded digests, whatever
    the bytes are now.

    Exit codes: 0 sealed; 1 findings, or a file changed meanwhile; 2 already sealed, nothing
    expected (no readable manifest), or wrong usage; 3 a file could not be read, or the list not be
    written.
    """
    with exits.errors_end_it("seal", path):
        try:
            sealed = shardproof.seal(path, update=update, progress=not quiet, **how)
        except shardproof.ShardValidationError as error:
            problem = f"It is not sealed, for it is not as expected. {told(error)}"
            exits.end_with(problem, exits.code_of(error), path=path)
    if as_json:
        output.print_json(dataclasses.asdict(sealed))
    if as_json or quiet:
        return
    resumed = f", {sealed.n_resumed} of them as an earlier attempt read them"
    added = f"{len(sealed.added)} added" if update else f"{sealed.n_files} files"
    more = resumed if sealed.n_resumed else ""
    click.echo(printable(f"'{shown(sealed.list_path)}': {added}{more}"))
    if update:
        output.print_lines(output.first_of([f"  - {shown(name)}" for name in sealed.added]))
    left_out = [f"'{shown(name)}' ({why})" for name, why in sealed.left_out.items()]
    if left_out:
        click.echo(printable(f"left out: {', '.join(map(str.strip, output.first_of(left_out)))}"))


@click.command()
@click.argument("path", metavar="DIR", type=options.given_path)
@click.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=options.given_text,
    required=True,
    help="URL or directory that has the files.",
)
@options.level_option("Level of the check that finds damaged files.", default="valid")
@options.against_option
@options.format_option
@options.flag("--dry-run", help="Only print what would be fetched.")
@options.workers_option("Files fetched at once. By default 4.", most=64)
@options.json_option
@options.flag("--verbose", "-v", help="Print how each attempt ended.")
@options.quiet_option()
@engines.engine_options
def repair(
    *, path: str, source: str, dry_run: bool, as_json: bool, verbose: bool, quiet: bool, **how: Any
) -> None:
    """Fetch the files of a directory that are missing or damaged.

    DIR is a directory on a disk. In a bucket nothing is repaired: upload the files again.

    Each file is fetched beside its place, and gets its name once it is verified. A file that can't
    be fetched stays as it is. After an interrupt, the same command continues.

    Exit codes: 0 all is as expected now; 1 findings are left, or a dry run found files to fetch; 2
    nothing expected (no readable manifest), or wrong usage; 3 something could not be read, or the
    source not be reached.
    """
    shown_log = output.log_shown("fetching", is_on=verbose, level="INFO")
    with exits.errors_end_it("repair", path, refused=exits.COULD_NOT_CHECK), shown_log:
        done = shardproof.repair(path, source, dry_run=dry_run, progress=not quiet, **how)
    code = done.report.exit_code or int(not done.ok)
    failed = [f"'{shown(name)}' is not repaired: {why}" for name, why in done.failed.items()]
    for line in output.first_of(failed, MOST_KEPT):
        output.warn(line)
    if as_json:
        output.print_json({"path": exits.absolute(path), **done.to_dict()}, code)
    elif dry_run and not quiet:
        lines = [f"{shown(name)}\t{'?' if size is None else size}" for name, size in done.wanted]
        for line in output.first_of(lines, MOST_KEPT):
            click.echo(line)
        click.echo(printable(f"{len(done.wanted)} files, {done.n_bytes} bytes"))
    elif not quiet:
        click.echo(printable(f"{len(done.repaired)} of {len(done.wanted)} files fetched"))
        reports.show([exits.PathOutcome(path, done.report, "", code)], verbose=verbose)
    raise click.exceptions.Exit(code)

"""The commands ``fetch``, ``adopt`` and ``stage``, by which shards come to this machine."""

from typing import Any

import click

from shardproof._base.messages import plain, printable, shown, told
from shardproof.cli import exits, options, output

_seconds: dict[str, Any] = {"type": float, "metavar": "SECONDS", "show_default": True}
_number: dict[str, Any] = {"type": int, "metavar": "N", "show_default": True}


@click.command()
@click.argument("url", metavar="URL", type=options.given_text)
@click.argument("directory", metavar="DIR", type=options.given_path)
@click.option(
    "--digest",
    metavar="sha256:HEX",
    help="Expected digest. By default the one that the source states.",
)
@click.option("--attempts", default=3, help="Number of attempts, including the first.", **_number)
@click.option("--timeout", default=600.0, help="Limit of one attempt.", **_seconds)
@click.option(
    "--deadline", help="Limit of all attempts and waits together. By default none.", **_seconds
)
@click.option(
    "--stall-timeout", default=30.0, help="End an attempt after this time without data.", **_seconds
)
@click.option("--connections", default=4, help="Most connections for one large file.", **_number)
@options.json_option
@options.flag("--verbose", "-v", help="Print how each attempt ended.")
@options.quiet_option("Print only the path of the file, and errors.")
def fetch(
    *,
    url: str,
    directory: str,
    digest: str | None,
    as_json: bool,
    verbose: bool,
    quiet: bool,
    **limits: Any,
) -> None:
    """Fetch one file into DIR: the right bytes, or nothing.

    URL names one file: https://, hf://, s3://, file:///...

    Exit codes: 0 fetched; 1 not fetched; 2 wrong usage, or a missing package; 3 the host can't be
    reached, or the file may not survive a power cut.
    """
    from shardproof import fetching  # noqa: PLC0415 - not for the other commands

    logs = output.log_shown("fetching", is_on=verbose, level="INFO")
    with logs, exits.errors_end_it("fetch", url, refused=exits.FINDINGS):
        agreed = fetching.Limits(**limits)
        fetched = fetching.fetch(url, directory, digest=digest, limits=agreed, progress=not quiet)
    about = {"path": fetched.path, "digest": fetched.digest, "proven": fetched.proven}
    output.print_path(fetched.path, about if as_json else None)
    if not fetched.proven and not quiet:
        problem = "no digest of it is known, so that only its size is right"
        output.warn(f"{problem}; it is {plain(fetched.digest)}")


@click.command()
@click.argument("directory", metavar="DIR", type=options.given_text)
@click.option(
    "--from",
    "source",
    metavar="URL",
    type=options.given_text,
    help="Source to verify them with: hf://, https://, s3://... By default none.",
)
@click.option(
    "--match",
    metavar="PATTERN",
    default="*",
    show_default=True,
    help="Only files whose paths below DIR match.",
)
@options.flag("--proven-only", help="Take over verified files only.")
@options.workers_option("Files read at once. By default the number of processors.")
@options.json_option
@options.quiet_option("Print only errors, and files that are not taken over.")
def adopt(
    *, directory: str, source: str | None, proven_only: bool, as_json: bool, quiet: bool, **how: Any
) -> None:
    """Take over shards that other tools fetched.

    DIR is the directory with the shards of one source. Each file is verified, or taken on your
    word. No file is moved or removed. A file that the source does not have is left alone, and
    reported.

    Exit codes: 0 taken over, except files that the source does not have; 1 some have other bytes,
    or are no regular files, or there are none; 2 no such directory, or wrong usage; 3 a file could
    not be read, or the source not be reached.
    """
    from shardproof import fetching  # noqa: PLC0415 - not for the other commands

    shown_log = output.log_shown("fetching", is_on=not quiet)
    left_alone = output.log_shown("fetching.adopt", is_on=quiet)  # it is among the others if not
    ends = exits.errors_end_it("check", directory, refused=exits.COULD_NOT_CHECK)
    with ends, shown_log, left_alone:
        try:
            report = fetching.adopt(
                directory, source, trust=not proven_only, progress=not quiet, **how
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            exits.end_with(told(error), exits.NO_MANIFEST, path=directory)
    code = report.exit_code if report.n_files else exits.FINDINGS
    if as_json:
        output.print_json(report.to_dict() | {"ok": not code, "exit_code": code})
    elif not quiet:
        n_unproven, n_findings = len(report.unproven), len(report.findings)
        counts = f"{report.n_proven} proven, {n_unproven} on your word, {n_findings} not taken over"
        click.echo(printable(f"{counts}: '{shown(report.path)}'"))
    for finding in report.findings:
        what = f"expected {finding.expected}, found {finding.found}"
        output.warn(f"not taken over: {shown(finding.path)}: {what}")
    if not report.n_files:
        output.warn(f"nothing to take over in '{shown(report.path)}'")
    for path in () if quiet else report.unproven:
        output.warn(f"on your word, not proven: {shown(path)}")
    raise click.exceptions.Exit(code)


@click.command()
@click.argument("path", metavar="PATH", type=options.given_path)
@click.option(
    "--to",
    metavar="DIR",
    type=options.given_directory,
    help="Existing directory on a local disk. By default $TMPDIR, or /tmp.",
)
@options.level_option(
    "present: each file exists and opens; complete: also its size and structure; "
    "valid: also reads the copy back and compares digests.",
    default="complete",
)
@options.workers_option("Files copied at once. By default 8.")
@options.json_option
@options.quiet_option("Print only the path of the copy, and errors.")
def stage(*, path: str, to: str | None, as_json: bool, quiet: bool, **how: Any) -> None:
    """Copy shards to a local disk, and print the copy's path.

    PATH is a shards directory, its address (s3://bucket/folder), or the prefix of a checkpoint. The
    copy is verified. A copy that an earlier call made is used again.

    In a script: dir=$(shardproof stage PATH) && train "$dir"; in the argument of another command,
    as in train "$(shardproof stage PATH)", the exit code is lost.

    Exit codes: 0 copied; 1 findings in the source; 2 nothing expected (no readable manifest), or
    wrong usage; 3 could not read, copy or print.
    """
    from shardproof import staging  # noqa: PLC0415 - not for the other commands

    with exits.errors_end_it("stage", path, refused=exits.COULD_NOT_CHECK):
        copy = staging.stage(path, to, progress=not quiet, **how)
    output.print_path(copy, {"path": exits.absolute(path), "copy": copy} if as_json else None)

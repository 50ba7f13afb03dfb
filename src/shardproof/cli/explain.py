"""The commands ``explain``, which says what a directory is taken for, and ``formats``."""

import os
from typing import Any

import click

from shardproof import formats as _formats
from shardproof._base.messages import printable, shown, told
from shardproof.cli import exits, options, output


@click.command()
@click.argument("path", metavar="PATH", type=options.given_path)
@options.format_option
@options.json_option
def explain(*, path: str, format: str | None, as_json: bool) -> None:  # noqa: A002 - the option's
    """Say what a directory is taken for, and what is verified there.

    PATH is a shards directory, or the prefix of a checkpoint. No shard is opened.

    Exit codes: 0 explained; 2 no format recognizes it, no readable manifest, or wrong usage; 3 it
    could not be read, or the explanation not be printed.
    """
    with exits.errors_end_it("explain", path):
        _say(_explained(path, format), as_json=as_json)


def _explained(path: str, name: str | None) -> dict[str, Any]:
    located = _formats.locate(path)
    form = _formats.detect(located.path) if name is None else _formats.get(name)
    manifest = _formats.read_manifest(form, located.path, lists=True)
    n_files, n_sizes = len(manifest.files), sum(each.size is not None for each in manifest.files)
    digests = [each.digest.partition(":")[0] for each in manifest.files if each.digest]
    kinds = f" ({', '.join(sorted({*digests}))})" if digests else ""
    seen = _formats.evidence(form, located.root, sorted(os.listdir(located.root)))
    below = manifest.files[0].name if name is None and n_files else "--format"
    about = {"path": located.path, "n_files": n_files, **_about(form.name)}
    return about | {
        "manifest": os.fspath(manifest.path),
        "recognized_by": _formats.described(seen) or below,
        "complete": f"{n_sizes} of {n_files} sizes are known; {about['complete']}",
        "valid": f"{len(digests)} of {n_files} digests are known{kinds}; {about['valid']}",
    }


@click.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=options.format_names)
@options.json_option
def formats(*, name: str | None, as_json: bool) -> None:
    """Print the formats; of one, what each level verifies.

    A broken package that adds formats is listed with its error.

    Exit codes: 0 printed; 2 no such format, or wrong usage; 3 could not be printed.
    """
    if name is not None:
        with exits.errors_end_it("read", name):
            _formats.get(name)
            _say(_about(name), as_json=as_json)
        return
    about_all = [_about(each) for each in _formats.names()]
    if as_json:
        output.print_json(about_all)
    else:
        rows = ((about["format"], about["description"]) for about in about_all)
        output.print_table(("Format", "Description"), rows)


def _about(name: str) -> dict[str, Any]:
    try:
        form = _formats.get(name)
    except ValueError as error:
        ended = {"ok": False, "exit_code": exits.NO_MANIFEST}
        return {"format": printable(name), "description": told(error), **ended}
    return {
        "format": form.name,
        "description": form.description,
        "manifest": form.manifest_file,
        "recognized_by": ", ".join([*form.marks, *(f"*{end}" for end in form.suffixes)]),
        "present": "that each file exists, is a regular file, is not empty, and opens",
        "complete": form.complete,
        "valid": form.valid,
        "blind_spots": form.blind_spots or "none",
    }


def _say(about: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.print_json(about)
    else:
        lines = (f"{name.replace('_', ' ') + ':':15}{value}" for name, value in about.items())
        output.print_lines(map(shown, lines))

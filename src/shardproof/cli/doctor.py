"""The commands ``doctor``, for bug reports, and ``completion``, for shells."""

import contextlib
import os
import platform
import re
import resource
import sys
from importlib import metadata
from typing import Any

import click

import shardproof
from shardproof._base.fanout import available_cpus
from shardproof._base.messages import with_kind
from shardproof._base.mounts import LOCAL, mount_of
from shardproof.cli import exits, options, output

_REQUIREMENT = re.compile(r"""([\w.-]+)(?:.*extra == ['"]([\w-]+))?""")


@click.command()
@click.argument("path", metavar="[PATH]", default=".", type=options.given_path)
@options.json_option
def doctor(*, path: str, as_json: bool) -> None:
    """Print what a bug report needs: versions, file system, limits.

    PATH is where the shards are; by default the current directory. Nothing is written, and no
    environment variable is shown. What could not be found out has its reason in its place.

    Exit codes: 0 printed; 2 wrong usage; 3 could not be printed.
    """
    about: dict[str, Any] = {
        "shardproof": shardproof.__version__,
        "python": f"{platform.python_version()}, {sys.executable}",
        "system": platform.platform(),
        "path": exits.absolute(path),
    }
    for find in (_packages, _file_system, _limits):
        name = find.__name__[1:]
        try:
            about[name] = find(path)
        except Exception as error:  # of an installation that may be broken
            about[name] = f"unknown: {with_kind(error)}"
    if as_json:
        output.print_json(about)
    else:
        for name, value in about.items():
            parts = value.items() if isinstance(value, dict) else [("", value)]
            output.print_lines(f"{name} {part}".strip() + f": {told}" for part, told in parts)


def _packages(_: str) -> dict[str, str]:
    """Return the version of each requirement; of one that is missing, what installs it."""
    found = {}
    for requirement in metadata.requires("shardproof") or ():
        [(name, extra)] = _REQUIREMENT.findall(requirement)[:1]
        found[name] = f"missing: pip install 'shardproof[{extra}]'".replace("[]", "")
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _file_system(path: str) -> dict[str, Any]:
    """Return on what a path is, and what a look there can't tell (docs/file-systems.md)."""
    (kind, place, options), room = mount_of(path), os.statvfs(path)
    unseen = "what a purge takes next; when exactly a file was last read"
    if kind not in LOCAL:
        unseen += "; what other nodes just did; if flock excludes them; if root may read"
    return {
        "kind": kind,
        "mounted_at": place,
        "options": options,
        "free_bytes": room.f_bavail * room.f_frsize,
        "free_inodes": room.f_favail,
        "can_not_tell": unseen,
    }


def _limits(_: str) -> dict[str, Any]:
    """Return what this process may use."""
    return {
        "user": os.geteuid(),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "processors": available_cpus(),
    }


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
@options.json_option
def completion(*, shell: str, as_json: bool) -> None:
    r"""Print a script by which a shell completes commands.

    SHELL is bash, zsh or fish. It also completes options, levels, formats and paths. Put one line
    into the file that the shell reads when it starts:

    \b
      ~/.bashrc                   source <(shardproof completion bash)
      ~/.zshrc, after compinit    source <(shardproof completion zsh)
      ~/.config/fish/config.fish  shardproof completion fish | source

    Exit codes: 0 printed; 2 wrong usage; 3 could not be printed.
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - a shell asks it

    from shardproof.cli.app import COMPLETE, app  # noqa: PLC0415 - which imports this module

    maker = get_completion_class(shell)
    if maker is not None:
        script = maker(app, {}, "shardproof", COMPLETE).source()
        # For bash an address is several words: then it completes paths by itself.
        script = script.replace("complete -o nosort", "complete -o nosort -o default")
        if as_json:
            output.print_json({"shell": shell, "script": script})
        else:
            click.echo(script)

"""What is called of this package by name: the command, and what hypothesis calls.

It lies beside the package, which says on Windows that it can't be imported: the command is to end
with one line there, and hypothesis not at all.
"""

import os
import sys

UNSUPPORTED = "shardproof runs on Linux and macOS; on Windows, run it inside WSL (`wsl --install`)"


def main() -> None:
    """Run the command line; never returns."""
    if os.name == "nt":
        sys.stderr.write(f"{UNSUPPORTED}\n")
        sys.exit(3)  # as where something could not be looked at
    from shardproof.__main__ import main as run  # noqa: PLC0415 - which Windows can't import

    run()


def register() -> None:
    """Let hypothesis find our strategies by their types."""
    if os.name != "nt":
        from shardproof.testing._hypothesis import register as run  # noqa: PLC0415 - as above

        run()

"""``python -m shardproof``, and the command ``shardproof``."""

import os
import sys

from shardproof.cli import says_version, take_signals

__all__ = ["main"]


def main() -> None:
    """Run the command line; never returns."""
    take_signals()
    if sys.argv[1:] == ["--version"] and says_version():
        sys.exit(0)
    try:
        from shardproof.cli import app  # noqa: PLC0415 - from here on, an interrupt has an exit code
    except (MemoryError, OSError) as error:  # a broken installation is an ImportError
        os.write(2, f"Could not import the command: {ascii(error)[:1000]}\n".encode())
        sys.exit(3)
    app.main()


if __name__ == "__main__":
    main()

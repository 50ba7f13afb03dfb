"""A path that somebody gave."""

import os

__all__ = ["EMPTY", "permission_denied", "refuse_empty"]

EMPTY = "expected a path, found an empty text: is a variable not set? The current directory is '.'"
"""What is said of an empty path, in the library and by the command."""


def refuse_empty(**paths: str | os.PathLike[str] | None) -> None:
    """Refuse an empty path, which the operating system's modules take for the current directory.

    ``Path("")`` is ``Path(".")`` and can't be told from it.

    Args:
        paths: By the name of the argument; None for one that was not given.

    Raises:
        ValueError: One is empty.
    """
    for name, path in paths.items():
        if path is not None and not os.fspath(path):
            raise ValueError(f"{name}: {EMPTY}")


def permission_denied() -> str:
    """Return what is said of something that may not be read."""
    return f"permission denied (uid {os.geteuid()}); ask its owner to let you read it"

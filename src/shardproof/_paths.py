"""A path that somebody gave, and what is there."""

import os

__all__ = ["EMPTY", "mode_of", "permission_denied", "refuse_empty"]

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


def mode_of(path: str) -> int:
    """Return the ``st_mode`` of what is at a path, a link included; 0 where nothing is.

    Raises:
        OSError: Nobody could look (EIO, ESTALE, EACCES, ...).
    """
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def permission_denied() -> str:
    """Return what is said of something that may not be read."""
    return f"permission denied (uid {os.geteuid()}); ask its owner to let you read it"

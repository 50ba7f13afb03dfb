"""What is not installed names what to install.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import contextlib
from collections.abc import Iterator

_PACKAGES = {"hypothesis", "pyfakefs", "pytest"}


@contextlib.contextmanager
def extra() -> Iterator[None]:
    """Import inside what is in the extra ``testing``: where it is missing, the error says so.

    Raises:
        ModuleNotFoundError: A package of the extra is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        text = f"No module named {error.name!r}: pip install 'shardproof[testing]'"
        raise ModuleNotFoundError(text, name=error.name) from error

"""What is not installed names what to install."""

import contextlib
from collections.abc import Iterator

_PACKAGES = {"hypothesis", "pyfakefs", "pytest"}


@contextlib.contextmanager
def extra() -> Iterator[None]:
    """Import inside what is in the extra ``testing``: where it is missing, the error says so."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        text = f"No module named {error.name!r}: pip install 'shardproof[testing]'"
        raise ModuleNotFoundError(text, name=error.name) from error

"""Directories at an address, such as in a bucket: listed once, then asked as any directory is."""

import contextlib
import os

from shardproof._base.addresses import is_address

__all__ = ["mounted"]


def mounted(path: str | os.PathLike[str]) -> contextlib.AbstractContextManager[str]:
    """List an address, and yield the path that it then is; yield any other path as it is.

    What is mounted already is not listed again. Raises a ManifestNotFoundError where nothing is, a
    ValueError where nothing can be listed, and an OSError (EIO) if the store could not be asked.
    """
    if not is_address(path):
        return contextlib.nullcontext(os.fspath(path))
    from shardproof.remote._directory import at_address  # noqa: PLC0415 - takes long

    return at_address(os.fspath(path))

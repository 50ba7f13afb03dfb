"""Directories at an address, such as in a bucket: listed once, then asked as any directory is."""

import contextlib
import os

from shardproof._base.addresses import is_address

__all__ = ["mounted"]


def mounted(path: str | os.PathLike[str]) -> contextlib.AbstractContextManager[str]:
    """List an address, and yield the path that it then is; yield any other path as it is.

    Within the block the functions of `_base.opening` and `_base.names` answer for that path, in
    this thread and in those that work for it. What is mounted already is not listed again.

    Raises:
        ManifestNotFoundError: Nothing is there.
        ValueError: An address whose files can't be listed.
        OSError: The store could not be asked (EIO); the cause says why.
    """
    text = os.fspath(path)
    if not is_address(text):
        return contextlib.nullcontext(text)
    from shardproof.remote._mounted import at_address  # noqa: PLC0415 - takes long

    return at_address(text)

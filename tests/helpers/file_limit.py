"""A real disk that takes no more: a limit of the kernel's on the size of files."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

__all__ = ["no_file_above"]


@contextmanager
def no_file_above(n_bytes: int) -> Iterator[None]:
    """Let this process write no file beyond a size (setrlimit(2))."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with mock.patch.object(sys, "dont_write_bytecode", True):
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

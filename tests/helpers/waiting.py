"""Wait until something is so, for a minute at most; look at a directory that changes meanwhile."""

import fnmatch
import os
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["files_below", "until"]


def until(condition: Callable[[], object]) -> None:
    """Return as soon as a condition holds; it is asked each millisecond."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(1e-3)


def files_below(directory: Path, pattern: str) -> list[Path]:
    """List the files whose path below a directory ends as a pattern says."""
    paths = [Path(top, name) for top, _, names in os.walk(directory) for name in names]
    return [path for path in paths if fnmatch.fnmatch(f"/{path}", f"*/{pattern}")]

"""A process that swaps something for a stand-in and back, as fast as it can."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SWAPPER = """
import os, sys
place, kept, stand_in = sys.argv[1:]
is_there = os.path.lexists(place)
print(flush=True)
while True:
    is_there and os.rename(place, kept)
    os.rename(stand_in, place)
    os.rename(place, stand_in)
    is_there and os.rename(kept, place)
"""


@contextlib.contextmanager
def swapping(place: Path, base: Path) -> Iterator[None]:
    """Swap as fast as a process of its own can."""
    arguments = [place, base / "kept", base / "stand-in"]
    with subprocess.Popen(
        [sys.executable, "-c", SWAPPER, *map(str, arguments)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()

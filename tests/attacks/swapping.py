"""Something is swapped for a stand-in: before a call of who looks, or as fast as a process can."""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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


class Steps:
    """Counts calls of the system, and does something before some of them."""

    def __init__(self, patch, calls, before) -> None:
        self.n, self._before, self._is_busy = 0, before, False
        for name in calls:
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, real: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(real)
        def call(*args: Any, **keywords: Any) -> object:
            if not self._is_busy:
                self._is_busy = True
                try:
                    self._before.get(self.n, lambda: None)()
                    self.n += 1
                finally:
                    self._is_busy = False
            return real(*args, **keywords)

        return call


def n_steps(subject, calls, monkeypatch) -> int:
    with monkeypatch.context() as patch:
        steps = Steps(patch, calls, {})
        subject()
    return steps.n

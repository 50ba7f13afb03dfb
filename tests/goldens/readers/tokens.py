"""Tokens, and other arrays of numbers."""

from collections.abc import Iterable
from pathlib import Path

from ._readers import reader


@reader("npy", "npy-templar")
def npy(root: Path) -> Iterable[object]:
    import numpy as np

    for path in sorted(root.glob("*.npy")):
        yield from np.atleast_1d(np.load(path)).tolist()

"""Shards of tokens for tests, written by numpy and hashlib alone."""

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt


def ids_of(tokens: npt.NDArray, length: int) -> npt.NDArray[np.uint64]:
    whole = tokens[: len(tokens) // length * length].reshape(-1, length)
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in whole]
    return np.frombuffer(b"".join(digests), "<u8").copy()


def write_shard(path, index, tokens, length=4, names=("train", "sample_ids")) -> tuple[Path, Path]:
    """Write both files of a shard, and return their paths."""
    path.mkdir(exist_ok=True)
    files = tuple(path / f"{name}_{index:06d}.npy" for name in names)
    np.save(files[0], tokens)
    np.save(files[1], ids_of(tokens, length))
    return files[0], files[1]

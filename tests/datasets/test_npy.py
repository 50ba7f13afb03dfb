"""Headers of .npy files: every one that a pattern lets through, numpy understands."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from shardproof.datasets.tokens import _npy

DESCRS = ["".join(parts) for parts in itertools.product(("", *"<>|="), "iufbcSO", "1248")]
NUMBERS = {"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"}


@pytest.mark.parametrize("descr", DESCRS)
def test_a_header_is_read_as_numpy_reads_it_or_refused(descr: str, tmp_path: Path) -> None:
    """``<f1`` was a TypeError of numpy's."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (4,), }}\n".encode()
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)
    fd = os.open(path, os.O_RDONLY)
    try:
        if descr.lstrip("<>|=") in NUMBERS:
            assert _npy.read_header(fd).dtype == np.dtype(descr)
        else:
            with pytest.raises(_npy.HeaderError, match="type of numbers"):
                _npy.read_header(fd)
    finally:
        os.close(fd)

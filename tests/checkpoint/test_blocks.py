"""Bytes that are put in any pieces come into a file in whole blocks, each where it belongs."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof.checkpoint.save import _shard_writer

BLOCK = 64
DATA = bytes(range(256)) * 16


@pytest.fixture(scope="module", autouse=True)
def _small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_shard_writer, "BLOCK_BYTES", BLOCK)
        yield


@given(st.lists(st.integers(0, 200), max_size=12), st.one_of(st.integers(1, 100), st.just(10_000)))
def test_the_same_bytes_in_whole_blocks(tmp_path_factory, sizes: list[int], most: int) -> None:
    """Also where the system takes fewer bytes than it is given."""
    path = tmp_path_factory.mktemp("blocks") / "x"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    begun, real = [], os.write

    def write(fd: int, data: memoryview) -> int:
        begun.append((os.lseek(fd, 0, os.SEEK_CUR), len(data)))
        return real(fd, data[:most])

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "write", write)
            blocks, at = _shard_writer.BlockWriter(fd, str(path)), 0
            for size in sizes:
                blocks.put(memoryview(DATA)[at : at + size])
                at += size
            n_whole = at // BLOCK * BLOCK
            assert path.read_bytes() == DATA[:n_whole]
            blocks.flush()
            assert path.read_bytes() == DATA[:at]
            blocks.begin_with(b"header")
            assert path.read_bytes()[:6] == b"header"
    finally:
        os.close(fd)
    if most > sum(sizes):  # nothing was taken in part
        in_blocks = [start for start, size in begun if start < n_whole and size >= BLOCK]
        assert all(start % BLOCK == 0 for start in in_blocks)

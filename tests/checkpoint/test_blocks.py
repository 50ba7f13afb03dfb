"""The bytes of tensors come into a file in whole blocks, each where it belongs."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof.checkpoint import MultiShardLoader, MultiShardSaver
from shardproof.checkpoint.save import _shard_writer
from tests.helpers.drawing import examples

BLOCK = 256


@examples(30)
@given(st.lists(st.integers(0, 700), max_size=12), st.one_of(st.integers(1, 100), st.just(10_000)))
def test_the_same_bytes_in_whole_blocks(tmp_path_factory, sizes: list[int], most: int) -> None:
    """Also where the system takes fewer bytes than it is given."""
    prefix = tmp_path_factory.mktemp("blocks") / "x"
    arrays = {
        str(n): np.resize(np.arange(251, dtype=np.uint8), size) for n, size in enumerate(sizes)
    }
    begun, real = [], os.pwrite

    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        begun.append((offset, len(data)))
        return real(fd, data[:most], offset)

    saver = MultiShardSaver(sync=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_shard_writer, "BLOCK_BYTES", BLOCK)
        patch.setitem(_shard_writer._PIECE_BYTES, "sha256", 2 * BLOCK)
        patch.setattr(_shard_writer, "_WRITTEN_BYTES", 4 * BLOCK)
        patch.setattr(os, "pwrite", pwrite)
        size = Path(saver.save_shard(prefix, 0, arrays)).stat().st_size
    saver.save_metadata(prefix, world_size=1)
    loaded = MultiShardLoader().load_shard(prefix, 0)
    assert {name: array.tobytes() for name, array in loaded.items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }
    if most > size:  # nothing was taken in part
        *blocks, rest = sorted(begun[:-1])
        header = begun[-1]
        assert all(start % BLOCK == n_bytes % BLOCK == 0 for start, n_bytes in blocks)
        assert (rest[0] % BLOCK, sum(rest), header[0]) == (0, size, 0)

"""What is packed as a whole: whole files have no finding, and a cut is one, as far as it tells."""

import bz2
import gzip
import lzma
import random
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof.manifest import Mismatch
from shardproof.probes import packed
from tests.helpers.drawing import examples
from tests.probes.probing import asked

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: pa.Codec("zstd").compress(data).to_pybytes(),
}
TEXTS = {
    "nothing": b"",
    "a byte": b"x",
    "zeros": bytes(300_000),
    "noise": random.Random(7).randbytes(300_000),
    "text": b" ".join(b"%d" % n for n in range(40_000)),
}
SURE = ["bzip2", "xz", "zstd"]
"""A cut is always seen: for bzip2 and xz up to one in many millions."""


def look(kind: str, data: bytes) -> Mismatch | None:
    return asked(lambda read, size: packed.probe(kind, read, size), data)


@pytest.mark.parametrize("what", TEXTS)
@pytest.mark.parametrize("kind", PACK)
def test_whole_ones(kind: str, what: str) -> None:
    data = PACK[kind](TEXTS[what])
    assert look(kind, data) is None
    assert packed.kind_of(data[: packed.HEAD_BYTES]) == (None if kind == "zlib" else kind)


@pytest.mark.parametrize("what", TEXTS)
@pytest.mark.parametrize("kind", PACK)
def test_cuts(kind: str, what: str) -> None:
    data = PACK[kind](TEXTS[what])
    if kind not in SURE and len(data) > 2**16:
        return
    step = max(1, len(data) // 50)
    assert [cut for cut in range(1, len(data), step) if look(kind, data[:cut]) is None] == []


def test_streams_that_follow_one_another() -> None:
    for kind in ("gzip", "zstd"):
        one = PACK[kind](b"x" * 999)
        assert look(kind, one * 3) is None
        assert look(kind, one * 3 + one[:-1]) is not None
    assert look("gzip", PACK["gzip"](b"x") + bytes(10**5)) is None
    skipped = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"12345"
    assert look("zstd", skipped + PACK["zstd"](b"x")) is None
    assert look("zstd", PACK["zstd"](b"x") + skipped) is None
    assert look("zstd", PACK["zstd"](b"")) is None
    assert look("zstd", skipped) is not None, "it holds nothing"
    assert look("zstd", skipped * 2) is not None


@examples(200)
@given(st.sampled_from([*PACK]), st.binary(max_size=300), st.data())
def test_any_bytes_have_an_answer(kind: str, noise: bytes, data) -> None:
    whole = PACK[kind](b"some text" * 9)
    found = look(kind, whole[: data.draw(st.integers(0, len(whole)))] + noise)
    assert found is None or isinstance(found, Mismatch)

"""GGUF: what writers write is sound, what is cut or lies is told, and nothing makes it fail."""

import struct
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof._base.opening import Descriptor
from shardproof.formats.weights import GGUF as FORMAT
from shardproof.manifest import ExpectedFile
from shardproof.probes.gguf import probe
from tests.formats.looking import found_in, named, of_golden
from tests.goldens import golden
from tests.helpers.drawing import examples

WRITTEN = (golden("gguf").path / "model.gguf").read_bytes()
look = partial(named, FORMAT)

Tensor = tuple[str, Sequence[int], int, int]  # name, shape, type, offset


def text(value: str, order: str = "<") -> bytes:
    return struct.pack(f"{order}Q", len(value)) + value.encode()


def gguf(
    tensors: Sequence[Tensor] = (),
    keys: Mapping[str, tuple[int, Any]] = {},
    n_bytes: int = 0,
    *,
    version: int = 3,
    order: str = "<",
) -> bytes:
    codes = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
    made = b"GGUF" + struct.pack(f"{order}IQQ", version, len(tensors), len(keys))
    for key, (kind, value) in keys.items():
        made += text(key, order) + struct.pack(f"{order}I", kind)
        made += value if isinstance(value, bytes) else struct.pack(order + codes[kind], value)
    for name, shape, kind, offset in tensors:
        made += text(name, order) + struct.pack(f"{order}I{len(shape)}Q", len(shape), *shape)
        made += struct.pack(f"{order}IQ", kind, offset)
    _, alignment = keys.get("general.alignment", (4, 32))
    return made + bytes(-len(made) % abs(alignment)) + bytes(n_bytes)


def said(tmp_path: Path, data: bytes, name: str = "model.gguf") -> list[tuple[str, str]]:
    (tmp_path / name).write_bytes(data)
    found = [(expected, there) for _, _, expected, there in look(tmp_path)]
    (tmp_path / name).unlink()
    return found


F32, Q4_0, UNKNOWN = 0, 2, 999
TENSORS = [("a", (32, 2), F32, 0), ("b", (64,), Q4_0, 256)]  # of 256 and of 36 bytes
NESTED = struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 9, 1) * 9
OF_ARRAYS = struct.pack("<IQ", 9, 2) + struct.pack("<IQ2H", 2, 2, 1, 2) + struct.pack("<IQ", 0, 0)
SOUND = {
    "as written": gguf(TENSORS, n_bytes=256 + 36),
    "the last filled up": gguf(TENSORS, n_bytes=256 + 64),
    "aligned otherwise": gguf(TENSORS, {"general.alignment": (4, 64)}, 256 + 36),
    "a vocabulary alone": gguf(keys={"a": (9, struct.pack("<IQ", 8, 2) + text("x") + text("y"))}),
    "no keys": gguf([("a", (0,), F32, 0)]),
    "a scalar": gguf([("a", (), F32, 0)], n_bytes=4),
    "an array of arrays": gguf(TENSORS, {"a": (9, OF_ARRAYS)}, 256 + 36),
    "big-endian": gguf(TENSORS, {"a": (2, 7)}, 256 + 36, order=">"),
    "of version 2": gguf(TENSORS, n_bytes=256 + 36, version=2),
    "of a version to come": gguf(TENSORS, version=9),
    "of version 1": b"GGUF" + struct.pack("<III", 1, 1, 1),
    "of a type to come": gguf([("a", (4,), UNKNOWN, 0)]),
    "numbers and texts": gguf(
        TENSORS,
        {
            "a": (12, 1.5),
            "b": (7, True),
            "c": (8, text("x")),
            "d": (9, struct.pack("<IQ3H", 2, 3, 1, 2, 3)),
        },
        256 + 36,
    ),
}


@pytest.mark.parametrize("what", SOUND)
def test_what_is_sound(tmp_path: Path, what: str) -> None:
    assert said(tmp_path, SOUND[what]) == []


ALIGNED = text("general.alignment") + struct.pack("<Id", 12, 32.5)
HOSTILE = {
    "no magic": b"GGML" + WRITTEN[4:],
    "nothing behind the magic": b"GGUF",
    "no end of tensors": b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0) + bytes(99),
    "no end of keys": b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63) + bytes(99),
    "a name without end": b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 2**63) + bytes(99),
    "an array without end": gguf(keys={"a": (9, struct.pack("<IQ", 0, 2**63))}),
    "texts without end": gguf(keys={"a": (9, struct.pack("<IQ", 8, 2**63))}),
    "arrays in arrays": gguf(keys={"a": (9, NESTED)}),
    "arrays in more arrays": gguf(keys={"a": (9, NESTED + struct.pack("<IQB", 0, 1, 1))}),
    "a value of no type": gguf(keys={"a": (99, b"")}),
    "no alignment": gguf(TENSORS, {"general.alignment": (5, -32)}, 999),
    "an alignment that is no number": gguf(TENSORS, n_bytes=999).replace(
        struct.pack("<QQ", 2, 0), struct.pack("<QQ", 2, 1) + ALIGNED, 1
    ),
    "dimensions without end": gguf([("a", (1,) * 9, F32, 0)]),
    "a shape beyond all": gguf([("a", (2**63,) * 4, F32, 0)]),
    "an offset beyond all": gguf([("a", (1,), F32, 2**63)]),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_header_that_lies(tmp_path: Path, what: str) -> None:
    assert len(said(tmp_path, HOSTILE[what])) == 1


@pytest.mark.parametrize("n_bytes", [1, 32, 100, 700, 2000])
def test_a_file_that_is_cut(tmp_path: Path, n_bytes: int) -> None:
    assert len(said(tmp_path, WRITTEN[: -26 - n_bytes])) == 1  # what fills it up is not missed


def test_a_file_that_is_longer(tmp_path: Path) -> None:
    assert said(tmp_path, WRITTEN) == []
    assert len(said(tmp_path, WRITTEN + bytes(32))) == 1


def test_the_header_of_a_large_vocabulary_is_read_too(tmp_path: Path) -> None:
    words = b"".join(text(f"word {n}") for n in range(20_000))
    keys = {"tokens": (9, struct.pack("<IQ", 8, 20_000) + words)}
    whole = gguf(TENSORS, keys, 256 + 36)
    assert len(whole) > 2**16
    assert said(tmp_path, whole) == []
    assert said(tmp_path, whole[:-1]) != []
    assert said(tmp_path, whole[: 2**17]) != []


def test_parts_that_are_missing_or_elsewhere(tmp_path: Path) -> None:
    path = of_golden("gguf-parts", tmp_path)
    one, two, three = sorted(path.iterdir())
    assert found_in(path, "valid") == []
    two.rename(path / "x")
    three.rename(two)
    (path / "x").rename(three)
    expected = [("part 2 of 3", "part 3 of 3"), ("part 3 of 3", "part 2 of 3")]
    assert [each[2:] for each in look(path)] == expected
    for gone in (one, three):
        gone.unlink()
    assert found_in(path, "present") == [("missing", one.name), ("missing", three.name)]


@given(data=st.data())
@examples(200)
def test_no_header_makes_it_fail(data: st.DataObject) -> None:
    broken = bytearray(WRITTEN)
    for _ in range(data.draw(st.integers(1, 6))):
        broken[data.draw(st.integers(4, 900))] = data.draw(st.integers(0, 255))
    del broken[data.draw(st.integers(8, len(broken))) :]
    with tempfile.TemporaryFile() as file:
        file.write(broken)
        file.flush()
        probe(ExpectedFile(name="model.gguf"), Descriptor(file.fileno()), len(broken))

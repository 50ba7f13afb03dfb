"""Models of ONNX, whose tensors may be in files beside them: by bytes made here, and by onnx."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof import ManifestNotFoundError, formats, validate
from tests.formats.looking import found_in, of_golden, said_of


def varint(number: int) -> bytes:
    low, high = number & 127, number >> 7
    return bytes([low]) if not high else bytes([low | 128]) + varint(high)


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(**entries: object) -> bytes:
    texts = [
        field(1, key.encode()) + field(2, str(value).encode()) for key, value in entries.items()
    ]
    return field(14, 1) + b"".join(field(13, text) for text in texts)


def model(graph: bytes = b"", more: bytes = b"") -> bytes:
    return field(1, 8) + field(7, graph) + field(8, field(2, 20)) + more


ELSEWHERE = tensor(location="w.bin", offset=4096, length=100)
ATTRIBUTES = {5: ELSEWHERE, 10: ELSEWHERE, 22: field(1, ELSEWHERE), 23: field(2, ELSEWHERE)}
ATTRIBUTES |= {number: field(5, ELSEWHERE) for number in (6, 11)}
PLACES = {
    "initializer": model(field(5, ELSEWHERE)),
    "sparse": model(field(15, field(1, ELSEWHERE))),
    "training": model(more=field(20, field(2, field(5, ELSEWHERE)))),
    **{
        f"attribute {number}": model(field(1, field(5, field(number, value))))
        for number, value in ATTRIBUTES.items()
    },
    "function": model(more=field(25, field(7, field(5, field(5, ELSEWHERE))))),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_tensor_elsewhere_is_found_wherever_it_is(tmp_path: Path, place: str) -> None:
    (tmp_path / "m.onnx").write_bytes(PLACES[place])
    assert found_in(tmp_path, "present") == [("missing", "w.bin")]
    (tmp_path / "w.bin").write_bytes(bytes(4195))
    assert said_of(tmp_path) == [("4196 bytes or more, for the tensors in it", "4195 bytes")]
    (tmp_path / "w.bin").write_bytes(bytes(4500))  # who saves twice, has them twice
    assert validate(tmp_path, level="complete").ok


DEEP = b""
for _level in range(60):
    DEEP = field(1, field(5, field(6, DEEP)))

BROKEN: dict[str, bytes] = {
    "nothing of a model": b"x" * 30,
    "cut in the graph": model(field(5, bytes(500)))[:300],
    "cut after the graph": field(1, 8) + field(7, b""),
    "without a graph": field(1, 8) + field(8, b""),
    "zeros behind": model() + bytes(9),
    "a group": model() + b"\x0b",
    "a length of too many": model() + b"\x12" + b"\xff" * 11,
    "deep": model(DEEP),
    "no place": model(field(5, tensor(offset=0))),
    "a negative one": model(field(5, tensor(location="w", offset=-5))),
    "one of another script": model(field(5, tensor(location="w", length="٣"))),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("level", ["present", "complete"])
def test_what_is_no_model_is_a_finding_at_every_level(
    tmp_path: Path, what: str, level: Any
) -> None:
    """What it lists is unknown; others are looked at, and it is told once."""
    (tmp_path / "a.onnx").write_bytes(model(field(5, ELSEWHERE)))
    (tmp_path / "b.onnx").write_bytes(BROKEN[what])
    found = found_in(tmp_path, level)
    assert sorted(found) == [("missing", "w.bin"), ("structure", "b.onnx")]


@pytest.mark.parametrize("name", ["../w.bin", "/etc/passwd", "a\nb"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "m.onnx").write_bytes(model(field(5, tensor(location=name))))
    [finding] = validate(tmp_path).findings
    assert finding.is_of_entry
    assert "\n" not in finding.found


def test_a_model_with_hostile_numbers_of_fields_ends(tmp_path: Path) -> None:
    data = model(b"\x08\0" * 2**16)
    (tmp_path / "m.onnx").write_bytes(data)
    assert validate(tmp_path, level="complete").ok
    (tmp_path / "m.onnx").write_bytes(model(field(5, tensor(location="./w.bin", length=2**80))))
    assert found_in(tmp_path) == [("missing", "w.bin")]


def test_a_directory_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ManifestNotFoundError, match=r"expected files \(\*.onnx\), found none"):
        formats.get("onnx").read_manifest(str(tmp_path))


def test_weights_that_lie_beside_safetensors_are_those_of_the_model(tmp_path: Path) -> None:
    path = of_golden("safetensors", tmp_path)
    (path / "model.onnx").write_bytes(model())
    assert formats.detect(str(path)).name == "safetensors"


def built(onnx: Any) -> Any:
    """A model with tensors in all places: attributes, branches, sparse ones, functions."""
    helper, of_array = onnx.helper, onnx.numpy_helper.from_array
    value = of_array(np.ones(400, "f4"), "v")
    constant = helper.make_node("Constant", [], ["c"], value=value)
    inner = helper.make_graph([constant], "inner", [], [])
    branch = helper.make_node("If", ["b"], ["z"], then_branch=inner, else_branch=inner)
    sparse = helper.make_sparse_tensor(value, of_array(np.arange(400), "i"), [900])
    weights = [of_array(np.full(300, n, "f4"), f"w{n}") for n in range(3)]
    graph = helper.make_graph([constant, branch], "g", [], [], weights, sparse_initializer=[sparse])
    function = helper.make_function("d", "F", [], ["c"], [constant], [helper.make_opsetid("", 20)])
    return helper.make_model(graph, functions=[function])


SAVES: dict[str, tuple[dict[str, Any], int]] = {
    "inside": ({}, 1),
    "one file": ({"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}, 2),
    "a file each": (
        {"save_as_external_data": True, "all_tensors_to_one_file": False, "size_threshold": 0},
        4,
    ),
    "attributes": (
        {
            "save_as_external_data": True,
            "location": "w.bin",
            "size_threshold": 0,
            "convert_attribute": True,
        },
        2,
    ),
}


@pytest.mark.parametrize("how", SAVES)
def test_sound_models(tmp_path: Path, how: str) -> None:
    onnx = pytest.importorskip("onnx")
    options, n_files = SAVES[how]
    save: Callable[..., None] = onnx.save
    save(built(onnx), tmp_path / "model.onnx", **options)
    report = validate(tmp_path, level="valid", strict=True)
    assert (report.ok, report.n_files) == (True, n_files), str(report)
    files = [path for path in tmp_path.iterdir() if path.suffix != ".onnx"]
    for path in files:
        os.truncate(path, path.stat().st_size - 1)
    assert sorted(found_in(tmp_path)) == sorted(("structure", path.name) for path in files)

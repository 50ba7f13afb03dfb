"""Models in safetensors: what libraries write is sound; what is missing or elsewhere is told."""

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats.weights import SAFETENSORS as FORMAT
from shardproof.testing.samples._states import ShardState
from tests.formats import looking
from tests.formats.looking import contract

INDEX = "model.safetensors.index.json"
DAMAGED = [
    *(ShardState.EMPTY, ShardState.UNREADABLE, ShardState.DIRECTORY, ShardState.DANGLING),
    *(ShardState.LOOP, ShardState.OUTSIDE, ShardState.FIFO, ShardState.SOCKET),
    *(ShardState.TRUNCATED, ShardState.SPARSE),
]


def name_of(index: int, n_files: int, stem: str = "model") -> str:
    return f"{stem}-{index + 1:05}-of-{n_files:05}.safetensors"


def tensors_of(index: int) -> dict[str, Any]:
    return {f"layers.{index}.{each}": np.full(4, index, "f4") for each in ("weight", "bias")}


def put(path: Path, tensors: Mapping[str, Any], metadata: dict[str, str] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(dict(tensors), path, metadata)
    return path


def put_index(path: Path, weight_map: Mapping[str, str], total_size: Any = 96) -> Path:
    path.write_text(json.dumps({"metadata": {"total_size": total_size}, "weight_map": weight_map}))
    return path


def put_model(folder: Path, n_files: int = 3, stem: str = "model", index: str = INDEX) -> Path:
    weight_map = {}
    for i in range(n_files):
        put(folder / name_of(i, n_files, stem), tensors_of(i), {"format": "pt"})
        weight_map |= dict.fromkeys(tensors_of(i), name_of(i, n_files, stem))
    put_index(folder / index, weight_map)
    return folder


found = partial(looking.found, FORMAT)


def promised(path: Path) -> list[str]:
    return [file.name for file in FORMAT.read_manifest(os.path.realpath(path)).files]


class TestFormat(contract(FORMAT, INDEX, lambda n, base: put_model(base, n), "*.safetensors")):
    def test_a_missing_manifest_is_refused(self, form: Any, root: Path) -> None:
        """Only where there are no files either: else their names are the promise."""
        (root / INDEX).unlink()
        names = [file.name for file in form.read_manifest(str(root)).files]
        several = [INDEX] if len(names) > 1 else []
        assert names == [path.name for path in self.shard_files(root)] + several
        for path in self.shard_files(root):
            path.unlink()
        with pytest.raises(ManifestNotFoundError, match="no file of safetensors, and no index"):
            form.read_manifest(str(root))

    @pytest.mark.parametrize("state", DAMAGED, ids=str)
    def test_a_damaged_manifest_is_refused(self, form: Any, root: Path, state: ShardState) -> None:
        """Not one whose name is no index's: then it is missing."""
        super().test_a_damaged_manifest_is_refused(form, root, state)

    def test_twins_are_refused(self, form: Any, root: Path) -> None:
        """But each file is named as often as it has tensors."""
        for twin in ("MODEL-00001-of-00003.safetensors", "\u212aa", "e\u0301"):
            names = [name_of(0, 3), "ka", "\u00e9", twin]
            put_index(root / INDEX, dict(zip("abcd", names, strict=True)))
            assert str(root / INDEX) in self.refused(form, root).text


def test_a_tensor_that_is_elsewhere_is_told(tmp_path: Path) -> None:
    model = put_model(tmp_path / "model")
    for index in (0, 1):
        put(model / name_of(index, 3), tensors_of(1 - index))
    told = "0 of the 2 that the index names"
    assert found(model) == [
        ("structure", name_of(index, 3), f"the tensor 'layers.{index}.weight'", told)
        for index in (0, 1)
    ]


def test_a_tensor_that_another_stands_for_may_be_left_out(tmp_path: Path) -> None:
    """As the Hub's converter does, which keeps the names of both in the index."""
    put(tmp_path / "model.safetensors", {"embed": np.ones(4)}, {"format": "pt", "head": "embed"})
    put_index(tmp_path / INDEX, {"embed": "model.safetensors", "head": "model.safetensors"})
    assert found(tmp_path) == []
    put(tmp_path / "model.safetensors", {"embed": np.ones(4)}, {"format": "pt"})
    told = ("the tensor 'head'", "1 of the 2 that the index names")
    assert found(tmp_path) == [("structure", "model.safetensors", *told)]


@pytest.mark.parametrize("total_size", [0, 10**12, 1.2e10, "96", None])
def test_the_size_that_an_index_states_proves_nothing(tmp_path: Path, total_size: Any) -> None:
    """Libraries write those of the files, of the model before it was converted, and others."""
    model = put_model(tmp_path / "model")
    index = json.loads((model / INDEX).read_text())
    put_index(model / INDEX, index["weight_map"], total_size)
    assert found(model) == []


def test_several_indices_are_promises_of_one_directory(tmp_path: Path) -> None:
    model = put_model(tmp_path / "model")
    variant = "diffusion_pytorch_model.fp16"
    put_model(model, 2, variant, "diffusion_pytorch_model.safetensors.index.fp16.json")
    put_model(model, 1, "consolidated", "consolidated.safetensors.index.json")
    assert len(promised(model)) == 6
    (model / name_of(1, 2, variant)).unlink()
    assert [finding[:2] for finding in found(model)] == [("missing", name_of(1, 2, variant))]


def test_files_beside_an_index_are_proven_each_for_itself(tmp_path: Path) -> None:
    """Of a set that was left over nothing is missed."""
    model = put_model(tmp_path / "model")
    put(model / name_of(0, 9), tensors_of(7))
    put(model / "adapter_model.safetensors", tensors_of(8))
    (model / "._model.safetensors").write_bytes(b"\0\5\x16\7")
    assert found(model) == []
    os.truncate(model / "adapter_model.safetensors", 20)
    assert [finding[:2] for finding in found(model)] == [("structure", "adapter_model.safetensors")]


def test_without_an_index_numbers_tell_what_is_missing(tmp_path: Path) -> None:
    model = put_model(tmp_path / "model")
    (model / INDEX).unlink()
    index = ("missing", INDEX)  # who writes several files writes it last
    assert [finding[:2] for finding in found(model)] == [index]
    (model / name_of(2, 3)).unlink()
    assert [finding[:2] for finding in found(model)] == [("missing", name_of(2, 3)), index]
    put(model / "model-00004-of-00003.safetensors", tensors_of(3))
    assert ("structure", "model-00004-of-00003.safetensors") in [f[:2] for f in found(model)]


@pytest.mark.parametrize("stem", ["model", "diffusion_pytorch_model"])
def test_each_folder_of_a_pipeline_has_an_index_of_its_own(tmp_path: Path, stem: str) -> None:
    put_model(tmp_path / "unet", 2, stem, f"{stem}.safetensors.index.json")
    put_model(tmp_path / "vae", 2, stem, f"{stem}.safetensors.index.json")
    put(tmp_path / "vae" / name_of(0, 2, "other"), tensors_of(0))
    (tmp_path / "model_index.json").write_text("{}")
    assert found(tmp_path) == []
    (tmp_path / f"unet/{stem}.safetensors.index.json").unlink()
    owed = ("missing", f"unet/{stem}.safetensors.index.json")
    assert [finding[:2] for finding in found(tmp_path)] == [owed]


def test_a_pipeline_has_its_models_in_folders(tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline"
    put_model(pipeline / "transformer", 2, "d", "d.safetensors.index.json")
    put(pipeline / "vae/model.safetensors", tensors_of(5))
    put(pipeline / ".cache/model.safetensors", {})
    (pipeline / "scheduler").mkdir()
    with pytest.raises(ManifestNotFoundError):
        FORMAT.read_manifest(str(pipeline))
    (pipeline / "model_index.json").write_text("{}")
    assert FORMAT.recognizes(str(pipeline))
    assert promised(pipeline) == [
        *(f"transformer/{name_of(i, 2, 'd')}" for i in range(2)),
        "vae/model.safetensors",
    ]
    assert found(pipeline) == []
    (pipeline / "transformer" / name_of(1, 2, "d")).unlink()
    os.truncate(pipeline / "vae/model.safetensors", 99)
    missing = ("missing", f"transformer/{name_of(1, 2, 'd')}")
    told = [finding[:2] for finding in found(pipeline)]
    assert told == [missing, ("structure", "vae/model.safetensors")]
    for name in ("../../model.safetensors", "/etc/passwd", "../x"):  # nothing is outside
        put_index(pipeline / "vae" / INDEX, {"a": name})
        with pytest.raises(ManifestError):
            FORMAT.read_manifest(str(pipeline))

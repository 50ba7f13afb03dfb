"""Every block of the pages "I have ..." does what the page shows."""

import shutil
from pathlib import Path

import pytest

from tests.formats.damage_table import POINTER
from tests.goldens import golden
from tests.helpers import ROOT
from tests.helpers.pages import Scene, as_shown

PAGES = sorted((ROOT / "docs" / "have").glob("*.md"))

PLACES = {
    "hub/models--org--tiny": "hf-cache",
    "model": "safetensors-sharded",
    "rows": "parquet-plain",
    "mds": "mds-hashed",
    "tars": "webdataset-tar",
    "lines": "json-lines-gz",
    "model-bin": "torch-bin",
    "step_100": "torch-dcp",
    "h5": "hdf5",
    "cube.zarr": "zarr-3",
    "net": "onnx-external",
    "tokens": "nanogpt",
    "bag": "bagit",
    "tracked": "dvc",
}


@pytest.fixture
def data(scene: Scene) -> Path:
    to = scene.root / "data"
    for place, name in PLACES.items():
        shutil.copytree(golden(name).path, to / place, symlinks=True)
        if "/" not in place:
            shutil.copytree(golden(name).path, to / f"{place}-backup", symlinks=True)
    snapshots = to / "hub/models--org--tiny/snapshots"
    [commit] = snapshots.iterdir()
    shutil.copytree(commit, to / "backup")
    (to / "pointer").write_bytes(POINTER)
    (to / "files").mkdir()
    for name in "ab":
        (to / f"files/{name}.bin").write_bytes(name.encode() * 100)
    return to


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_block_prints_what_the_page_shows(page: Path, data: Path, scene, pytestconfig) -> None:
    if "blake3" in page.read_text():
        pytest.importorskip("blake3")
    as_shown(page, scene, pytestconfig)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_is_one_screen(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 60

"""Every command of the pages "I have ..." does what the page shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.formats.damage_table import POINTER
from tests.goldens import golden
from tests.helpers import ROOT

PAGES = sorted((ROOT / "docs" / "have").glob("*.md"))

PLACES = {
    "hub/models--org--tiny": "hf-cache",
    "model": "safetensors-sharded",
    "rows": "parquet-plain",
    "mds": "mds-hashed",
    "tars": "webdataset-tar",
    "step_100": "torch-dcp",
    "bag": "bagit",
    "tracked": "dvc",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for place, name in PLACES.items():
        shutil.copytree(golden(name).path, tmp_path / place, symlinks=True)
        if "/" not in place:
            shutil.copytree(golden(name).path, tmp_path / f"{place}-backup", symlinks=True)
    snapshots = tmp_path / "hub/models--org--tiny/snapshots"
    [commit] = snapshots.iterdir()
    shutil.copytree(commit, tmp_path / "backup")
    (tmp_path / "pointer").write_bytes(POINTER)
    (tmp_path / "files").mkdir()
    for name in "ab":
        (tmp_path / f"files/{name}.bin").write_bytes(name.encode() * 100)
    return tmp_path


def commands(page: Path) -> list[tuple[str, str]]:
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    parts = (
        part.partition("\n") for block in blocks for part in re.split(r"(?m)^\$ ", block) if part
    )
    return [(command, output.rstrip("\n")) for command, _, output in parts]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, marks=getattr(pytest.mark, "slow" if page.stem == "mds" else "exhaustive")
        )
        for page in PAGES
    ],
    ids=lambda page: page.stem,
)
def test_each_command_prints_what_the_page_shows(page: Path, data: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert commands(page)
    for command, output in commands(page):
        if "blake3" in command:
            pytest.importorskip("blake3")
        [commit] = (data / "hub/models--org--tiny/snapshots").iterdir()
        told = command.replace("snapshots/main/", f"snapshots/{commit.name}/")
        done = subprocess.run(
            ["sh", "-c", told],
            cwd=data,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
        )
        said = (done.stdout + done.stderr).replace(str(data.resolve()), "/data").rstrip("\n")
        assert said == output, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_python_runs(page: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    if page.stem == "any-files":
        (data / "files/SHA256SUMS").write_text(f"{'0' * 64}  a.bin\n")
    monkeypatch.chdir(data)
    exec(code, {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_is_one_screen_and_in_the_index(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 60
    assert f"have/{page.name}" in (ROOT / "docs/index.md").read_text()

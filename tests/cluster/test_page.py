"""The scripts of docs/distributed.md, as torchrun and mpiexec run them."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import shardproof
from tests.helpers import ROOT

BIN = Path(sys.executable).parent
TORCHRUN = [BIN / "torchrun", "--nproc-per-node", "3"]
MPIEXEC = [BIN / "mpiexec", "--allow-run-as-root", "--oversubscribe", "-n", "3"]


@pytest.fixture
def place(make_shards_dir, tmp_path) -> Path:
    """Where the page's scripts and their directories are."""
    page = (ROOT / "docs" / "distributed.md").read_text()
    for name, code in re.findall(r'```python title="([^"]+)"\n(.*?)```', page, re.DOTALL):
        (tmp_path / name).write_text(code)
    (tmp_path / "shards").symlink_to(make_shards_dir(9, layers=[11]))
    (tmp_path / "checkpoints").mkdir()
    shardproof.MultiShardSaver().save_shard(tmp_path / "checkpoints/model", 0, {"b": np.arange(3)})
    shardproof.MultiShardSaver().save_metadata(tmp_path / "checkpoints/model", world_size=1)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        [*TORCHRUN, "train.py"],
        [*TORCHRUN, "resume.py"],
        [*MPIEXEC, sys.executable, "-m", "mpi4py", "mpi_train.py"],
    ],
    ids=["train", "resume", "mpi_train"],
)
def test_a_script_of_the_page(command: Sequence[object], place: Path) -> None:
    done = subprocess.run(list(map(str, command)), cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_script_whose_directory_is_damaged_ends_with_an_error_on_each_rank(place: Path) -> None:
    (place / "shards" / "acts000002.bin").unlink()
    command = list(map(str, [*MPIEXEC, sys.executable, "-m", "mpi4py", "mpi_train.py"]))
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert done.returncode != 0
    assert "ShardValidationError: Shard validation failed in" in done.stderr

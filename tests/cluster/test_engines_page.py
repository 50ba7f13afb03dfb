"""The scripts of docs/engines.md, with their real engines."""

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from distributed import LocalCluster

from tests.helpers import ROOT
from tests.helpers.pages import BLOCK

TEXT = (ROOT / "docs/engines.md").read_text()
SCRIPTS = {b["title"]: b["text"] for b in BLOCK.finditer(TEXT) if b["title"]}
MPIEXEC = ["mpiexec", "--allow-run-as-root", "--oversubscribe", "-n", "3"]
LAUNCHERS = {"mpi_check.py": [*MPIEXEC, sys.executable, "-m", "mpi4py.futures"]}


@pytest.fixture
def address(request) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        if "dask" in request.node.name:
            options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
            yield stack.enter_context(LocalCluster(**options)).scheduler_address
        else:
            yield ""


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_the_page(name: str, address: str, tmp_path: Path) -> None:
    if name.startswith("ray"):
        pytest.importorskip("ray")
    launcher = LAUNCHERS.get(name, [sys.executable])
    if shutil.which(launcher[0]) is None:
        pytest.skip(f"there is no {launcher[0]} here")
    (tmp_path / "shards").mkdir()
    for i in range(5):
        np.save(tmp_path / "shards" / f"{i}.npy", np.arange(9))
    script = re.sub(r"tcp://[\w:]+", address, SCRIPTS[name])
    (tmp_path / name).write_text(script)
    done = subprocess.run(
        [*launcher, name], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-1]
    is_sealed = name == "dask_seal.py"
    expected = "5" if is_sealed else "valid: 0 proven, 5 without a digest"
    assert last.startswith(expected), done.stdout
